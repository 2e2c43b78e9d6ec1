import fc from 'fast-check';
import { expect } from 'vitest';
import type { LabelledPod } from '../../../../src/k8s/feed/endpoint-labels.ts';
import { HANDOVER_RESOURCES } from '../../../../src/k8s/feed/kubernetes-feed.ts';
import type { Labels } from '../../../../src/model/labels.ts';
import { FakeCluster } from './fake-cluster.ts';
import { FeedWorld } from './feed-world.ts';
import { type NaiveInputs, naiveClaims, naiveIdentities, naiveLabels, naiveNodes } from './naive-feed.ts';
import { at, ciliumEndpoint, ciliumEndpointSlice, ciliumNode, pod, sliced } from './objects.ts';

const IPS = ['10.1.0.1', '10.1.0.2', '10.1.0.3', 'fd00::1'] as const;
const PLURALS = [
  'pods',
  'ciliumendpoints',
  'ciliumendpointslices',
  'ciliumnodes',
  'namespaces',
  'ciliumidentities',
] as const;

type Mode = NaiveInputs['mode'];

interface Named {
  readonly name: string;
  readonly namespace: string;
}

/** One event of a life. */
export type Happening =
  | (Named & {
      readonly do: 'pod';
      readonly uid: string;
      readonly ips: readonly string[];
      readonly nodeName: string;
      readonly createdAt: number;
      readonly phase: string;
      readonly hostNetwork: boolean;
      readonly deleting: boolean;
      readonly app: string;
      readonly hostIP: string;
    })
  | (Named & {
      readonly do: 'endpoint';
      readonly uid: string;
      readonly ips: readonly string[];
      readonly identity: number;
      readonly createdAt: number;
      readonly key: number | undefined;
    })
  | {
      readonly do: 'move';
      readonly name: string;
      readonly to: string;
      readonly identity: number;
      readonly ips: readonly string[];
      readonly addFirst: boolean;
    }
  | { readonly do: 'node'; readonly name: string; readonly zone: string }
  | { readonly do: 'namespace'; readonly name: string; readonly team: string }
  | { readonly do: 'identity'; readonly id: string; readonly app: string; readonly createdAt: number }
  | (Named & { readonly do: 'delete'; readonly plural: string })
  | { readonly do: 'kvstore'; readonly ip: string; readonly identity: number | undefined }
  | { readonly do: 'list' | 'disconnect'; readonly plural: string }
  | { readonly do: 'complete' | 'lost' | 'settle' | 'restart' };

/** The plan of a cluster and a feed. */
export interface Life {
  readonly mode: Mode;
  readonly happenings: readonly Happening[];
}

const ip = fc.constantFrom(...IPS);
const ips = fc.uniqueArray(ip, { minLength: 1, maxLength: 2 });
const name = fc.constantFrom('a', 'a', 'b', 'c');
const namespace = fc.constantFrom('shop', 'shop', 'shop', 'bank');
const uid = fc.constantFrom('u1', 'u2');
const createdAt = fc.integer({ min: 0, max: 3 });
const identity = fc.constantFrom(1001, 1002, 3);
const app = fc.constantFrom('x', 'y');

function doing<D extends string, T>(
  what: D,
  rest: { [K in keyof T]: fc.Arbitrary<T[K]> },
): fc.Arbitrary<{ do: D } & T> {
  return fc.record(rest).map((fields) => ({ do: what, ...(fields as T) }));
}

const happening: fc.Arbitrary<Happening> = fc.oneof(
  {
    weight: 9,
    arbitrary: doing('pod', {
      name,
      namespace,
      uid,
      ips,
      createdAt,
      app,
      nodeName: fc.constantFrom('n1', 'n1', 'n2'),
      phase: fc.constantFrom('Running', 'Running', 'Pending', 'Succeeded', 'Failed'),
      hostNetwork: fc.constantFrom(false, false, false, true),
      deleting: fc.boolean(),
      hostIP: fc.constantFrom('192.0.2.1', '192.0.2.2'),
    }),
  },
  {
    weight: 5,
    arbitrary: doing('endpoint', {
      name,
      namespace,
      uid,
      ips,
      identity,
      createdAt,
      key: fc.constantFrom(undefined, 3),
    }),
  },
  {
    weight: 4,
    arbitrary: doing('move', {
      name,
      identity,
      ips,
      to: fc.constantFrom('s1', 's2', 's3'),
      addFirst: fc.boolean(),
    }),
  },
  {
    weight: 2,
    arbitrary: doing('node', { name: fc.constantFrom('n1', 'n2', 'n3'), zone: fc.constantFrom('a', 'b') }),
  },
  { weight: 2, arbitrary: doing('namespace', { name: namespace, team: fc.constantFrom('r', 's') }) },
  { weight: 2, arbitrary: doing('identity', { id: fc.constantFrom('500', '501', '502'), app, createdAt }) },
  {
    weight: 4,
    arbitrary: doing('delete', {
      plural: fc.constantFrom('pods', 'ciliumendpoints', 'ciliumidentities', 'ciliumnodes'),
      name: fc.constantFrom('a', 'b', 'c', 'n2', 'n3', '500', '501'),
      namespace,
    }),
  },
  { weight: 3, arbitrary: doing('kvstore', { ip, identity: fc.option(identity, { nil: undefined }) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constantFrom('list' as const, 'disconnect' as const),
      plural: fc.constantFrom(...PLURALS),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({ do: fc.constantFrom('complete', 'lost', 'settle', 'settle', 'restart') }),
  },
);

/** A usual state to begin with: without a namespace there are no labels. */
const begun: readonly Happening[] = [{ do: 'namespace', name: 'shop', team: 'r' }, { do: 'settle' }];

export const life: fc.Arbitrary<Life> = fc.record({
  mode: fc.constantFrom('ciliumendpoints', 'ciliumendpointslices', 'pods'),
  happenings: fc
    .tuple(fc.constantFrom(begun, begun, []), fc.array(happening, { maxLength: 30, size: 'max' }))
    .map(([first, rest]) => [...first, ...rest]),
});

/** Creates the world of a law; mutants replace it. */
export type MakeWorld = (
  mode: Mode,
  cluster: FakeCluster,
  onLabels: (pod: LabelledPod, labels: Labels | undefined) => void,
) => FeedWorld;

export const makeWorld: MakeWorld = (mode, cluster, onLabels) =>
  new FeedWorld({ endpoints: mode, onLabels }, cluster);

/** A world beside a kvstore, connected or not, whose claims are those of its last events. */
class Stage {
  readonly cluster = new FakeCluster();
  readonly kvstore = new Map<string, number>();
  readonly slices = new Map<string, Map<string, object>>();
  readonly #make: MakeWorld;
  readonly #mode: Mode;
  readonly labels = new Map<string, string>();
  world: FeedWorld;
  /** What the world has received from the kvstore. */
  seen: Map<string, number> | undefined;
  connected = false;

  constructor(make: MakeWorld, mode: Mode) {
    this.#make = make;
    this.#mode = mode;
    this.world = this.#begin();
  }

  #begin(): FeedWorld {
    this.labels.clear();
    return this.#make(this.#mode, this.cluster, ({ namespace: ns, name: pod, uid: life }, labels) => {
      const find = (key: string): string | undefined => labels?.find((label) => label.key === key)?.value;
      const text = `${life} ${find('app')} ${find('io.cilium.k8s.namespace.labels.team')}`;
      if (labels === undefined) this.labels.delete(`${ns}/${pod}`);
      else this.labels.set(`${ns}/${pod}`, text);
    });
  }

  async restart(): Promise<void> {
    await this.world.feed.stop();
    const wasConnected = this.connected;
    this.connected = false;
    this.seen = undefined;
    this.world = this.#begin();
    this.world.feed.start();
    if (wasConnected) this.connect();
  }

  connect(): void {
    this.connected = true;
    const { ipcache, feed } = this.world;
    for (const key of this.seen?.keys() ?? [])
      if (!this.kvstore.has(key)) ipcache.delete(key, { source: 'kvstore' });
    this.seen = new Map();
    for (const [key, value] of this.kvstore) this.#claim(key, value);
    for (const resource of HANDOVER_RESOURCES) feed.reportKvstore(resource, 'complete');
  }

  lose(): void {
    this.connected = false;
    for (const resource of HANDOVER_RESOURCES) this.world.feed.reportKvstore(resource, 'lost');
  }

  #claim(key: string, value: number): void {
    this.seen?.set(key, value);
    this.world.ipcache.upsert(key, { source: 'kvstore', identity: value, hostIP: '192.0.2.7' });
  }

  say(key: string, value: number | undefined): void {
    if (value === undefined) this.kvstore.delete(key);
    else this.kvstore.set(key, value);
    if (!this.connected) return;
    if (value !== undefined) this.#claim(key, value);
    else if (this.seen?.delete(key) === true) this.world.ipcache.delete(key, { source: 'kvstore' });
  }

  slice(slice: string, change: (endpoints: Map<string, object>) => void): void {
    const endpoints = this.slices.get(slice) ?? new Map<string, object>();
    this.slices.set(slice, endpoints);
    change(endpoints);
    const createdAt = Number(slice.slice(1));
    this.cluster.put(
      'ciliumendpointslices',
      ciliumEndpointSlice(slice, [...endpoints.values()], { createdAt }),
    );
  }

  get inputs(): NaiveInputs {
    const of = (plural: string): NaiveInputs['pods'] => this.cluster.objects(plural);
    return {
      pods: of('pods'),
      endpoints: of('ciliumendpoints'),
      slices: of('ciliumendpointslices'),
      nodes: of('ciliumnodes'),
      namespaces: of('namespaces'),
      identities: of('ciliumidentities'),
      mode: this.#mode,
      kvstore: this.seen,
      complete: this.connected,
    };
  }
}

const SOURCES: Readonly<Record<string, string>> = { 'custom-resource': 'cep' };

/** Returns the content of the caches in the form of the model. */
function held({ ipcache, nodes, feed }: FeedWorld, labels: ReadonlyMap<string, string>): object {
  const claims: Record<string, readonly string[]> = {};
  for (const { key } of ipcache.entries()) {
    if (!IPS.some((one) => one === key)) continue;
    claims[key] = (ipcache.explain(key)?.claims ?? []).map(
      ({ identity: id, k8s, hostIP, encryptKey, source }) => {
        const who = k8s === undefined ? '-' : `${k8s.namespace}/${k8s.podName}`;
        return `${SOURCES[source] ?? source}: ${id} ${who} ${hostIP} ${encryptKey}`;
      },
    );
  }
  const identities = [...feed.identities.entries()].map(([id, said]) => ({
    id,
    app: said[0]?.value ?? '',
    said,
  }));
  const given = new Map(identities.map(({ app, said }) => [app, feed.identities.lookupByLabels(said)]));
  return {
    claims,
    nodes: [...nodes.nodes()]
      .map((one) => `${one.name} ${JSON.stringify(Object.fromEntries(one.labels))}`)
      .sort(),
    labels: [...labels].map(([key, text]) => `${key} ${text}`).sort(),
    identities: [
      ...identities.map(({ id, app }) => `${id} ${app}`),
      ...[...given].map(([app, id]) => `${app} -> ${id}`),
    ].sort(),
  };
}

async function happen(stage: Stage, what: Happening): Promise<void> {
  const { cluster } = stage;
  switch (what.do) {
    case 'pod':
      return cluster.put(
        'pods',
        pod(what.name, { ...what, uid: `${what.name}-${what.uid}`, labels: { app: what.app } }),
      );
    case 'endpoint':
      return cluster.put('ciliumendpoints', ciliumEndpoint(what.name, what));
    case 'move': {
      const add = (): void =>
        stage.slice(what.to, (endpoints) => endpoints.set(what.name, sliced(what.name, what)));
      const others = [...stage.slices.keys()].filter(
        (slice) => slice !== what.to && stage.slices.get(slice)?.has(what.name),
      );
      const leave = (): void => {
        for (const slice of others) stage.slice(slice, (endpoints) => endpoints.delete(what.name));
      };
      if (what.addFirst) add();
      leave();
      if (!what.addFirst) add();
      return;
    }
    case 'node':
      return cluster.put('ciliumnodes', ciliumNode(what.name, {}, { zone: what.zone }));
    case 'namespace':
      return cluster.put('namespaces', { metadata: { name: what.name, labels: { team: what.team } } });
    case 'identity': {
      const metadata = { name: what.id, creationTimestamp: at(what.createdAt) };
      return cluster.put('ciliumidentities', { metadata, 'security-labels': { 'k8s:app': what.app } });
    }
    case 'delete':
      return cluster.delete(
        what.plural,
        what.name,
        ['pods', 'ciliumendpoints'].includes(what.plural) ? what.namespace : '',
      );
    case 'kvstore':
      return stage.say(what.ip, what.identity);
    case 'complete':
      return stage.connect();
    case 'lost':
      return stage.lose();
    case 'settle':
      return cluster.settle();
    case 'list':
      return cluster.list(what.plural);
    case 'disconnect':
      return cluster.disconnect(what.plural);
    case 'restart':
      return stage.restart();
  }
}

/**
 * I2, I9: whatever the order of objects, lists, restarts and handovers, once everything is listed the caches
 * equal the model of the objects and a feed that has just begun.
 */
export async function I9_anyLifeIsAColdStart(make: MakeWorld, { mode, happenings }: Life): Promise<void> {
  const stage = new Stage(make, mode);
  stage.world.feed.start();
  for (const what of happenings) await happen(stage, what);
  stage.cluster.settle();
  const expected = {
    claims: naiveClaims(stage.inputs),
    nodes: naiveNodes(stage.inputs),
    labels: naiveLabels(stage.inputs),
    identities: naiveIdentities(stage.inputs),
  };
  expect(held(stage.world, stage.labels)).toEqual(expected);
  // Claims of a lost kvstore are kept, which a new feed cannot know.
  if (stage.seen !== undefined && !stage.connected) return;
  await stage.restart();
  stage.cluster.settle();
  expect(held(stage.world, stage.labels)).toEqual(expected);
}
