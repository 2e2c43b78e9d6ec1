import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RejectionLog } from '../../../src/base/rejection.ts';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import { type EndpointClaim, sameEndpointClaim } from '../../../src/k8s/endpoint-claim.ts';
import { AddressHolders, type AddressSink, type FedIPCache } from '../../../src/k8s/feed/address-holders.ts';
import { ApiServerAddresses } from '../../../src/k8s/feed/api-server-addresses.ts';
import { SlicedEndpointReader } from '../../../src/k8s/feed/endpoint-readers.ts';
import { KubernetesFeed } from '../../../src/k8s/feed/kubernetes-feed.ts';
import { type AnyFeed, type KindReader, ObjectFeed } from '../../../src/k8s/feed/object-feed.ts';
import type { PrefixMetadata } from '../../../src/k8s/feed/prefix-metadata.ts';
import type { ParsedCiliumEndpointSlice } from '../../../src/k8s/parse-cilium-endpoint.ts';
import type { ResourceSink } from '../../../src/k8s/resource.ts';
import type { EndpointSlice } from '../../../src/servicecache/backend.ts';
import type { ManualClock } from '../../base/support/manual-clock.ts';
import { I9_anyLifeIsAColdStart, life, type MakeWorld, makeWorld } from './support/feed-laws.ts';
import { FeedWorld, type WorldOptions } from './support/feed-world.ts';
import {
  K10_listsReplace,
  K23_theYoungestHasIt,
  K26_podsSpeakForThemselves,
  K35_endpointsMove,
  K38_nodesAreCompared,
  K43_slicesOwnTheirAddresses,
  K52_noGapBesideAKvstore,
} from './support/rule-laws.ts';

/** Fixed, independent of `PROPERTY_RUNS`: among other cases there may be none that detects a broken feed. */
const CASES = { numRuns: 300, seed: 20_261_122 };

const newFeed = <T>(reader: KindReader<T>): ObjectFeed<T> =>
  new ObjectFeed(reader, { rejections: new RejectionLog() });

/** Removes an address from any holder: a late delete hurts the current holder (K 20, 22, 32). */
class BySourceAlone implements AddressSink {
  readonly #ipcache: FedIPCache;
  constructor(ipcache: FedIPCache) {
    this.#ipcache = ipcache;
  }
  change(now: EndpointClaim | undefined, before: EndpointClaim | undefined): void {
    for (const ip of now?.ips ?? []) if (now !== undefined) this.#ipcache.upsert(ip, now);
    for (const ip of before?.ips ?? [])
      if (now?.ips.includes(ip) !== true) this.#ipcache.delete(ip, { source: 'k8s' });
  }
}

/** Like 1.17: removes only the object's own address, but does not write the next holder (K 23). */
class ForgetsTheNext implements AddressSink {
  readonly #ipcache: FedIPCache;
  constructor(ipcache: FedIPCache) {
    this.#ipcache = ipcache;
  }
  change(now: EndpointClaim | undefined, before: EndpointClaim | undefined): void {
    for (const ip of now?.ips ?? []) if (now !== undefined) this.#ipcache.upsert(ip, now);
    for (const ip of before?.ips ?? [])
      if (now?.ips.includes(ip) !== true) this.#ipcache.delete(ip, { source: 'k8s', ifPod: before?.k8s });
  }
}

/** Compares host IPs inversely: a changed one is ignored (K 21). */
class InvertedHostIP extends AddressHolders {
  override change(now: EndpointClaim | undefined, before: EndpointClaim | undefined): void {
    const isOtherHost = now?.hostIP !== before?.hostIP;
    if (now === undefined || before === undefined || !isOtherHost) super.change(now, before);
    else super.change({ ...now, hostIP: before.hostIP }, before);
  }
}

/** The end of a list removes nothing (K 10, #48050). */
class NoSweep<T> extends ObjectFeed<T> {
  override start(onComplete?: () => void): ResourceSink {
    return { ...super.start(onComplete), onListed: () => {} };
  }
}

/** A broken watch removes everything (K 10). */
class StartsEmpty<T> extends ObjectFeed<T> {
  override start(onComplete?: () => void): ResourceSink {
    for (const _ of this.withdrawSteps());
    return super.start(onComplete);
  }
}

type SliceReader = KindReader<ParsedCiliumEndpointSlice>;

function sliceReader({ ipcache }: { readonly ipcache: FedIPCache }): SlicedEndpointReader {
  return new SlicedEndpointReader({ ipcache, holders: new AddressHolders(ipcache) });
}

/** The removed endpoints of a slice are applied before its added ones (K 35, 1.17). */
function removesFirst(engine: { readonly ipcache: FedIPCache }): SliceReader {
  const reader = sliceReader(engine);
  return {
    kind: reader.kind,
    read: (fields) => reader.read(fields),
    change: (now, before) => {
      if (before !== undefined) reader.change(undefined, before);
      if (now !== undefined) reader.change(now, undefined);
    },
  };
}

/** The removed endpoints of slices are ignored (K 35, #37347). */
function ignoresRemovals(engine: { readonly ipcache: FedIPCache }): SliceReader {
  const reader = sliceReader(engine);
  const withBefore = (
    now: ParsedCiliumEndpointSlice | undefined,
    before: ParsedCiliumEndpointSlice | undefined,
  ): ParsedCiliumEndpointSlice | undefined =>
    now && { ...now, endpoints: new Map([...(before?.endpoints ?? []), ...now.endpoints]) };
  return {
    kind: reader.kind,
    read: (fields) => reader.read(fields),
    batch: (changes) => reader.batch(changes),
    change: (now, before) => reader.change(withBefore(now, before), before),
  };
}

/** An endpoint that leaves a slice is removed, even if another slice has it (K 35). */
function anySliceTakesAway(engine: { readonly ipcache: FedIPCache }): SliceReader {
  const reader = sliceReader(engine);
  return {
    kind: reader.kind,
    read: (fields) => {
      const slice = reader.read(fields);
      return slice && { ...slice, name: 'the same' };
    },
    batch: (changes) => reader.batch(changes),
    change: (now, before) => reader.change(now, before),
  };
}

/** A feed that ignores deletes during the handover to the kvstore (K 52). */
const leavesItsClaims = (options: WorldOptions): FeedWorld => {
  let isIgnoring = false;
  const cache = new IPCache();
  const ipcache: FedIPCache = {
    upsert: (key, claim) => cache.upsert(key, claim),
    delete: (key, by) => (isIgnoring ? 'not-found' : cache.delete(key, by)),
    batch: (write) => cache.batch(write),
  };
  class Leaving extends KubernetesFeed {
    override reportKvstore(...args: Parameters<KubernetesFeed['reportKvstore']>): void {
      isIgnoring = true;
      super.reportKvstore(...args);
      isIgnoring = false;
    }
  }
  return new FeedWorld({ ...options, cache, ipcache, makeFeed: (made) => new Leaving(made) });
};

/** Stops for the kvstore and does not start again (K 52). */
class NeverBack extends KubernetesFeed {
  override reportKvstore(...args: Parameters<KubernetesFeed['reportKvstore']>): void {
    if (args[1] === 'complete') super.reportKvstore(...args);
  }
}

/** Continues beside the kvstore (K 52). */
class NeverStops extends KubernetesFeed {
  override reportKvstore(): void {
    // reports nothing
  }
}

/** The labels of a pod count without correction (K 26, 1.8). */
const believesPods = (options: WorldOptions): FeedWorld => {
  const world: FeedWorld = new FeedWorld({
    ...options,
    onLabels: (pod, labels = []) => {
      const said = world.cluster.objects('pods').find(({ metadata: { name } }) => name === pod.name);
      const forged = new Map(Object.entries(Object(said?.metadata['labels'])));
      const believed = labels.map((label) => ({
        ...label,
        value: String(forged.get(label.key) ?? label.value),
      }));
      options.onLabels?.(pod, believed);
    },
  });
  return world;
};

/** The delete of a slice is ignored: its addresses stay for ever (K 43, #35868). */
class Leaking extends ApiServerAddresses {
  override change(now: EndpointSlice | undefined): void {
    if (now !== undefined) super.change(now, undefined);
  }
}

/** All slices have one owner: addresses of one are removed with another (K 43). */
class OneOwner extends ApiServerAddresses {
  override change(now: EndpointSlice | undefined, before: EndpointSlice | undefined): void {
    super.change(now && { ...now, name: 'one' }, before && { ...before, name: 'one' });
  }
}

/** The addresses of a deleted slice are removed immediately (K 43). */
class Hasty extends ApiServerAddresses {
  readonly #clock: ManualClock;
  constructor(metadata: PrefixMetadata, clock: ManualClock) {
    super(metadata, clock);
    this.#clock = clock;
  }
  override change(now: EndpointSlice | undefined, before: EndpointSlice | undefined): void {
    super.change(now, before);
    if (now === undefined) this.#clock.advance(30_000);
  }
}

describe('a broken feed is detected', () => {
  it('the laws of single rules hold for the feed itself', async () => {
    await K26_podsSpeakForThemselves((options) => new FeedWorld(options));
    K43_slicesOwnTheirAddresses((metadata, clock) => new ApiServerAddresses(metadata, clock));
    K10_listsReplace(newFeed);
    K23_theYoungestHasIt((ipcache) => new AddressHolders(ipcache));
    K35_endpointsMove(sliceReader);
    K38_nodesAreCompared(new FeedWorld());
    K52_noGapBesideAKvstore((options) => new FeedWorld(options));
  });

  it.each<[string, (ipcache: FedIPCache) => AddressSink]>([
    [
      'deletes by source alone (K 20, 22, 32: #16565, #19958, #19996, #29571)',
      (ipcache) => new BySourceAlone(ipcache),
    ],
    ['does not write the next holder (K 23)', (ipcache) => new ForgetsTheNext(ipcache)],
    ['ignores a changed host IP (K 21)', (ipcache) => new InvertedHostIP(ipcache)],
  ])('one that %s', (_, make) => {
    expect(() => K23_theYoungestHasIt(make)).toThrow();
  });

  it.each<[string, <T>(reader: KindReader<T>) => AnyFeed]>([
    [
      'takes nothing away at the end of a list (K 10, #48050)',
      (reader) => new NoSweep(reader, { rejections: new RejectionLog() }),
    ],
    [
      'takes all away when a watch breaks (K 10)',
      (reader) => new StartsEmpty(reader, { rejections: new RejectionLog() }),
    ],
  ])('one that %s', (_, make) => {
    expect(() => K10_listsReplace(make)).toThrow();
  });

  it.each([
    ['removes before it adds (K 35)', removesFirst],
    ['ignores what a slice has lost (K 35, #37347)', ignoresRemovals],
    ['lets any slice take an endpoint away (K 35)', anySliceTakesAway],
  ])('one that %s', (_, make) => {
    expect(() => K35_endpointsMove(make)).toThrow();
  });

  it('one that trusts namespace labels set by pods (K 26)', async () => {
    await expect(K26_podsSpeakForThemselves(believesPods)).rejects.toThrow();
  });

  it.each<[string, new (metadata: PrefixMetadata, clock: ManualClock) => ApiServerAddresses]>([
    ['leaves addresses that no slice of the API server lists (K 43, #35868)', Leaking],
    ['lets one slice of the API server take what another lists (K 43)', OneOwner],
    ['withdraws a slice of the API server that is soon made again (K 43)', Hasty],
  ])('one that %s', (_, Mutant) => {
    expect(() => K43_slicesOwnTheirAddresses((metadata, clock) => new Mutant(metadata, clock))).toThrow();
  });

  it('one that takes the local node from its CiliumNode (K 37)', () => {
    expect(() => K38_nodesAreCompared(new FeedWorld({ nodeName: 'another' }))).toThrow();
  });

  it('one that misses changes of labels only (K 38)', () => {
    const world = new FeedWorld();
    const { nodes } = world;
    const ignoring = new FeedWorld({
      nodes: {
        nodeUpdated: (node) =>
          nodes.exists(`atlantic/${node.name}`) ? 'unchanged' : nodes.nodeUpdated(node),
        nodeDeleted: (node) => nodes.nodeDeleted(node),
        withdraw: (by) => nodes.withdraw(by),
      },
    });
    expect(() => K38_nodesAreCompared(Object.assign(ignoring, { nodes }))).toThrow();
  });

  it.each<[string, (options: WorldOptions) => FeedWorld]>([
    ['leaves its claims when it stops for the kvstore (K 52)', leavesItsClaims],
    [
      'does not come back when the kvstore is lost (K 52)',
      (options) => new FeedWorld({ ...options, makeFeed: (made) => new NeverBack(made) }),
    ],
    [
      'goes on beside a kvstore that is complete (K 52)',
      (options) => new FeedWorld({ ...options, makeFeed: (made) => new NeverStops(made) }),
    ],
    [
      'forgets what the kvstore overrules (K 53)',
      (options) => new FeedWorld({ ...options, cache: new IPCache({ retainOverruled: false }) }),
    ],
  ])('one that %s', (_, make) => {
    expect(() => K52_noGapBesideAKvstore(make)).toThrow();
  });

  it.each<[string, MakeWorld]>([
    [
      'does not compare the uid of a pod (K 27, #30409)',
      (mode, cluster, onLabels) => {
        const seen = new Set<string>();
        return makeWorld(mode, cluster, (pod, labels) => {
          const key = `${pod.namespace}/${pod.name} ${JSON.stringify(labels)}`;
          if (labels === undefined || !seen.has(key)) onLabels(pod, labels);
          seen.add(key);
        });
      },
    ],
    [
      'forgets what is overruled (K 53)',
      (mode, cluster, onLabels) =>
        new FeedWorld({ endpoints: mode, onLabels, cache: new IPCache({ retainOverruled: false }) }, cluster),
    ],
    [
      'compares an identity with itself (K 47)',
      (mode, cluster, onLabels) => {
        const world = makeWorld(mode, cluster, onLabels);
        const { identities } = world.feed;
        const first = new Map<number, ReturnType<typeof identities.lookupByID>>();
        Object.assign(world.feed, {
          identities: {
            entries: function* () {
              for (const [id, labels] of identities.entries()) {
                if (!first.has(id)) first.set(id, labels);
                yield [id, first.get(id)];
              }
            },
            lookupByLabels: () => [...identities.entries()][0]?.[0],
          },
        });
        return world;
      },
    ],
  ])('one that %s', async (_, make) => {
    const law = fc.asyncProperty(life, (one) => I9_anyLifeIsAColdStart(make, one));
    await expect(fc.assert(law, { ...CASES, endOnFailure: true })).rejects.toThrow();
  });

  it('two compare their results: equal objects are not written again (K 10)', () => {
    const claim = { source: 'k8s', identity: 3, hostIP: '192.0.2.1' } as const;
    const rank = { deleting: false, createdAt: 0, uid: 'a' };
    const one = { ips: ['10.1.0.1'], ...claim, ...rank };
    expect(sameEndpointClaim(one, { ...one })).toBe(true);
    for (const other of [
      { ...one, ips: ['10.1.0.2'] },
      { ...one, ips: ['10.1.0.1', '10.1.0.2'] },
      { ...one, identity: 4 },
      { ...one, hostIP: '192.0.2.2' },
      { ...one, encryptKey: 1 },
      { ...one, k8s: { namespace: 'a', podName: 'b' } },
      { ...one, deleting: true },
      { ...one, createdAt: 1 },
      { ...one, uid: 'b' },
    ])
      expect(sameEndpointClaim(one, other)).toBe(false);
  });
});
