import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { RangeRequest, RangeResponse, Transport } from '../../../src/kvstore/session/transport.ts';
import { fewerRuns } from '../../base/support/fewer-runs.ts';
import { type Happening, happenings, I9_nothingLostNothingInvented } from '../support/watch-laws.ts';

describe('a watch under faults', () => {
  it('I9 nothing lost, nothing invented: the delivered state equals the store, after any faults', async () => {
    const sliceEvents = fc.constantFrom(undefined, 1, 2);
    await fc.assert(
      fc.asyncProperty(happenings, sliceEvents, (script, most) =>
        I9_nothingLostNothingInvented(script, (transport) => transport, most),
      ),
      fewerRuns(100),
    );
  });

  const write = (...entries: readonly (readonly [number, boolean])[]): Happening => ({
    do: 'write',
    entries,
  });
  const settled: Happening = { do: 'settle' };
  const all = [0, 1, 2, 3, 4, 5, 6, 7].map((n) => write([n, true])); // the last three are read as they were put
  const rewritten = (before: readonly Happening[], after: readonly Happening[]): readonly Happening[] => [
    ...[settled, ...all, settled, { do: 'backup' } as const, ...before, settled],
    ...[{ do: 'restore' } as const, ...after],
  ];
  it.each([
    ['and another one put with it', [write([1, false])], [write([1, false], [2, true])]],
    [
      'and another one before it',
      [write([2, false]), write([1, false])],
      [write([3, false]), write([1, false])],
    ],
    ['and another one with it', [write([2, false], [1, false])], [write([3, false], [1, false])]],
  ])(
    'a restored store in which the same key was deleted at the same revision, %s, is another one (regression: treated as the same)',
    (_, before, after) => I9_nothingLostNothingInvented(rewritten(before, after)),
  );

  const same = (...entries: readonly (readonly [number, boolean])[]): Happening => ({
    do: 'write',
    entries,
    same: true,
  });
  it.each([
    ['in its transaction', [same([1, true], [2, true])], [same([3, true], [2, true])]],
    ['before it', [same([1, true]), same([2, true])], [same([3, true]), same([2, true])]],
    [
      'before the one before it',
      [same([1, true]), same([4, true]), same([2, true])],
      [same([3, true]), same([4, true]), same([2, true])],
    ],
  ])(
    'a restored store with the same last put, at the same revision, is another one if another key was put %s (regression: treated as the same)',
    async (_, before, after) => {
      const atOnce: readonly Happening[] = [{ do: 'stall' }, ...before, { do: 'unstall' }];
      await I9_nothingLostNothingInvented(rewritten(atOnce, after));
    },
  );

  it('the same if its history was compacted (regression: an equal number of keys was enough)', async () => {
    const neither = [write([1, false]), write([3, false])];
    const before: readonly Happening[] = [...neither, same([1, true]), same([2, true])];
    const after: readonly Happening[] = [...neither, same([3, true]), same([2, true])];
    const compacted: readonly Happening[] = [{ do: 'write-elsewhere', times: 1 }, { do: 'compact' }];
    await I9_nothingLostNothingInvented(rewritten(before, [...after, ...compacted]));
  });

  const pass = (ms: number): Happening => ({ do: 'pass', ms });

  it('a store that had deleted a key before the watch started is not confused with one that deletes another instead (regression: a phantom, and a key that was lost)', async () => {
    const earlier = [6, 0, 1, 2, 3, 4, 5].map((n) => write([n, true]));
    await I9_nothingLostNothingInvented([
      ...[{ do: 'down' } as const, ...earlier, { do: 'backup' } as const, write([0, false])],
      ...[{ do: 'up' } as const, pass(70_000), settled, write([1, false]), settled],
      ...[{ do: 'restore' } as const, write([6, false]), write([1, false])],
    ]);
  });

  it.each([0, 1, 2, 3, 4])(
    'a listing of a restored store that is cut off after %i turns trusts no revision of the store before (regression: a value of that stayed)',
    async (turns) => {
      await I9_nothingLostNothingInvented([
        ...[settled, ...all, settled, { do: 'backup' } as const, write([7, true]), settled],
        ...[{ do: 'restore' } as const, write([7, true]), write([0, true]), pass(1000)],
        ...[...Array.from({ length: turns }, (): Happening => ({ do: 'turn' })), { do: 'cut' } as const],
      ]);
    },
  );
});

type Wrap = (transport: Transport) => Transport;

/** Passes everything through, except for what `changes` replaces. */
function wrapped(transport: Transport, changes: Partial<Transport>): Transport {
  return {
    range: (request, options) => transport.range(request, options),
    txn: (request, options) => transport.txn(request, options),
    watch: (request, observer) => transport.watch(request, observer),
    grantLease: (ttl, options) => transport.grantLease(ttl, options),
    keepLeaseAlive: (lease, options) => transport.keepLeaseAlive(lease, options),
    revokeLease: (lease, options) => transport.revokeLease(lease, options),
    endpoints: (options) => transport.endpoints(options),
    close: () => transport.close(),
    ...changes,
  };
}

/** Resumes after the revision of the last header, like the etcd3 client. */
const resumesFromHeader: Wrap = (transport) => {
  let next = 0;
  return wrapped(transport, {
    watch: (request, observer) =>
      transport.watch(
        { ...request, startRevision: Math.max(next, request.startRevision) },
        {
          ...observer,
          onCreated: (header) => {
            next = header.revision + 1;
            observer.onCreated(header);
          },
          onEvents: (events, header, isPartial) => {
            next = header.revision + 1;
            observer.onEvents(events, header, isPartial);
          },
          onProgress: (header, isRequested) => observer.onProgress(header, isRequested),
          onEnd: (reason) => observer.onEnd(reason),
        },
      ),
  });
};

/** Omits deletes. */
const ignoresDeletes: Wrap = (transport) =>
  wrapped(transport, {
    watch: (request, observer) =>
      transport.watch(request, {
        onCreated: (header) => observer.onCreated(header),
        onEvents: (events, header, isPartial) =>
          observer.onEvents(
            events.filter(({ value }) => value !== undefined),
            header,
            isPartial,
          ),
        onProgress: (header, isRequested) => observer.onProgress(header, isRequested),
        onEnd: (reason) => observer.onEnd(reason),
      }),
  });

/** Begins one revision too late. */
const offByOne: Wrap = (transport) =>
  wrapped(transport, {
    watch: (request, observer) =>
      transport.watch({ ...request, startRevision: request.startRevision + 1 }, observer),
  });

type Reading = (
  request: RangeRequest,
  read: (request: RangeRequest) => Promise<RangeResponse>,
) => Promise<RangeResponse>;

/** Changes every read. */
const reading =
  (change: Reading): Wrap =>
  (transport) =>
    wrapped(transport, {
      watch: (request, observer) => {
        const stream = transport.watch(request, observer);
        return {
          range: (wanted, options) => change(wanted, (read) => stream.range(read, options)),
          pause: () => stream.pause(),
          resume: () => stream.resume(),
          requestProgress: () => stream.requestProgress(),
          cancel: () => stream.cancel(),
        };
      },
    });

const shortPages = reading(async (request, read) => {
  const answer = await read(request);
  return { ...answer, kvs: answer.kvs.slice(0, -1) };
});

describe('the test of the test', () => {
  it.each([
    ['resumes from the header', resumesFromHeader],
    ['ignores deletes', ignoresDeletes],
    ['begins one revision too late', offByOne],
    ['has short pages', shortPages],
  ] as const)('I9 catches a transport that %s', async (_what, wrap) => {
    const outcome = await fc.check(
      fc.asyncProperty(happenings, (script) => I9_nothingLostNothingInvented(script, wrap)),
      { endOnFailure: true },
    );
    expect(outcome.failed).toBe(true);
  });
});
