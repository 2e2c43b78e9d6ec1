import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { bytesOfText } from '../../src/kvstore/bytes.ts';
import { prefixRange } from '../../src/kvstore/key-range.ts';
import { MemoryServer } from '../../src/kvstore/memory/memory-server.ts';
import { NO_LEASE } from '../../src/kvstore/transport.ts';
import { PAGE_KEYS } from '../../src/kvstore/watch/paged-list.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { FaultyMemory } from './support/faulty-memory.ts';
import { advance, settle } from './support/settle.ts';
import { WatchRecorder } from './support/watch-recorder.ts';

const P = 'p/';
const HOUR_MS = 3_600_000;

describe('a watch that nothing is wrong with, as far as it is told', () => {
  let clock: ManualClock;
  let server: MemoryServer;
  let backend: FaultyMemory;
  let recorder: WatchRecorder;
  const put = (name: string, value = 'value'): unknown =>
    server.txn({
      compare: [],
      writes: [{ op: 'put', key: P + name, value: bytesOfText(value), lease: NO_LEASE }],
    });

  beforeEach(() => {
    clock = new ManualClock();
    server = new MemoryServer({ clock });
    backend = new FaultyMemory({ server, clock, random: () => 0.5 });
  });

  afterEach(async () => {
    await backend.close();
    await recorder.done;
    expect(recorder.breaches).toEqual([]);
  });

  it('asks a stream that has said nothing for a minute whether it lives, and leaves one that does not answer', async () => {
    recorder = new WatchRecorder(backend.watch(P));
    await settle();
    backend.link.stallWatch(P);
    put('unheard');
    await advance(clock, 2 * 60_000); // in the first minute it has been accepted
    expect(recorder.status()).toMatchObject({ state: 'watching', failures: 0 });
    await advance(clock, 10_000);
    expect(recorder.status()).toMatchObject({ failures: 1 });
    expect(recorder.status().lastFailure?.message).toContain('silent');
    backend.link.unstallWatch(P);
    await advance(clock, 1000);
    expect([...recorder.content.keys()]).toEqual([`${P}unheard`]);
  });

  /** What is to happen right before the next stream is opened. */
  const beforeStream = (happens: () => void): void => {
    const { link } = backend;
    const watch = link.watch.bind(link);
    link.watch = (request, observer) => {
      link.watch = watch;
      happens();
      return watch(request, observer);
    };
  };

  it('finds out about a restore between its listing and its stream', async () => {
    const backup = server.snapshot();
    put('lost with the backup');
    beforeStream(() => server.restore(backup));
    recorder = new WatchRecorder(backend.watch(P), { mayGoBack: true });
    await advance(clock, 1000);
    expect(recorder.story).toEqual([
      `create ${P}lost with the backup`,
      'list-done',
      `delete ${P}lost with the backup`,
    ]);
  });

  it('finds out about a restore between its listing and its stream, also when the store has grown to where it was', async () => {
    const backup = server.snapshot();
    put('lost with the backup');
    beforeStream(() => {
      server.restore(backup);
      put('grown since');
    });
    recorder = new WatchRecorder(backend.watch(P), { mayGoBack: true });
    await advance(clock, 1000);
    expect([...recorder.content.keys()]).toEqual([`${P}grown since`]);
  });

  it('takes a page in slices, with turns of others between (regression: 4096 keys in one)', async () => {
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

  it('drops what a listing does not show in slices too (regression: all of it in one turn)', async () => {
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

  it('lists no further than its reader is near (regression: 8 MiB for the collector to move about)', async () => {
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

  it('lists when what was missed is more than one answer takes (regression: it asked for ever)', async () => {
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

  it('keeps a quiet stream that answers', async () => {
    recorder = new WatchRecorder(backend.watch(P));
    await advance(clock, 14 * 60_000);
    expect(recorder.status()).toMatchObject({ state: 'watching', failures: 0, resumptions: 1 });
  });

  it('finds within the hour what the server’s own stream has lost (etcd #17555, #18089)', async () => {
    const { link } = backend;
    const watch = link.watch.bind(link);
    link.watch = (request, observer) =>
      watch(request, {
        onCreated: (header) => observer.onCreated(header),
        onProgress: (header, requested) => observer.onProgress(header, requested),
        onEnd: (reason) => observer.onEnd(reason),
        onEvents: (events, header, partial) => {
          const kept = events.filter(({ key }) => key !== `${P}lost`);
          if (kept.length > 0) observer.onEvents(kept, header, partial);
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
