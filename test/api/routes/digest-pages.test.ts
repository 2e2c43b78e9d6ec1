import { expect, it, vi } from 'vitest';
import type { GroupDigestDocument } from '../../../src/api/digest-documents.ts';
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

it('a service that is too large for a page counts as one (regression: its texts were counted)', async () => {
  const { app, model } = testApp();
  const addresses = Array.from({ length: 100_000 }, (_, i) => `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`);
  const none = new Map();
  model.services.mergeExternalServiceUpdate({
    ...{
      cluster: 'caspian',
      namespace: 'shop',
      name: 'cart',
      clusterID: 4,
      includeExternal: true,
      shared: true,
    },
    ...{ frontends: none, hostnames: none, zones: none, labels: none, selector: none },
    backends: new Map(addresses.map((address) => [address, none])),
  });
  const path = `/v1/digest/${encodeURIComponent('services caspian')}`;
  const page = async (query: string): Promise<GroupDigestDocument> =>
    (await (await app.request(path + query)).json()) as GroupDigestDocument;
  const [place = ''] = Object.keys((await page('?bucket=0-255')).places ?? {});
  expect(await page(`?place=${place}`)).toMatchObject({
    documents: [],
    tooMany: { place: Number(place), claims: 1 },
  });
});

it('a group of claims is answered without the services, and the reverse (regression: each request read both)', async () => {
  const { app, model } = testApp();
  const services = vi.spyOn(model.services, 'states');
  const claims = vi.spyOn(model.ipcache, 'trackClaims');
  expect((await app.request('/v1/digest/services')).status).toBe(200);
  expect(claims).not.toHaveBeenCalled();
  services.mockClear();
  model.addService({ namespace: 'shop', name: 'basket' }, '172.16.1.9');
  expect((await app.request('/v1/digest/kvstore')).status).toBe(200);
  expect(services).not.toHaveBeenCalled();
  expect((await app.request('/v1/digest/services%20caspian')).status).toBe(404);
});

it('a page creates only its own documents (regression: each page created those of all services)', async () => {
  const { app, model } = testApp();
  for (let i = 0; i < 300; i++)
    model.addService({ namespace: 'shop', name: `s${i}` }, `172.17.${i >> 8}.${i & 255}`);
  const { places = {} } = (await (
    await app.request('/v1/digest/services?bucket=0-255')
  ).json()) as GroupDigestDocument;
  const place = Object.keys(places)[7];
  const created = vi.spyOn(model.services, 'restoredFrom');
  const page = (await (
    await app.request(`/v1/digest/services?place=${place}`)
  ).json()) as GroupDigestDocument;
  expect(page.documents).toHaveLength(created.mock.calls.length);
  expect(created.mock.calls.length).toBeLessThan(5);
});

it('at most 8 pages are read concurrently (memory: 800 MB for 64)', async () => {
  const { app } = testApp();
  const pages = async (writer: string): Promise<readonly number[]> => {
    const paths = Array.from({ length: 10 }, () => `/v1/digest/${writer}?place=0-65535`);
    return (await Promise.all(paths.map(async (path) => app.request(path)))).map(({ status }) => status);
  };
  for (const writer of ['kvstore', 'services'])
    expect((await pages(writer)).toSorted()).toEqual([...Array.from({ length: 8 }, () => 200), 429, 429]);
  expect((await app.request('/v1/digest/kvstore?place=0-65535')).status).toBe(200);
});
