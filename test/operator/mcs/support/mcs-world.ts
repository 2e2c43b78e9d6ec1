import type { ServedAnswer, ServedRequest } from '../../../../src/k8s/memory/faults.ts';
import { MemoryApiTransport } from '../../../../src/k8s/memory/memory-api-transport.ts';
import type { KubernetesObject, ResourceKind } from '../../../../src/k8s/resource.ts';
import { MemoryBackend } from '../../../../src/kvstore/memory/memory-backend.ts';
import type { OperatorDuties, OperatorDutiesOptions } from '../../../../src/operator/duties.ts';
import { derivedName, mcsKind } from '../../../../src/operator/mcs/names.ts';
import { ManualClock } from '../../../base/support/manual-clock.ts';
import { FakeDirectory } from '../../../clustermesh/support/fake-directory.ts';
import { ApiUser } from '../../../k8s/support/api-user.ts';
import { advance } from '../../../kvstore/support/settle.ts';
import { OperatorOfCluster } from '../../support/operator-of-cluster.ts';
import { runDuties } from '../../support/run-duties.ts';

export const SERVICES: ResourceKind = { group: '', version: 'v1', plural: 'services' };
export const SLICES: ResourceKind = { group: 'discovery.k8s.io', version: 'v1', plural: 'endpointslices' };
export const EXPORTS: ResourceKind = mcsKind('serviceexports', 'v1beta1');
export const IMPORTS: ResourceKind = mcsKind('serviceimports', 'v1beta1');

export type Fields = Readonly<Record<string, unknown>>;

/** An EndpointSlice of the API server. */
export interface ServedSlice {
  readonly metadata: KubernetesObject['metadata'] & { readonly labels: Readonly<Record<string, string>> };
  readonly endpoints: readonly { readonly addresses: readonly string[] }[];
}

/** A condition as text: `Ready=True Ready`. */
export type ConditionTexts = readonly string[];

/** A cluster of a mesh, with an operator that exports and imports services. */
export class McsCluster extends OperatorOfCluster {
  readonly remotes: FakeDirectory = new FakeDirectory();
  /** The writes that the API server received: `PATCH serviceimports/cart/status`. */
  readonly writes: string[] = [];
  readonly failures: string[] = [];
  /** Called with each write before the API server gets it; returns an answer instead of the server's. */
  intercept: (method: string, path: string) => ServedAnswer | undefined = () => undefined;
  /** Called after each write, before its answer. */
  onWritten: (method: string, path: string) => Promise<void> = () => Promise.resolve();
  duties: OperatorDuties = { all: [], published: [] };
  readonly #transport = new MemoryApiTransport(this.api);
  #stop: (() => Promise<void>) | undefined;

  userOf(kind: ResourceKind, namespace: string | undefined = 'shop'): ApiUser {
    return new ApiUser(this.#transport, kind, namespace);
  }

  /** Creates the namespace `shop`. */
  async createNamespace(annotations: Fields = {}): Promise<void> {
    const kind = { group: '', version: 'v1', plural: 'namespaces' };
    await new ApiUser(this.#transport, kind).create('shop', {}, { annotations });
  }

  /** Creates a Service and its ServiceExport. */
  async export(name: string, spec: object = {}, exported: object = {}): Promise<void> {
    const service = {
      type: 'ClusterIP',
      clusterIP: '10.96.0.1',
      ports: [{ name: 'http', protocol: 'TCP', port: 80, targetPort: 8080 }],
      sessionAffinity: 'None',
      ipFamilies: ['IPv4'],
      ...spec,
    };
    await this.userOf(SERVICES).create(name, { spec: service });
    await this.userOf(EXPORTS).create(name, { spec: exported });
  }

  async unexport(name: string): Promise<void> {
    await this.userOf(EXPORTS).delete(name);
  }

  /** Creates or replaces a slice of a Service, with one endpoint for each address. */
  async putSlice(
    name: string,
    service: string,
    addresses: readonly string[],
    content: object = {},
  ): Promise<void> {
    const user = this.userOf(SLICES);
    const body = {
      addressType: 'IPv4',
      endpoints: addresses.map((address) => ({ addresses: [address], conditions: { ready: true } })),
      ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
      ...content,
      metadata: { name, labels: { 'kubernetes.io/service-name': service } },
    };
    const { status } = await user.ask({ method: 'POST', path: user.path(), body });
    if (status === 409) await user.ask({ method: 'PUT', path: user.path(name), body });
  }

  async slices(): Promise<readonly ServedSlice[]> {
    const user = this.userOf(SLICES);
    const { body } = await user.ask({ path: `${user.path()}?limit=5000` });
    return (body as { readonly items: readonly ServedSlice[] }).items;
  }

  async find(
    kind: ResourceKind,
    name: string,
    namespace?: string,
  ): Promise<(KubernetesObject & Fields) | undefined> {
    const user = this.userOf(kind, namespace);
    const { status, body } = await user.ask({ path: user.path(name) });
    return status === 404 ? undefined : (body as KubernetesObject & Fields);
  }

  derived(name: string): Promise<(KubernetesObject & Fields) | undefined> {
    return this.find(SERVICES, derivedName('shop', name));
  }

  async conditions(kind: ResourceKind, name: string): Promise<ConditionTexts> {
    const found = await this.find(kind, name);
    const status = found?.['status'] as
      | { readonly conditions?: readonly Readonly<Record<string, string>>[] }
      | undefined;
    return (status?.conditions ?? []).map(({ type, status: is, reason }) => `${type}=${is} ${reason}`);
  }

  /** Starts an operator that reads the clusters in {@link remotes}. */
  start(change: Partial<OperatorDutiesOptions> = {}): void {
    const handle = async (request: ServedRequest): Promise<ServedAnswer> => {
      if (request.method === 'GET') return await this.api.handle(request);
      const [path = ''] = request.path.split('?');
      if (!path.includes('/leases'))
        this.writes.push(
          `${request.method} ${path
            .split('/')
            .slice(path.startsWith('/api/') ? 5 : 6)
            .join('/')}`,
        );
      const answer = this.intercept(request.method, path) ?? (await this.api.handle(request));
      await this.onWritten(request.method, path);
      return answer;
    };
    const { duties, stop } = runDuties(
      { clock: this.clock, api: { handle }, server: this.server },
      {
        clusterName: this.name,
        clusterID: this.id,
        remotes: this.remotes,
        mcs: { families: ['IPv4'] },
        onReject: ({ message }) => void this.rejected.push(message),
        onFailure: (error) => void this.failures.push(String(error)),
        ...change,
      },
    );
    this.duties = duties;
    this.#stop = stop;
  }

  async stop(): Promise<void> {
    const stop = this.#stop;
    this.#stop = undefined;
    await stop?.();
  }
}

/** The clusters `a`, `b`, …, each with an operator that follows all others. */
export class McsMesh {
  readonly clock: ManualClock = new ManualClock();
  readonly clusters: readonly McsCluster[];

  constructor(count = 2) {
    this.clusters = Array.from(
      { length: count },
      (_, at) => new McsCluster('abcdefgh'.charAt(at), at + 1, this.clock),
    );
    for (const cluster of this.clusters)
      for (const other of this.clusters) if (other !== cluster) this.connect(cluster, other);
  }

  cluster(name: string): McsCluster {
    const found = this.clusters.find((one) => one.name === name);
    if (found === undefined) throw new Error(name);
    return found;
  }

  connect(cluster: McsCluster, other: McsCluster): void {
    const connect = (): MemoryBackend =>
      new MemoryBackend({ clock: this.clock, random: () => 0.5, server: other.server });
    cluster.remotes.write(other.name, { kind: 'config', hash: other.name, connect });
  }

  /** Makes the kvstore of another cluster unreachable for a cluster, until {@link connect}. */
  cut(cluster: McsCluster, other: string): void {
    const connect = (): never => {
      throw new Error('unreachable');
    };
    cluster.remotes.write(other, { kind: 'config', hash: `no ${other}`, connect });
  }

  async start(change: Partial<OperatorDutiesOptions> = {}): Promise<void> {
    for (const cluster of this.clusters) {
      await cluster.createNamespace();
      cluster.start(change);
    }
    await this.pass(5000);
  }

  /** Lets this time pass. */
  pass(ms: number): Promise<void> {
    return advance(this.clock, ms);
  }

  async stop(): Promise<void> {
    await Promise.all(this.clusters.map((cluster) => cluster.stop()));
  }
}
