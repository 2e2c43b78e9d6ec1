import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { RejectionLog } from '../../../src/base/rejection.ts';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { keyRange } from '../../../src/kvstore/codec/key-range.ts';
import { FaultyMemoryBackend } from '../../../src/kvstore/memory/faulty-memory-backend.ts';
import { KeyTable } from '../../../src/kvstore/session/key-table.ts';
import { NO_LEASE } from '../../../src/kvstore/session/transport.ts';
import { WatchStore, type WatchStoreRun } from '../../../src/kvstore/stores/watch-store.ts';
import { decodeWith, rejectedAs } from '../../../src/net/fields.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../support/settle.ts';

const P = 'p/';
const { signal } = new AbortController();

describe('a run of a watch store', () => {
  let clock: ManualClock;
  let backend: FaultyMemoryBackend;
  let rejections: RejectionLog;
  let story: string[];
  let applied: number;
  let onApplied: () => void;
  let store: WatchStore<string>;
  let ended: AbortController;
  let running: Promise<unknown>;

  const start = async (options: Partial<WatchStoreRun> = {}): Promise<void> => {
    ended = new AbortController();
    running = store.run({ backend, prefix: P, signal: ended.signal, ...options });
    await settle(4);
  };
  const stop = async (): Promise<void> => {
    ended.abort();
    await running;
  };
  const put = async (name: string, value: string): Promise<number> => {
    const revision = await backend.update(P + name, bytesOfText(value));
    await settle(4);
    return revision;
  };
  const gone = async (name: string): Promise<number> => {
    await backend.delete(P + name);
    await settle(4);
    return backend.server.header.revision;
  };

  beforeEach(async () => {
    clock = new ManualClock();
    backend = new FaultyMemoryBackend({ clock });
    rejections = new RejectionLog();
    story = [];
    applied = 0;
    onApplied = () => {};
    store = new WatchStore({
      observer: {
        onUpdate: (name, value) => story.push(`${name}=${value}`),
        onDelete: (name) => story.push(`${name} gone`),
      },
      rejections,
      decode: (_name, value) => ({ ok: true, value: textOfBytes(value) ?? '' }),
      *decodeLarge(name, value) {
        yield undefined;
        if (name === 'throw') throw new Error('a broken decoder');
        return { ok: true, value: `large ${textOfBytes(value)}` };
      },
      onApplied: () => {
        applied++;
        onApplied();
      },
    });
    for (const name of ['a', 'b']) await put(name, '1');
  });
  afterEach(async () => {
    await stop();
    await backend.close();
  });

  describe('whose decoder finds faults', () => {
    beforeEach(() => {
      store = new WatchStore({
        observer: {
          onUpdate: (name, value) => story.push(`${name}=${value}`),
          onDelete: (name) => story.push(`${name} gone`),
        },
        rejections,
        decode: (_name, value, at) => {
          const text = textOfBytes(value) ?? '';
          if (text === 'refused') return rejectedAs('invalid', 'value', text, 'is refused', at);
          return decodeWith(at, (drop) => {
            if (text === 'partial') drop('invalid-detail', 'detail', text, 'is dropped');
            return text;
          });
        },
      });
    });

    it('counts details that the decoder has dropped, and keeps the value', async () => {
      await start();
      await put('a', 'partial');
      expect([story.at(-1), store.status().rejected]).toEqual(['a=partial', 0]);
      expect(rejections.status().byReason).toEqual({ 'invalid-detail': 1 });
      await stop();
    });

    it('that must never delete keeps an earlier value over deletes, lists and rejected values', async () => {
      await start();
      await put('c', '1');
      await stop();
      await gone('a');
      await start({ mayDelete: 'never' });
      await gone('b');
      await put('c', 'refused');
      await put('d', '1');
      expect([store.size, store.status().rejected]).toEqual([4, 0]);
      expect(story.slice(story.indexOf('c=1'))).toEqual(['c=1', 'b=1', 'c=1', 'd=1']);
      const before = story.length;
      expect(rejections.status().byReason).toEqual({ invalid: 1 });
      await stop();
      await start();
      expect(story.slice(before).sort()).toEqual(['a gone', 'b gone', 'c gone', 'd=1']);
      await stop();
    });
  });

  it('is not synced before its complete list is applied', async () => {
    let isSynced = false;
    void store.synced.then(() => {
      isSynced = true;
    });
    backend.link.stallWatch(P);
    await start();
    expect([isSynced, store.isSynced, applied]).toEqual([false, false, 0]);
    backend.link.unstallWatch(P);
    await settle(4);
    expect([isSynced, store.isSynced]).toEqual([true, true]);
  });

  describe('that must get permission before it deletes', () => {
    let asked: number[];
    let answer: boolean | Promise<boolean>;
    const mayDelete = async (revision: number): Promise<boolean> => {
      asked.push(revision);
      return answer;
    };

    beforeEach(() => {
      asked = [];
      answer = true;
    });

    it('requests it for a delete with its revision, and not for writes', async () => {
      await start({ mayDelete });
      asked = [];
      await put('c', '1');
      expect(asked).toEqual([]);
      const revision = await gone('b');
      expect(asked).toEqual([revision]);
      expect(story.at(-1)).toBe('b gone');
    });

    it('requests it with the last revision of several deletes', async () => {
      await start({ mayDelete });
      backend.link.stallWatch(P);
      await gone('a');
      const last = await gone('b');
      backend.link.unstallWatch(P);
      await settle(4);
      expect(asked.at(-1)).toBe(last);
      expect(store.size).toBe(0);
    });

    it('requests it for a batch with writes and deletes', async () => {
      await start({ mayDelete });
      answer = false;
      const write = { op: 'put', key: `${P}c`, value: bytesOfText('1'), lease: NO_LEASE } as const;
      const removal = { op: 'delete', range: keyRange(`${P}b`) } as const;
      backend.server.txn({ compare: [], writes: [write, removal] });
      await settle(4);
      expect(asked.at(-1)).toBe(backend.server.header.revision);
      expect(store.size).toBe(3);
    });

    it('keeps the keys if the permission is denied, and continues', async () => {
      await start({ mayDelete });
      answer = false;
      await gone('b');
      await put('c', '1');
      expect(store.size).toBe(3);
      expect(story.some((line) => line.endsWith('gone'))).toBe(false);
    });

    it('requests it for a complete list with its revision, and is neither listed nor swept without it', async () => {
      await start();
      await stop();
      const revision = await gone('b');
      await store.drain();
      await start();
      await stop();
      await put('b', '2');
      let listed = 0;
      const onListed = (): void => void listed++;
      await gone('a');
      answer = false;
      await start({ mayDelete, onListed });
      expect([asked, listed]).toEqual([[revision + 2], 0]);
      expect(store.size).toBe(2);
      await stop();
      answer = true;
      await start({ mayDelete, onListed });
      expect([listed, store.size]).toEqual([1, 1]);
    });

    it('is not synced by a list without permission', async () => {
      await start();
      await stop();
      answer = false;
      const other = new FaultyMemoryBackend({ clock });
      await start({ mayDelete, backend: other });
      expect(store.size).toBe(2);
      await stop();
      await store.drain();
      // Without deletes there is nothing to request.
      asked = [];
      await start({ mayDelete, backend: other });
      expect([asked, store.isSynced]).toEqual([[], true]);
    });

    it('applies nothing if it has ended before the answer', async () => {
      await start({ mayDelete });
      let resolve: (answer: boolean) => void = () => {};
      answer = new Promise((answered) => {
        resolve = answered;
      });
      await gone('b');
      ended.abort();
      resolve(true);
      await running;
      expect(store.size).toBe(2);
    });
  });

  it('keeps keys that its list does not contain if configured, and applies deletes', async () => {
    await start();
    await stop();
    await gone('b');
    let listed = 0;
    await start({ keepUnlisted: true, onListed: () => void listed++ });
    expect([store.size, listed]).toEqual([2, 1]);
    await gone('a');
    expect(store.size).toBe(1);
  });

  it('has no cursor beyond the applied changes while another batch is queued', async () => {
    await start();
    const cursors: number[] = [];
    const { revision } = backend.server.header;
    const seen: number[] = [];
    const updates = (): number => store.status().updates;
    const before = updates();
    onApplied = () => {
      cursors.push(store.cursor);
      seen.push(updates() - before);
    };
    for (let i = 0; i < 300; i++)
      backend.server.txn({
        compare: [],
        writes: [{ op: 'put', key: `${P}${i}`, value: bytesOfText('1'), lease: NO_LEASE }],
      });
    await settle(8);
    expect(seen).toEqual([256, 300]);
    expect(cursors).toEqual([revision + 1, revision + 301]);
  });

  it('has a cursor only while it follows, and only for applied changes', async () => {
    expect(store.cursor).toBe(0);
    await start();
    const { revision } = backend.server.header;
    expect(store.cursor).toBe(revision + 1);
    backend.link.down();
    await settle(4);
    expect(store.cursor).toBe(0);
    backend.link.up();
    await advance(clock, 200); // it compares all values after a second
    expect(store.status().watch).toMatchObject({ state: 'watching', isDoubtful: true });
    expect(store.cursor).toBe(0);
    await put('c', '1');
    expect(store.cursor).toBe(revision + 2);
    backend.link.cut();
    await advance(clock, 200);
    expect(store.cursor).toBe(0);
    await advance(clock, 2000);
    expect(store.status()).toMatchObject({ updates: 3, watch: { isDoubtful: false } });
    expect(store.cursor).toBe(revision + 2); // although no batch was received
    await stop();
    expect(store.cursor).toBe(0);
  });

  describe('behind a gate', () => {
    let runTurns: (count: number) => Promise<void>;
    let gate: TurnGate;
    let keys: KeyTable;

    beforeEach(() => {
      const turns: (() => void)[] = [];
      gate = new TurnGate({ clock, nextTurn: (callback) => turns.push(callback), weightPerTurn: 1 });
      keys = new KeyTable();
      store = new WatchStore({
        decode: (_name, value) => ({ ok: true, value: textOfBytes(value) ?? '' }),
        observer: { onUpdate: (name) => story.push(name), onDelete: () => {} },
        rejections,
        gate,
        keys,
        onApplied: () => applied++,
      });
      runTurns = async (count) => {
        for (let i = 0; i < count; i++) {
          turns.shift()?.();
          await settle(4);
        }
      };
    });

    it('lists only after it has passed the gate', async () => {
      await gate.pass(1);
      await start();
      expect(store.status().watch).toMatchObject({ listings: 0 });
      await runTurns(1);
      expect(store.status().watch).toMatchObject({ listings: 1 });
    });

    it('has no cursor while a batch waits, although its watch has compared all keys', async () => {
      await start();
      await runTurns(4);
      expect(store.isSynced).toBe(true);
      void gate.pass(1);
      const revision = await put('c', '1');
      expect(store.status().watch).toMatchObject({ queuedBytes: 0 });
      backend.link.cut();
      await advance(clock, 2200);
      expect(store.status().watch).toMatchObject({ state: 'watching', isDoubtful: false });
      expect([story.includes('c'), store.cursor]).toEqual([false, 0]);
      await runTurns(2);
      expect([story.includes('c'), store.cursor]).toEqual([true, revision + 1]);
    });

    it('reports no batch as applied if it ends before the gate admits the batch', async () => {
      await start();
      const before = applied;
      await stop();
      expect([applied, store.isSynced]).toEqual([before, false]);
    });

    it('frees the rows of its keys in a drain after its end', async () => {
      await start();
      await runTurns(4);
      await stop();
      const drained = store.drain();
      await runTurns(3);
      expect(await drained).toBe(true);
      expect([...Array(keys.limit).keys()].map((row) => keys.nameAt(row))).toEqual([undefined, undefined]);
    });
  });

  it('reports its states, and the failure that caused them', async () => {
    const states: string[] = [];
    await start({ onState: (state, failure) => states.push(`${state} ${failure?.code ?? '-'}`) });
    expect(states.at(-1)).toBe('watching -');
    backend.link.down();
    await settle(4);
    expect(states.at(-1)).toBe('waiting unavailable');
    await stop();
    expect(states.at(-1)).toMatch(/^ended /);
    expect(await running).toBe('ended');
  });

  it('reports after each batch that it is applied', async () => {
    await start();
    const before = applied;
    await put('c', '1');
    expect(applied).toBe(before + 1);
  });

  it('decodes the first value of a slice in steps, by the name below its prefix', async () => {
    await put('a', 'x');
    await start();
    expect(story).toEqual(['a=large x', 'b=1']);
  });

  it('a decoder that throws in its steps rejects the value, and names its key', async () => {
    await start();
    await put('throw', '1');
    await put('z', '1');
    expect(rejections.status().recent[0]).toMatchObject({
      reason: 'decoder-fault',
      at: `${P}throw`,
      message: `${P}throw: value "throw": the decoder failed`,
    });
    expect(store.status()).toMatchObject({ keys: 3, rejected: 1, faults: 1 });
  });

  it.each([
    ['run.backend.watch must be a function', () => store.run({ backend: {}, prefix: P, signal } as never)],
    ['run.prefix must be a string', () => store.run({ backend, signal } as never)],
    ['run.signal must be an AbortSignal, not undefined', () => store.run({ backend, prefix: P } as never)],
    ['signal must be an AbortSignal, not {}', () => store.drain({} as never)],
  ])('rejects invalid arguments: %s', async (wrong, call) => {
    await expect((async () => call())()).rejects.toThrow(wrong);
  });
});
