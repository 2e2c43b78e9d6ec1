import { getEventListeners } from 'node:events';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { KvstoreClient } from '../../../src/kvstore/kvstore-client.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { MemoryTransport } from '../../../src/kvstore/memory/memory-transport.ts';
import { NO_LEASE } from '../../../src/kvstore/session/transport.ts';
import { Reconnects } from '../../../src/kvstore/watch/reconnects.ts';
import { WATCH_LIMITS } from '../../../src/kvstore/watch/watch-limits.ts';
import { advance, settle } from '../support/settle.ts';
import { WatchRecorder } from '../support/watch-recorder.ts';
import { WatchWorld } from '../support/watch-world.ts';

let world: WatchWorld;
beforeEach(() => {
  world = new WatchWorld();
});
afterEach(() => world.end());

/** From now until the returned function is called, streams are opened whose events the server drops after that call. */
function dropOfCompaction(): () => void {
  const { link } = world;
  const watch = link.watch.bind(link);
  let isDropping = false;
  link.watch = (request, observer) => {
    if (isDropping) return watch(request, observer);
    return watch(request, {
      onCreated: (header) => observer.onCreated(header),
      onProgress: (...progress) => observer.onProgress(...progress),
      onEvents: (...events) => {
        if (!isDropping) observer.onEvents(...events);
      },
      onEnd: () => {}, // also the message that the history was compacted
    });
  };
  return () => {
    isDropping = true;
  };
}

describe('the reader of a watch', () => {
  it('has a prefix that ends in a slash, and reads once', async () => {
    expect(() => world.watch({ prefix: 'p' })).toThrow('watch: prefix must end in "/", not p');
    const watch = world.watch();
    expect(watch.status()).toMatchObject({ state: 'listing', listed: false, keys: 0 });
    watch.checkRights(); // a prefix that is not followed has none
    world.put('a');
    for await (const _batch of watch) break;
    await expect(watch[Symbol.asyncIterator]().next()).rejects.toThrow('a watch can be read only once');
  });

  it('that is aborted before its start sends no request', async () => {
    for (const name of ['signal', 'closed'] as const) {
      const told: string[] = [];
      const watch = world.watch({
        [name]: AbortSignal.abort(),
        onBegin: () => told.push('begins'),
        onEnd: () => told.push('ends'),
      });
      for await (const _batch of watch) expect.fail();
      expect([told, watch.status().state, world.link.streams]).toEqual([['begins', 'ends'], 'ended', 0]);
    }
  });

  it.each(['signal', 'closed', 'break'])(
    'leaves nothing behind when it ends, neither a stream nor a listener, and that is no failure: by %s',
    async (how) => {
      const [signal, closed] = [new AbortController(), new AbortController()];
      const watch = world.watch({ signal: signal.signal, closed: closed.signal });
      world.put('a');
      let batches = 0;
      const read = async (): Promise<void> => {
        for await (const _batch of watch) if (++batches === 2 && how === 'break') break;
      };
      const reading = read();
      await settle(4);
      if (how === 'signal') signal.abort();
      if (how === 'closed') closed.abort();
      await reading;
      expect(watch.status()).toMatchObject({ state: 'ended', failures: 0, lastFailure: undefined });
      expect(world.states).toEqual(['listing', 'watching', 'ended']);
      expect([signal, closed].flatMap((one) => getEventListeners(one.signal, 'abort'))).toEqual([]);
      expect(world.link.streams).toBe(0);
      world.put('b');
      await settle(4);
      expect(batches).toBe(2);
    },
  );

  it('has one stream after any number of failed lists', async () => {
    const { link } = world;
    link.loseAnswers(5);
    world.put('a');
    const recorder = world.read();
    await advance(world.clock, 120_000);
    const { state, failures } = recorder.status();
    expect([state, failures, link.streams]).toEqual(['watching', 5, 1]);
  });

  it('yields between two batches, and receives a single event immediately', async () => {
    const recorder = world.read({ limits: { batchEvents: 1 } });
    await settle(4);
    const release = recorder.hold();
    world.put('first');
    await settle();
    world.put('a', 'b', 'c', 'd');
    await settle();
    const before = recorder.batches.length;
    release();
    for (let turn = 1; turn <= 4; turn++) {
      await settle(1);
      expect(recorder.batches.length - before).toBeLessThanOrEqual(turn);
    }
    await settle(4);
    expect(recorder.batches.length - before).toBe(4);
    for (const name of ['e', 'f']) {
      world.put(name);
      for (let i = 0; i < 50; i++) await Promise.resolve(); // and no turn of the event loop
      expect(recorder.story.at(-1)).toBe(`create p/${name}`);
    }
  });

  it('counts events that arrived together as one arrival, in however many batches they are read', async () => {
    const recorder = world.read({ limits: { batchEvents: 1 } });
    await settle(4);
    const release = recorder.hold();
    world.put('first');
    await settle();
    world.put('a', 'b', 'c');
    await settle();
    await advance(world.clock, 1000);
    release();
    await settle(10);
    const { counts, sumMs } = recorder.status().delays;
    expect([counts.reduce((sum, count) => sum + count, 0), sumMs]).toEqual([4, 4000]);
  });

  it('that lags pauses the stream, and loses nothing (I11)', async () => {
    const recorder = world.read({ limits: { highWaterBytes: 400, lowWaterBytes: 200 } });
    await settle(4);
    const release = recorder.hold();
    for (let i = 0; i < 200; i++) {
      world.put(`${i}`);
      await settle(1);
    }
    expect(recorder.status().queuedBytes).toBeLessThan(800);
    release();
    await settle(20);
    expect(recorder.content.size).toBe(200);
    expect(recorder.status()).toMatchObject({ failures: 0, streams: 1 });
  });

  it('that lags through a compaction loses nothing if the server drops the other events (regression: for 45 min)', async () => {
    const { server, clock } = world;
    const drop = dropOfCompaction();
    const recorder = world.read({ limits: { highWaterBytes: 400, lowWaterBytes: 200 } });
    await settle(4);
    const release = recorder.hold();
    for (let i = 0; i < 20; i++) {
      world.put(`${i}`);
      await settle(1);
    }
    drop();
    server.compact();
    await advance(clock, 1000);
    release();
    await advance(clock, 5000);
    expect(recorder.content.size).toBe(20);
    expect(recorder.status()).toMatchObject({ failures: 1, lastFailure: { code: 'compacted' } });
  });

  it('that lags through a compaction during its list loses nothing either (regression: for 45 min)', async () => {
    const { server, clock } = world;
    world.put(...Array.from({ length: 20 }, (_, i) => `${i}`));
    const drop = dropOfCompaction();
    const recorder = world.read({ limits: { highWaterBytes: 400, lowWaterBytes: 200, sliceKeys: 1 } });
    const release = recorder.hold();
    await settle(8);
    expect(recorder.status()).toMatchObject({ state: 'listing', listed: false });
    world.put('new');
    drop();
    server.compact();
    await advance(clock, 1000);
    release();
    await settle(30);
    await advance(clock, 5000);
    await settle(30);
    expect(recorder.content.size).toBe(21);
    expect(recorder.status()).toMatchObject({ failures: 1, lastFailure: { code: 'compacted' } });
  });

  describe('of a large revision', () => {
    const keys = Array.from({ length: 20_000 }, (_, i) => `p/${i}`);
    const writeAll = (text: string): void => {
      const value = bytesOfText(text);
      const writes = keys.map((key) => ({ op: 'put', key, value, lease: NO_LEASE }) as const);
      world.server.txn({ compare: [], writes });
    };
    const deleteAll = (): void => {
      world.server.txn({ compare: [], writes: [{ op: 'delete', range: prefixRange('p/') }] });
    };

    it('that lags pauses the stream within it (regression: one revision of 200,000 deletes queued 23 MB)', async () => {
      writeAll('1');
      const recorder = world.read();
      await settle(200);
      expect(recorder.content.size).toBe(20_000);
      const release = recorder.hold();
      deleteAll();
      await settle(20);
      const { queuedBytes, nextRevision } = recorder.status();
      release();
      expect(queuedBytes).toBeGreaterThan(WATCH_LIMITS.highWaterBytes - 1);
      expect(queuedBytes).toBeLessThan(WATCH_LIMITS.highWaterBytes + 100_000);
      expect(nextRevision).toBe(3); // some of its deletes are known
      await settle(200);
      expect([recorder.content.size, recorder.status().nextRevision]).toEqual([0, 4]);
      expect(recorder.status()).toMatchObject({ failures: 0, streams: 1 });
    });

    it.each([
      ['puts', (): void => writeAll('2')],
      ['deletes', deleteAll],
    ])('receives all of its %s if the stream breaks within it', async (_, write) => {
      writeAll('1');
      const recorder = world.read();
      await settle(200);
      const release = recorder.hold();
      write();
      await settle(20);
      world.link.cut();
      release();
      await advance(world.clock, 500);
      await settle(200);
      const { kvs } = world.server.range(prefixRange('p/'));
      expect(new Map(recorder.content)).toEqual(
        new Map(kvs.map(({ key, value }) => [key, textOfBytes(value)])),
      );
      expect(recorder.status()).toMatchObject({ failures: 1, nextRevision: 4 });
    });
  });

  it('receives a revision that is too large for its stream by reading the keys', async () => {
    const server = new MemoryServer({ clock: world.clock, sliceEvents: 1 });
    const { clock } = world;
    const watchLimits = { revisionBytes: 200 };
    const transport = new MemoryTransport(server);
    const client = new KvstoreClient({ kind: 'memory', transport, clock, random: () => 0.5, watchLimits });
    const recorder = new WatchRecorder(client.watch('p/'));
    await settle(4);
    const put = (key: string) => ({ op: 'put', key, value: bytesOfText('1'), lease: NO_LEASE }) as const;
    server.txn({ compare: [], writes: [put('p/a')] });
    await settle(4);
    server.txn({ compare: [], writes: ['p/b', 'p/c', 'p/d', 'p/e'].map(put) });
    await advance(clock, 1000);
    expect([...recorder.content.keys()]).toEqual(['p/a', 'p/b', 'p/c', 'p/d', 'p/e']);
    const { failures, lastFailure, listings, state } = recorder.status();
    expect({ failures, listings, state }).toEqual({ failures: 1, listings: 1, state: 'watching' });
    expect(lastFailure?.message).toContain('revision 3 of the watch exceeds 200 bytes');
    await client.close();
    await recorder.done;
  });

  it('receives the writes of a transaction in one batch, though they arrive one by one (I8)', async () => {
    const server = new MemoryServer({ clock: world.clock, sliceEvents: 1 });
    const backend = new MemoryBackend({ server, clock: world.clock });
    const recorder = new WatchRecorder(backend.watch('p/'));
    await settle(4);
    const put = (key: string) => ({ op: 'put', key, value: bytesOfText('1'), lease: NO_LEASE }) as const;
    server.txn({ compare: [], writes: [put('p/a'), put('p/b'), put('q/a'), put('p/c')] });
    server.txn({ compare: [], writes: [put('p/d')] });
    await settle(4);
    expect(recorder.batches.map((batch) => batch.map(({ key }) => key))).toEqual([
      [''],
      ['p/a', 'p/b', 'p/c'],
      ['p/d'],
    ]);
    await backend.close();
    await recorder.done;
  });
});

describe('the watches of one client', () => {
  it('let one of them retry an unreachable server, and all continue when it answers', async () => {
    const reconnects = new Reconnects();
    const opened: string[] = [];
    const watch = world.link.watch.bind(world.link);
    world.link.watch = (request, observer) => {
      opened.push(request.prefix);
      return watch(request, observer);
    };
    const prefixes = ['p/', 'q/', 'r/'];
    const recorders = prefixes.map((prefix) => world.read({ prefix, reconnects }));
    await settle(4);
    opened.splice(0);
    world.link.down();
    await advance(world.clock, 60_000);
    expect(opened.length).toBeGreaterThan(8);
    expect(new Set(opened).size).toBe(1);
    world.link.up();
    await advance(world.clock, 10_000);
    expect(recorders.map((recorder) => recorder.status().state)).toEqual(prefixes.map(() => 'watching'));
  });

  it('continue when the retry is refused, because the server answers', async () => {
    const reconnects = new Reconnects();
    const [refused, other] = ['p/', 'q/'].map((prefix) => world.read({ prefix, reconnects }));
    await settle(4);
    world.link.down();
    await advance(world.clock, 10_000);
    world.link.forbid('p/');
    world.link.up();
    await advance(world.clock, 10_000);
    expect([refused?.status().state, other?.status().state]).toEqual(['forbidden', 'watching']);
    expect(refused?.status().lastFailure?.message).toContain('grant read on p/ to the user');
  });
});
