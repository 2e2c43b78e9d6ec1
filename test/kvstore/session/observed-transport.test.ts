import { beforeEach, describe, expect, it } from 'vitest';
import { KvstoreError, type KvstoreErrorCode } from '../../../src/kvstore/session/errors.ts';
import { ObservedTransport } from '../../../src/kvstore/session/observed-transport.ts';
import type {
  ResponseHeader,
  Transport,
  WatchObserver,
  WatchStream,
} from '../../../src/kvstore/session/transport.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';

const headerOf = (clusterID: string): ResponseHeader => ({ clusterID, revision: 7, raftTerm: 1 });
const ANSWER = { header: headerOf('one'), kvs: [], more: false, count: 0 };
const RANGE = { start: 'a', end: 'b' };
const OPTIONS = { deadlineMs: 5 };

describe('an observed transport', () => {
  let clock: ManualClock;
  /** Calls of the underlying transport, as text. */
  let calls: string[];
  /** The error of its calls. */
  let failure: unknown;
  let refusals: number;
  /** Arguments of its notifications. */
  let wentBack: number[];
  let below: WatchObserver;
  let observed: ObservedTransport;

  /** Records the call and returns the value. */
  const answer = async <T>(value: T, ...call: readonly unknown[]): Promise<T> => {
    calls.push(JSON.stringify(call));
    if (failure !== undefined) throw failure;
    return value;
  };
  const note = (name: string): void => void calls.push(name);

  const stream: WatchStream = {
    range: (...call) => answer(ANSWER, 'stream range', ...call),
    pause: () => note('pause'),
    resume: () => note('resume'),
    requestProgress: () => note('request progress'),
    cancel: () => note('cancel'),
  };
  const inner: Transport = {
    range: (...call) => answer(ANSWER, 'range', ...call),
    txn: (...call) => answer({ header: headerOf('two'), succeeded: true, deleted: 3 }, 'txn', ...call),
    grantLease: (...call) => answer('11', 'grant', ...call),
    keepLeaseAlive: (...call) => answer(9, 'keep alive', ...call),
    revokeLease: (...call) => answer(undefined, 'revoke', ...call),
    endpoints: (...call) => answer([{ endpoint: 'e', healthy: true }], 'endpoints', ...call),
    watch: (request, observer) => {
      calls.push(JSON.stringify(['watch', request]));
      below = observer;
      return stream;
    },
    close: () => answer(undefined, 'close'),
  };

  const fail = async (code: KvstoreErrorCode): Promise<void> => {
    failure = new KvstoreError(code, `it is ${code}`);
    await expect(observed.range(RANGE)).rejects.toBe(failure);
    failure = undefined;
  };

  const newObserved = (transport: Transport): ObservedTransport =>
    new ObservedTransport(
      transport,
      clock,
      () => refusals++,
      (lostHistorySeenAt) => wentBack.push(lostHistorySeenAt),
    );

  beforeEach(() => {
    clock = new ManualClock();
    calls = [];
    failure = undefined;
    refusals = 0;
    wentBack = [];
    observed = newObserved(inner);
  });

  it('has no state of its server at first', () => {
    expect([observed.connected, observed.clusterID, observed.lastFailure]).toEqual([
      false,
      undefined,
      undefined,
    ]);
    expect(observed.requests).toEqual({ ok: 0 });
  });

  it('passes each call on with its options, and counts answers', async () => {
    const txn = { compare: [], writes: [] };
    expect(await observed.range(RANGE, OPTIONS)).toBe(ANSWER);
    expect(observed.clusterID).toBe('one');
    expect(await observed.txn(txn, OPTIONS)).toMatchObject({ deleted: 3 });
    expect(observed.clusterID).toBe('two');
    expect(await observed.grantLease(25, OPTIONS)).toBe('11');
    expect(await observed.keepLeaseAlive('11', OPTIONS)).toBe(9);
    await observed.revokeLease('11', OPTIONS);
    expect(observed.requests).toEqual({ ok: 5 });
    expect(await observed.endpoints(OPTIONS)).toEqual([{ endpoint: 'e', healthy: true }]);
    expect(observed.requests).toEqual({ ok: 5 });
    expect(calls.map((call) => JSON.parse(call))).toEqual([
      ['range', RANGE, OPTIONS],
      ['txn', txn, OPTIONS],
      ['grant', 25, OPTIONS],
      ['keep alive', '11', OPTIONS],
      ['revoke', '11', OPTIONS],
      ['endpoints', OPTIONS],
    ]);
  });

  it('reports that the store has gone back, and since when, by calls that were made after an answer of a later one', async () => {
    let revision = 9;
    const at = <T>(value: T) => ({ ...value, header: { ...headerOf('one'), revision } });
    const write = { op: 'put', key: 'a', value: new Uint8Array(), lease: '0' } as const;
    const answers = { succeeded: false, deleted: 0 };
    const transport = newObserved({
      ...inner,
      range: async () => at(ANSWER),
      txn: async () => at({ ...answers, header: headerOf('one') }),
    });
    clock.advance(1000);
    await transport.range(RANGE);
    clock.advance(1000);
    const late = transport.range(RANGE);
    await transport.txn({ compare: [], writes: [write] }); // it has not written
    expect(wentBack).toEqual([]);
    await transport.txn({ compare: [], writes: [], otherwise: [write] });
    expect(wentBack).toEqual([2000]);
    await late;
    revision = 8;
    await transport.range(RANGE);
    await transport.range(RANGE);
    expect(wentBack).toEqual([2000, 2000]);
    answers.deleted = 1;
    await transport.txn({ compare: [], writes: [] });
    expect(wentBack).toEqual([2000, 2000, 2000]);
  });

  it('is connected by the answer to a call that has no header', async () => {
    await observed.keepLeaseAlive('11');
    expect([observed.connected, observed.clusterID]).toEqual([true, undefined]);
  });

  it.each<[KvstoreErrorCode, boolean, boolean]>([
    ['unavailable', false, true],
    ['deadline', false, true],
    ['no-leader', false, true],
    ['overloaded', true, true],
    ['compacted', true, true],
    ['forbidden', true, true],
    ['closed', false, false],
  ])('after a call that failed with %s: connected %s, a failure %s', async (code, connected, isFailure) => {
    await observed.range(RANGE);
    await fail(code);
    expect(observed.connected).toBe(connected);
    expect(observed.lastFailure?.code).toBe(isFailure ? code : undefined);
    expect(observed.requests).toEqual({ ok: 1, [code]: 1 });
    expect(refusals).toBe(code === 'forbidden' ? 1 : 0);
  });

  it.each(['unavailable', 'overloaded'] as const)(
    'an abort says nothing of the server (%s)',
    async (code) => {
      await fail(code);
      const { connected, lastFailure } = observed;
      await fail('aborted');
      expect([observed.connected, observed.lastFailure]).toEqual([connected, lastFailure]);
      expect(observed.requests).toEqual({ ok: 0, [code]: 1, aborted: 1 });
    },
  );

  it('counts the same outcome each time, and returns a copy', async () => {
    await fail('deadline');
    await fail('deadline');
    const { requests } = observed;
    await fail('deadline');
    expect([requests, observed.requests]).toEqual([
      { ok: 0, deadline: 2 },
      { ok: 0, deadline: 3 },
    ]);
  });

  it('contains the time of its last failure', async () => {
    clock.advance(1234);
    await fail('no-leader');
    const at = clock.wallTime();
    clock.advance(1);
    expect(observed.lastFailure).toEqual({ code: 'no-leader', message: 'it is no-leader', at });
  });

  describe('when it watches', () => {
    let seen: unknown[];
    let watch: WatchStream;

    beforeEach(() => {
      seen = [];
      watch = observed.watch(
        { prefix: 'p/', startRevision: 5 },
        {
          onCreated: (...what) => seen.push(['created', ...what]),
          onEvents: (...what) => seen.push(['events', ...what]),
          onProgress: (...what) => seen.push(['progress', ...what]),
          onEnd: (...what) => seen.push(['end', ...what]),
        },
      );
    });

    it('treats each message as a sign of life of its server, and passes it on', () => {
      const events = [{ key: 'p/a', value: undefined, modRevision: 6 }];
      const ended = new KvstoreError('unavailable', 'it has ended');
      const life: unknown[] = [];
      const look = (): void => void life.push([observed.connected, observed.clusterID]);
      for (const say of [
        () => below.onCreated(headerOf('one')),
        () => below.onEvents(events, headerOf('two'), true),
        () => below.onProgress(headerOf('three'), false),
      ]) {
        below.onEnd(ended);
        look();
        say();
        look();
      }
      expect(life).toEqual([
        ...[
          [false, undefined],
          [true, 'one'],
        ],
        ...[
          [false, 'one'],
          [true, 'two'],
        ],
        ...[
          [false, 'two'],
          [true, 'three'],
        ],
      ]);
      expect(seen.filter((_, index) => index % 2 === 1)).toEqual([
        ['created', headerOf('one')],
        ['events', events, headerOf('two'), true],
        ['progress', headerOf('three'), false],
      ]);
      expect(seen[0]).toEqual(['end', ended]);
      expect(observed.lastFailure?.code).toBe('unavailable');
      expect(observed.requests).toEqual({ ok: 0 });
    });

    it('reports that a watch was refused', () => {
      below.onEnd(new KvstoreError('forbidden', 'permission denied'));
      expect(refusals).toBe(1);
    });

    it('passes requests to the stream on, and counts its reads', async () => {
      watch.pause();
      watch.resume();
      watch.requestProgress();
      watch.cancel();
      expect(await watch.range(RANGE, OPTIONS)).toBe(ANSWER);
      expect(calls).toEqual([
        JSON.stringify(['watch', { prefix: 'p/', startRevision: 5 }]),
        ...['pause', 'resume', 'request progress', 'cancel'],
        JSON.stringify(['stream range', RANGE, OPTIONS]),
      ]);
      expect([observed.requests, observed.clusterID]).toEqual([{ ok: 1 }, 'one']);
    });
  });

  it('is not connected after it is closed', async () => {
    await observed.range(RANGE);
    await observed.close();
    expect([observed.connected, calls.at(-1)]).toEqual([false, JSON.stringify(['close'])]);
  });
});
