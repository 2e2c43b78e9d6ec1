import { execFile, execFileSync } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { listen } from '../../../src/api/server/listen.ts';
import type { ResourceKind } from '../../../src/k8s/resource.ts';
import {
  type ClientCertificate,
  type ClusterAccess,
  fixedCredentials,
} from '../../../src/k8s/rest/cluster-access.ts';
import { HttpTransport } from '../../../src/k8s/rest/http-transport.ts';
import { resourcePath } from '../../../src/k8s/rest/resource-path.ts';
import { runFolder } from '../../base/support/run-folder.ts';
import { until } from '../../base/support/until.ts';
import type { ApiHarness } from '../../k8s/support/api-harness.ts';
import { ApiUser } from '../../k8s/support/api-user.ts';

/** Relative to the folder of the package, because the benches run a compiled copy of this file. */
const START = resolve('scripts/apiserver/start.sh');
const CRDS: ResourceKind = {
  group: 'apiextensions.k8s.io',
  version: 'v1',
  plural: 'customresourcedefinitions',
};

const run = promisify(execFile);

/** Returns the first of three consecutive free ports. */
async function freePorts(): Promise<number> {
  for (;;) {
    const first = 20_000 + 4 * Math.floor(Math.random() * 10_000);
    const servers = [0, 1, 2].map(() => createServer());
    try {
      for (const [i, server] of servers.entries())
        await listen(server, { host: '127.0.0.1', port: first + i });
      return first;
    } catch {
      // taken
    } finally {
      for (const server of servers) server.close();
    }
  }
}

/** A kube-apiserver with a separate etcd. */
export class RealApiServer implements ApiHarness {
  readonly until: ApiHarness['until'] = until;
  readonly transport: HttpTransport;
  readonly access: ClusterAccess;
  readonly powerless: ClusterAccess;
  readonly unknown: ClusterAccess;
  /** Streaming lists exist from 1.32 on. */
  readonly offersStreams = false;
  /** URL of the etcd. */
  readonly etcd: string;
  readonly port: number;
  readonly #folder: string;
  #backups = 0;

  private constructor(folder: string, port: number) {
    this.#folder = folder;
    this.port = port;
    this.etcd = `http://127.0.0.1:${port + 1}`;
    const pki = (name: string): { readonly file: string } => ({ file: join(folder, name) });
    const as = (token: string | undefined, certificate?: ClientCertificate): ClusterAccess => ({
      server: `https://127.0.0.1:${port}`,
      ca: pki('ca.crt'),
      serverName: undefined,
      insecureSkipVerify: false,
      credentials: fixedCredentials(token === undefined ? undefined : `Bearer ${token}`, certificate),
    });
    this.transport = new HttpTransport(as('admin-token'));
    this.access = as(undefined, { certificate: pki('client.crt'), key: pki('client.key') });
    this.powerless = as('agent-token');
    this.unknown = as('unknown');
  }

  static async start(): Promise<RealApiServer> {
    const folder = runFolder('dpcache-apiserver-');
    const port = await freePorts();
    await run(START, [folder, String(port)]);
    return new RealApiServer(folder, port);
  }

  /** Process id of the kube-apiserver. */
  get pid(): number {
    return Number(readFileSync(join(this.#folder, 'apiserver.pid'), 'utf8'));
  }

  async serveWidgets(): Promise<void> {
    const widgets = { group: 'contract.test', version: 'v1', plural: 'widgets', kind: 'Widget' };
    await this.serve(widgets, { subresources: { status: {} } });
  }

  /** Creates the CRD of a namespaced kind with any spec and status. `how`: further fields of its version. */
  async serve(resource: ResourceKind & { readonly kind: string }, how: object = {}): Promise<void> {
    const { group, version: name, plural, kind } = resource;
    const crds = new ApiUser(this.transport, CRDS);
    const open = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };
    const schema = { openAPIV3Schema: { type: 'object', properties: { spec: open, status: open } } };
    const version = { name, served: true, storage: true, schema, ...how };
    const names = { plural, singular: kind.toLowerCase(), kind, listKind: `${kind}List` };
    const spec = { group, names, scope: 'Namespaced', versions: [version] };
    await crds.create(`${plural}.${group}`, { spec });
    const path = resourcePath(resource);
    await until(`${plural} are served`, async () => (await crds.ask({ path })).status === 200);
  }

  async compact(): Promise<void> {
    await this.#etcdctl('put', 'so-that-there-is', 'something-to-compact');
    const { stdout } = await this.#etcdctl('endpoint', 'status', '-w', 'json');
    const [status] = JSON.parse(stdout);
    await this.#etcdctl('compact', '--physical', String(status.Status.header.revision));
  }

  async kill(): Promise<void> {
    await kill(this.pid);
  }

  /** Process id of the etcd. */
  get etcdPid(): number {
    return Number(readFileSync(join(this.#folder, 'etcd.pid'), 'utf8'));
  }

  /** Kills both processes and starts them again with the data of the etcd. */
  async killAll(): Promise<void> {
    await Promise.all([this.kill(), kill(this.etcdPid)]);
    await this.#restartAll();
  }

  /** Returns a backup of the store, which can be restored once. */
  async backup(): Promise<string> {
    const file = join(this.#folder, `backup-${++this.#backups}`);
    await this.#etcdctl('snapshot', 'save', file);
    return file;
  }

  /** Kills both processes and starts them again with the data of a backup. */
  async restore(backup: string): Promise<void> {
    await Promise.all([this.kill(), kill(this.etcdPid)]);
    const data = join(this.#folder, 'etcd');
    rmSync(data, { recursive: true });
    const peer = `http://127.0.0.1:${this.port + 2}`;
    const member = ['--name', 'test', '--initial-cluster', `test=${peer}`];
    const address = ['--initial-advertise-peer-urls', peer, '--data-dir', data];
    await this.#etcdctl('snapshot', 'restore', backup, ...member, ...address);
    await this.#restartAll();
  }

  async #restartAll(): Promise<void> {
    await run(START, ['--etcd', this.#folder]);
    await this.restart();
  }

  async restart(): Promise<void> {
    await run(START, ['--apiserver', this.#folder]);
  }

  async close(): Promise<void> {
    await this.transport.close();
    execFileSync(START, ['--stop', this.#folder]);
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #etcdctl(...args: readonly string[]): Promise<{ readonly stdout: string }> {
    const env = { ...process.env, ETCDCTL_API: '3' };
    return run('etcdctl', ['--endpoints', this.etcd, ...args], { env });
  }
}

async function kill(pid: number): Promise<void> {
  process.kill(pid, 'SIGKILL');
  await until('it is gone', () => isGone(pid));
}

function isGone(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return false;
  } catch {
    return true;
  }
}
