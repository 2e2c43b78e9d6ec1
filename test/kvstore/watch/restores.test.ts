import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { FaultyMemoryBackend } from '../../../src/kvstore/memory/faulty-memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { NO_LEASE } from '../../../src/kvstore/session/transport.ts';
import { SyncStore } from '../../../src/kvstore/stores/sync-store.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../support/settle.ts';
import { WatchRecorder } from '../support/watch-recorder.ts';

const P = 'p/';

describe('a store that is restored from a backup', () => {
  let clock: ManualClock;
  let server: MemoryServer;
  let backend: FaultyMemoryBackend;
  const recorders: WatchRecorder[] = [];
  const put = (...texts: readonly string[]): void => {
    for (const text of texts) {
      const [key = '', value = ''] = text.split('=');
      server.txn({ compare: [], writes: [{ op: 'put', key, value: bytesOfText(value), lease: NO_LEASE }] });
    }
  };
  const follow = async (prefix: string): Promise<WatchRecorder> => {
    const recorder = new WatchRecorder(backend.watch(prefix), { mayGoBack: true });
    recorders.push(recorder);
    await settle(4);
    return recorder;
  };

  beforeEach(() => {
    clock = new ManualClock();
    server = new MemoryServer({ clock });
    backend = new FaultyMemoryBackend({ server, clock });
  });

  afterEach(async () => {
    await backend.close();
    for (const recorder of recorders.splice(0)) {
      await recorder.done;
      expect(recorder.breaches).toEqual([]);
    }
  });

  it.each<readonly [what: string, followed: readonly string[], again: readonly string[]]>([
    ['another key before them', ['a=1', 'b=1'], ['a=1', 'c=1']],
    ['another value before them, at the same revision', ['a=1', 'b=1'], ['a=1', 'b=2']],
  ])(
    'and contains the last three keys as before, and %s, is detected within seconds (regression: in half an hour, or never)',
    async (_, followed, again) => {
      const last = ['x=1', 'y=1', 'z=1'];
      const backup = server.snapshot();
      put(...[...followed, ...last].map((text) => P + text));
      const recorder = await follow(P);
      put(`${P}later=1`);
      await settle();
      server.restore(backup);
      put(...[...again, ...last, 'later=1'].map((text) => P + text));
      await advance(clock, 5000);
      const content = [...recorder.content].map(([key, value]) => `${key.slice(P.length)}=${value}`);
      expect(content.sort()).toEqual([...again, ...last, 'later=1'].sort());
      expect(recorder.status().state).toBe('watching');
    },
  );

  it('is detected with the next keepalives, by a client that watches nothing, a second time, too', async () => {
    const lost: string[] = [];
    backend.onLeaseLost({ onLeaseLost: (keys) => lost.push(...keys) });
    for (let time = 1; time <= 2; time++) {
      await backend.update('a', bytesOfText('1'), { leased: true });
      const backup = server.snapshot();
      await backend.update('b', bytesOfText('1'), { leased: true });
      server.restore(backup);
      await advance(clock, 600_000);
      expect(lost.splice(0).sort()).toEqual(['a', 'b']);
    }
  });

  it('costs the client its leases once, however many watches detect it, and when (regression: once for each)', async () => {
    const lost: string[] = [];
    backend.onLeaseLost({ onLeaseLost: (keys) => lost.push(...keys) });
    const backup = server.snapshot();
    put('p/a=1', 'q/a=1');
    await follow(P);
    await follow('q/');
    await backend.update('k', bytesOfText('1'), { leased: true });
    backend.link.stallWatch('q/');
    server.restore(backup);
    await advance(clock, 1000);
    expect(lost).toEqual(['k']);
    await backend.update('k', bytesOfText('1'), { leased: true });
    backend.link.unstallWatch('q/');
    await advance(clock, 60_000);
    expect([lost, backend.status().watches.map(({ state }) => state)]).toEqual([
      ['k'],
      ['watching', 'watching'],
    ]);
    server.restore(backup);
    await advance(clock, 60_000);
    expect(lost).toEqual(['k', 'k']);
  });

  it('is detected by a client that watches nothing and writes before its keepalive (regression: never)', async () => {
    const lost: string[] = [];
    backend.onLeaseLost({ onLeaseLost: (keys) => lost.push(...keys) });
    await backend.update('k', bytesOfText('1'), { leased: true });
    const backup = server.snapshot();
    await backend.update('k', bytesOfText('2'), { leased: true });
    await advance(clock, 1000);
    server.restore(backup);
    await backend.update('l', bytesOfText('1'), { leased: true });
    expect(lost.sort()).toEqual(['k', 'l']);
  });

  it.each([1, 2, 3])(
    'before read %i of a listing is not listed as a mixture of both (regression: it was)',
    async (number) => {
      const keys = Array.from({ length: 600 }, (_, i) => `${P}${String(i).padStart(3, '0')}`);
      const backup = server.snapshot();
      put(...keys.map((key) => `${key}=old`));
      let reads = 0;
      backend.link.onRead = () => {
        if (++reads !== number) return;
        server.restore(backup);
        put(...keys.map((key) => `${key}=new`));
      };
      const list = async (): Promise<string> => {
        const kvs = await backend.listPrefix(P);
        const values = new Set(kvs.map(({ value }) => textOfBytes(value)));
        return `${kvs.length} ${[...values]}`;
      };
      if (number > 1) await expect(list()).rejects.toMatchObject({ code: 'unavailable' });
      expect(await list()).toBe('600 new');
      expect(server.streams).toBe(0);
    },
  );

  describe('is detected by a client that only writes', () => {
    let store: SyncStore;
    let ended: AbortController;
    let running: Promise<void>;
    /** A third of a lease's lifetime: until the next keepalive. */
    const KEEPALIVE_MS = 5 * 60_000;
    const content = (): string[] =>
      server
        .range(prefixRange(P))
        .kvs.map(({ key, value }) => `${key.slice(P.length)}=${textOfBytes(value)}`);

    beforeEach(async () => {
      store = new SyncStore({ backend, prefix: P, clock, random: () => 0.5 });
      ended = new AbortController();
      for (const name of ['a', 'b', 'c']) store.upsert(name, bytesOfText('1'));
      running = store.run(ended.signal);
      await settle(6);
    });

    afterEach(async () => {
      ended.abort();
      await running;
    });

    it.each<readonly [lacks: string, write: () => void]>([
      ['a put of a key', () => store.upsert('d', bytesOfText('1'))],
      ['a put of another value', () => store.upsert('b', bytesOfText('2'))],
      ['a delete', () => store.delete('b')],
      [
        'a put, and a delete of another key',
        () => {
          store.upsert('d', bytesOfText('1'));
          store.upsert('e', bytesOfText('1'));
          store.delete('e');
        },
      ],
    ])('by its missing writes: %s (regression: never)', async (_, write) => {
      const backup = server.snapshot();
      write();
      await settle(6);
      const wanted = content();
      server.restore(backup);
      expect(content()).not.toEqual(wanted);
      for (let i = 0; i < 20; i++) put('elsewhere=1'); // it has grown beyond the revision known to the client
      await advance(clock, KEEPALIVE_MS + 1000);
      await advance(clock, 20 * 60_000); // an unwanted key is deleted with its lease
      expect(content()).toEqual(wanted);
      expect(backend.status().leasesLost).toBe(1);
    });

    it('and by nothing else', async () => {
      store.upsert('a', bytesOfText('2'));
      store.delete('b');
      await settle(6);
      await advance(clock, KEEPALIVE_MS);
      put(`${P}a=another client's`, `${P}b=another client's`);
      await advance(clock, KEEPALIVE_MS);
      store.delete('a');
      await settle(6);
      backend.link.down();
      await advance(clock, KEEPALIVE_MS);
      backend.link.up();
      await advance(clock, KEEPALIVE_MS);
      expect(backend.status()).toMatchObject({ leasesLost: 0, background: { failures: expect.any(Number) } });
    });

    it('and not by a delete of another client before a compaction (regression: cost every lease and lock)', async () => {
      const lock = await backend.lock('locks/x');
      await settle(6);
      server.txn({ compare: [], writes: [{ op: 'delete', range: prefixRange(P) }] });
      put('elsewhere=1');
      server.compact();
      await advance(clock, 2 * KEEPALIVE_MS);
      expect([backend.status().leasesLost, lock.lost.aborted]).toEqual([0, false]);
      await lock.release();
    });

    it('nor by a delete in progress', async () => {
      const range = backend.link.range.bind(backend.link);
      backend.link.range = async (request, options) => {
        store.delete('c');
        await settle(6);
        return range(request, options);
      };
      await advance(clock, KEEPALIVE_MS + 1000);
      expect(content()).toEqual(['a=1', 'b=1']);
      expect(backend.status().leasesLost).toBe(0);
    });
  });
});
