import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { LATENCY_BOUNDS_MS } from '../../../src/base/latency-histogram.ts';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { keyRange, prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { FaultyMemoryBackend } from '../../../src/kvstore/memory/faulty-memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { NO_LEASE } from '../../../src/kvstore/session/transport.ts';
import { ListAndWatch } from '../../../src/kvstore/watch/list-and-watch.ts';
import { WATCH_LIMITS } from '../../../src/kvstore/watch/watch-limits.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../support/settle.ts';
import { WatchRecorder } from '../support/watch-recorder.ts';

const P = 'p/';
const { pageKeys: PAGE_KEYS } = WATCH_LIMITS;
const HOUR_MS = 3_600_000;

describe('a watch without a visible failure', () => {
  let clock: ManualClock;
  let server: MemoryServer;
  let backend: FaultyMemoryBackend;
  let recorder: WatchRecorder;
  const put = (name: string, value = 'value'): unknown =>
    server.txn({
      compare: [],
      writes: [{ op: 'put', key: P + name, value: bytesOfText(value), lease: NO_LEASE }],
    });

  beforeEach(() => {
    clock = new ManualClock();
    clock.advance(HOUR_MS); // a time is distinguished from a difference of times
    server = new MemoryServer({ clock });
    backend = new FaultyMemoryBackend({ server, clock, random: () => 0.5 });
  });

  afterEach(async () => {
    await backend.close();
    await recorder.done;
    expect(recorder.breaches).toEqual([]);
  });

  it('probes a stream that was silent for a minute, and closes one that does not answer', async () => {
    recorder = new WatchRecorder(backend.watch(P));
    await settle();
    backend.link.stallWatch(P);
    put('unheard');
    await advance(clock, 2 * 60_000); // in the first minute it was accepted
    expect(recorder.status()).toMatchObject({ state: 'watching', failures: 0 });
    await advance(clock, 30_000);
    expect(recorder.status()).toMatchObject({ failures: 1 });
    expect(recorder.status().lastFailure?.message).toContain('no response');
    backend.link.unstallWatch(P);
    await advance(clock, 1000);
    expect([...recorder.content.keys()]).toEqual([`${P}unheard`]);
  });

  it('measures for each event of the stream how long it took to be read, and nothing for a list', async () => {
    put('listed');
    const { link: transport } = backend;
    const ended = new AbortController();
    const { signal } = ended;
    const watch = new ListAndWatch({ transport, prefix: P, clock, random: () => 0.5, signal });
    const batches: string[][] = [];
    let release = (): void => {};
    recorder = new WatchRecorder({
      status: () => watch.status(),
      async *[Symbol.asyncIterator]() {
        for await (const batch of watch) {
          batches.push(batch.map(({ key }) => key));
          yield batch;
          await new Promise<void>((resolve) => {
            release = resolve;
          });
        }
      },
    });
    const step = async (): Promise<void> => {
      release();
      await settle();
    };
    const counted = (): readonly (readonly [ms: number | undefined, count: number])[] =>
      watch
        .status()
        .delays.counts.map((count, at) => [LATENCY_BOUNDS_MS[at], count] as const)
        .filter(([, count]) => count > 0);
    await settle();
    for (const _batch of ['listed', 'list-done']) await step();
    expect([batches, counted()]).toEqual([[[`${P}listed`], ['']], []]);
    put('a'); // is read immediately, and its work takes 30 ms
    await settle();
    await advance(clock, 10);
    put('b'); // waits for 20 ms, and its work takes 100 ms
    await settle();
    await advance(clock, 20);
    await step();
    expect(counted()).toEqual([[50, 1]]);
    await advance(clock, 100);
    await step();
    expect(batches.slice(2)).toEqual([[`${P}a`], [`${P}b`]]);
    expect(counted()).toEqual([
      [50, 1],
      [250, 1],
    ]);
    expect(watch.status().delays.sumMs).toBe(150);
    ended.abort();
    await step();
  });

  it('continues if callbacks throw at its start, its state changes and its end (regression: those at both ends broke it)', async () => {
    const raise = (): never => {
      throw new Error('a fault');
    };
    const { link: transport } = backend;
    const ended = new AbortController();
    const { signal } = ended;
    const callbacks = { onBegin: raise, onState: raise, onEnd: raise };
    const watch = new ListAndWatch({ transport, prefix: P, clock, random: () => 0.5, signal, ...callbacks });
    recorder = new WatchRecorder(watch);
    put('a');
    await settle();
    expect(recorder.content.size).toBe(1);
    backend.link.cut();
    await advance(clock, 1000);
    expect(recorder.status()).toMatchObject({ state: 'watching', failures: 1 });
    ended.abort();
    await recorder.done;
  });

  it('checks after some minutes whether it may still read, because the server does not report it (trap: revoked rights end no stream)', async () => {
    recorder = new WatchRecorder(backend.watch(P));
    await settle();
    backend.link.forbid(P);
    await advance(clock, 9 * 60_000);
    expect(recorder.status()).toMatchObject({ state: 'watching', failures: 0 });
    await advance(clock, 60_000);
    expect(recorder.status()).toMatchObject({ state: 'forbidden', lastFailure: { code: 'forbidden' } });
    backend.link.allow(P);
    put('later');
    await advance(clock, 60_000);
    expect([...recorder.content.keys()]).toEqual([`${P}later`]);
  });

  it('checks its rights at most once a minute, however often other calls are refused', async () => {
    recorder = new WatchRecorder(backend.watch(P));
    await settle();
    backend.link.forbid('other/');
    let reads = 0;
    backend.link.onRead = ({ start }) => void (start === P && reads++);
    for (let i = 0; i < 60; i++) {
      await backend.get('other/key').catch(() => {});
      await advance(clock, 1000);
    }
    expect(reads).toBe(1);
    await backend.get('other/key').catch(() => {});
    expect(reads).toBe(2);
    await advance(clock, 9.5 * 60_000);
    expect(reads).toBe(2); // the last check was also that of the next ten minutes
    await advance(clock, 90_000);
    expect(reads).toBe(3);
    expect(recorder.status()).toMatchObject({ state: 'watching', failures: 0 });
  });

  /** Runs a function directly before the read of this number, counted from 1. */
  const beforeRead = (number: number, happens: () => void): void => {
    let reads = 0;
    backend.link.onRead = () => {
      if (++reads === number) happens();
    };
  };

  const numbered = (count: number, of: string): void => {
    for (let i = 0; i < count; i++) put(String(i).padStart(4, '0'), `${of} ${i}`);
  };

  /** Returns the reported history of each key. */
  const histories = (): Record<string, number> => {
    const counts: Record<string, number> = {};
    for (const value of recorder.content.values()) {
      const [history = ''] = value.split(' ');
      counts[history] = (counts[history] ?? 0) + 1;
    }
    return counts;
  };

  it.each([1, 2, 3, 4])(
    'a store restored before read %i of its listing, and grown to the same revisions with the same keys, is no mixture (regression: pages of two histories)',
    async (read) => {
      const backup = server.snapshot();
      numbered(9000, 'old');
      beforeRead(read, () => {
        server.restore(backup);
        numbered(9000, 'new');
      });
      recorder = new WatchRecorder(backend.watch(P), { mayGoBack: true });
      await settle(60);
      await advance(clock, 1000);
      await settle(60);
      expect(recorder.status()).toMatchObject({ state: 'watching', keys: 9000 });
      expect(histories()).toEqual({ new: 9000 });
    },
  );

  it('a store restored right after the list, and grown beyond it, is detected', async () => {
    const backup = server.snapshot();
    numbered(10, 'old');
    recorder = new WatchRecorder(backend.watch(P), { mayGoBack: true });
    await settle(4);
    expect(recorder.status().state).toBe('watching');
    server.restore(backup);
    numbered(9, 'new');
    await advance(clock, 1000);
    expect(histories()).toEqual({ new: 9 });
    expect(recorder.status().lastFailure?.code).toBe('future-revision');
  });

  it('continues an interrupted list, and compares the listed keys (regression: it restarts)', async () => {
    numbered(2000, 'old');
    beforeRead(3, () => {
      put('0003', 'changed since');
      server.txn({ compare: [], writes: [{ op: 'delete', range: keyRange(`${P}0005`) }] });
      backend.link.cut();
    });
    recorder = new WatchRecorder(backend.watch(P));
    await settle(60);
    await advance(clock, 1000);
    await settle(60);
    expect(recorder.status()).toMatchObject({ state: 'watching', keys: 1999, listings: 1, failures: 1 });
    expect(recorder.story.filter((line) => !line.startsWith('create'))).toEqual([
      `modify ${P}0003`,
      `delete ${P}0005`,
      'list-done',
    ]);
  });

  it('drops repeated events from before the list (regression: a deleted key was delivered)', async () => {
    beforeRead(1, () => {
      put('gone');
      put('stays');
      server.txn({ compare: [], writes: [{ op: 'delete', range: keyRange(`${P}gone`) }] });
    });
    recorder = new WatchRecorder(backend.watch(P));
    await advance(clock, 1000);
    expect(recorder.story).toEqual([`create ${P}stays`, 'list-done']);
  });

  it('recognises a history by one of the keys written last, if the others were deleted', async () => {
    for (let i = 0; i < 3; i++) put(`stays${i}`);
    recorder = new WatchRecorder(backend.watch(P));
    await settle(4);
    for (let i = 0; i < 50; i++) {
      put(`brief${i}`);
      await settle(1);
    }
    backend.link.down();
    for (let i = 0; i < 50; i++)
      server.txn({ compare: [], writes: [{ op: 'delete', range: keyRange(`${P}brief${i}`) }] });
    server.compact();
    backend.link.up();
    await advance(clock, 1000);
    expect(recorder.content.size).toBe(3);
    expect(recorder.status().listings).toBe(1);
  });

  it('processes a page in slices, with other turns in between (regression: 4096 keys in one)', async () => {
    for (let i = 0; i < PAGE_KEYS; i++) put(String(i).padStart(6, '0'));
    recorder = new WatchRecorder(backend.watch(P));
    const inTurn: number[] = [];
    for (let before = 0; !recorder.listed; before = recorder.status().keys) {
      await settle(1);
      inTurn.push(recorder.status().keys - before);
    }
    expect(recorder.content.size).toBe(PAGE_KEYS);
    expect(Math.max(...inTurn)).toBeLessThanOrEqual(1024);
  });

  it('removes keys that a list does not contain in slices, too (regression: all of it in one turn)', async () => {
    for (let i = 0; i < PAGE_KEYS; i++) put(String(i).padStart(6, '0'));
    recorder = new WatchRecorder(backend.watch(P));
    await settle(100);
    backend.link.down();
    server.txn({ compare: [], writes: [{ op: 'delete', range: prefixRange(P) }] });
    server.compact();
    backend.link.up();
    const inTurn: number[] = [];
    await advance(clock, 100);
    for (let turn = 0; turn < 20; turn++) {
      const { keys } = recorder.status();
      await settle(1);
      inTurn.push(keys - recorder.status().keys);
    }
    await settle(20);
    expect(recorder.content.size).toBe(0);
    expect(Math.max(...inTurn)).toBeGreaterThan(0);
    expect(Math.max(...inTurn)).toBeLessThanOrEqual(1024);
  });

  it('lists only as far as its reader follows (regression: 8 MiB for the collector to move about)', async () => {
    for (let i = 0; i < 3 * PAGE_KEYS; i++) put(String(i).padStart(6, '0'), 'x'.repeat(500));
    recorder = new WatchRecorder(backend.watch(P));
    const release = recorder.hold();
    await settle(50);
    expect(recorder.status()).toMatchObject({ state: 'listing', listed: false });
    expect(recorder.status().queuedBytes).toBeLessThan(2 << 20);
    release();
    await settle(100);
    expect(recorder.content.size).toBe(3 * PAGE_KEYS);
  });

  it('lists if the missed changes exceed an answer (regression: it retried for ever)', async () => {
    for (let i = 0; i < 1100; i++) put(String(i));
    recorder = new WatchRecorder(backend.watch(P));
    await settle(50);
    backend.link.down();
    for (let i = 0; i < 25_000; i++) put(String(i % 1000), 'x'.repeat(100));
    backend.link.limitResponses(20_000);
    backend.link.up();
    await advance(clock, 30_000);
    await settle(50);
    expect(recorder.status()).toMatchObject({ state: 'watching', listings: 2 });
    expect(recorder.content.get(`${P}999`)).toHaveLength(100);
  });

  it('resumes after the last received event, however far the progress has advanced', async () => {
    const { link } = backend;
    const watch = link.watch.bind(link);
    const starts: number[] = [];
    let progress = (): void => {};
    link.watch = (request, observer) => {
      starts.push(request.startRevision);
      progress = () => {
        const { header } = server.range(prefixRange(P));
        observer.onProgress({ ...header, revision: header.revision + 5 }, false);
      };
      return watch(request, observer);
    };
    put('listed');
    recorder = new WatchRecorder(backend.watch(P));
    await settle();
    put('told');
    await settle();
    const { nextRevision } = recorder.status();
    progress();
    expect(recorder.status().nextRevision).toBe(nextRevision + 5);
    link.cut();
    await advance(clock, 500);
    expect(starts).toEqual([0, nextRevision]);
    expect(recorder.status()).toMatchObject({ state: 'watching', listings: 1 });
  });

  it('keeps a quiet stream that answers', async () => {
    recorder = new WatchRecorder(backend.watch(P));
    await advance(clock, 14 * 60_000);
    expect(recorder.status()).toMatchObject({ state: 'watching', failures: 0, streams: 1 });
  });

  it('finds within the hour the events that the stream of the server has lost (etcd #17529, #18089)', async () => {
    const { link } = backend;
    const watch = link.watch.bind(link);
    link.watch = (request, observer) =>
      watch(request, {
        onCreated: (header) => observer.onCreated(header),
        onProgress: (header, isRequested) => observer.onProgress(header, isRequested),
        onEnd: (reason) => observer.onEnd(reason),
        onEvents: (events, header, isPartial) => {
          const kept = events.filter(({ key }) => key !== `${P}lost`);
          if (kept.length > 0) observer.onEvents(kept, header, isPartial);
        },
      });
    recorder = new WatchRecorder(backend.watch(P));
    await settle();
    put('lost');
    put('told');
    await settle();
    expect([...recorder.content.keys()]).toEqual([`${P}told`]);
    await advance(clock, HOUR_MS);
    expect([...recorder.content.keys()].sort()).toEqual([`${P}lost`, `${P}told`]);
  });
});
