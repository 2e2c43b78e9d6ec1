import { getEventListeners } from 'node:events';
import { beforeEach, describe, expect, it } from 'vitest';
import { deferred } from '../../../src/base/sleep.ts';
import { prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import type {
  RangeRequest,
  RangeResponse,
  ResponseHeader,
  TransportEvent,
  WatchObserver,
  WatchRequest,
  WatchStream,
} from '../../../src/kvstore/session/transport.ts';
import { type FollowStreamOptions, WatchSession } from '../../../src/kvstore/watch/watch-session.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';

const REQUEST: WatchRequest = { prefix: 'p/', startRevision: 7 };
const CREATED: ResponseHeader = { clusterID: 'one', revision: 6, raftTerm: 1 };
// An event of `put` has 80 bytes and its key.
const limits = { batchEvents: 3, revisionBytes: 1000 };
const READ: RangeRequest = { start: 'p/', end: 'p0' };

const at = (revision: number): ResponseHeader => ({ ...CREATED, revision });
const put = (key: string, modRevision: number): TransportEvent => ({
  key,
  value: new Uint8Array(0),
  modRevision,
});

/** A stream whose server is controlled by the test. */
class ScriptedStream implements WatchStream {
  readonly calls: string[] = [];
  observer: WatchObserver | undefined;
  answer: (request: RangeRequest) => Promise<RangeResponse> = () =>
    Promise.reject(new Error('not asked for'));

  watch(request: WatchRequest, observer: WatchObserver): WatchStream {
    expect(request).toBe(REQUEST);
    this.observer = observer;
    return this;
  }

  range(request: RangeRequest): Promise<RangeResponse> {
    return this.answer(request);
  }

  pause(): void {
    this.calls.push('pause');
  }

  resume(): void {
    this.calls.push('resume');
  }

  requestProgress(): void {
    this.calls.push('progress?');
  }

  cancel(): void {
    this.calls.push('cancel');
  }
}

describe('a session', () => {
  let clock: ManualClock;
  let stream: ScriptedStream;
  let caller: AbortController;
  let session: WatchSession;
  /** The delivered items, as `events`, `progress` or `alive`. */
  let delivered: unknown[];
  let full: Promise<void> | undefined;

  beforeEach(() => {
    clock = new ManualClock();
    stream = new ScriptedStream();
    caller = new AbortController();
    delivered = [];
    full = undefined;
    session = new WatchSession({ transport: stream, request: REQUEST, clock, signal: caller.signal, limits });
  });

  const follower: FollowStreamOptions = {
    lifetimeMs: 3_600_000,
    onEvents: (events, isPartial) =>
      delivered.push([
        ...events.map(({ key, modRevision }) => `${key} ${modRevision}`),
        ...(isPartial ? ['partial'] : []),
      ]),
    onProgress: ({ revision }) => delivered.push(`progress ${revision}`),
    onAlive: () => delivered.push('alive'),
    isFull: () => full !== undefined,
    whenNotFull: () => full ?? Promise.resolve(),
  };

  /** Opens and follows a stream. Returns its result. */
  const followed = (): { ended: unknown } => {
    stream.observer?.onCreated(CREATED);
    const result: { ended: unknown } = { ended: undefined };
    session.follow(follower).then(
      () => {
        result.ended = 'in good health';
      },
      (error: unknown) => {
        result.ended = error;
      },
    );
    return result;
  };

  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

  it('leaves no listener on the signal of its caller when it is closed', () => {
    expect(getEventListeners(caller.signal, 'abort')).toHaveLength(1);
    session.close();
    expect(getEventListeners(caller.signal, 'abort')).toEqual([]);
  });

  it('is closed by a check of its rights only if they were revoked', async () => {
    const answers = ['unavailable', 'forbidden'] as const;
    let asked = 0;
    stream.answer = () => Promise.reject(new KvstoreError(answers[asked++] ?? 'internal', 'refused'));
    const result = followed();
    await session.checkRights(prefixRange('p/'));
    await turn();
    expect(result.ended).toBeUndefined();
    await session.checkRights(prefixRange('p/'));
    await turn();
    expect(result.ended).toMatchObject({ code: 'forbidden' });
  });

  it('is closed by a check of its history only if that was compacted', async () => {
    const answers = ['forbidden', 'compacted'] as const;
    const read: RangeRequest[] = [];
    stream.answer = (request) => {
      read.push(request);
      return Promise.reject(new KvstoreError(answers[read.length - 1] ?? 'internal', 'refused'));
    };
    const result = followed();
    await session.checkHistory('p/', 7);
    await turn();
    expect(result.ended).toBeUndefined();
    await session.checkHistory('p/', 8);
    await turn();
    expect(result.ended).toMatchObject({ code: 'compacted' });
    expect(read.map(({ start, revision }) => [start, revision])).toEqual([
      ['p/', 7],
      ['p/', 8],
    ]);
  });

  it('is paused from its start until it is followed', async () => {
    expect(stream.calls).toEqual([]);
    const result = followed();
    expect(await session.opened).toBe(CREATED);
    expect(stream.calls).toEqual(['pause', 'resume']);
    expect(result.ended).toBeUndefined();
  });

  it('delivers whole revisions, as soon as each is complete', () => {
    followed();
    stream.observer?.onEvents([put('p/a', 7)], at(7), false);
    stream.observer?.onEvents([put('p/b', 8)], at(9), true);
    stream.observer?.onEvents([put('p/c', 8)], at(9), true);
    expect(delivered).toEqual([['p/a 7']]);
    expect(session.bufferedBytes).toBe(166);
    stream.observer?.onEvents([put('p/d', 8), put('p/a', 9)], at(9), true);
    expect(delivered).toEqual([['p/a 7'], ['p/b 8', 'p/c 8', 'p/d 8']]);
    stream.observer?.onEvents([], at(9), false);
    stream.observer?.onEvents([put('p/e', 10)], at(10), false);
    expect(delivered).toEqual([['p/a 7'], ['p/b 8', 'p/c 8', 'p/d 8'], ['p/a 9'], ['p/e 10']]);
    expect(session.bufferedBytes).toBe(0);
  });

  it('delivers a revision that is larger than a batch as it arrives, and pauses within it (regression: kept all of it)', async () => {
    const result = followed();
    const events = (from: number, revision: number): TransportEvent[] =>
      Array.from({ length: 2 }, (_, i) => put(`p/${from + i}`, revision));
    stream.observer?.onEvents([put('p/a', 7), ...events(0, 8)], at(8), true);
    stream.observer?.onEvents(events(2, 8), at(8), true);
    expect(delivered).toEqual([['p/a 7'], ['p/0 8', 'p/1 8', 'p/2 8', 'p/3 8', 'partial']]);
    full = Promise.resolve();
    stream.observer?.onEvents(events(4, 8), at(8), true);
    expect(stream.calls.at(-1)).toBe('pause');
    await turn();
    expect(stream.calls.at(-1)).toBe('resume');
    full = undefined;
    stream.observer?.onProgress(at(12), false);
    stream.observer?.onEvents([...events(6, 8), put('p/a', 9)], at(9), true);
    stream.observer?.onEvents([put('p/b', 9)], at(9), false);
    stream.observer?.onProgress(at(12), false);
    expect(delivered.slice(2)).toEqual([
      ['p/4 8', 'p/5 8', 'partial'],
      ['p/6 8', 'p/7 8'],
      ['p/a 9', 'p/b 9'],
      'progress 12',
    ]);
    expect(result.ended).toBeUndefined();
  });

  it('ends if the kept part of a revision exceeds its limit (regression: 584 MB of fragments were kept)', async () => {
    const result = followed();
    const large = { key: 'p/a', value: new Uint8Array(400), modRevision: 8 };
    stream.observer?.onEvents([large], at(8), true);
    stream.observer?.onEvents([large], at(8), true);
    expect(session.bufferedBytes).toBe(966);
    expect(result.ended).toBeUndefined();
    stream.observer?.onEvents([large], at(8), true);
    await turn();
    expect(result.ended).toMatchObject({ code: 'compacted', message: expect.stringContaining('revision 8') });
    expect([delivered, stream.calls.at(-1)]).toEqual([[], 'cancel']);
  });

  it('passes progress on, but not the requested one, because events may still be in transit (etcd #15220)', () => {
    followed();
    stream.observer?.onProgress(at(20), true);
    expect(delivered).toEqual([]);
    stream.observer?.onProgress(at(21), false);
    expect(delivered).toEqual(['progress 21']);
  });

  it('probes a silent stream once a minute, and continues with one that answers', async () => {
    const result = followed();
    clock.advance(60_000);
    expect([delivered, stream.calls.includes('progress?')]).toEqual([['alive'], false]);
    clock.advance(60_000);
    expect(stream.calls.at(-1)).toBe('progress?');
    clock.advance(29_999);
    stream.observer?.onProgress(at(30), true);
    clock.advance(1);
    await turn();
    expect([delivered, result.ended]).toEqual([['alive', 'alive'], undefined]);
    clock.advance(60_000);
    expect(stream.calls.filter((call) => call === 'progress?')).toHaveLength(2);
    clock.advance(29_999);
    await turn();
    expect(result.ended).toBeUndefined();
    clock.advance(1);
    await turn();
    expect(result.ended).toMatchObject({ code: 'unavailable' });
    session.close();
    expect(clock.pending).toBe(0);
  });

  it('does not probe a stream that sends something every minute, or that it has paused itself', async () => {
    const result = followed();
    for (let i = 0; i < 5; i++) {
      clock.advance(59_000);
      stream.observer?.onEvents([put('p/a', 7 + i)], at(7 + i), false);
    }
    full = new Promise(() => {});
    stream.observer?.onEvents([put('p/a', 20)], at(20), false);
    clock.advance(600_000);
    await turn();
    expect(stream.calls).toEqual(['pause', 'resume', 'pause']);
    expect(result.ended).toBeUndefined();
  });

  it('pauses while its reader lags, and resumes when there is room', async () => {
    followed();
    const room = deferred();
    full = room.promise;
    stream.observer?.onEvents([put('p/a', 7)], at(7), false);
    await turn();
    expect(stream.calls).toEqual(['pause', 'resume', 'pause']);
    full = undefined;
    room.resolve();
    await turn();
    expect(stream.calls).toEqual(['pause', 'resume', 'pause', 'resume']);
    clock.advance(60_000);
    clock.advance(60_000);
    expect(stream.calls.at(-1)).toBe('progress?'); // it is supervised again
  });

  it('ends with its reader, and is not resumed after its end', async () => {
    const result = followed();
    full = Promise.reject(new Error('the reader has left'));
    stream.observer?.onEvents([put('p/a', 7)], at(7), false);
    await turn();
    expect(result.ended).toMatchObject({ message: 'the reader has left' });
    stream.observer?.onEvents([put('p/b', 8)], at(8), false);
    stream.observer?.onProgress(at(9), false);
    expect(delivered).toEqual([['p/a 7']]);
  });

  it('is not resumed if it has ended before there was room', async () => {
    followed();
    const room = deferred();
    full = room.promise;
    stream.observer?.onEvents([put('p/a', 7)], at(7), false);
    session.close();
    room.resolve();
    await turn();
    expect(stream.calls).toEqual(['pause', 'resume', 'pause', 'cancel']);
  });

  it('is closed without a failure after its time', async () => {
    const result = followed();
    for (let minute = 0; minute < 60; minute++) {
      stream.observer?.onProgress(at(7), false);
      expect(result.ended).toBeUndefined();
      clock.advance(60_000);
      await turn();
    }
    expect(result.ended).toBe('in good health');
    expect(clock.pending).toBe(0);
    session.close();
    expect(stream.calls.at(-1)).toBe('cancel');
  });

  it.each([
    ['its own reason', new KvstoreError('compacted', 'history is gone'), 'compacted'],
    ['none', undefined, 'unavailable'],
  ] as const)('that the server ends fails with the reason: %s', async (_, reason, code) => {
    const result = followed();
    stream.observer?.onEnd(reason);
    await turn();
    expect(result.ended).toMatchObject({ code });
    expect(stream.calls.at(-1)).toBe('cancel');
    await expect(session.range(READ)).rejects.toBeDefined();
  });

  it('whose reader throws ends, and delivers no more', async () => {
    stream.observer?.onCreated(CREATED);
    const thrown = new Error('the reader is broken');
    const done = session.follow({
      ...follower,
      onEvents: () => {
        throw thrown;
      },
    });
    stream.observer?.onEvents([put('p/a', 7)], at(7), false);
    await expect(done).rejects.toBe(thrown);
    expect(stream.calls.at(-1)).toBe('cancel');
  });

  it('fails if it delivers without a follower', async () => {
    stream.observer?.onEvents([put('p/a', 7)], at(7), false);
    await expect(session.opened).rejects.toThrow('a paused stream delivers nothing');
  });

  it('reads from the server of its stream, and a read fails with the stream for the same reason', async () => {
    const answer: RangeResponse = { header: at(9), kvs: [], more: false, count: 0 };
    stream.answer = () => Promise.resolve(answer);
    expect(await session.range(READ)).toBe(answer);
    const refused = new KvstoreError('forbidden', 'no right');
    stream.answer = () => Promise.reject(refused);
    await expect(session.range(READ)).rejects.toBe(refused);
    const reason = new KvstoreError('unavailable', 'the link is cut');
    stream.answer = () => {
      stream.observer?.onEnd(reason);
      return Promise.reject(refused);
    };
    await expect(session.range(READ)).rejects.toBe(reason);
  });

  it('ends with its caller, immediately if that has ended before', async () => {
    const result = followed();
    caller.abort();
    await turn();
    expect(result.ended).toMatchObject({ code: 'aborted' });
    expect([stream.calls.at(-1), clock.pending]).toEqual(['cancel', 0]);
    const late = new ScriptedStream();
    const over = new WatchSession({
      transport: late,
      request: REQUEST,
      clock,
      signal: caller.signal,
      limits,
    });
    await expect(over.opened).rejects.toMatchObject({ code: 'aborted' });
    await expect(over.follow(follower)).rejects.toMatchObject({ code: 'aborted' });
    expect([late.calls, clock.pending]).toEqual([['cancel'], 0]);
  });

  it('ends once, with the first reason', async () => {
    const result = followed();
    const first = new KvstoreError('unavailable', 'the first');
    session.close(first);
    session.close(new Error('the second'));
    caller.abort();
    await turn();
    expect(result.ended).toBe(first);
    expect(stream.calls.filter((call) => call === 'cancel')).toHaveLength(1);
  });
});
