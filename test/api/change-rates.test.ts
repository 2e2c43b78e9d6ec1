import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ChangeRates } from '../../src/api/change-rates.ts';
import { CHANGE_TYPES } from '../../src/api/change-types.ts';
import { TestModel } from './support/model.ts';
import { testApp } from './support/test-app.ts';

describe('ChangeRates', () => {
  it('counts as a list of all changes does, of the last hour', () => {
    const step = fc.record({ type: fc.nat(2), wait: fc.oneof(fc.nat(12_000), fc.nat(5_000_000)) });
    fc.assert(
      fc.property(fc.nat(100_000), fc.array(step, { maxLength: 200 }), (begun, steps) => {
        const rates = new ChangeRates(begun);
        const all: { readonly type: number; readonly at: number }[] = [];
        let now = begun;
        for (const { type, wait } of steps) {
          now += wait;
          rates.count(type, now);
          all.push({ type, at: Math.floor(now / 10_000) });
        }
        const { from, counts } = rates.document(now, now + 1_000_000);
        const last = Math.floor(now / 10_000);
        const first = Math.max(Math.floor(begun / 10_000), last - 360);
        expect(Date.parse(from)).toBe(1_000_000 + first * 10_000);
        for (const [index, type] of CHANGE_TYPES.entries())
          expect(counts[type]).toEqual(
            Array.from(
              { length: last - first },
              (_, i) => all.filter((one) => one.type === index && one.at === first + i).length,
            ),
          );
      }),
    );
  });

  it('GET /v1/rates answers with the complete intervals', async () => {
    const model = new TestModel();
    const { app } = testApp(model);
    model.ipcache.upsert('10.0.0.1', { identity: 1, source: 'k8s' });
    model.ipcache.upsert('10.0.0.2', { identity: 1, source: 'k8s' });
    await model.clock.advance(10_000);
    model.ipcache.upsert('10.0.0.3', { identity: 1, source: 'k8s' });
    expect(await (await app.request('/v1/rates')).json()).toMatchObject({
      intervalMs: 10_000,
      counts: { ip: [2], service: [0], node: [0] },
    });
  });
});
