import { TurnGate } from '../../../../src/base/turn-gate.ts';
import type { MeshEngines, ServiceSink } from '../../../../src/clustermesh/engines.ts';
import { KubernetesClient } from '../../../../src/k8s/kubernetes-client.ts';
import type { ServedAnswer, ServedRequest } from '../../../../src/k8s/memory/faults.ts';
import { MemoryApiServer } from '../../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../../src/k8s/memory/memory-api-transport.ts';
import type { ResourceKind } from '../../../../src/k8s/resource.ts';
import type { ClusterEndpointSlice } from '../../../../src/model/cluster-endpoint-slice.ts';
import type { Duty } from '../../../../src/operator/duty.ts';
import { endpointSliceSync, objectWriter } from '../../../../src/operator/mirrored-slices/slice-duties.ts';
import type { RemoteState } from '../../../../src/operator/remote-clusters.ts';
import { ManualClock } from '../../../base/support/manual-clock.ts';
import { ApiUser } from '../../../k8s/support/api-user.ts';
import { advance, settle } from '../../../kvstore/support/settle.ts';

export const SERVICES: ResourceKind = { group: '', version: 'v1', plural: 'services' };
export const SLICES: ResourceKind = { group: 'discovery.k8s.io', version: 'v1', plural: 'endpointslices' };

/** Remote clusters whose state a test sets. */
export class FakeClusters {
  readonly states: Map<string, RemoteState> = new Map();
  sink: ServiceSink | undefined;
  readonly #callbacks = new Set<(cluster: string) => void>();

  feed({ services }: MeshEngines): void {
    this.sink = services;
  }

  stateOf(cluster: string): RemoteState {
    return this.states.get(cluster) ?? 'gone';
  }

  onChange(callback: (cluster: string) => void): (() => void) & Disposable {
    this.#callbacks.add(callback);
    const leave = (): void => void this.#callbacks.delete(callback);
    return Object.assign(leave, { [Symbol.dispose]: leave });
  }

  set(cluster: string, state: RemoteState): void {
    this.states.set(cluster, state);
    for (const callback of this.#callbacks) callback(cluster);
  }
}

/** A slice of the API server. */
export interface ServedSlice {
  readonly addressType: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace: string;
    readonly uid: string;
    readonly resourceVersion: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
    readonly finalizers?: readonly string[];
    readonly ownerReferences?: readonly unknown[];
  };
  readonly endpoints: readonly unknown[];
  readonly ports: readonly unknown[];
}

/** A write received by the API server. */
export interface SeenWrite {
  readonly at: number;
  readonly method: string;
  readonly slice: string;
  /** Number of the operator that wrote. */
  readonly operator: number;
  isDone: boolean;
}

export function remote(
  cluster: string,
  service: string,
  name: string,
  addresses: readonly string[],
  more: Partial<ClusterEndpointSlice> = {},
): ClusterEndpointSlice {
  return {
    cluster,
    clusterID: 2,
    namespace: 'shop',
    name,
    labels: new Map([['kubernetes.io/service-name', service]]),
    annotations: new Map(),
    addressType: 'IPv4',
    ports: [{ name: 'http', port: 8080, protocol: 6 }],
    endpoints: addresses.map((address) => ({
      addresses: [address],
      conditions: { ready: true },
      nodeName: 'node-of-remote',
      forZones: [],
      deprecatedTopology: new Map(),
    })),
    ...more,
  };
}

/** An API server with an operator that synchronizes slices from remote clusters into it. */
export class SliceWorld {
  readonly clock: ManualClock = new ManualClock();
  readonly api: MemoryApiServer = new MemoryApiServer({ clock: this.clock });
  readonly clusters: FakeClusters = new FakeClusters();
  readonly #transport = new MemoryApiTransport(this.api);
  readonly services: ApiUser = new ApiUser(this.#transport, SERVICES, 'shop');
  readonly slicesUser: ApiUser = new ApiUser(this.#transport, SLICES, 'shop');
  readonly writes: SeenWrite[] = [];
  readonly actions: { readonly action: string; readonly reason: string; readonly outcome: string }[] = [];
  readonly lines: string[] = [];
  readonly failures: string[] = [];
  readonly rejections: string[] = [];
  /** Called before each delete of a slice. */
  onDelete: (slice: string) => void = () => {};
  /** Called after each write of a slice, before its answer. */
  onWritten: (slice: string) => Promise<void> = () => Promise.resolve();
  duty: Duty | undefined;
  #operators = 0;
  #stop: (() => Promise<void>) | undefined;

  /** Starts an operator. With `dryRun`, it prints its writes. */
  start(options: { readonly endpointsPerSlice?: number; readonly dryRun?: true } = {}): void {
    const { clock } = this;
    const operator = ++this.#operators;
    const handle = async (request: ServedRequest): Promise<ServedAnswer> => {
      if (request.method !== 'GET') {
        const [path = ''] = request.path.split('?');
        const body = request.method === 'POST' ? JSON.parse(request.body) : undefined;
        const slice = body?.metadata.name ?? path.slice(path.lastIndexOf('/') + 1);
        if (request.method === 'DELETE') this.onDelete(slice);
        const write: SeenWrite = {
          at: clock.now(),
          method: request.method,
          slice,
          operator,
          isDone: false,
        };
        this.writes.push(write);
        const answer = await this.api.handle(request);
        write.isDone = answer.status < 300;
        await this.onWritten(slice);
        return answer;
      }
      return await this.api.handle(request);
    };
    const client = new KubernetesClient(new MemoryApiTransport({ handle }), { clock, random: () => 0.5 });
    const { dryRun, endpointsPerSlice } = options;
    const dry = dryRun && ((line: string) => void this.lines.push(line));
    const duty = endpointSliceSync({
      clusters: this.clusters,
      kubernetes: client,
      endpointsPerSlice,
      clock,
      random: () => 0.5,
      gate: new TurnGate({ clock, nextTurn: setImmediate }),
      writer: objectWriter({ kubernetes: client, dryRun: dry }),
      onReject: ({ message }) => void this.rejections.push(message),
      onFailure: (error) => void this.failures.push(String(error)),
      onAction: (action) => void this.actions.push(action),
    });
    const over = new AbortController();
    const running = duty.run(over.signal);
    this.duty = duty;
    this.#stop = async () => {
      over.abort();
      await running;
      await client.close();
    };
  }

  async stop(): Promise<void> {
    const stop = this.#stop;
    this.#stop = undefined;
    await stop?.();
  }

  /** Lets this time pass. */
  pass(ms: number): Promise<void> {
    return advance(this.clock, ms);
  }

  settle(): Promise<void> {
    return settle(6);
  }

  async putService(
    name: string,
    annotations: Readonly<Record<string, string>> = SELECTED,
    spec: object = { clusterIP: '10.96.0.1', ipFamilies: ['IPv4'] },
  ): Promise<void> {
    const body = { metadata: { name, annotations }, spec };
    const found = await this.services.ask({ path: this.services.path(name) });
    const [method, path] =
      found.status === 404
        ? (['POST', this.services.path()] as const)
        : (['PUT', this.services.path(name)] as const);
    await this.services.ask({ method, path, body });
  }

  async slices(): Promise<readonly ServedSlice[]> {
    const { body } = await this.slicesUser.ask({ path: `${this.slicesUser.path()}?limit=5000` });
    return (body as { items: readonly ServedSlice[] }).items;
  }

  /** Returns name → addresses of all slices. */
  async addresses(): Promise<Readonly<Record<string, string>>> {
    const slices = await this.slices();
    return Object.fromEntries(
      slices.map(({ metadata, endpoints }) => [metadata.name, addressesOf(endpoints)]).sort(),
    );
  }
}

export function addressesOf(endpoints: readonly unknown[]): string {
  return (endpoints as readonly { readonly addresses: readonly string[] }[])
    .map(({ addresses }) => addresses.join('+'))
    .join(' ');
}

/** The annotations of a service whose remote backends become slices. */
export const SELECTED: Readonly<Record<string, string>> = {
  'service.cilium.io/global': 'true',
  'service.cilium.io/global-sync-endpoint-slices': 'true',
};

/** Returns the largest number of writes in any second. */
export function mostPerSecond(writes: readonly SeenWrite[]): number {
  let most = 0;
  let from = 0;
  for (let to = 0; to < writes.length; to++) {
    while ((writes[to]?.at ?? 0) - (writes[from]?.at ?? 0) >= 1000) from++;
    most = Math.max(most, to - from + 1);
  }
  return most;
}
