import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Agent } from '../../../../src/agent/agent.ts';
import type { OperatorDocument } from '../../../../src/agent/operator/run-operator.ts';
import { systemClock } from '../../../../src/base/system-clock.ts';
import { runCommand } from '../../../../src/cli/program.ts';
import { ApiHttpServer } from '../../../../src/k8s/memory/api-http-server.ts';
import { MemoryApiServer } from '../../../../src/k8s/memory/memory-api-server.ts';
import { CLUSTER_TYPES } from '../../../../src/k8s/memory/resource-types.ts';
import { textOf } from '../../../../src/k8s/rest/api-transport.ts';
import { createLog } from '../../../../src/process/log.ts';
import { NO_INPUTS } from '../../../agent/support/agent-under-test.ts';
import { until } from '../../../base/support/until.ts';
import { dpcache, nothing } from '../../../cli/support/run.ts';
import type { EtcdProcess } from '../../../kvstore/etcd/support/etcd-process.ts';
import { RecordingProxy } from '../../../kvstore/etcd/support/recording-proxy.ts';
import { TcpProxy } from '../../../kvstore/etcd/support/tcp-proxy.ts';
import { type Arrival, trespasses } from '../../support/terms.ts';

/** An object of a manifest. */
export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly [field: string]: unknown;
  };
  readonly [field: string]: unknown;
}

/** An operator that runs in this process. */
export interface RunningOperator {
  readonly name: string;
  readonly socket: string;
  /** Its exit status, when it has ended. */
  readonly ended: Promise<number>;
  /** Ends it like SIGTERM; resolves to its exit status. */
  stop(): Promise<number>;
  /** Kills it: none of its requests arrives any more, and it releases nothing. */
  kill(): void;
  /** Its links to the API server and to etcd. */
  readonly links: { readonly api: TcpProxy; readonly etcd: TcpProxy };
}

/** Default duration of a Lease. */
const LEASE_MS = 15_000;
/** The duration of a Lease with {@link FAST_ELECTION}. */
export const FAST_LEASE_MS = 10_000;
/**
 * Arguments for faster elections, but not so fast that a busy machine takes the lease from a live operator.
 */
export const FAST_ELECTION: readonly string[] = [
  ...['--leader-election-lease-duration', `${FAST_LEASE_MS / 1000}s`],
  ...['--leader-election-renew-deadline', '7s', '--leader-election-retry-period', '1s'],
];

/**
 * A cluster: an API server in this process, a real etcd, and operators that publish the objects of the one in
 * the other.
 */
export class OperatedCluster {
  readonly name: string;
  readonly id: number;
  readonly etcd: EtcdProcess;
  readonly api: MemoryApiServer = new MemoryApiServer({ clock: systemClock });
  /** Requests to the API server and to etcd. */
  readonly history: Arrival[] = [];
  /** Requests of operators: `ciliumnodes.cilium.io list`. */
  readonly asked: Set<string> = new Set();
  readonly log: string[] = [];
  /** The etcd user of operators. */
  etcdUser: { readonly username: string; readonly password: string } | undefined;
  readonly #folder: string;
  readonly #http: ApiHttpServer;
  #url = '';
  #operators = 0;
  readonly #opened: { close(): unknown }[] = [];

  private constructor(name: string, id: number, etcd: EtcdProcess, folder: string) {
    this.name = name;
    this.id = id;
    this.etcd = etcd;
    this.#folder = folder;
    this.#watchWrites();
    this.#http = new ApiHttpServer(this.api);
  }

  static async start(name: string, id: number, etcd: EtcdProcess, folder: string): Promise<OperatedCluster> {
    const cluster = new OperatedCluster(name, id, etcd, folder);
    cluster.#url = `http://${await cluster.#http.listen()}`;
    return cluster;
  }

  async close(): Promise<void> {
    for (const one of this.#opened) await one.close();
    await this.#http.close();
  }

  /** Returns a sentence for each delete by an operator outside its term. */
  trespasses(leaseMs: number = LEASE_MS): readonly string[] {
    return trespasses(this.history, leaseMs);
  }

  /** Creates or replaces an object. */
  async apply(object: Manifest): Promise<void> {
    const { name } = object.metadata;
    const path = pathOf(object);
    const status = await this.#send('POST', path, object);
    const written = status === 409 ? await this.#send('PUT', `${path}/${name}`, object) : status;
    if (written >= 300) throw new Error(`${written}: ${path}/${name}`);
    if (object['status'] !== undefined) await this.#send('PUT', `${path}/${name}/status`, object);
  }

  async remove(object: Manifest): Promise<void> {
    await this.#send('DELETE', `${pathOf(object)}/${object.metadata.name}`);
  }

  /** Runs `dpcache operator` against this cluster. */
  async operate(...words: readonly string[]): Promise<RunningOperator> {
    const name = `${this.name}-operator-${++this.#operators}`;
    const socket = join(this.#folder, `${name}.sock`);
    const kubeconfig = join(this.#folder, `${name}.kubeconfig`);
    const links = await this.#links(name);
    writeFileSync(kubeconfig, kubeconfigOf(`http://127.0.0.1:${links.api.port}`, name));
    const etcdConfig = join(this.#folder, `${name}.etcd`);
    const { username = '', password = '' } = this.etcdUser ?? {};
    const user = username === '' ? '' : `username: ${username}\npassword: ${password}\n`;
    writeFileSync(etcdConfig, `endpoints: ["http://127.0.0.1:${links.etcd.port}"]\n${user}`);
    const stop = new AbortController();
    const stderr = { write: (text: string) => this.log.push(`${name} ${text.trimEnd()}`) };
    const ended = runCommand(
      [
        ...['operator', '--cluster', this.name, '--cluster-id', String(this.id), '--socket', socket],
        ...['--kubeconfig', kubeconfig, '--kvstore-config', etcdConfig, ...words],
      ],
      { stdout: { write: () => {} }, stderr, stdin: nothing(), env: {}, signal: stop.signal },
    );
    return {
      name,
      socket,
      ended,
      links,
      kill: () => {
        for (const link of Object.values(links)) link.mode = 'refuse';
        stop.abort();
      },
      stop: () => {
        stop.abort();
        return ended;
      },
    };
  }

  /** Each operator has separate links, which show who deleted what. */
  async #links(by: string): Promise<RunningOperator['links']> {
    const recorded = new RecordingProxy(this.etcd.url, (key) =>
      this.history.push({ at: performance.now(), by, deletes: key }),
    );
    const etcd = new TcpProxy(await recorded.start());
    const api = new TcpProxy(Number(new URL(this.#url).port));
    await Promise.all([etcd.start(), api.start()]);
    this.#opened.push(etcd, recorded, api);
    return { api, etcd };
  }

  get etcdConfig(): string {
    const path = join(this.#folder, `${this.name}.etcd`);
    writeFileSync(path, `endpoints: ["${this.etcd.url}"]\n`);
    return path;
  }

  /** Gives the Lease to another operator. */
  async usurp(): Promise<void> {
    const path = '/apis/coordination.k8s.io/v1/namespaces/default/leases/cilium-operator-resource-lock';
    const request = { method: 'GET', path, authorization: '', contentType: '', body: '' };
    const answer = await this.api.handle({ ...request, closed: new AbortController().signal });
    const lease = JSON.parse(await textOf(answer.body)) as Manifest;
    this.history.push({ at: performance.now(), by: 'another', holder: 'another' });
    const spec = {
      ...(lease['spec'] as object),
      holderIdentity: 'another',
      renewTime: new Date().toISOString(),
    };
    await this.#send('PUT', path, { ...lease, spec });
  }

  /** Revokes every lease of its etcd, as if all writers had died. */
  async loseLeases(): Promise<void> {
    const listed = await this.etcd.ctl(['lease', 'list']);
    for (const lease of listed.match(/^[0-9a-f]{8,}$/gm) ?? [])
      await this.etcd.ctl(['lease', 'revoke', lease]).catch((error: unknown) => {
        // It has ended since the list.
        if (!String(error).includes('requested lease not found')) throw error;
      });
  }

  /** Returns an agent of this cluster that follows the etcds of all clusters. */
  agent(mesh: string, services: string): Agent {
    const log = createLog('error', 'text', { write: (line) => this.log.push(line.trimEnd()) });
    const own = { clusterName: this.name, kvstore: 'etcd', kvstoreConfig: this.etcdConfig } as const;
    const options = { ...NO_INPUTS, ...own, clustermeshConfig: mesh, manifests: [services] };
    return new Agent(options, { log, clock: systemClock, random: Math.random });
  }

  async #send(method: 'POST' | 'PUT' | 'DELETE', path: string, object?: Manifest): Promise<number> {
    const { status } = await this.api.handle({
      method,
      path,
      authorization: '',
      contentType: 'application/json',
      body: object === undefined ? '' : JSON.stringify(object),
      closed: new AbortController().signal,
    });
    return status;
  }

  #watchWrites(): void {
    const handle = this.api.handle.bind(this.api);
    this.api.handle = async (request) => {
      const { method: verb, path, authorization } = request;
      const by = authorization.replace('Bearer ', '');
      if (by === '') return handle(request);
      this.asked.add(askedFor(verb, path));
      const at = performance.now();
      if (verb === 'DELETE') this.history.push({ at, by, deletes: path });
      const answer = await handle(request);
      const isLease = path.includes('/leases') && (verb === 'POST' || verb === 'PUT');
      const isHeld = /"holderIdentity":"[^"]/.test(request.body);
      if (isLease && answer.status < 300) this.history.push({ at, by, holder: isHeld ? by : '' });
      return answer;
    };
  }
}

/** Returns the status of an operator; undefined while it is unreachable. */
export async function statusOf({ socket }: RunningOperator): Promise<OperatorDocument | undefined> {
  const { stdout } = await dpcache('operator', 'status', '-o', 'json', '--socket', socket);
  return stdout === '' ? undefined : (JSON.parse(stdout) as OperatorDocument);
}

/** Resolves when the operator leads and has published everything. */
export async function published(operator: RunningOperator): Promise<void> {
  let status: OperatorDocument | undefined;
  await until(`${operator.name} has published everything`, async () => {
    status = await statusOf(operator);
    return status?.election?.state === 'leader' && status.blockers.length === 0;
  }).catch((cause: unknown) => {
    throw new Error(`${String(cause)}: ${JSON.stringify(status)}`, { cause });
  });
}

const VERBS: Readonly<Record<string, string>> = {
  POST: 'create',
  PUT: 'update',
  PATCH: 'patch',
  DELETE: 'delete',
};

/** Returns the permission that a request needs: `cilium.io/ciliumnodes list`. */
function askedFor(method: string, path: string): string {
  const url = new URL(path, 'http://localhost');
  const [, group = '', plural = '', name] =
    /^\/apis?\/(?:([^/]+\.[^/]+|apps)\/)?v[^/]+(?:\/namespaces\/[^/]+(?=\/))?\/([^/]+)(?:\/(.+))?$/.exec(
      url.pathname,
    ) ?? [];
  const read = url.searchParams.get('watch') ? 'watch' : name === undefined ? 'list' : 'get';
  return `${group}/${plural} ${VERBS[method] ?? read}`;
}

function pathOf({ apiVersion, kind, metadata: { namespace } }: Manifest): string {
  const type = CLUSTER_TYPES.find(
    (one) =>
      one.kind === kind && (one.group === '' ? one.version : `${one.group}/${one.version}`) === apiVersion,
  );
  if (type === undefined) throw new Error(`${apiVersion} ${kind}`);
  const root = type.group === '' ? '/api/' : '/apis/';
  return `${root}${apiVersion}${namespace === undefined ? '' : `/namespaces/${namespace}`}/${type.plural}`;
}

function kubeconfigOf(server: string, token: string): string {
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'here',
    clusters: [{ name: 'c', cluster: { server } }],
    users: [{ name: 'u', user: { token } }],
    contexts: [{ name: 'here', context: { cluster: 'c', user: 'u' } }],
  });
}
