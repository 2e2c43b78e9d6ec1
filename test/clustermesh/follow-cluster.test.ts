import { beforeEach, describe, expect, it } from 'vitest';
import type { ClusterFollow } from '../../src/clustermesh/cluster-state.ts';
import type { ClusterStores } from '../../src/clustermesh/cluster-stores.ts';
import {
  type FollowParams,
  followCluster,
  isReplaced,
  readHandshake,
  watchConfig,
} from '../../src/clustermesh/follow-cluster.ts';
import type { FollowEnd, FollowRequest } from '../../src/clustermesh/resource-stores.ts';
import { bytesOfText } from '../../src/kvstore/codec/bytes.ts';
import type { MeshResource } from '../../src/kvstore/codec/keys.ts';
import { MemoryBackend } from '../../src/kvstore/memory/memory-backend.ts';
import type {
  KeyRead,
  KvstoreBackend,
  Watch,
  WatchEvent,
  WatchOptions,
} from '../../src/kvstore/session/backend.ts';
import { KvstoreError, type KvstoreErrorCode } from '../../src/kvstore/session/errors.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { advance, settle } from '../kvstore/support/settle.ts';

function read(clusterID: string, revision: number, createRevision?: number, value = 'v'): KeyRead {
  const kv =
    createRevision === undefined
      ? undefined
      : { key: 'k', value: bytesOfText(value), createRevision, modRevision: createRevision };
  return { header: { clusterID, revision, raftTerm: 1 }, kv } as unknown as KeyRead;
}

describe('a second read of a kvstore', () => {
  it.each<readonly [string, KeyRead | undefined, KeyRead, boolean]>([
    ['that was not read before is none other', undefined, read('one', 5, 3), false],
    ['as it was is the same', read('one', 5, 3), read('one', 5, 3), false],
    ['that has grown is the same', read('one', 5, 3), read('one', 6, 3), false],
    ['of another id is another one', read('one', 5, 3), read('two', 6, 3), true],
    ['that has gone back is another past', read('one', 5, 3), read('one', 4, 3), true],
    ['whose key was made anew is another past', read('one', 5, 3), read('one', 9, 8), true],
    ['whose key is gone is the same', read('one', 5, 3), read('one', 9), false],
    ['whose key has come is the same', read('one', 5), read('one', 9, 8), false],
    ['without the key is the same', read('one', 5), read('one', 9), false],
  ])('%s', (_, before, now, replaced) => {
    expect(isReplaced(before, now)).toBe(replaced);
  });
});

describe('a handshake', () => {
  const signal = new AbortController().signal;

  async function kvstore(entries: Readonly<Record<string, string>>): Promise<KvstoreBackend> {
    const backend = new MemoryBackend();
    for (const [key, value] of Object.entries(entries)) await backend.update(key, bytesOfText(value));
    return backend;
  }

  it('reads the configuration, and no other one if it exists', async () => {
    const backend = await kvstore({
      'cilium/cluster-config/a': '{"id":3}',
      'cilium/cluster-config/b': '{"id":4}',
    });
    const { read, config, others } = await readHandshake(backend, 'a', signal);
    expect([config, others]).toMatchObject([{ ok: true, value: { id: 3 } }, []]);
    expect(read.kv?.key).toBe('cilium/cluster-config/a');
    await backend.close();
  });

  it('returns the names of the clusters that are configured instead', async () => {
    const backend = await kvstore({
      'cilium/cluster-config/b': '{}',
      'cilium/cluster-config/c': '{}',
      x: '',
    });
    const { read, config, others } = await readHandshake(backend, 'a', signal);
    expect([read.kv, config, others]).toEqual([undefined, undefined, ['b', 'c']]);
    await backend.close();
  });

  it('returns no names if the user may read only the configuration of the cluster, as the remote users of Cilium', async () => {
    const backend = await kvstore({});
    const failingList = (code: KvstoreErrorCode): KvstoreBackend =>
      ({
        read: () => backend.read(KEY),
        listPrefix: () => Promise.reject(new KvstoreError(code, 'refused')),
      }) as unknown as KvstoreBackend;
    expect((await readHandshake(failingList('forbidden'), 'a', signal)).others).toBeUndefined();
    await expect(readHandshake(failingList('unavailable'), 'a', signal)).rejects.toThrow('refused');
    await backend.close();
  });

  it('does not return the cluster itself if its configuration was written in the meantime', async () => {
    const backend = await kvstore({});
    const listed = { key: 'cilium/cluster-config/a' };
    const late = { read: () => backend.read('cilium/cluster-config/a'), listPrefix: async () => [listed] };
    const { others } = await readHandshake(late as unknown as KvstoreBackend, 'a', signal);
    expect(others).toEqual([]);
    await backend.close();
  });
});

/** A watch whose events a test sends. */
class ScriptedWatch implements Watch {
  readonly options: WatchOptions;
  readonly #batches: (readonly WatchEvent[])[] = [];
  #state = 'watching';
  #failure: Error | undefined;
  #wake = (): void => {};

  constructor(options: WatchOptions = {}) {
    this.options = options;
    options.signal?.addEventListener('abort', () => this.end('ended'));
  }

  /** Each event as `type key value`. */
  async tell(...events: readonly string[]): Promise<void> {
    this.#batches.push(
      events.map((text) => {
        const [type = '', key = '', value = ''] = text.split(' ');
        return { type, key, value: bytesOfText(value), modRevision: 1 } as WatchEvent;
      }),
    );
    this.#wake();
    await settle();
  }

  fail(error: Error): void {
    this.#failure = error;
    this.#wake();
  }

  end(state: string): void {
    this.#state = state;
    this.#wake();
  }

  status(): ReturnType<Watch['status']> {
    return { state: this.#state, lastFailure: { message: 'as it is' } } as unknown as ReturnType<
      Watch['status']
    >;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<readonly WatchEvent[], void, void> {
    for (;;) {
      if (this.#failure !== undefined) throw this.#failure;
      const batch = this.#batches.shift();
      if (batch !== undefined) yield batch;
      else if (this.#state !== 'watching') return;
      else
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
    }
  }
}

const KEY = 'cilium/cluster-config/a';
const canary = (resource: string): string => `cilium/synced/a/cilium/state/${resource}/v1`;

describe('a followed cluster', () => {
  let watches: Map<string, ScriptedWatch>;
  let told: unknown[];
  let followed: Map<string, { request: FollowRequest; end(how: FollowEnd): void; fail(error: Error): void }>;
  let ended: AbortController;
  let clock: ManualClock;
  /** Returns the answer of the kvstore to a read of the configuration. */
  let answer: () => Promise<KeyRead>;

  beforeEach(() => {
    clock = new ManualClock();
    watches = new Map();
    told = [];
    followed = new Map();
    ended = new AbortController();
  });

  const watchOf = (prefix: string): ScriptedWatch =>
    watches.get(prefix) ?? expect.fail(`no watch of ${prefix}`);
  const configs = (): ScriptedWatch => watchOf(KEY);
  const canaries = (): ScriptedWatch => watchOf('cilium/synced/a/');

  function cluster(how: Partial<ClusterFollow> = {}, seen: KeyRead = read('one', 5, 3, 'old')): FollowParams {
    const backend = {
      read: () => answer(),
      watch: (prefix: string, options: WatchOptions) => {
        const watch = new ScriptedWatch(options);
        watches.set(prefix, watch);
        return watch;
      },
    };
    const follow = (resource: string, request: FollowRequest): Promise<FollowEnd> =>
      new Promise((resolve, reject) => {
        expect(followed.has(resource)).toBe(false);
        request.signal.addEventListener('abort', () => resolve('ended'));
        followed.set(resource, { request, end: resolve, fail: reject });
      });
    const stores = { resources: ['nodes', 'ip'], follow };
    return {
      name: 'a',
      read: seen,
      clock,
      random: () => 0.5,
      backend: backend as unknown as KvstoreBackend,
      stores: stores as unknown as ClusterStores,
      options: {
        config: undefined,
        needsCanaries: false,
        deletes: 'all',
        isRefilling: false,
        followsServices: true,
        endsAtOthers: false,
        ...how,
      },
      onReaderState: (...reading) => void told.push(reading),
      onComplete: () => void told.push('complete'),
    };
  }

  /** Begins to follow. `end` is set when it has ended. */
  function begin(of: FollowParams): { end: unknown } {
    const state: { end: unknown } = { end: undefined };
    const ending = (end: unknown): void => {
      state.end = end;
    };
    void followCluster(of, ended.signal).then(ending, ending);
    return state;
  }

  it('is followed until its configuration changes, which only a complete list proves', async () => {
    const state = begin(cluster());
    await configs().tell(`create ${KEY}b new`, `create ${KEY} new`);
    await configs().tell(`modify ${KEY} old`, 'list-done');
    await configs().tell(`modify ${KEY}b newer`, `delete ${KEY}b`);
    expect(state.end).toBeUndefined();
    await configs().tell(`modify ${KEY} new`);
    expect([state.end, followed.get('ip')?.request.signal.aborted]).toEqual(['ended', true]);
  });

  it.each<readonly [string, readonly string[]]>([
    ['goes', [`create ${KEY} old`, 'list-done', `delete ${KEY}`]],
    ['is not in the list', ['list-done']],
    ['is another one in the list', [`create ${KEY} new`, 'list-done']],
  ])('ends when its configuration %s', async (_, events) => {
    const state = begin(cluster());
    await configs().tell(...events.slice(0, -1));
    expect(state.end).toBeUndefined();
    await configs().tell(...events.slice(-1));
    expect(state.end).toBe('ended');
  });

  it('has no configuration until one is written', async () => {
    let end: FollowEnd | undefined;
    void watchConfig(cluster({}, read('one', 5)), ended.signal).then((how) => {
      end = how;
    });
    await configs().tell(`create ${KEY}b new`, 'list-done');
    expect(end).toBeUndefined();
    await configs().tell(`create ${KEY} new`);
    expect(end).toBe('ended');
  });

  it('without a configuration is followed until its kvstore has that of any cluster', async () => {
    const alone = { endsAtOthers: true };
    const all = (): ScriptedWatch => watchOf('cilium/cluster-config/');
    const other = begin(cluster(alone, read('one', 5)));
    expect(all().options.exactKey).toBe(false);
    await all().tell('list-done');
    await all().tell(`delete ${KEY}b`);
    expect(other.end).toBeUndefined();
    await all().tell(`create ${KEY}b new`);
    expect(other.end).toBe('ended');
    followed.clear();
    const own = begin(cluster(alone, read('one', 5)));
    await all().tell(`create ${KEY} new`, 'list-done');
    expect(own.end).toBe('ended');
  });

  it('is replaced if the watch of its configuration reports that', async () => {
    const state = begin(cluster());
    configs().end('diverged');
    await settle();
    expect(state.end).toBe('diverged');
  });

  it.each<readonly [string, string, () => void]>([
    ['the configuration', 'the configuration', () => configs().end('ended')],
    ['the canaries', 'the canaries', () => canaries().end('ended')],
    ['a resource', 'ip', () => followed.get('ip')?.end('ended')],
  ])(
    'fails if the watch of %s ends for no reason (regression: the handshake was repeated without a delay)',
    async (_, what, end) => {
      const state = begin(cluster({ needsCanaries: true }));
      await canaries().tell(`create ${canary('ip')} x`);
      end();
      await settle();
      expect(state.end).toEqual(
        new KvstoreError('unavailable', `the watch of ${what} ended without an error`),
      );
    },
  );

  it('ends without a failure if the signal fires', async () => {
    const state = begin(cluster({ needsCanaries: true }));
    await canaries().tell(`create ${canary('ip')} x`);
    ended.abort();
    await settle();
    expect(state.end).toBe('ended');
  });

  it('reports the state of its watches, which end if the kvstore is replaced', async () => {
    begin(cluster({ needsCanaries: true }));
    for (const watch of [configs(), canaries()]) {
      expect(watch.options.endOnDivergence).toBe(true);
      watch.options.onState?.('waiting');
    }
    const failure = { message: 'as it is' };
    expect(told).toEqual([
      ['config', 'waiting', failure],
      ['canaries', 'waiting', failure],
    ]);
  });

  it('is complete once every resource was listed, and reports this once', async () => {
    begin(cluster());
    const [nodes, ip] = [followed.get('nodes'), followed.get('ip')];
    nodes?.request.onListed('nodes');
    nodes?.request.onListed('nodes');
    expect(told).toEqual([]);
    ip?.request.onListed('ip');
    ip?.request.onListed('ip');
    expect(told).toEqual(['complete']);
  });

  it('is replaced if one of its resources reports that, which takes the others along', async () => {
    const state = begin(cluster());
    followed.get('nodes')?.end('diverged');
    await settle();
    expect([state.end, followed.get('ip')?.request.signal.aborted]).toEqual(['diverged', true]);
  });

  it('has its deletes trusted as requested', async () => {
    begin(cluster({ deletes: 'none' }));
    expect(followed.get('ip')?.request.mayDelete).toBe('never');
    followed.clear();
    begin(cluster({ deletes: 'all' }));
    expect(followed.get('ip')?.request.mayDelete).toBeUndefined();
  });

  it('has its deletes trusted once its configuration is proven to exist, and reports failed reads', async () => {
    answer = () => Promise.reject(new KvstoreError('unavailable', 'out of reach'));
    begin(cluster({ deletes: 'proven' }));
    let allowed: boolean | undefined;
    const mayDelete = followed.get('ip')?.request.mayDelete;
    if (typeof mayDelete !== 'function') throw new Error('deletes are to be proven');
    void mayDelete(7).then((may) => {
      allowed = may;
    });
    await settle();
    expect([allowed, told]).toEqual([
      undefined,
      [['deletes', 'waiting', expect.objectContaining({ message: expect.stringContaining('out of reach') })]],
    ]);
    answer = () => Promise.resolve(read('one', 9, 3, 'old'));
    await advance(clock, 60_000);
    expect([allowed, told.at(-1)]).toEqual([true, ['deletes', 'ended', undefined]]);
  });

  it('fails after every other reader has stopped (regression: the next attempt started while readers still wrote)', async () => {
    const ends: (() => void)[] = [];
    const follow = (resource: MeshResource): Promise<FollowEnd> =>
      resource === 'nodes'
        ? Promise.reject(fault)
        : new Promise((resolve) => ends.push(() => resolve('ended')));
    const fault = new Error('a broken engine');
    const stores = { resources: ['nodes', 'ip'], follow } as unknown as ClusterStores;
    const state = begin({ ...cluster(), stores });
    await settle();
    expect(state.end).toBeUndefined();
    for (const end of ends) end();
    await settle();
    expect(state.end).toBe(fault);
  });

  describe('with canaries', () => {
    it('fails with the watch of the canaries, after all resource readers have stopped', async () => {
      const state = begin(cluster({ needsCanaries: true }));
      await canaries().tell(`create ${canary('ip')} x`);
      const fault = new Error('a broken watch');
      canaries().fail(fault);
      await settle();
      expect([state.end, followed.get('ip')?.request.signal.aborted]).toEqual([fault, true]);
    });

    it('reads each resource once its canary exists', async () => {
      begin(cluster({ needsCanaries: true }));
      await canaries().tell(`delete ${canary('ip')}`, `create ${canary('other')} x`, 'list-done');
      expect([...followed.keys()]).toEqual([]);
      await canaries().tell(`create ${canary('ip')} x`, `modify ${canary('ip')} y`);
      await canaries().tell(`create ${canary('nodes')} x`, `modify ${canary('ip')} z`);
      expect([...followed.keys()]).toEqual(['ip', 'nodes']);
    });

    it.each<readonly [string, () => void]>([
      ['the watch of the canaries', () => canaries().end('diverged')],
      ['a resource that is read', () => followed.get('ip')?.end('diverged')],
    ])('is replaced if %s reports that', async (_, end) => {
      const state = begin(cluster({ needsCanaries: true }));
      await canaries().tell(`create ${canary('ip')} x`);
      end();
      await settle();
      expect(state.end).toBe('diverged');
    });

    it('fails with a resource, after all others have ended', async () => {
      const state = begin(cluster({ needsCanaries: true }));
      await canaries().tell(`create ${canary('ip')} x`, `create ${canary('nodes')} x`);
      const fault = new Error('a broken engine');
      followed.get('ip')?.fail(fault);
      await settle();
      expect([state.end, followed.get('nodes')?.request.signal.aborted]).toEqual([fault, true]);
    });
  });
});
