import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parse, parseAllDocuments } from 'yaml';
import { systemClock } from '../../../src/base/system-clock.ts';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import type { ResourceKind } from '../../../src/k8s/resource.ts';
import { ApiError } from '../../../src/k8s/rest/api-error.ts';
import type { ApiAnswer, ApiRequest, ApiTransport } from '../../../src/k8s/rest/api-transport.ts';
import { HttpTransport } from '../../../src/k8s/rest/http-transport.ts';
import { FaultyMemoryBackend } from '../../../src/kvstore/memory/faulty-memory-backend.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { type OperatorDuties, operatorDuties } from '../../../src/operator/duties.ts';
import { LeaderElection } from '../../../src/operator/elect/leader-election.ts';
import { derivedName } from '../../../src/operator/mcs/names.ts';
import { until } from '../../base/support/until.ts';
import { FakeDirectory } from '../../clustermesh/support/fake-directory.ts';
import { ApiUser } from '../../k8s/support/api-user.ts';
import { DUTY_OPTIONS } from '../../operator/support/run-duties.ts';
import { ciliumDefinitions, mcsDefinitions } from './mcs-crds.ts';
import { RealApiServer } from './real-apiserver.ts';

const random = Math.random;
const TIMES = { leaseMs: 3000, renewDeadlineMs: 2000, retryMs: 300 };
const core = (plural: string): ResourceKind => ({ group: '', version: 'v1', plural });
const rbac = (plural: string): ResourceKind => ({
  group: 'rbac.authorization.k8s.io',
  version: 'v1',
  plural,
});
const CRDS: ResourceKind = {
  group: 'apiextensions.k8s.io',
  version: 'v1',
  plural: 'customresourcedefinitions',
};

interface Rule {
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly verbs: readonly string[];
}

/** The example rights of the operator. */
export interface ExampleRules {
  /** The default rights in the whole cluster. */
  readonly cluster: readonly Rule[];
  /** The rights in the comments for an option. */
  readonly optional: readonly Rule[];
  /** The permissions in the operator's namespace. */
  readonly own: readonly Rule[];
}

/** Returns the rights in `deploy/base`, with those for an option that is off by default. */
export function exampleRules(option: string): ExampleRules {
  const path = fileURLToPath(new URL('../../../deploy/base/operator.yaml', import.meta.url));
  const text = readFileSync(path, 'utf8');
  const documents = parseAllDocuments(text).map(
    (one) => one.toJS() as { readonly kind: string; readonly rules: readonly Rule[] },
  );
  const rules = (kind: string): readonly Rule[] => documents.find((one) => one.kind === kind)?.rules ?? [];
  const [, rest = ''] = text.split(`# For ${option}, which is off by default:\n`);
  const optional: Rule[] = [];
  for (const line of rest.split('\n')) {
    if (!line.startsWith('  # - {')) break;
    optional.push(parse(line.slice('  # - '.length)) as Rule);
  }
  return { cluster: rules('ClusterRole'), optional, own: rules('Role') };
}

/** A write as it was sent. */
export interface SentWrite {
  readonly at: number;
  readonly what: string;
}

/** Returns the right that a request needs, without its API group. */
function rightOf(method: string, path: string): string {
  const [plain = '', query = ''] = path.split('?');
  const parts = plain.split('/').slice(plain.startsWith('/api/') ? 3 : 4);
  const [plural = '', name, part] = parts[0] === 'namespaces' && parts.length > 2 ? parts.slice(2) : parts;
  const read = name !== undefined ? 'get' : query.includes('watch=') ? 'watch' : 'list';
  const verbs: Readonly<Record<string, string>> = {
    POST: 'create',
    PATCH: 'patch',
    PUT: 'update',
    DELETE: 'delete',
  };
  return `${verbs[method] ?? read} ${plural}${part === undefined ? '' : `/${part}`}`;
}

/**
 * Returns a request for EndpointSlices in the version of kube-apiserver 1.20, which does not serve
 * `discovery.k8s.io/v1`. The fields that the tests use are the same in both.
 */
function withServedSlices(request: ApiRequest): ApiRequest {
  const [v1, served] = ['discovery.k8s.io/v1', 'discovery.k8s.io/v1beta1'];
  if (!request.path.startsWith(`/apis/${v1}/`)) return request;
  const path = request.path.replace(v1, served);
  return request.body === undefined
    ? { ...request, path }
    : { ...request, path, body: { ...request.body, apiVersion: served } };
}

/** The requests of one operator to a real API server. */
class Link implements ApiTransport {
  readonly writes: SentWrite[] = [];
  readonly forbidden: string[] = [];
  /** The rights that were used: `patch serviceimports/status`. */
  readonly used: Set<string> = new Set();
  isCut = false;
  readonly #inner: HttpTransport;

  constructor(inner: HttpTransport) {
    this.#inner = inner;
  }

  async send(request: ApiRequest): Promise<ApiAnswer> {
    if (this.isCut) throw new ApiError('unavailable', 'the link is cut');
    const { method = 'GET', path } = request;
    this.used.add(rightOf(method, path));
    if (method !== 'GET' && !path.includes('/leases'))
      this.writes.push({ at: performance.now(), what: `${method} ${path}` });
    const answer = await this.#inner.send(withServedSlices(request));
    if (answer.status === 403) this.forbidden.push(`${method} ${path}`);
    return answer;
  }

  reset(): void {
    this.#inner.reset();
  }

  close(): Promise<void> {
    return this.#inner.close();
  }
}

/** A process of an operator. */
export interface OneOperator {
  readonly link: Link;
  readonly election: LeaderElection;
  readonly duties: OperatorDuties;
  /** The clients of the kvstores of other clusters. */
  readonly remotes: FaultyMemoryBackend[];
  stop(): Promise<void>;
}

/** A cluster with a real API server, a kvstore in memory, and operators with the example rights. */
export class RealCluster {
  readonly name: string;
  readonly id: number;
  readonly server: RealApiServer;
  readonly kvstore: MemoryServer = new MemoryServer({ clock: systemClock });
  readonly operators: OneOperator[] = [];
  readonly #version: 'v1beta1' | 'v1alpha1';
  readonly #others: RealCluster[] = [];
  #moves = 0;

  private constructor(name: string, id: number, server: RealApiServer, version: 'v1beta1' | 'v1alpha1') {
    this.name = name;
    this.id = id;
    this.server = server;
    this.#version = version;
  }

  /** @param versions the served versions of the API; the first is the stored one */
  static async start(
    name: string,
    id: number,
    versions: readonly ('v1beta1' | 'v1alpha1')[],
  ): Promise<RealCluster> {
    const server = await RealApiServer.start();
    const [version = 'v1beta1'] = versions;
    const cluster = new RealCluster(name, id, server, version);
    const definitions = new ApiUser(server.transport, CRDS);
    for (const { name: of, spec } of [...mcsDefinitions(versions), ...ciliumDefinitions()])
      await definitions.create(of, { spec });
    for (const path of [cluster.user('serviceimports').path(), '/apis/cilium.io/v2/ciliumidentities'])
      await until(`${path} is served`, async () => (await definitions.ask({ path })).status === 200);
    const namespaces = new ApiUser(server.transport, core('namespaces'));
    await namespaces.create('shop');
    await cluster.#grant();
    return cluster;
  }

  /** Grants the example rights to the user of the operators. */
  async #grant(): Promise<void> {
    const { cluster, optional, own } = exampleRules('--mcs-api');
    const { transport } = this.server;
    const apiGroup = 'rbac.authorization.k8s.io';
    const subjects = [{ kind: 'User', name: 'system:serviceaccount:kube-system:agent', apiGroup }];
    const name = 'dpcache-operator';
    await new ApiUser(transport, rbac('clusterroles')).create(name, { rules: [...cluster, ...optional] });
    await new ApiUser(transport, rbac('clusterrolebindings')).create(name, {
      roleRef: { apiGroup, kind: 'ClusterRole', name },
      subjects,
    });
    await new ApiUser(transport, rbac('roles'), 'kube-system').create(name, { rules: own });
    await new ApiUser(transport, rbac('rolebindings'), 'kube-system').create(name, {
      roleRef: { apiGroup, kind: 'Role', name },
      subjects,
    });
  }

  follow(other: RealCluster): void {
    this.#others.push(other);
  }

  get slices(): ApiUser {
    const kind = { group: 'discovery.k8s.io', version: 'v1beta1', plural: 'endpointslices' };
    return new ApiUser(this.server.transport, kind, 'shop');
  }

  user(plural: 'services' | 'serviceexports' | 'serviceimports'): ApiUser {
    const group = plural === 'services' ? '' : 'multicluster.x-k8s.io';
    const version = plural === 'services' ? 'v1' : this.#version;
    return new ApiUser(this.server.transport, { group, version, plural }, 'shop');
  }

  get leader(): OneOperator | undefined {
    return this.operators.find(({ election }) => election.mayWrite());
  }

  operate(): OneOperator {
    const remotes: FaultyMemoryBackend[] = [];
    const directory = new FakeDirectory();
    for (const { name, kvstore: server } of this.#others)
      directory.write(name, {
        kind: 'config',
        hash: name,
        connect: () => {
          const backend = new FaultyMemoryBackend({ clock: systemClock, random, server });
          remotes.push(backend);
          return backend;
        },
      });
    const runtime = { clock: systemClock, random };
    const link = new Link(new HttpTransport(this.server.powerless));
    const kubernetes = new KubernetesClient(link, runtime);
    const identity = `${this.name}-${this.operators.length}-${random()}`;
    const election = new LeaderElection({
      ...runtime,
      client: kubernetes,
      identity,
      namespace: 'kube-system',
      times: TIMES,
    });
    const backend = new MemoryBackend({ ...runtime, server: this.kvstore });
    const duties = operatorDuties({
      ...DUTY_OPTIONS,
      globalByDefault: true,
      clusterName: this.name,
      clusterID: this.id,
      remotes: directory,
      ...runtime,
      kubernetes,
      backend,
      election,
      mcs: { families: ['IPv4'] },
      gate: new TurnGate({ clock: systemClock, nextTurn: setImmediate }),
    });
    const ended = new AbortController();
    const run = async (signal: AbortSignal): Promise<void> => {
      await Promise.all(duties.all.map((duty) => duty.run(signal)));
    };
    const running = election.run(run, ended.signal);
    const operator: OneOperator = {
      link,
      election,
      duties,
      remotes,
      stop: async () => {
        ended.abort();
        this.operators.splice(this.operators.indexOf(operator), 1);
        await running;
        await kubernetes.close();
        await backend.close({ keepLeases: true });
      },
    };
    this.operators.push(operator);
    return operator;
  }

  async export(name: string, isHeadless: boolean, port: number): Promise<void> {
    const ports = [{ name: 'http', protocol: 'TCP', port, targetPort: port + 1000 }];
    await this.user('services').create(name, {
      spec: { ...(isHeadless ? { clusterIP: 'None' } : {}), ports },
    });
    await this.user('serviceexports').create(name, {
      apiVersion: `multicluster.x-k8s.io/${this.#version}`,
      kind: 'ServiceExport',
      spec: { exportedLabels: { port: String(port) } },
    });
    await this.slices.create(
      `${name}-1`,
      {
        addressType: 'IPv4',
        ...this.#endpoints(),
        ports: [{ name: 'http', protocol: 'TCP', port: port + 1000 }],
      },
      { labels: { 'kubernetes.io/service-name': name } },
    );
  }

  /** Gives an exported service another backend. */
  async move(name: string): Promise<void> {
    await this.slices.patch(`${name}-1`, this.#endpoints());
  }

  #endpoints(): object {
    const address = `10.${this.id}.${++this.#moves >> 8}.${this.#moves & 255}`;
    return { endpoints: [{ addresses: [address], conditions: { ready: true } }] };
  }

  async unexport(name: string): Promise<void> {
    await this.user('serviceexports').delete(name);
    await this.user('services').delete(name);
    await this.slices.delete(`${name}-1`);
  }

  /** Returns the imports and derived Services as text: name → clusters, port, conflicts, local backends. */
  async imported(): Promise<Readonly<Record<string, string>>> {
    const imports = await this.#list('serviceimports');
    const services = new Map((await this.#list('services')).map((one) => [one.metadata.name, one]));
    const backends = await this.#ownBackends();
    const found: Record<string, string> = {};
    for (const { metadata, spec, status } of imports) {
      const derived = services.get(derivedName('shop', metadata.name));
      services.delete(derivedName('shop', metadata.name));
      const owner = derived?.metadata.ownerReferences?.[0]?.uid === metadata.uid ? '' : ' not owned';
      const isSame =
        spec.type === 'Headless' ? spec.ips === undefined : spec.ips?.[0] === derived?.spec.clusterIP;
      const service = derived === undefined ? ' no service' : isSame ? '' : ' another IP';
      const ports = (spec.ports ?? []).map((one) => one.port).join(',');
      found[metadata.name] = `${(status?.clusters ?? [])
        .map(({ cluster }) => cluster)
        .sort()
        .join('+')} ${ports}${service}${owner}${backends.get(metadata.name) ?? ''}`;
    }
    for (const name of services.keys()) if (name.startsWith('derived-')) found[name] = 'no import';
    return found;
  }

  /** Returns, for each exported Service, if the slices of its derived Service are equal to its own. */
  async #ownBackends(): Promise<ReadonlyMap<string, string>> {
    const slices = await this.#listOf(this.slices);
    const byName = new Map(slices.map((one) => [one.metadata.name, one]));
    return new Map(
      slices.flatMap(({ metadata: { labels = {} }, endpoints }): [string, string][] => {
        const local = labels['service.cilium.io/local-endpointslice'];
        if (local === undefined) return [];
        const isSame = JSON.stringify(byName.get(local)?.endpoints) === JSON.stringify(endpoints);
        const service = labels['multicluster.kubernetes.io/service-name'] ?? '';
        return [[service, isSame ? ' own backend' : ' old backend']];
      }),
    );
  }

  #list(plural: 'services' | 'serviceimports'): Promise<readonly Listed[]> {
    return this.#listOf(this.user(plural));
  }

  async #listOf(user: ApiUser): Promise<readonly Listed[]> {
    const { status, body } = await user.ask({ path: user.path() });
    if (status !== 200) throw new Error(`${status}: ${JSON.stringify(body)}`);
    return (body as { readonly items: readonly Listed[] }).items;
  }

  async close(): Promise<void> {
    await Promise.all([...this.operators].map((operator) => operator.stop()));
    await this.server.close();
  }
}

interface Listed {
  readonly endpoints?: readonly unknown[];
  readonly metadata: {
    readonly name: string;
    readonly uid: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly ownerReferences?: readonly { readonly uid: string }[];
  };
  readonly spec: {
    readonly type?: string;
    readonly clusterIP?: string;
    readonly ips?: readonly string[];
    readonly ports?: readonly { readonly port: number }[];
  };
  readonly status?: { readonly clusters?: readonly { readonly cluster: string }[] };
}
