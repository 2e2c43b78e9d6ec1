import { expect, it } from 'vitest';
import { testApp } from '../support/test-app.ts';

it.each([1, 9_999, 10_001, 12_000])(
  'pages of %i claims have at most 10,000 claims, and together each claim once',
  async (count) => {
    const { app, model } = testApp();
    const keys = Array.from({ length: count }, (_, i) => `10.77.${i >> 8}.${i & 255}`);
    for (const key of keys)
      model.ipcache.upsert(key, { identity: 5, source: 'clustermesh', owner: 'caspian' });
    const found: string[] = [];
    let pages = 0;
    for (let next: number | undefined = 0; next !== undefined; pages++) {
      const answer = await app.request(
        `/v1/digest/${encodeURIComponent('clustermesh caspian')}?place=${next}-65535`,
      );
      expect(answer.status).toBe(200);
      const page = (await answer.json()) as { claims: readonly { key: string }[]; next?: number };
      expect(page.claims.length).toBeLessThanOrEqual(10_000);
      found.push(...page.claims.map(({ key }) => key.replace('/32', '')));
      next = page.next;
    }
    expect(found.filter((key) => key.startsWith('10.77.')).sort()).toEqual(keys.sort());
    expect(pages).toBe(count > 10_000 ? 2 : 1);
  },
);
