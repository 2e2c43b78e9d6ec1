import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import type { ServiceListener } from '../../../src/servicecache/events.ts';
import type { ServiceExplanation } from '../../../src/servicecache/explain.ts';
import type { ServiceCache } from '../../../src/servicecache/service-cache.ts';
import { serviceOfSlice } from '../../../src/servicecache/service-id.ts';
import { FoldingListener } from './folding-listener.ts';
import { NaiveServiceCache } from './naive-service-cache.ts';
import {
  apply,
  CLUSTERS,
  history,
  IDS,
  type Operation,
  OWN_CLUSTER,
  offers,
  operation,
  services,
  slices,
} from './operations.ts';
import { nameOf, text } from './plain.ts';

const remoteOffers = offers(fc.constantFrom(...CLUSTERS));

/** Creates a cache of cluster `own` with node ports on or off. */
export type MakeCache = (nodePorts: boolean) => ServiceCache;

/** A law of the engine. Each mutant must break its law. */
export type Law = (make: MakeCache, nodePorts: boolean) => fc.IRawProperty<unknown>;

/**
 * Compares texts only if the values differ in form, because a text of all services costs more than the
 * comparison of equal maps.
 */
function expectEqual(what: string, actual: unknown, expected: unknown): void {
  if (!isDeepStrictEqual(actual, expected) && text(actual) !== text(expected))
    throw new Error(`${what}: ${text(actual)} but expected ${text(expected)}`);
}

function viewOf(cache: ServiceCache): ReadonlyMap<string, string> {
  const listener = new FoldingListener();
  cache.subscribe(listener)();
  return listener.view();
}

interface Pair {
  readonly cache: ServiceCache;
  readonly model: NaiveServiceCache;
}

function pair(make: MakeCache, nodePorts: boolean): Pair {
  return { cache: make(nodePorts), model: new NaiveServiceCache(OWN_CLUSTER, nodePorts) };
}

function applyBoth({ cache, model }: Pair, each: Operation): void {
  apply(cache, each);
  apply(model, each);
}

/** Returns the inputs that remain after a history, as the shortest history with this result. */
function liveInputs(operations: readonly Operation[]): readonly Operation[] {
  const live = new Map<string, Operation>();
  const key = (...parts: string[]): string => parts.join('|');
  for (const each of operations) {
    if (each.op === 'updateService') live.set(key('service', each.service.id.name), each);
    if (each.op === 'deleteService') live.delete(key('service', each.id.name));
    if (each.op === 'updateEndpoints') live.set(key('slice', each.slice.service.name, each.slice.name), each);
    if (each.op === 'deleteEndpoints') live.delete(key('slice', each.id.name, each.slice));
    if (each.op === 'merge') live.set(key('offer', each.offer.cluster, each.offer.name), each);
    if (each.op === 'unmerge') live.delete(key('offer', each.offer.cluster, each.offer.name));
    const sliceKey = (cluster: string, service: string, slice: string): string =>
      key('offer', cluster, service, slice);
    if (each.op === 'mergeSlice')
      live.set(sliceKey(each.slice.cluster, serviceOfSlice(each.slice).name, each.slice.name), each);
    if (each.op === 'unmergeSlice')
      live.delete(sliceKey(each.slice.cluster, each.slice.id.name, each.slice.name));
    if (each.op !== 'withdrawCluster') continue;
    for (const name of live.keys()) if (name.startsWith(`offer|${each.cluster}|`)) live.delete(name);
  }
  return [...live.values()];
}

/** I1: at every moment, the folded events of a listener equal the replay of a new one, and the model. */
export const I1_foldEqualsDump: Law = (make, nodePorts) =>
  fc.property(history, fc.nat(24), (operations, joinAt) => {
    const both = pair(make, nodePorts);
    const listeners = [new FoldingListener()];
    for (const each of listeners) both.cache.subscribe(each);
    operations.forEach((each, index) => {
      if (index === joinAt) {
        const late = new FoldingListener();
        both.cache.subscribe(late);
        listeners.push(late);
      }
      applyBoth(both, each);
      const expected = both.model.view();
      expectEqual('I1 dump', viewOf(both.cache), expected);
      for (const listener of listeners) {
        expectEqual('I1 fold', listener.view(), expected);
        expectEqual(
          'I1 breaches',
          listener.breaches.filter((breach) => breach.startsWith('I1')),
          [],
        );
      }
      const snapshot = both.cache
        .snapshot()
        .map(({ service, endpoints }) => text({ service, backends: endpoints.backends }));
      expectEqual('I1 snapshot', snapshot, expected);
    });
  });

/** I2: once synced, only the present inputs count, not their history or order. */
export const I2_orderDoesNotMatter: Law = (make, nodePorts) =>
  fc.property(history, fc.infiniteStream(fc.nat()), (operations, shuffle) => {
    const cache = make(nodePorts);
    for (const each of operations) apply(cache, each);
    cache.markSynced();
    const order = liveInputs(operations).map((each) => ({ each, at: shuffle.next().value ?? 0 }));
    const other = make(nodePorts);
    for (const { each } of order.sort((a, b) => a.at - b.at)) apply(other, each);
    other.markSynced();
    expectEqual('I2 views', viewOf(cache), viewOf(other));
    expectEqual(
      'I2 explanations',
      IDS.map((id) => cache.explain(id)),
      IDS.map((id) => other.explain(id)),
    );
  });

/** I3: every event changes something, and repeating a present input sends no event. */
export const I3_noNoise: Law = (make, nodePorts) =>
  fc.property(history, (operations) => {
    const cache = make(nodePorts);
    const listener = new FoldingListener();
    cache.subscribe(listener);
    for (const each of operations) apply(cache, each);
    expectEqual('I3 breaches', listener.breaches, []);
    listener.take();
    for (const each of liveInputs(operations)) apply(cache, each);
    expectEqual('I3 repeated', listener.take(), []);
  });

/** I4: each address has one winner: local, then the smallest cluster; within it the smallest slice. */
export const I4_oneWinner: Law = (make, nodePorts) =>
  fc.property(history, (operations) => {
    const both = pair(make, nodePorts);
    for (const each of operations) applyBoth(both, each);
    expectEqual('I4 winners', viewOf(both.cache), both.model.view());
    for (const id of IDS) {
      const explained = both.cache.explain(id);
      const counted = (explained?.backends ?? []).filter(
        ({ verdict }) => verdict !== 'not-global' && verdict !== 'not-ready',
      );
      const seen = new Set<string>();
      for (const { address, cluster, slice, verdict } of counted) {
        const rank = `${address} ${cluster}/${slice}`;
        expectEqual(
          `I4 verdict of ${rank}`,
          verdict === 'overruled' || verdict === 'merged',
          seen.has(address),
        );
        seen.add(address);
      }
    }
  });

const THROWING: ServiceListener = {
  onEvents(): void {
    throw new Error('this listener always fails');
  },
  onSynced(): void {
    throw new Error('this too');
  },
};

/** I7: a listener that throws harms neither the others nor the state, and is counted. */
export const I7_isolation: Law = (make, nodePorts) =>
  fc.property(history, (operations) => {
    const both = pair(make, nodePorts);
    const [before, after] = [new FoldingListener(), new FoldingListener()];
    for (const each of [before, THROWING, after]) both.cache.subscribe(each);
    for (const each of operations) applyBoth(both, each);
    for (const each of [before, after]) expectEqual('I7 fold', each.view(), both.model.view());
    expectEqual('I7 faults', both.cache.status().listenerFaults >= 1, true);
  });

/**
 * I8: after a batch, listeners receive exactly the services that differ, once each. A batch that throws
 * leaves nothing, not even in later steps.
 */
export const I8_batches: Law = (make, nodePorts) =>
  fc.property(
    history,
    fc.array(batch, { maxLength: 4 }),
    fc.boolean(),
    fc.array(operation, { maxLength: 3 }),
    (setup, groups, fails, afterwards) => {
      const both = pair(make, nodePorts);
      for (const each of setup) applyBoth(both, each);
      const listener = new FoldingListener();
      both.cache.subscribe(listener);
      listener.take();
      const before = both.model.view();
      const explained = IDS.map((id) => both.cache.explain(id));
      runBatch(both.cache, groups, fails, () => expectEqual('I8 within the batch', listener.take(), []));
      if (!fails) {
        const done = groups.filter((group) => !group.fails);
        for (const each of done.flatMap(({ operations }) => operations)) apply(both.model, each);
      } else
        expectEqual(
          'I8 explained',
          explained,
          IDS.map((id) => both.cache.explain(id)),
        );
      checkAgainst(both, listener, before);
      for (const each of afterwards) {
        const then = both.model.view();
        applyBoth(both, each);
        checkAgainst(both, listener, then);
      }
    },
  );

const FAILURE = new Error('the batch fails');

/** A part of a batch. */
interface Group {
  readonly operations: readonly Operation[];
  readonly fails: boolean;
}

const batch: fc.Arbitrary<Group> = fc.record({
  operations: fc.array(operation, { maxLength: 5 }),
  fails: fc.constantFrom(false, false, false, true),
});

/** Runs each group as a batch within one batch. */
function runBatch(cache: ServiceCache, groups: readonly Group[], fails: boolean, verify: () => void): void {
  attempt(cache, fails, () => {
    for (const group of groups) {
      attempt(cache, group.fails, () => {
        for (const each of group.operations) apply(cache, each);
      });
    }
    verify();
  });
}

function attempt(cache: ServiceCache, fails: boolean, work: () => void): void {
  try {
    cache.batch(() => {
      work();
      if (fails) throw FAILURE;
    });
  } catch (error) {
    if (error !== FAILURE) throw error;
  }
}

/**
 * Expects that the listener received exactly the changes of the model since `before`, and that all reads
 * equal the model's.
 */
function checkAgainst(
  { cache, model }: Pair,
  listener: FoldingListener,
  before: ReadonlyMap<string, string>,
): void {
  const now = model.view();
  expectEqual('I8 breaches', listener.breaches, []);
  expectEqual('I8 fold', listener.view(), now);
  expectEqual('I8 dump', viewOf(cache), now);
  const differing = [...new Set([...before.keys(), ...now.keys()])].filter(
    (key) => before.get(key) !== now.get(key),
  );
  expectEqual(
    'I8 services in events',
    listener
      .take()
      .map(({ id }) => nameOf(id))
      .sort(),
    differing.sort(),
  );
}

/** I10: a withdrawn cluster leaves nothing; the others' claims are as if it had never existed. */
export const I10_noOrphans: Law = (make, nodePorts) =>
  fc.property(history, fc.constantFrom(...CLUSTERS), (operations, gone) => {
    const cache = make(nodePorts);
    for (const each of operations) apply(cache, each);
    cache.withdrawCluster(gone);
    cache.markSynced();
    const other = make(nodePorts);
    for (const each of operations) if (!speaksFor(each, gone)) apply(other, each);
    other.markSynced();
    expectEqual('I10 views', viewOf(cache), viewOf(other));
    expectEqual(
      'I10 explanations',
      IDS.map((id) => cache.explain(id)),
      IDS.map((id) => other.explain(id)),
    );
  });

function speaksFor(each: Operation, cluster: string): boolean {
  if (each.op === 'mergeSlice' || each.op === 'unmergeSlice') return each.slice.cluster === cluster;
  return (each.op === 'merge' || each.op === 'unmerge') && each.offer.cluster === cluster;
}

/** I12: every ignored offer is counted, such as those that name the local cluster. */
export const I12_nothingSilent: Law = (make, nodePorts) =>
  fc.property(history, (operations) => {
    const cache = make(nodePorts);
    for (const each of operations) apply(cache, each);
    const own = operations.filter((each) => speaksFor(each, OWN_CLUSTER)).length;
    expectEqual('I12 rejections', cache.status().rejections.byReason['local-cluster'] ?? 0, own);
  });

/** Affinity: if the preferred side has an active backend, the other side gets nothing. */
export const affinityPrefersOneSide: Law = (make, nodePorts) =>
  fc.property(
    services,
    fc.array(slices),
    fc.array(remoteOffers),
    history,
    (service, some, others, operations) => {
      const cache = make(nodePorts);
      for (const each of operations) apply(cache, each);
      // Both sides need backends: else there is nothing to prefer.
      for (const slice of some) cache.updateEndpoints({ ...slice, service: service.id });
      for (const offer of others) cache.mergeExternalServiceUpdate({ ...offer, ...service.id, shared: true });
      cache.updateService({ ...service, type: 'ClusterIP', addressing: 'headless', global: true });
      const backends = [...(cache.get(service.id)?.endpoints.backends.values() ?? [])];
      const isPreferred = (cluster: string): boolean => (cluster === '') === (service.affinity === 'local');
      if (service.affinity === 'none') return;
      if (backends.some((each) => isPreferred(each.cluster) && each.state === 'active')) {
        expectEqual(
          'affinity',
          backends.filter((each) => !isPreferred(each.cluster)),
          [],
        );
      }
    },
  );

/** The results of calls, the counters, and the explanation of a service. */
export const answers: Law = (make, nodePorts) =>
  fc.property(history, (operations) => {
    const { cache, model } = pair(make, nodePorts);
    for (const each of operations) {
      expectEqual('outcome', apply(cache, each), apply(model, each));
      const { listeners: _, listenerFaults: _faults, rejections: _rejected, ...counts } = cache.status();
      expectEqual('counts', counts, model.counts());
      for (const id of IDS) {
        expectEqual(`explanation of ${id.name}`, explained(cache.explain(id)), model.explained(nameOf(id)));
      }
      const served = IDS.map(nameOf).filter((key) => cache.services().has(key));
      expectEqual('order', [...cache.services().keys()], served);
    }
  });

function explained(of: ServiceExplanation | undefined): unknown {
  if (of === undefined) return undefined;
  const { service, ready, announced, origins, backends } = of;
  const sources = backends.filter(({ source, cluster }) => (source === 'k8s') !== (cluster === ''));
  expectEqual('sources', sources, []);
  return {
    service,
    ready,
    announced,
    origins: origins.map(({ cluster, slice, backends: count }) => `${cluster}/${slice} ${count}`),
    claims: backends.map(
      ({ address, cluster, slice, verdict }) => `${address} ${cluster}/${slice} ${verdict}`,
    ),
  };
}

/** All laws, by their names in the README. */
export const LAWS: readonly { readonly name: string; readonly law: Law }[] = [
  { name: 'I1 fold = dump: folding the events gives what a new listener is given', law: I1_foldEqualsDump },
  { name: 'I2 order independence: once synced, only the live inputs count', law: I2_orderDoesNotMatter },
  { name: 'I3 no noise: no event says what is known', law: I3_noNoise },
  {
    name: 'I4 one winner: this cluster, then the smallest cluster, then the smallest slice',
    law: I4_oneWinner,
  },
  { name: 'I7 isolation: a listener that throws harms nobody', law: I7_isolation },
  { name: 'I8 batches: told once per service, or leaving nothing behind', law: I8_batches },
  { name: 'I10 no orphans: a withdrawn cluster takes all its claims with it', law: I10_noOrphans },
  { name: 'I12 nothing silent: what is rejected is counted', law: I12_nothingSilent },
  {
    name: 'affinity: with an active backend on the preferred side, the other side has no traffic',
    law: affinityPrefersOneSide,
  },
  { name: 'answers: outcomes, counts and explanations are what the inputs make them', law: answers },
];
