import { describe, expect, it } from 'vitest';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import type { KubernetesObject } from '../../../src/k8s/resource.ts';
import { EndpointCollector, staleReason } from '../../../src/operator/collect/endpoint-collector.ts';
import { newCounts, roundReport } from '../../../src/operator/collect/rounds.ts';
import { DutyReport } from '../../../src/operator/duty-report.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { settle } from '../../kvstore/support/settle.ts';
import { explore } from '../support/explore.ts';
import { Fate, type Happening, round, TinyCluster } from '../support/tiny-cluster.ts';

const INTERVAL = 300_000;
const ENDPOINTS = { group: 'cilium.io', version: 'v2', plural: 'ciliumendpoints' };
const KEY = 'shop/web-0';
/** The life of the pod for which an agent has written the endpoint. Only the model reads it. */
const FOR = 'writtenFor';

/** A StatefulSet's pod, the agent that writes its endpoint, and an operator. */
class World {
  readonly clock = new ManualClock();
  readonly cluster = new TinyCluster();
  readonly inUseDeleted: string[] = [];
  readonly fate: Fate;
  crashed = false;
  #ips = 0;

  constructor(choose: (options: number) => number, most: number) {
    const { cluster } = this;
    const living = (): boolean => this.isAlive(cluster.get1('pods', KEY));
    const endpoint = (): KubernetesObject | undefined => cluster.get1('ciliumendpoints', KEY);
    const happenings: readonly Happening[] = [
      { name: 'pod made', can: () => cluster.get1('pods', KEY) === undefined, happen: () => this.makePod() },
      {
        name: 'pod finished',
        can: living,
        happen: () => void cluster.put('pods', KEY, { status: { phase: 'Succeeded' } }),
      },
      {
        name: 'pod gone',
        can: () => cluster.get1('pods', KEY) !== undefined,
        happen: () => cluster.drop('pods', KEY),
      },
      { name: 'agent writes', can: living, happen: () => this.write() },
      {
        name: 'endpoint gone',
        can: () => endpoint() !== undefined && !living(),
        happen: () => cluster.drop('ciliumendpoints', KEY),
      },
      {
        name: 'operator crashed',
        can: () => !this.crashed,
        happen: () => {
          this.crashed = true;
        },
      },
      { name: 'pods seen', can: () => true, happen: () => cluster.see('pods') },
      { name: 'endpoints seen', can: () => true, happen: () => cluster.see('ciliumendpoints') },
    ];
    this.fate = new Fate(choose, happenings, most);
    cluster.before = () => this.fate.turn();
    cluster.onDelete = (object) => {
      const pod = cluster.get1('pods', KEY);
      if (this.isAlive(pod) && pod?.metadata.uid === object[FOR])
        this.inUseDeleted.push(this.fate.log.join(', '));
    };
  }

  isAlive(pod: KubernetesObject | undefined): boolean {
    return pod !== undefined && (pod['status'] as { phase: string }).phase === 'Running';
  }

  makePod(): void {
    const podIP = `10.0.0.${++this.#ips}`;
    this.cluster.put('pods', KEY, { status: { phase: 'Running', podIP, podIPs: [{ ip: podIP }] } });
  }

  /**
   * Writes like an agent: creates the endpoint with its pod as the owner, or updates the existing one of the
   * name.
   */
  write(owned = true): void {
    const pod = this.cluster.get1('pods', KEY);
    if (pod === undefined) throw new Error('there is no pod to write for');
    const { uid } = pod.metadata;
    const { podIP } = pod['status'] as { podIP: string };
    const owner = [{ kind: 'Pod', name: 'web-0', uid }];
    const isNew = this.cluster.get1('ciliumendpoints', KEY) === undefined;
    this.cluster.put('ciliumendpoints', KEY, {
      ...(isNew
        ? { metadata: { creationTimestamp: this.time(), ...(owned ? { ownerReferences: owner } : {}) } }
        : {}),
      status: { networking: { addressing: [{ ipv4: podIP }] } },
      [FOR]: uid,
    });
  }

  time(): string {
    return new Date(this.clock.wallTime()).toISOString();
  }

  collector(): EndpointCollector {
    const { cluster, clock } = this;
    const [endpoints, pods, nodes] = ['ciliumendpoints', 'pods', 'ciliumnodes'].map((kind) =>
      cluster.observed(kind),
    );
    if (endpoints === undefined || pods === undefined || nodes === undefined) throw new Error('three kinds');
    return new EndpointCollector({
      endpoints,
      pods,
      nodes,
      clock,
      intervalMs: INTERVAL,
      reader: cluster,
      writer: cluster,
    });
  }
}

type Round = (number: number) => Promise<void>;
interface Rule {
  /** Begins a round of a new operator. */
  begin(world: World): Round;
}

const ours: Rule = {
  begin: (world) => {
    const collector = world.collector();
    return (number) => round(collector, number);
  },
};

/** Decides from one look: `isStale` receives the pod of that name, if it was seen. */
function upstream(isStale: (pod: KubernetesObject | undefined) => boolean, withUid: boolean): Rule {
  return {
    begin: ({ cluster }) => {
      const [seen, pods] = [cluster.observed('ciliumendpoints'), cluster.observed('pods')];
      return async () => {
        for (const [key, endpoint] of [...seen.objects]) {
          if (!isStale(pods.objects.get(key))) continue;
          const { name, uid } = endpoint.metadata;
          const place = { kind: ENDPOINTS, namespace: 'shop', name };
          await cluster.write({ verb: 'delete', place, uid: withUid ? uid : '' });
        }
      };
    },
  };
}
const finished = (pod: KubernetesObject | undefined): boolean =>
  pod === undefined || (pod['status'] as { phase: string }).phase !== 'Running';

/**
 * `running`: a pod and its endpoint. `gone`: the pod was deleted, which was seen. `empty`: neither exists
 * yet.
 */
type Start = 'running' | 'gone' | 'empty';

/** Runs every history with this number of events. Returns the first error. */
async function histories(
  rule: Rule,
  start: Start,
  owned: boolean,
  most: number,
): Promise<{ ways: number; first: string | undefined }> {
  let first: string | undefined;
  const ways = await explore(async (choose) => {
    const world = new World(choose, most);
    let next = rule.begin(world);
    if (start !== 'empty') {
      world.makePod();
      world.write(owned);
    }
    if (start === 'gone') world.cluster.drop('pods', KEY);
    world.cluster.see('pods', 'ciliumendpoints');
    for (let number = 1; number <= 2; number++) {
      world.clock.advance(INTERVAL);
      world.fate.turn();
      if (world.crashed) next = rule.begin(world);
      world.crashed = false;
      await next(number);
    }
    first ??= world.inUseDeleted[0];
    // From here on nothing changes, and everything is seen: an unused object is deleted two rounds later.
    world.cluster.before = () => {};
    for (let number = 3; number <= 5; number++) {
      world.cluster.see('pods', 'ciliumendpoints');
      world.clock.advance(INTERVAL);
      await next(number);
    }
    first ??= world.inUseDeleted[0];
    const isLeft = world.cluster.get1('ciliumendpoints', KEY) !== undefined;
    const isUsable = world.isAlive(world.cluster.get1('pods', KEY));
    if (isLeft && !isUsable) first ??= `left over: ${world.fate.log.join(', ')}`;
  });
  return { ways, first };
}

const STARTS: readonly Start[] = ['running', 'gone', 'empty'];

describe('the collector of endpoints, in every small history', () => {
  it.each(STARTS.flatMap((start) => [true, false].map((owned) => [start, owned] as const)))(
    'deletes nothing in use, and leaves nothing unused (%s at first, with owners: %s)',
    async (start, owned) => {
      const { ways, first } = await histories(ours, start, owned, 3);
      expect(first).toBeUndefined();
      expect(ways).toBeGreaterThan(200);
    },
  );

  it('waits until an endpoint is an interval old and a round has marked it, and marks it again if it was written', async () => {
    const world = new World(() => 0, 0);
    const { cluster, clock } = world;
    const next = ours.begin(world);
    world.makePod();
    world.write();
    cluster.drop('pods', KEY);
    const isThere: boolean[] = [];
    for (const [number, { wait, writes }] of [
      { wait: INTERVAL - 1, writes: false },
      ...[true, false, false].map((writes) => ({ wait: INTERVAL, writes })),
    ].entries()) {
      clock.advance(wait);
      cluster.see('pods', 'ciliumendpoints');
      await next(number + 1);
      isThere.push(cluster.get1('ciliumendpoints', KEY) !== undefined);
      if (writes) cluster.put('ciliumendpoints', KEY);
    }
    // Too young, marked, another version marked, deleted.
    expect(isThere).toEqual([true, true, true, false]);
  });

  it('keeps an endpoint that was written during the round (regression: it was deleted in the new version)', async () => {
    const world = new World(() => 0, 0);
    const { cluster, clock } = world;
    const next = ours.begin(world);
    const metadata = { creationTimestamp: world.time() };
    for (const key of ['shop/a', 'shop/b']) cluster.put('ciliumendpoints', key, { metadata });
    for (const number of [1, 2]) {
      clock.advance(INTERVAL);
      cluster.see('pods', 'ciliumendpoints');
      await next(number);
      // While the collector reads the pod of the first endpoint in the second round.
      cluster.before = () => {
        cluster.before = () => {};
        cluster.put('ciliumendpoints', 'shop/b');
        cluster.see('ciliumendpoints');
      };
    }
    expect(cluster.get1('ciliumendpoints', 'shop/a')).toBeUndefined();
    expect(cluster.get1('ciliumendpoints', 'shop/b')).toBeDefined();
  });

  it('deletes an endpoint of the future, too: the clock of the operator may be behind', async () => {
    const world = new World(() => 0, 0);
    const { cluster, clock } = world;
    world.makePod();
    clock.setWallTimeBy(INTERVAL);
    world.write();
    clock.setWallTimeBy(-INTERVAL);
    cluster.drop('pods', KEY);
    const next = ours.begin(world);
    for (const number of [1, 2]) {
      cluster.see('pods', 'ciliumendpoints');
      await next(number);
    }
    expect(cluster.get1('ciliumendpoints', KEY)).toBeUndefined();
  });

  it('would delete an endpoint in use by the rule of 1.8: by name, in one read, of a recreated pod (#27123)', async () => {
    const { first } = await histories(upstream(finished, false), 'gone', false, 3);
    expect(first).toMatch(/pod made, agent writes/);
  });

  it('would delete an endpoint in use by the rule of 1.17: one that is read before its pod (#42413)', async () => {
    const { first } = await histories(upstream(finished, true), 'empty', true, 3);
    expect(first).toBe('pod made, agent writes, endpoints seen');
  });
});

/**
 * The rule by owners, in two rounds: an endpoint is deleted if it is owned by a pod of another life, or by no
 * pod.
 */
const byOwner: Rule = {
  begin: ({ cluster }) => {
    const [seen, pods] = [cluster.observed('ciliumendpoints'), cluster.observed('pods')];
    let marked: ReadonlySet<string> = new Set();
    return async () => {
      const stale = [...seen.objects.values()].filter(({ metadata }) => {
        const owners = metadata['ownerReferences'] as readonly { readonly uid: string }[];
        return owners.every(({ uid }) => pods.objects.get(KEY)?.metadata.uid !== uid);
      });
      for (const { metadata } of stale.filter(({ metadata: { uid } }) => marked.has(uid))) {
        const place = { kind: ENDPOINTS, namespace: 'shop', name: metadata.name };
        await cluster.write({ verb: 'delete', place, uid: metadata.uid });
      }
      marked = new Set(stale.map(({ metadata: { uid } }) => uid));
    };
  },
};

it('an endpoint that a recreated pod has taken over is kept, and the agent that would write it again is elsewhere (#42877)', async () => {
  const isThere: Record<string, boolean> = {};
  for (const [name, rule] of Object.entries({ ours, upstream: byOwner })) {
    const world = new World(() => 0, 0);
    const { cluster, clock } = world;
    const next = rule.begin(world);
    world.makePod();
    world.write();
    cluster.drop('pods', KEY);
    world.makePod(); // on another node, whose agent finds the endpoint of the name with its former owner
    world.write();
    for (let number = 1; number <= 4; number++) {
      cluster.see('pods', 'ciliumendpoints');
      clock.advance(INTERVAL);
      await next(number);
    }
    isThere[name] = cluster.get1('ciliumendpoints', KEY) !== undefined;
  }
  expect(isThere).toEqual({ ours: true, upstream: false });
});

it('a round compares 10,000 endpoints in steps (regression: in one turn of the event loop)', async () => {
  const clock = new ManualClock();
  const turns: (() => void)[] = [];
  const gate = new TurnGate({ clock, nextTurn: (turn) => turns.push(turn), weightPerTurn: 1 });
  const objects = new Map<string, KubernetesObject>();
  for (let at = 0; at < 10_000; at++)
    objects.set(`shop/${at}`, {
      metadata: { namespace: 'shop', name: `${at}`, uid: `${at}`, resourceVersion: '1' },
    });
  const observed = { isMissing: false, notReadyReason: () => undefined, follow: () => {} };
  const cluster = new TinyCluster();
  const none = { ...observed, objects: new Map<string, KubernetesObject>() };
  const kinds = { endpoints: { ...observed, objects }, pods: none, nodes: none };
  const options = { ...kinds, reader: cluster, writer: cluster, clock, gate, intervalMs: INTERVAL };
  const marked: number[] = [];
  const report = {
    ...roundReport(newCounts(), new DutyReport('', { clock })),
    setMarked: (count: number) => marked.push(count),
  };
  const ended = new EndpointCollector(options).round(report, new AbortController().signal);
  let count = 0;
  for (let turn = turns.shift(); turn !== undefined; turn = turns.shift()) {
    turn();
    await settle();
    count++;
  }
  await ended;
  expect([marked, count > 10]).toEqual([[10_000], true]);
});

describe('an endpoint', () => {
  const endpoint = (owners: readonly object[], ip = '10.0.0.1'): KubernetesObject => ({
    metadata: { namespace: 'shop', name: 'a', uid: 'u', resourceVersion: '1', ownerReferences: owners },
    status: { networking: { addressing: [{ ipv4: ip }] } },
  });
  const pod = (uid: string, phase: string, ip = '10.0.0.2'): KubernetesObject => ({
    metadata: { namespace: 'shop', name: 'a', uid, resourceVersion: '1' },
    status: { phase, podIP: ip },
  });
  const why = (
    one: KubernetesObject,
    pods: readonly KubernetesObject[],
    nodes: readonly string[] = [],
  ): unknown =>
    staleReason(one, {
      pod: (_namespace, name) => pods.find(({ metadata }) => metadata.name === name),
      node: (name) => (nodes.includes(name) ? pod('n', '') : undefined),
    });
  const owner = { kind: 'Pod', name: 'a', uid: 'p1' };

  it('is kept by one existing owner, by an owner of another kind, and by a pod with its address', () => {
    expect(why(endpoint([owner]), [])).toBe('pod shop/a does not exist');
    expect(why(endpoint([owner]), [pod('p1', 'Pending')])).toBeUndefined();
    expect(why(endpoint([owner]), [pod('p1', 'Failed')])).toBe('pod shop/a is Failed');
    expect(why(endpoint([owner]), [pod('p2', 'Running')])).toBe(
      'pod shop/a was recreated: its uid is p2, not p1',
    );
    expect(why(endpoint([owner]), [pod('p2', 'Running', '10.0.0.1')])).toBeUndefined();
    const node = { kind: 'CiliumNode', name: 'n1' };
    expect(why(endpoint([node]), [])).toBe('CiliumNode n1 does not exist');
    expect(why(endpoint([owner, node]), [], ['n1'])).toBeUndefined();
    expect(why(endpoint([{ kind: 'Workload', name: 'w' }]), [])).toBeUndefined();
    expect(why(endpoint([]), [pod('any', 'Unknown')])).toBeUndefined();
    expect(why(endpoint([]), [])).toBe('pod shop/a does not exist');
  });

  it('is not collected while it is being deleted (regression: it was deleted and counted again)', () => {
    const { metadata, ...rest } = endpoint([owner]);
    const going = { ...rest, metadata: { ...metadata, deletionTimestamp: '2026-01-01T00:00:00Z' } };
    expect(why(going, [])).toBeUndefined();
  });
});
