import { expect, it } from 'vitest';
import type { Compare, TxnRequest, TxnResponse } from '../../../src/kvstore/session/transport.ts';
import { guardedTxn } from '../../../src/kvstore/session/write-fence.ts';

const compareOf = (key: string): Compare => ({ key, target: 'value', equals: Buffer.from(key) });
const put = { op: 'put', key: 'k', value: Buffer.from('new'), lease: '0' } as const;
const otherPut = { op: 'put', key: 'k', value: Buffer.from('otherwise'), lease: '0' } as const;

/** Every set of guards and comparisons, and which of them hold. */
const cases = [0, 1, 2].flatMap((guards) =>
  [0, 1].flatMap((compare) =>
    [true, false].flatMap((guardsHold) =>
      [true, false].map((compareHolds) => ({ guards, compare, guardsHold, compareHolds })),
    ),
  ),
);

it.each(cases)(
  'writes if all comparisons hold, else does otherwise, and nothing without its guards: $guards guards hold $guardsHold, $compare comparisons hold $compareHolds',
  async (one) => {
    const guards = ['g1', 'g2'].slice(0, one.guards).map(compareOf);
    const compare = ['c'].slice(0, one.compare).map(compareOf);
    const done: unknown[] = [];
    const send = async ({ compare: all, writes, otherwise = [] }: TxnRequest): Promise<TxnResponse> => {
      const succeeded = all.every(({ key }) => (key === 'c' ? one.compareHolds : one.guardsHold));
      const operations = succeeded ? writes : otherwise;
      done.push(...operations);
      return { succeeded, revision: done.length, operations } as unknown as TxnResponse;
    };
    const answer = await guardedTxn({ compare, writes: [put], otherwise: [otherPut] }, guards, send);
    const isGuarded = one.guards === 0 || one.guardsHold;
    const isEqual = one.compare === 0 || one.compareHolds;
    if (!isGuarded) {
      expect([answer, done]).toEqual([undefined, []]);
      return;
    }
    const operation = isEqual ? put : otherPut;
    expect(done).toEqual([operation]);
    expect(answer).toMatchObject({ succeeded: isEqual, revision: 1, operations: [operation] });
  },
);

it('sends a second request only if the comparisons failed that are not guards', async () => {
  for (const [guards, compare, succeeded, sent] of [
    [[], [], false, 1],
    [[], [compareOf('c')], false, 1],
    [[], [compareOf('c')], true, 1],
    [[compareOf('g')], [], false, 1],
    [[compareOf('g')], [], true, 1],
    [[compareOf('g')], [compareOf('c')], true, 1],
    [[compareOf('g')], [compareOf('c')], false, 2],
  ] as const) {
    let requests = 0;
    await guardedTxn({ compare, writes: [put] }, guards, async () => {
      requests++;
      return { succeeded } as unknown as TxnResponse;
    });
    expect(requests).toBe(sent);
  }
});
