import { describe, expect, it } from 'vitest';
import type { Clock } from '../../../src/base/clock.ts';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { identityKey, identityValueKey } from '../../../src/kvstore/codec/keys.ts';
import { identityCollection, lockCollection } from '../../../src/kvstore/gc/collections.ts';
import { GarbageCollector } from '../../../src/kvstore/gc/garbage-collector.ts';
import type { KvstoreBackend } from '../../../src/kvstore/session/backend.ts';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import type { KeyValue } from '../../../src/kvstore/session/transport.ts';
import {
  type KvstoreCollectorOptions,
  kvstoreIdentityCollector,
  lockCollector,
} from '../../../src/operator/collect/kvstore-collectors.ts';
import type { Collector, RoundReport } from '../../../src/operator/collect/rounds.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance } from '../../kvstore/support/settle.ts';
import { type Choose, explore } from '../support/explore.ts';
import { Fate, type Happening } from '../support/tiny-cluster.ts';

const LABELS = 'k8s:a=1;';
const MASTER = identityKey(300);
const LOCKS = 'cilium/state/identities/v1/locks/';
const RANGE = { min: 256, max: 65_535 };

/** A clock on which nothing takes time. */
const AT_ONCE: Clock = {
  now: () => 0,
  wallTime: () => 0,
  after: (_delayMs, callback) => {
    queueMicrotask(callback);
    return { cancel: () => {} };
  },
};

/** A kvstore of a few keys. Events may happen before each call of the collector. */
class TinyKvstore {
  readonly keys: Map<string, KeyValue> = new Map();
  #revision = 0;
  /** True if the collector holds the allocator's lock. */
  locked = false;
  before: () => void = () => {};
  onDelete: (key: string) => void = () => {};

  put(key: string, value: string): void {
    const modRevision = ++this.#revision;
    const createRevision = this.keys.get(key)?.createRevision ?? modRevision;
    this.keys.set(key, { key, value: bytesOfText(value), createRevision, modRevision });
  }

  backend(): KvstoreBackend {
    const backend: Partial<KvstoreBackend> = {
      get: async (key) => {
        this.before();
        return this.keys.get(key);
      },
      listPrefix: async (prefix) => {
        this.before();
        return [...this.keys.values()].filter(({ key }) => key.startsWith(prefix));
      },
      lock: async (path) => {
        this.before();
        this.locked = true;
        const release = async (): Promise<void> => {
          this.locked = false;
        };
        return { key: `${path}/x`, revision: 1, lost: new AbortController().signal, release };
      },
      delete: async (key, { ifModRevision } = {}) => {
        this.before();
        if (this.keys.get(key)?.modRevision !== ifModRevision) return false;
        this.onDelete(key);
        return this.keys.delete(key);
      },
    };
    return backend as KvstoreBackend; // the part of it that collectors use
  }
}

type Begin = (kvstore: TinyKvstore) => () => Promise<void>;

const ours: Begin = (kvstore) => {
  const collection = identityCollection(kvstore.backend(), RANGE);
  const collector = new GarbageCollector({
    collection,
    clock: AT_ONCE,
    intervalMs: 0,
    removalsPerSecond: 1e9,
  });
  return () => collector.round(new AbortController().signal);
};

/** One look without a lock, like a collector with one round. */
const inOneRound: Begin = (kvstore) => {
  const { list } = identityCollection(kvstore.backend(), RANGE);
  const backend = kvstore.backend();
  return async () => {
    const stale = await list(new AbortController().signal);
    for (const [key, ifModRevision] of stale) await backend.delete(key, { ifModRevision });
  };
};

/**
 * Nodes that begin and stop using an identity, under the allocator's lock like real ones, and a collector
 * that crashes.
 */
async function histories(begin: Begin, most: number): Promise<{ ways: number; first: string | undefined }> {
  let first: string | undefined;
  const ways = await explore(async (choose: Choose) => {
    const kvstore = new TinyKvstore();
    const using = new Set<string>();
    let crashed = false;
    const use = (node: string): void => {
      if (!kvstore.keys.has(MASTER)) kvstore.put(MASTER, LABELS);
      kvstore.put(identityValueKey(LABELS, node), '300');
      using.add(node);
    };
    const stop = (node: string): void => {
      kvstore.keys.delete(identityValueKey(LABELS, node));
      using.delete(node);
    };
    const happenings: readonly Happening[] = [
      ...['n1', 'n2'].flatMap((node): readonly Happening[] => [
        { name: `${node} uses it`, can: () => !kvstore.locked && !using.has(node), happen: () => use(node) },
        { name: `${node} stops`, can: () => using.has(node), happen: () => stop(node) },
      ]),
      {
        name: 'written again',
        can: () => kvstore.keys.has(MASTER) && !kvstore.locked,
        happen: () => kvstore.put(MASTER, LABELS),
      },
      {
        name: 'operator crashed',
        can: () => !crashed,
        happen: () => {
          crashed = true;
        },
      },
    ];
    const fate = new Fate(choose, happenings, most);
    kvstore.before = () => fate.turn();
    kvstore.onDelete = (key) => {
      if (key === MASTER && using.size > 0) first ??= fate.log.join(', ');
    };
    kvstore.put(MASTER, LABELS);
    let round = begin(kvstore);
    for (let number = 1; number <= 3; number++) {
      fate.turn();
      if (crashed) round = begin(kvstore);
      crashed = false;
      kvstore.locked = false;
      await round();
    }
    kvstore.before = () => {};
    for (let number = 4; number <= 5; number++) await round();
    if (using.size === 0 && kvstore.keys.has(MASTER)) first ??= `left over: ${fate.log.join(', ')}`;
    if (using.size > 0 && !kvstore.keys.has(MASTER)) first ??= `missing: ${fate.log.join(', ')}`;
  });
  return { ways, first };
}

describe('the collector of identities in a kvstore', () => {
  it('deletes nothing in use, and leaves nothing unused, in every small history', async () => {
    const { ways, first } = await histories(ours, 3);
    expect(first).toBeUndefined();
    expect(ways).toBeGreaterThan(1000);
  });

  it('would delete an identity in use without lock and second round', async () => {
    expect((await histories(inOneRound, 2)).first).toBe('n1 uses it');
  });
});

/** 1.8: an identity without a slave key in two rounds is deleted under the lock, whatever its number. */
const ofAnyCluster: Begin = (kvstore) => {
  const backend = kvstore.backend();
  const marked = new Map<string, number>();
  return async () => {
    for (const { key, value, modRevision } of await backend.listPrefix('cilium/state/identities/v1/id/')) {
      const labels = textOfBytes(value) ?? '';
      const lock = await backend.lock(`${LOCKS}${labels}`);
      const users = await backend.listPrefix(`cilium/state/identities/v1/value/${labels}/`);
      if (users.length > 0) marked.delete(key);
      else if (marked.get(key) === modRevision) await backend.delete(key, { ifModRevision: modRevision });
      else marked.set(key, modRevision);
      await lock.release();
    }
  };
};

describe('the collector of identities in a kvstore of several clusters', () => {
  it('keeps those of another one, which have no slave keys if agents use custom resources (#16805)', async () => {
    const of = (id: number): string => identityKey(id);
    const others = 65_536 + 300;
    const left: Record<string, readonly string[]> = {};
    for (const [name, begin] of Object.entries({ ours, upstream: ofAnyCluster })) {
      const kvstore = new TinyKvstore();
      for (const id of [300, 301, others]) kvstore.put(of(id), `k8s:of=${id};`);
      kvstore.put(identityValueKey('k8s:of=301;', 'n1'), '301');
      const round = begin(kvstore);
      for (let number = 1; number <= 2; number++) await round();
      left[name] = [...kvstore.keys.keys()].filter((key) => key.includes('/id/'));
    }
    expect(left).toEqual({ ours: [of(301), of(others)], upstream: [of(301)] });
  });
});

describe('the collector of locks', () => {
  it('deletes a lock only if its holder was unchanged for a round, in every small history', async () => {
    let first: string | undefined;
    const ways = await explore(async (choose) => {
      const kvstore = new TinyKvstore();
      const rounds = new Map<string, number>();
      let number = 0;
      const happenings = ['1f', '2f'].flatMap((client): readonly Happening[] => {
        const key = `${LOCKS}${LABELS}/${client}`;
        return [
          {
            name: `${client} locks`,
            can: () => !kvstore.keys.has(key),
            happen: () => {
              kvstore.put(key, '');
              rounds.set(key, number);
            },
          },
          {
            name: `${client} gives back`,
            can: () => kvstore.keys.has(key),
            happen: () => void kvstore.keys.delete(key),
          },
        ];
      });
      const fate = new Fate(choose, happenings, 4);
      kvstore.before = () => fate.turn();
      kvstore.onDelete = (key) => {
        const isWaiting = [...kvstore.keys.values()].some(
          (other) => other.createRevision < (kvstore.keys.get(key)?.createRevision ?? 0),
        );
        // It existed when the previous round began to look, and nothing older still exists.
        if (isWaiting || number - (rounds.get(key) ?? 0) < 1)
          first ??= `${textOfBytes(bytesOfText(key))}: ${fate.log.join(', ')}`;
      };
      const collection = lockCollection(kvstore.backend());
      const collector = new GarbageCollector({
        collection,
        clock: AT_ONCE,
        intervalMs: 0,
        removalsPerSecond: 1e9,
      });
      for (number = 1; number <= 3; number++) await collector.round(new AbortController().signal);
      kvstore.before = () => {};
      for (number = 4; number <= 7; number++) await collector.round(new AbortController().signal);
      if (kvstore.keys.size > 0) first ??= `left over: ${fate.log.join(', ')}`;
    });
    expect(first).toBeUndefined();
    expect(ways).toBeGreaterThan(300);
  });
});

describe('a collector of the kvstore', () => {
  const KINDS = [
    ['lock-gc', lockCollector, [`${LOCKS}a/1f`, `${LOCKS}b/1f`], 50],
    [
      'identity-gc',
      (options: KvstoreCollectorOptions) => kvstoreIdentityCollector(RANGE, 15 * 60_000, options),
      [identityKey(300), identityKey(301)],
      24,
    ],
  ] as const;

  async function twoRounds(
    of: (options: KvstoreCollectorOptions) => Collector,
    keys: readonly string[],
    more: Partial<KvstoreCollectorOptions> = {},
  ): Promise<{
    readonly done: readonly string[];
    readonly gaps: readonly number[];
    readonly error: unknown;
  }> {
    const kvstore = new TinyKvstore();
    for (const key of keys) kvstore.put(key, `k8s:of=${key};`);
    const clock = new ManualClock();
    const times: number[] = [];
    kvstore.onDelete = () => times.push(clock.now());
    const done: string[] = [];
    const election = { mayWrite: () => true };
    const collector = of({ backend: kvstore.backend(), clock, election, ...more });
    const report: RoundReport = {
      round: 1,
      setMarked: (count) => done.push(`${count} marked`),
      countDelete: () => done.push('deleted'),
      countConflict: () => done.push('conflict'),
      addAction: ({ action, reason, outcome }) => done.push(`${action} ${outcome}: ${reason}`),
      addError: ({ message }) => done.push(message),
    };
    let error: unknown;
    for (let number = 1; number <= 2; number++) {
      const round = collector.round(report, new AbortController().signal).catch((failure: unknown) => {
        error = failure;
      });
      await advance(clock, 10_000);
      await round;
    }
    return { done, gaps: times.slice(1).map((at, index) => at - (times[index] ?? 0)), error };
  }

  it.each(KINDS)(
    '%s deletes in the second round, at its rate, and reports it',
    async (_, of, keys, gapMs) => {
      const { done, gaps, error } = await twoRounds(of, keys);
      expect(gaps).toEqual([gapMs]);
      expect(error).toBeUndefined();
      expect(done.filter((line) => line === 'deleted')).toHaveLength(2);
      expect(done.filter((line) => line.startsWith(`delete ${keys[0]} done: `))).toEqual([
        expect.stringContaining('unchanged since revision 1, in rounds 1 and 2'),
      ]);
      expect([done[0], done.at(-1)]).toEqual(['2 marked', '0 marked']);
    },
  );

  it.each(KINDS)('%s prints its deletes in a dry run, and makes none', async (_, of, keys) => {
    const lines: string[] = [];
    const { done, gaps } = await twoRounds(of, keys, { dryRun: (line) => lines.push(line) });
    expect(gaps).toEqual([]);
    expect(done).toEqual(['2 marked', '0 marked']);
    expect(lines.map((line) => line.replace(/:[^:]*$/, ''))).toEqual(keys.map((key) => `delete ${key}`));
  });

  it.each(KINDS)('%s fails and deletes nothing if the operator is not the leader', async (_, of, keys) => {
    const { gaps, error, done } = await twoRounds(of, keys, { election: { mayWrite: () => false } });
    expect(error).toMatchObject({ code: 'not-leader' });
    expect([gaps, done]).toEqual([[], ['2 marked', '2 marked']]);
  });

  it.each(KINDS)('%s fails with the failure of a removal, and reports the marks', async (_, of, keys) => {
    const backend = new TinyKvstore().backend();
    const listed = new TinyKvstore();
    for (const key of keys) listed.put(key, 'k8s:a=1;');
    const refused = (): Promise<never> => Promise.reject(new KvstoreError('forbidden', 'permission denied'));
    const { error, done } = await twoRounds(of, [], {
      backend: { ...backend, ...listed.backend(), delete: refused },
    });
    expect(error).toMatchObject({ code: 'forbidden', message: expect.stringContaining('permission denied') });
    expect(done).toEqual(['2 marked', '2 marked']);
  });
});
