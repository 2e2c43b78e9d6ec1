import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { CLUSTER_TYPES } from '../../../src/k8s/memory/resource-types.ts';
import { resourcePrefix } from '../../../src/kvstore/codec/keys.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { identitySync } from '../../../src/operator/publish/identity-sync.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { heldOf } from '../../clustermesh/support/mesh-laws.ts';
import { Agent } from '../../clustermesh/support/mesh-world.ts';
import { programOf } from '../../conformance/support/operator-programs.ts';
import type { OperatorStep, TraceObject } from '../../conformance/support/operator-trace.ts';
import { nameOf, OperatorWorld } from '../../conformance/support/operator-world.ts';
import { ApiUser } from '../../k8s/support/api-user.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';
import { comparableValue, type NaiveCluster, naiveKeys } from '../support/naive-cluster.ts';

const CLUSTER = 'a';
const PROGRAM = 'clustermesh-apiserver clustermesh';

/** A change of the objects, or an event of the program. */
type Happening =
  | { readonly do: 'put'; readonly object: TraceObject }
  | { readonly do: 'delete'; readonly object: TraceObject }
  | { readonly do: 'stop' }
  | { readonly do: 'start' }
  | { readonly do: 'lose-leases' }
  | { readonly do: 'overwrite' | 'remove'; readonly pick: number }
  | { readonly do: 'check' };

const bool = fc.boolean();
const ip = fc.constantFrom('10.1.0.1', '10.1.0.2', '10.1.0.3', 'fd00::1');
const name = fc.constantFrom('x', 'y');
const namespace = fc.constantFrom('ns', 'ns', 'other');
const maybe = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> =>
  fc.option(value, { nil: undefined });

const service = fc
  .record({
    name,
    namespace,
    global: fc.constantFrom('true', 'false', undefined),
    shared: maybe(fc.constantFrom('true', 'FALSE')),
    headless: bool,
  })
  .map(({ name: of, namespace: where, global, shared, headless }): TraceObject => {
    const annotations = Object.fromEntries(
      Object.entries({ 'service.cilium.io/global': global, 'service.cilium.io/shared': shared }).flatMap(
        ([key, value]) => (value === undefined ? [] : [[key, value] as const]),
      ),
    );
    return {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: of, namespace: where, annotations },
      spec: {
        type: 'ClusterIP',
        clusterIP: headless ? 'None' : `172.16.0.${of === 'x' ? 1 : 2}`,
        ports: [{ name: 'http', port: 80, protocol: 'TCP' }],
      },
    };
  });

const slice = fc
  .record({
    slice: fc.constantFrom('x-1', 'x-2', 'y-1'),
    of: name,
    namespace,
    ips: fc.array(ip, { maxLength: 2 }),
    ready: bool,
  })
  .map(
    ({ slice: named, of, namespace: where, ips, ready }): TraceObject => ({
      apiVersion: 'discovery.k8s.io/v1beta1',
      kind: 'EndpointSlice',
      metadata: { name: named, namespace: where, labels: { 'kubernetes.io/service-name': of } },
      addressType: 'IPv4',
      endpoints: ips.map((address) => ({ addresses: [address], conditions: { ready } })),
      ports: [{ name: 'http', port: named === 'x-2' ? 81 : 80, protocol: 'TCP' }],
    }),
  );

const node = fc
  .record({
    name,
    key: fc.constantFrom(0, 3),
    label: bool,
    ip: fc.constantFrom('192.168.0.1', '192.168.0.2'),
  })
  .map(
    ({ name: of, key, label, ip: address }): TraceObject => ({
      apiVersion: 'cilium.io/v2',
      kind: 'CiliumNode',
      metadata: { name: of, ...(label ? { labels: { l: '1' } } : {}) },
      spec: { addresses: [{ type: 'InternalIP', ip: address }], encryption: { key } },
    }),
  );

const endpoint = fc
  .record({
    name,
    namespace,
    ips: fc.array(ip, { maxLength: 2 }),
    id: maybe(fc.constant(65_800)),
    host: bool,
    port: bool,
    account: fc.constantFrom('default', 'web', '', undefined),
  })
  .map(
    ({ name: of, namespace: where, ips, id, host, port, account }): TraceObject => ({
      apiVersion: 'cilium.io/v2',
      kind: 'CiliumEndpoint',
      metadata: { name: of, namespace: where },
      status: {
        ...(id === undefined ? {} : { identity: { id } }),
        networking: {
          addressing: ips.map((ipv4) => ({ ipv4 })),
          ...(host ? { node: '192.168.0.1' } : {}),
        },
        ...(account === undefined ? {} : { 'service-account': account }),
        ...(port ? { 'named-ports': [{ name: 'http', port: 80, protocol: 'TCP' }] } : {}),
      },
    }),
  );

const identity = fc
  .record({
    id: fc.constantFrom('65800', '65801', 'none'),
    labels: fc.constantFrom({}, { 'k8s:a': '1' }, { 'k8s:a': '2' }),
    namespace: maybe(namespace),
  })
  .map(({ id, labels, namespace: where }): TraceObject => {
    const said = where === undefined ? labels : { ...labels, 'k8s:io.kubernetes.pod.namespace': where };
    return {
      apiVersion: 'cilium.io/v2',
      kind: 'CiliumIdentity',
      metadata: { name: id },
      'security-labels': said,
    };
  });

const annotated = fc
  .record({ name: namespace, value: fc.constantFrom('true', 'TRUE', 'false', '', 'yes', undefined) })
  .map(
    ({ name: of, value }): TraceObject => ({
      apiVersion: 'v1',
      kind: 'Namespace',
      metadata: {
        name: of,
        annotations: value === undefined ? {} : { 'clustermesh.cilium.io/global': value },
      },
    }),
  );

const object = fc.oneof(service, slice, slice, node, endpoint, endpoint, identity, annotated, annotated);
const happenings: fc.Arbitrary<Happening[]> = fc.array(
  fc.oneof(
    { weight: 9, arbitrary: object.map((one): Happening => ({ do: 'put', object: one })) },
    { weight: 4, arbitrary: object.map((one): Happening => ({ do: 'delete', object: one })) },
    {
      weight: 4,
      arbitrary: fc.constantFrom<Happening>(
        { do: 'stop' },
        { do: 'start' },
        { do: 'start' },
        { do: 'lose-leases' },
      ),
    },
    {
      weight: 1,
      arbitrary: fc.record({
        do: fc.constantFrom('overwrite' as const, 'remove' as const),
        pick: fc.nat(99),
      }),
    },
    { weight: 3, arbitrary: fc.constant<Happening>({ do: 'check' }) },
  ),
  { maxLength: 40, size: 'max' },
);

/**
 * Longer than the repair of an overwritten key, and than the detection of a lost lease to which no key of a
 * watch is bound.
 */
const REPAIRED_MS = 400_000;

class ProducerWorld {
  readonly world: OperatorWorld;
  readonly reader: Agent;
  readonly #globalByDefault: boolean | undefined;
  #needsTime = false;

  constructor(globalByDefault: boolean | undefined) {
    const start = programOf(PROGRAM);
    if (start === undefined) throw new Error('there is no such program');
    this.#globalByDefault = globalByDefault;
    const filter =
      globalByDefault === undefined ? [] : [`--clustermesh-default-global-namespace=${globalByDefault}`];
    const flags = [
      `--cluster-name=${CLUSTER}`,
      '--cluster-id=1',
      '--enable-external-workloads=false',
      ...filter,
    ];
    this.world = new OperatorWorld({ name: 'random', program: PROGRAM, flags, events: [] }, start);
    this.reader = new Agent(this.world.clock);
  }

  step(op: string, fields: Partial<OperatorStep> = {}): Promise<void> {
    return this.world.step({ t: 'step', n: 0, op, ...fields }, () => this.world.lives);
  }

  async begin(): Promise<void> {
    await this.step('start');
    await this.world.quiet(1000);
    const server = this.world.etcds.get('local')?.server;
    if (server !== undefined) await this.reader.add(CLUSTER, server);
  }

  async do(what: Happening): Promise<void> {
    const { world } = this;
    if (what.do === 'put') {
      const op = world.objects.has(nameOf(what.object)) ? 'update' : 'create';
      await this.step(op, { object: what.object });
    } else if (what.do === 'delete') {
      if (world.objects.has(nameOf(what.object))) await this.step('delete', { object: what.object });
    } else if (what.do === 'start') {
      if (!world.isRunning) await this.step('start');
    } else if (what.do === 'stop') await this.step('stop');
    else if (what.do === 'lose-leases') {
      this.#needsTime = true;
      await this.step('etcd-lease-revoke', { lease: 'any' });
    } else if (what.do === 'check') await this.check();
    else await this.#tamper(what.do, what.pick);
  }

  /** Another client changes a key. */
  async #tamper(how: 'overwrite' | 'remove', pick: number): Promise<void> {
    const keys = [...this.content().keys()];
    const key = keys[pick % Math.max(1, keys.length)];
    if (key === undefined) return;
    if (how === 'overwrite') this.#needsTime = true;
    await this.step(how === 'overwrite' ? 'etcd-put' : 'etcd-delete', { key, value: '{}' });
  }

  content(): ReadonlyMap<string, string> {
    const all = this.world.etcds.get('local')?.content() ?? new Map();
    const state = [...all].filter(([key]) => key.startsWith('cilium/state/'));
    return new Map(state.map(([key, { v }]) => [key, comparableValue(v)]));
  }

  /**
   * While a program runs, the kvstore reaches the content of the objects, and so does a mesh that follows it.
   */
  async check(): Promise<void> {
    const { world } = this;
    if (!world.isRunning) return;
    await world.quiet(this.#needsTime ? REPAIRED_MS : 7000);
    this.#needsTime = false;
    const cluster: NaiveCluster = {
      name: CLUSTER,
      id: 1,
      version: '1.17',
      slices: true,
      createdAt: (one) => world.createdAt.get(nameOf(one as TraceObject)) ?? 0,
      globalByDefault: this.#globalByDefault,
      resources: new Set(['services', 'nodes', 'ip', 'identities']),
    };
    const said = naiveKeys(world.objects.values(), cluster);
    const hasNodes = [...world.objects.values()].some(({ kind }) => kind === 'CiliumNode');
    const isCompared = (key: string): boolean => hasNodes || !key.includes('/nodes/');
    const there = new Map([...this.content()].filter(([key]) => isCompared(key)));
    expect(Object.fromEntries([...there].sort())).toEqual(Object.fromEntries([...said].sort()));
    const held = [...heldOf(this.reader, CLUSTER).keys()].filter(
      (key) => hasNodes || !key.startsWith(`${CLUSTER}/`),
    );
    expect(held.sort()).toEqual([...said.keys()].map(heldAs).sort());
  }

  async end(): Promise<void> {
    if (!this.world.isRunning) await this.step('start');
    await this.check();
    await this.world.stop();
    await this.reader.stop();
    await this.#leavesNothing();
  }

  /** I10: a program that has ended leaves only the nodes, whose keys have no lease. */
  async #leavesNothing(): Promise<void> {
    const { clock, etcds } = this.world;
    await settle();
    const server = etcds.get('local')?.server;
    for (const lease of server?.leases ?? []) server?.expireLease(lease);
    const left = [...this.content().keys()].filter(
      (key) => !key.startsWith(resourcePrefix('nodes', CLUSTER)),
    );
    expect([left, clock.pending]).toEqual([[], 0]);
  }
}

/** Returns the name under which a reader stores the content of a key. */
function heldAs(key: string): string {
  const [, , resource, , scope, ...rest] = key.split('/');
  if (resource === 'identities') return `id/${rest[0]}`;
  return resource === 'nodes' ? `${scope}/${rest[0]}` : rest.join('/');
}

// Each run takes minutes of simulated time in three programs, and about 100 ms of real time.
const { numRuns = 300 } = fc.readConfigureGlobal();

describe('the producers of a cluster', () => {
  it.each([
    ['of all namespaces', undefined],
    ['of global namespaces', true],
    ['of namespaces that are annotated', false],
  ])(
    'keep the kvstore, and a mesh that follows, equal to the objects %s: through edits, restarts, lost leases and other writers',
    async (_, globalByDefault) => {
      const run = async (script: readonly Happening[]): Promise<void> => {
        const world = new ProducerWorld(globalByDefault);
        await world.begin();
        for (const what of script) await world.do(what);
        await world.end();
      };
      await fc.assert(fc.asyncProperty(happenings, run), { numRuns: Math.ceil(numRuns / 15) });
    },
  );
});

it('a producer that runs again deletes nothing, and is not complete, before its objects are listed again', async () => {
  const clock = new ManualClock();
  const runtime = { clock, random: () => 0.5 };
  const api = new MemoryApiServer({ clock });
  const transport = new MemoryApiTransport(api);
  const kind = { group: 'cilium.io', version: 'v2', plural: 'ciliumidentities' };
  const user = new ApiUser(transport, kind);
  await user.create('65800', { 'security-labels': { 'k8s:app': 'web' } });
  const source = new KubernetesClient(transport, runtime);
  const backend = new MemoryBackend(runtime);
  const producer = identitySync({ ...runtime, source, backend, clusterName: CLUSTER, clusterID: 1 });
  const run = (): (() => Promise<void>) => {
    const stop = new AbortController();
    const ended = producer.run(stop.signal);
    return async () => {
      stop.abort();
      await settle();
      await ended;
    };
  };
  const keys = async (): Promise<number> => (await backend.listPrefix('cilium/state/identities/')).length;
  const first = run();
  await advance(clock, 1000);
  await producer.synced();
  expect(await keys()).toBe(1);
  await first();
  api.down();
  const second = run();
  let isComplete = false;
  const synced = producer.synced().then(() => {
    isComplete = true;
  });
  await advance(clock, 3000);
  expect([isComplete, await keys()]).toEqual([false, 1]);
  api.up();
  await advance(clock, 60_000);
  await synced;
  expect(await keys()).toBe(1);
  await second();
  await source.close();
  await backend.close();
});

it('a producer whose kind is not served names the missing CRD in its status (regression: no reason)', async () => {
  const clock = new ManualClock();
  const runtime = { clock, random: () => 0.5 };
  const api = new MemoryApiServer({ clock });
  for (const type of CLUSTER_TYPES) if (type.plural === 'ciliumidentities') api.stopServing(type);
  const source = new KubernetesClient(new MemoryApiTransport(api), runtime);
  const backend = new MemoryBackend(runtime);
  const producer = identitySync({ ...runtime, source, backend, clusterName: CLUSTER, clusterID: 1 });
  expect(producer.status().waitsFor).toBeUndefined();
  const stop = new AbortController();
  const ended = producer.run(stop.signal);
  await advance(clock, 1000);
  expect(producer.status()).toMatchObject({
    state: 'waiting',
    waitsFor: 'the server does not serve ciliumidentities.cilium.io/v2: its CRD is not installed',
  });
  stop.abort();
  await settle();
  await ended;
  await source.close();
  await backend.close();
});
