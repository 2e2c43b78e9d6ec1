import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { decodeClusterEndpointSlice } from '../../../src/kvstore/codec/cluster-endpoint-slice.ts';
import { prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import type { FollowedInputs } from '../../../src/operator/publish/producer.ts';
import type { ServiceObjectsReader } from '../../../src/operator/publish/service-objects.ts';
import { slicesOfService } from '../../../src/operator/publish/service-slices.ts';
import { sliceSync } from '../../../src/operator/publish/slice-sync.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { ApiUser } from '../../k8s/support/api-user.ts';
import { advance } from '../../kvstore/support/settle.ts';
import { runDuties } from '../support/run-duties.ts';

const PREFIX = 'cilium/state/endpointslices/v1/a/';
const SERVICE_NAME = 'kubernetes.io/service-name';
const WAIT = { timeout: 120_000, interval: 1 };

interface Annotated {
  readonly global?: string | undefined;
  readonly shared?: string | undefined;
}

type Step =
  | { readonly do: 'service'; readonly name: string; readonly said: Annotated | undefined }
  | {
      readonly do: 'slice';
      readonly name: string;
      readonly said:
        | { readonly of: string; readonly ips: readonly number[]; readonly ready: boolean }
        | undefined;
    }
  | { readonly do: 'namespace'; readonly global: string | undefined }
  | { readonly do: 'restart' | 'lose-leases' | 'settle' };

/**
 * A cluster with its API server and kvstore, and an operator that publishes. All objects are in the namespace `shop`.
 */
class World {
  readonly clock = new ManualClock();
  readonly server = new MemoryServer({ clock: this.clock, clusterID: 'a' });
  readonly api = new MemoryApiServer({ clock: this.clock });
  readonly services = new Map<string, Annotated>();
  readonly slices = new Map<
    string,
    { readonly of: string; readonly ips: readonly number[]; readonly ready: boolean }
  >();
  isGlobal = true;
  /** Number of lists of each kind. */
  readonly listed = { services: 0, endpointslices: 0 };
  readonly #transport = new MemoryApiTransport(this.api);
  readonly #serviceFormats: 'both' | 'legacy';
  #stop: () => Promise<void> = () => Promise.resolve();

  constructor(serviceFormats: 'both' | 'legacy' = 'both') {
    this.#serviceFormats = serviceFormats;
  }

  user(group: string, plural: string, namespace?: string): ApiUser {
    return new ApiUser(this.#transport, { group, version: 'v1', plural }, namespace);
  }

  async begin(): Promise<void> {
    await this.user('', 'namespaces').create('shop');
    this.start();
  }

  start(): void {
    const handle: MemoryApiServer['handle'] = (request) => {
      const listed = /\/(services|endpointslices)\?(?!.*watch=)/.exec(request.path)?.[1];
      if (listed === 'services' || listed === 'endpointslices') this.listed[listed]++;
      return this.api.handle(request);
    };
    const servers = { clock: this.clock, api: { handle }, server: this.server };
    this.#stop = runDuties(servers, { serviceFormats: this.#serviceFormats }).stop;
  }

  stop(): Promise<void> {
    return this.#stop();
  }

  async do(step: Step): Promise<void> {
    if (step.do === 'service') await this.#service(step.name, step.said);
    else if (step.do === 'slice') await this.#slice(step.name, step.said);
    else if (step.do === 'namespace') {
      this.isGlobal = step.global === undefined || step.global === 'true';
      const metadata = { annotations: { 'clustermesh.cilium.io/global': step.global ?? null } };
      await this.user('', 'namespaces').patch('shop', { metadata });
    } else if (step.do === 'restart') {
      await this.stop();
      this.start();
    } else if (step.do === 'lose-leases')
      for (const lease of this.server.leases) this.server.expireLease(lease);
    else await advance(this.clock, 5000);
  }

  async #service(name: string, said: Annotated | undefined): Promise<void> {
    const user = this.user('', 'services', 'shop');
    if (this.services.has(name)) await user.delete(name);
    this.services.delete(name);
    if (said === undefined) return;
    const annotations = Object.fromEntries(
      Object.entries(said).flatMap(([key, value]) =>
        value === undefined ? [] : [[`service.cilium.io/${key}`, value]],
      ),
    );
    await user.create(name, { spec: { clusterIP: '172.16.0.1' } }, { annotations });
    this.services.set(name, said);
  }

  async #slice(
    name: string,
    said: { readonly of: string; readonly ips: readonly number[]; readonly ready: boolean } | undefined,
  ): Promise<void> {
    const user = this.user('discovery.k8s.io', 'endpointslices', 'shop');
    if (this.slices.has(name)) await user.delete(name);
    this.slices.delete(name);
    if (said === undefined) return;
    const endpoints = said.ips.map((ip) => ({
      addresses: [`10.0.0.${ip}`],
      conditions: { ready: said.ready },
      nodeName: 'n1',
      zone: 'z',
      hints: { forZones: [{ name: 'z' }] },
    }));
    await user.create(
      name,
      { addressType: 'IPv4', endpoints, ports: [{ name: 'http', port: 80, protocol: 'TCP' }] },
      { labels: { [SERVICE_NAME]: said.of } },
    );
    this.slices.set(name, said);
  }

  /** Addresses of each published slice, with the readiness of its endpoints. */
  published(): Readonly<Record<string, unknown>> {
    const { kvs } = this.server.range(prefixRange(PREFIX));
    return Object.fromEntries(
      kvs.map(({ key, value }) => {
        const [namespace = '', name = ''] = key.slice(PREFIX.length).split('/');
        const decoded = decodeClusterEndpointSlice({ cluster: 'a', namespace, name }, value, key);
        if (!decoded.ok) throw new Error(decoded.rejection.message);
        const { endpoints, labels } = decoded.value;
        return [
          name,
          {
            of: labels.get(SERVICE_NAME),
            ips: endpoints.map(({ addresses: [ip] }) => Number(ip?.split('.')[3])),
            ready: endpoints.every(({ conditions }) => conditions.ready === true),
          },
        ];
      }),
    );
  }

  /** Returns the expected slices, from the objects. */
  expected(): Readonly<Record<string, unknown>> {
    const isShared = (name: string): boolean => {
      const said = this.services.get(name);
      return this.isGlobal && said?.global === 'true' && (said.shared ?? 'true') === 'true';
    };
    return Object.fromEntries(
      [...this.slices]
        .filter(([, { of }]) => isShared(of))
        .map(([name, { of, ips, ready }]) => [name, { of, ips, ready: ready || ips.length === 0 }]),
    );
  }
}

const name = fc.constantFrom('x', 'y');
const maybe = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> =>
  fc.option(value, { nil: undefined });
const flag = fc.constantFrom('true', 'false', undefined);
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({
    do: fc.constant('service' as const),
    name,
    said: maybe(fc.record({ global: flag, shared: flag })),
  }),
  fc.record({
    do: fc.constant('slice' as const),
    name: fc.constantFrom('x-1', 'x-2', 'y-1'),
    said: maybe(
      fc.record({ of: name, ips: fc.uniqueArray(fc.integer({ min: 1, max: 4 })), ready: fc.boolean() }),
    ),
  }),
  fc.record({ do: fc.constant('namespace' as const), global: flag }),
  fc.constantFrom<Step>({ do: 'restart' }, { do: 'lose-leases' }, { do: 'settle' }, { do: 'settle' }),
);

const { numRuns = 300 } = fc.readConfigureGlobal();

describe('the endpoint slices of a cluster', () => {
  it('are those of shared services in global namespaces, through edits, restarts and lost leases', async () => {
    const run = async (steps: readonly Step[]): Promise<void> => {
      const world = new World();
      await world.begin();
      for (const one of steps) await world.do(one);
      await advance(world.clock, 400_000);
      expect(world.published()).toEqual(world.expected());
      await world.stop();
    };
    await fc.assert(fc.asyncProperty(fc.array(step, { maxLength: 25 }), run), {
      numRuns: Math.ceil(numRuns / 6),
    });
  });

  it('are put and deleted with the annotations of their service, 500 of them', async () => {
    const world = new World();
    await world.begin();
    for (let i = 0; i < 500; i++)
      await world.do({ do: 'slice', name: `x-${i}`, said: { of: 'x', ips: [1], ready: true } });
    const count = async (): Promise<number> => {
      await advance(world.clock, 10_000);
      return Object.keys(world.published()).length;
    };
    expect(await count()).toBe(0);
    await world.do({ do: 'service', name: 'x', said: { global: 'true' } });
    expect(await count()).toBe(500);
    const annotate = (value: string): Promise<unknown> =>
      world
        .user('', 'services', 'shop')
        .patch('x', { metadata: { annotations: { 'service.cilium.io/shared': value } } });
    await annotate('false');
    expect(await count()).toBe(0);
    await annotate('true');
    expect(await count()).toBe(500);
    await world.stop();
  });

  it('and services are listed once for both formats, also by the next run', async () => {
    const world = new World();
    await world.begin();
    await advance(world.clock, 5000);
    expect(world.listed).toEqual({ services: 1, endpointslices: 1 });
    await world.stop();
    world.start();
    await advance(world.clock, 5000);
    expect(world.listed).toEqual({ services: 2, endpointslices: 2 });
    await world.stop();
  });

  it('are announced by the configuration, and canaries of both formats are written; legacy: neither', async () => {
    for (const formats of ['both', 'legacy'] as const) {
      const world = new World(formats);
      await world.begin();
      await advance(world.clock, 5000);
      const [config] = world.server.range(prefixRange('cilium/cluster-config/')).kvs;
      const text = textOfBytes(config?.value ?? new Uint8Array()) ?? '';
      expect(text.includes('"endpointSlicesExportMode":"services-and-endpointslices"')).toBe(
        formats === 'both',
      );
      expect(text).toContain('"syncedCanaries":true');
      const canaries = world.server
        .range(prefixRange('cilium/synced/a/'))
        .kvs.map(({ key }) => key.split('/')[5]);
      const slices = formats === 'both' ? ['endpointslices'] : [];
      expect(canaries).toEqual([...slices, 'identities', 'ip', 'nodes', 'services']);
      await world.stop();
    }
  });
});

it('the canary of slices is written when the review of a service ends that has outlasted the lists', async () => {
  const clock = new ManualClock();
  const runtime = { clock, random: () => 0.5 };
  const server = new MemoryServer({ clock });
  const backend = new MemoryBackend({ ...runtime, server });
  const gate = new TurnGate({ clock, nextTurn: (callback) => setImmediate(callback), weightPerTurn: 1 });
  const source = new KubernetesClient(new MemoryApiTransport(new MemoryApiServer({ clock })), runtime);
  let reader: ServiceObjectsReader | undefined;
  const inputs = { complete: false, kinds: [], stop: () => Promise.resolve() };
  const join = (joined: ServiceObjectsReader): FollowedInputs => {
    reader = joined;
    return inputs;
  };
  const options = { ...runtime, clusterName: 'a', clusterID: 1, source, backend, gate };
  const ended = new AbortController();
  const running = sliceSync(options, { join }).run(ended.signal);
  const put = (feed: string, objects: readonly object[]): void =>
    reader?.moreFeeds
      ?.get(feed)
      ?.start()
      .apply(
        objects.map((object, at) => {
          const metadata = {
            namespace: 'shop',
            name: `x-${at}`,
            uid: `${at}`,
            resourceVersion: '1',
            ...object,
          };
          return { type: 'put', object: { metadata, addressType: 'IPv4', endpoints: [], ports: [] } };
        }),
      );
  put(
    'endpointslices',
    Array.from({ length: 100 }, () => ({ labels: { [SERVICE_NAME]: 'x' } })),
  );
  put('services', [{ name: 'x', annotations: { 'service.cilium.io/global': 'true' } }]);
  inputs.complete = true;
  reader?.onChange();
  const keys = (prefix: string): number => server.range(prefixRange(prefix)).kvs.length;
  expect(keys(PREFIX)).toBeLessThan(100);
  await vi.waitUntil(() => keys(PREFIX) === 100, WAIT);
  await vi.waitUntil(() => keys('cilium/synced/a/') === 1, WAIT);
  ended.abort();
  await running;
  await backend.close();
  await source.close();
});

it('services and slices are watched once for both formats', async () => {
  const watches: number[] = [];
  for (const formats of ['legacy', 'both'] as const) {
    const world = new World(formats);
    await world.begin();
    await advance(world.clock, 5000);
    watches.push(world.api.watches);
    await world.stop();
  }
  expect(watches).toEqual([6, 6]);
});

it('slices that are derived from a service have its backends, at most 100 in each', () => {
  const http = new Map([['http', { port: 80, protocol: 6 }]]);
  const backends = new Map([
    ...Array.from({ length: 250 }, (_, i) => [`10.0.${i >> 8}.${i & 255}`, http] as const),
    ['10.1.0.1', new Map([['http', { port: 81, protocol: 6 }]])] as const,
    ['fd00::1', http] as const,
  ]);
  const service = {
    cluster: 'a',
    clusterID: 1,
    namespace: 'shop',
    name: 'web',
    frontends: new Map(),
    backends,
    labels: new Map([['team', 'shop']]),
    selector: new Map(),
    includeExternal: true,
    shared: true,
    zones: new Map([['fd00::1', { zone: 'z', forZones: ['y'] }]]),
    hostnames: new Map([['fd00::1', 'web-0']]),
  };
  const slices = slicesOfService(service);
  expect([...slices].map(([key, { endpoints, ports }]) => [key, endpoints.length, ports[0]?.port])).toEqual([
    ...[
      ['web-ipv4-0', 100, 80],
      ['web-ipv4-1', 100, 80],
      ['web-ipv4-2', 50, 80],
    ],
    ...[
      ['web-ipv4-3', 1, 81],
      ['web-ipv6-0', 1, 80],
    ],
  ]);
  expect(slices.get('web-ipv6-0')).toMatchObject({
    addressType: 'IPv6',
    labels: new Map([
      ['team', 'shop'],
      [SERVICE_NAME, 'web'],
    ]),
    endpoints: [{ addresses: ['fd00::1'], hostname: 'web-0', zone: 'z', forZones: ['y'] }],
  });
  expect([...slicesOfService({ ...service, backends: new Map() }).keys()]).toEqual(['web-ipv4-0']);
  expect(slicesOfService({ ...service, shared: false }).size).toBe(0);
});
