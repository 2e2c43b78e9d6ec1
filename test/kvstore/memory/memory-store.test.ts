import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { SortedMap } from '../../../src/base/sorted-map.ts';
import { runToEnd } from '../../../src/base/turn-gate.ts';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { keyRange, NO_END, prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { MemoryStore } from '../../../src/kvstore/memory/memory-store.ts';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import type {
  Compare,
  TransportEvent,
  TxnResponse,
  WriteOperation,
} from '../../../src/kvstore/session/transport.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';

interface NaiveKey {
  readonly value: string;
  readonly create: number;
  readonly mod: number;
  readonly lease: string;
}

type State = ReadonlyMap<string, NaiveKey>;

/** A naive store: the whole state after each revision. */
class NaiveStore {
  /** By revision; revision 0 does not exist. */
  states: State[] = [new Map(), new Map()];
  compacted = 1;
  readonly leases = new Map<string, string>();

  get revision(): number {
    return this.states.length - 1;
  }

  get now(): State {
    return this.states.at(-1) ?? new Map();
  }

  holds({ key, ...compare }: Compare): boolean {
    const now = this.now.get(key);
    if (compare.target === 'value') return now?.value === textOfBytes(compare.equals);
    if (compare.target === 'lease') return (now?.lease ?? '0') === compare.equals;
    const revision = compare.target === 'mod-revision' ? now?.mod : now?.create;
    return (revision ?? 0) === compare.equals;
  }

  /** Returns the number of deleted keys. */
  write(operations: readonly WriteOperation[]): number {
    const state = new Map(this.now);
    const revision = this.revision + 1;
    let deleted = 0;
    let puts = 0;
    for (const operation of operations) {
      if (operation.op === 'put') {
        const { key, value, lease } = operation;
        const create = state.get(key)?.create ?? revision;
        state.set(key, { value: textOfBytes(value) ?? '', create, mod: revision, lease });
        puts++;
        continue;
      }
      const { start, end } = operation.range;
      for (const key of [...state.keys()]) {
        if (key < start || (end !== NO_END && key >= end)) continue;
        state.delete(key);
        deleted++;
      }
    }
    if (puts + deleted > 0) this.states.push(state);
    return deleted;
  }

  /**
   * Returns the revisions of a key that can still be read: those since the compaction, and the one before.
   */
  kept(key: string): readonly number[] {
    const writes = this.states.flatMap((state, at) => {
      const isPut = state.get(key)?.mod === at;
      const isGone = !state.has(key) && this.states[at - 1]?.has(key) === true;
      return isPut || isGone ? [at] : [];
    });
    const then = this.states[this.compacted]?.get(key)?.mod;
    return writes.filter((at) => at > this.compacted || at === then);
  }

  get keptKeys(): number {
    const all = new Set(this.states.flatMap((state) => [...state.keys()]));
    return [...all].filter((key) => this.kept(key).length > 0).length;
  }

  /** Returns the events of a revision, `key=value` or `-key`, in the order of keys. */
  eventsAt(revision: number): readonly string[] {
    const [before, after] = [this.states[revision - 1], this.states[revision]];
    const put = [...(after ?? [])].filter(([, { mod }]) => mod === revision);
    const gone = [...(before?.keys() ?? [])].filter((key) => after?.has(key) !== true);
    return [...put.map(([key, { value }]) => `${key}=${value}`), ...gone.map((key) => `-${key}`)].sort();
  }
}

/** Each run reads the store in three ways after each step, so there are fewer runs. */
const RUNS: number = Math.ceil(Math.max(fc.readConfigureGlobal().numRuns ?? 300, 40) / 2);

const key = fc.constantFrom('a', 'b', 'c', 'd', 'e');
const value = fc.constantFrom('x', 'y').map(bytesOfText);
const lease = fc.constantFrom('0', '7', '8');
const revision = fc.integer({ min: 1, max: 9 });
const range = fc.tuple(key, fc.option(key)).map(([start, end]) => ({ start, end: end ?? NO_END }));
const put = fc.record({ op: fc.constant('put' as const), key, value, lease });
const puts = fc.uniqueArray(put, { selector: (one) => one.key, minLength: 1, maxLength: 2 });
const remove = fc.record({ op: fc.constant('delete' as const), range });
const writes: fc.Arbitrary<readonly WriteOperation[]> = fc.oneof(
  { weight: 4, arbitrary: puts },
  remove.map((one) => [one]),
);
const compare: fc.Arbitrary<Compare> = fc.oneof(
  fc.record({ key, target: fc.constant('value' as const), equals: value }),
  fc.record({ key, target: fc.constant('lease' as const), equals: lease }),
  fc.record({
    key,
    target: fc.constantFrom('create-revision' as const, 'mod-revision' as const),
    equals: fc.oneof(fc.constant(0), revision),
  }),
);

type Step =
  | { readonly do: 'txn'; compare: Compare[]; writes: readonly WriteOperation[]; otherwise: boolean }
  | { readonly do: 'compact'; revision: number }
  | { readonly do: 'backup' | 'restore' };

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 9,
    arbitrary: fc.record({
      do: fc.constant('txn' as const),
      compare: fc.oneof(fc.constant<Compare[]>([]), fc.array(compare, { maxLength: 2, size: 'small' })),
      writes,
      otherwise: fc.boolean(),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('compact' as const), revision }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('backup' as const, 'restore' as const) }) },
);

/** Returns the result of a call, or the code of its error. */
function outcomeOf<T>(call: () => T): T | string {
  try {
    return call();
  } catch (error) {
    if (error instanceof KvstoreError) return error.code;
    throw error;
  }
}

interface Pair {
  readonly store: MemoryStore;
  readonly model: NaiveStore;
  /** The reported lease of each key. */
  readonly bound: Map<string, string>;
}

function newPair(): Pair {
  const bound = new Map<string, string>();
  const store = new MemoryStore('c', (of, from, to) => {
    expect(bound.get(of) ?? '0').toBe(from);
    bound.set(of, to);
  });
  return { store, model: new NaiveStore(), bound };
}

function expected(model: NaiveStore, at: number): string | undefined {
  if (at > model.revision) return 'future-revision';
  return at !== 0 && at < model.compacted ? 'compacted' : undefined;
}

function checkRange({ store, model }: Pair, at: number, limit: number, least: number): void {
  const read = { start: 'b', end: 'e', revision: at, limit, minModRevision: least };
  const got = outcomeOf(() => store.range({ ...read, keysOnly: false }));
  const failure = expected(model, at);
  if (failure !== undefined || typeof got === 'string') {
    expect(got).toBe(failure);
    return;
  }
  const state = model.states[at === 0 ? model.revision : at] ?? new Map();
  const all = [...state].filter(([name]) => name >= 'b' && name < 'e').sort();
  const young = all.filter(([, { mod }]) => mod >= least);
  const kvs = (limit === 0 ? young : young.slice(0, limit)).map(
    ([name, { value: text, create, mod, lease: of }]) => ({
      key: name,
      value: text,
      createRevision: create,
      modRevision: mod,
      ...(of !== '0' && { lease: of }),
    }),
  );
  expect({ ...got, kvs: got.kvs.map((kv) => ({ ...kv, value: textOfBytes(kv.value) })) }).toEqual({
    header: { clusterID: 'c', revision: model.revision, raftTerm: 2 },
    kvs,
    count: all.length,
    more: kvs.length < young.length,
  });
  const keysOnly = store.range({ ...read, keysOnly: true });
  expect(keysOnly.kvs.map((kv) => [kv.key, kv.value.length])).toEqual(kvs.map((kv) => [kv.key, 0]));
}

function write(store: MemoryStore, writes: readonly WriteOperation[]): TxnResponse {
  return runToEnd(store.txn({ compare: [], writes }));
}

const eventsFrom = (store: MemoryStore, revision: number): TransportEvent[][] =>
  store.versionsFrom(revision).map((versions) => versions.map((version) => store.eventOf(version)));

function checkEvents({ store, model }: Pair, from: number): void {
  const got = outcomeOf(() => eventsFrom(store, from));
  if (from <= model.compacted || typeof got === 'string') {
    expect(got).toBe(from <= model.compacted ? 'compacted' : undefined);
    return;
  }
  const texts = got.map((events) =>
    events
      .map((event) => (event.value ? `${event.key}=${textOfBytes(event.value)}` : `-${event.key}`))
      .sort(),
  );
  const revisions = Array.from({ length: Math.max(0, model.revision - from + 1) }, (_, i) => from + i);
  expect(texts).toEqual(revisions.map((at) => model.eventsAt(at)));
  expect(got.flat().map(({ modRevision }) => modRevision)).toEqual(
    revisions.flatMap((at) => model.eventsAt(at).map(() => at)),
  );
}

describe('the store of a server in this process', () => {
  it('equals the naive model: now, at each revision, as events, and after a restore', () => {
    const at = fc.oneof(fc.constant(0), fc.nat(10)); // now, or a revision
    const questions = fc.tuple(at, fc.nat(3), fc.oneof(fc.constant(0), fc.nat(6)));
    const steps = fc.array(fc.tuple(step, questions), { minLength: 6, maxLength: 16, size: 'max' });
    fc.assert(
      fc.property(steps, (script) => {
        const pair = newPair();
        const { store, model, bound } = pair;
        let backup = { store: store.snapshot(), states: [...model.states], compacted: 1 };
        for (const [todo, [at, limit, least]] of script) {
          if (todo.do === 'txn') {
            const { compare: conditions, writes: wanted, otherwise } = todo;
            const succeeded = conditions.every((condition) => model.holds(condition));
            const otherwiseWrites = otherwise ? wanted.toReversed() : undefined;
            const response = runToEnd(
              store.txn(
                otherwiseWrites === undefined
                  ? { compare: conditions, writes: wanted }
                  : { compare: conditions, writes: [], otherwise: otherwiseWrites },
              ),
            );
            const deleted = model.write(succeeded !== otherwise ? wanted : []);
            expect(response).toEqual({ header: store.header, succeeded, deleted });
          } else if (todo.do === 'compact') {
            const failure = expected(model, todo.revision);
            expect(outcomeOf(() => runToEnd(store.compact(todo.revision)))).toBe(failure);
            if (failure === undefined) model.compacted = todo.revision;
          } else if (todo.do === 'backup') {
            backup = { store: store.snapshot(), states: [...model.states], compacted: model.compacted };
          } else {
            store.restore(backup.store);
            model.states = [...backup.states];
            model.compacted = backup.compacted;
            bound.clear();
            for (const [name, { lease: of }] of model.now) bound.set(name, of);
          }
          checkRange(pair, at, limit, least);
          checkEvents(pair, at);
          expect(store.snapshot().versions.size).toBe(model.keptKeys);
          for (const [name, versions] of store.snapshot().versions)
            expect([name, versions.map((one) => one.modRevision)]).toEqual([name, model.kept(name)]);
          for (const [name, { lease: of }] of model.now) expect(bound.get(name)).toBe(of);
          expect([store.revision, store.compactRevision]).toEqual([model.revision, model.compacted]);
        }
      }),
      { numRuns: RUNS },
    );
  });

  it('is not affected by later changes of a value by its caller', () => {
    const { store } = newPair();
    const mine = bytesOfText('x');
    write(store, [{ op: 'put', key: 'a', value: mine, lease: '0' }]);
    mine.fill(0);
    const values = (): readonly (Uint8Array | undefined)[] => [
      store.range(keyRange('a')).kvs[0]?.value,
      eventsFrom(store, 2)[0]?.[0]?.value,
    ];
    for (const value of values()) value?.fill(0);
    expect(values().map((bytes) => textOfBytes(bytes ?? mine))).toEqual(['x', 'x']);
  });

  it('deletes 150,000 keys in one revision (regression: threw after the tombstones were recorded, and the next write hid every key)', () => {
    const store = new MemoryStore('c', () => {});
    const value = bytesOfText('x');
    const keys = Array.from({ length: 150_000 }, (_, i) => `p/${i}`);
    const puts = keys.map((key) => ({ op: 'put', key, value, lease: '0' }) as const);
    write(store, puts);
    const removal = { op: 'delete', range: prefixRange('p/') } as const;
    const { deleted } = write(store, [removal]);
    expect([deleted, store.revision]).toEqual([150_000, 3]);
    expect(eventsFrom(store, 3)[0]).toHaveLength(150_000);
    expect(store.range(prefixRange('p/')).count).toBe(0);
  });

  it('reads a page of 200,000 keys at the cost of the page (regression: at that of all keys, to count them)', () => {
    const store = new MemoryStore('c', () => {});
    const value = bytesOfText('x');
    const keyOf = (i: number): string => `p/${1_000_000 + i}`;
    for (let from = 0; from < 200_000; from += 1000) {
      const writes = Array.from(
        { length: 1000 },
        (_, i) => ({ op: 'put', key: keyOf(from + i), value, lease: '0' }) as const,
      );
      write(store, writes);
    }
    runToEnd(store.compact(store.revision));
    const listedAt = store.revision;
    write(store, [{ op: 'delete', range: keyRange(keyOf(7)) }]);
    let visited = 0;
    const { from } = SortedMap.prototype;
    const found = vi.spyOn(SortedMap.prototype, 'get');
    const iterated = vi.spyOn(SortedMap.prototype, 'from').mockImplementation(function* (
      this: SortedMap<unknown, unknown>,
      start,
    ) {
      for (const entry of from.call(this, start)) {
        visited++;
        yield entry;
      }
    });
    try {
      const page = store.range({ ...prefixRange('p/'), limit: 1000, revision: listedAt });
      expect([page.kvs.length, page.more, page.count]).toEqual([1000, true, 200_000]);
      const delta = store.range({ ...prefixRange('p/'), minModRevision: listedAt + 1 });
      expect([delta.kvs.length, delta.count]).toEqual([0, 199_999]);
      runToEnd(store.compact(store.revision));
      visited += found.mock.calls.length;
    } finally {
      found.mockRestore();
      iterated.mockRestore();
    }
    expect(visited).toBeGreaterThan(1000);
    expect(visited).toBeLessThan(1100);
  });

  it('counts the keys of an old revision without a look-up for each later write (regression: minutes for a list of 1,000,000 keys)', () => {
    const store = new MemoryStore('c', () => {});
    const put = (i: number) => ({ op: 'put', key: `p/${i}`, value: bytesOfText('x'), lease: '0' }) as const;
    const keys = Array.from({ length: 5000 }, (_, i) => i);
    write(store, keys.map(put));
    const listedAt = store.revision;
    write(store, keys.map(put));
    write(store, [put(5000), { op: 'delete', range: prefixRange('p/1') }]);
    write(store, [put(1)]);
    const find = vi.spyOn(SortedMap.prototype, 'get');
    try {
      const page = store.range({ ...prefixRange('p/'), limit: 10, revision: listedAt });
      expect([page.kvs.length, page.count]).toEqual([10, 5000]);
      expect(find.mock.calls.length).toBeLessThan(100);
    } finally {
      find.mockRestore();
    }
  });

  it('applies nothing of a transaction that fails', () => {
    const { store } = newPair();
    const value = bytesOfText('x');
    store.txn({ compare: [], writes: [{ op: 'put', key: 'a', value, lease: '0' }] });
    const before = store.snapshot();
    const broken = { op: 'put', key: 'b', lease: '0' } as unknown as WriteOperation;
    const writes: WriteOperation[] = [{ op: 'delete', range: keyRange('a') }, broken];
    expect(() => write(store, writes)).toThrow();
    expect(store.snapshot()).toEqual(before);
  });

  it('deletes a key once in a transaction whose deletes overlap, like etcd (regression: two deletes of one revision)', () => {
    const { store } = newPair();
    const put = (key: string) => ({ op: 'put', key, value: bytesOfText('x'), lease: '0' }) as const;
    write(store, [put('a'), put('b')]);
    const range = { start: 'a', end: NO_END };
    const remove = [keyRange('b'), range, keyRange('a')].map(
      (each) => ({ op: 'delete', range: each }) as const,
    );
    expect(write(store, remove).deleted).toBe(2);
    expect(eventsFrom(store, 3)[0]?.map(({ key }) => key)).toEqual(['b', 'a']);
  });

  it('compares a missing key as one without a lease, and never by its value, like etcd', () => {
    const { store } = newPair();
    const succeeds = (compare: Compare): boolean =>
      runToEnd(store.txn({ compare: [compare], writes: [] })).succeeded;
    expect(succeeds({ key: 'a', target: 'lease', equals: '0' })).toBe(true);
    expect(succeeds({ key: 'a', target: 'lease', equals: '7' })).toBe(false);
    expect(succeeds({ key: 'a', target: 'value', equals: bytesOfText('') })).toBe(false);
  });

  it('is not compacted at revision 0 (regression: its history was shifted, and watches received wrong events)', () => {
    const server = new MemoryServer({ clock: new ManualClock() });
    server.txn({ compare: [], writes: [{ op: 'put', key: 'a', value: bytesOfText('x'), lease: '0' }] });
    expect(outcomeOf(() => server.compact(0))).toBe('compacted');
    expect(server.range({ ...keyRange('a'), revision: 2 }).count).toBe(1);
  });
});
