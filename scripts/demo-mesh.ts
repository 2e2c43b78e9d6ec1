import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { ApiClient } from '../src/api/api-client.ts';
import { systemClock } from '../src/base/system-clock.ts';
import { ApiHttpServer } from '../src/k8s/memory/api-http-server.ts';
import { MemoryApiServer } from '../src/k8s/memory/memory-api-server.ts';
import { freePort } from '../test/base/support/free-port.ts';

// `npm run demo:mesh`: two clusters on this machine. Each has an API server in this process, a real etcd, an operator that publishes
// the objects into the etcd, and an agent that follows both etcds. A service that becomes global in one cluster appears in the other,
// and disappears again. Ends at Ctrl-C, or with `--end` after the script.

const { program, end: ENDS } = parseArgs({
  options: { program: { type: 'string' }, end: { type: 'boolean', default: false } },
}).values;
const path = (name: string): string => fileURLToPath(new URL(`../${name}`, import.meta.url));
/** The built program, or the one of `--program`. */
const PROGRAM = program ?? path('dist/cli/main.js');
/** The page is built with the program. */
const PAGE = program === undefined ? ['--ui'] : [];
const CLUSTERS = ['atlantic', 'baltic'] as const;
type Cluster = (typeof CLUSTERS)[number];
const NUMBER: Readonly<Record<Cluster, number>> = { atlantic: 1, baltic: 2 };

interface Manifest {
  readonly metadata: { readonly name: string; readonly [field: string]: unknown };
  readonly [field: string]: unknown;
}

const folder = mkdtempSync(join(tmpdir(), 'dpcache-mesh-'));
const children: ChildProcess[] = [];
const stop = new AbortController();

function say(text = ''): void {
  process.stdout.write(`${text}\n`);
}

async function until(what: string, isSo: () => Promise<boolean>): Promise<void> {
  for (let left = 1_200; left > 0 && !stop.signal.aborted; left--) {
    if (await isSo().catch(() => false)) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`in a minute it has not come to this: ${what}`);
}

/** Starts a child process whose lines are printed with its name. It ends with this process. */
function run(name: string, command: string, words: readonly string[]): void {
  const child = spawn(command, words, { stdio: ['ignore', 'pipe', 'pipe'] });
  children.push(child);
  for (const stream of [child.stdout, child.stderr])
    createInterface({ input: stream }).on('line', (line) => {
      if (line.trim() !== '') say(`${name.padEnd(18)}│ ${line}`);
    });
}

/** A small cluster in this process: one node, one service and its pods. */
class DemoCluster {
  readonly name: Cluster;
  readonly #api = new MemoryApiServer({ clock: systemClock });
  readonly #http = new ApiHttpServer(this.#api);

  constructor(name: Cluster) {
    this.name = name;
  }

  get #address(): string {
    return `10.${NUMBER[this.name]}.0`;
  }

  /** Starts its etcd, and the operator that publishes the cluster there. */
  async start(): Promise<void> {
    const n = NUMBER[this.name];
    const [client, peer] = [`http://127.0.0.1:${await freePort()}`, `http://127.0.0.1:${await freePort()}`];
    run(`etcd ${this.name}`, 'etcd', [
      ...[
        '--name',
        this.name,
        '--data-dir',
        join(folder, `${this.name}.etcd`),
        '--log-level',
        'error',
        '--logger',
        'zap',
      ],
      ...['--listen-client-urls', client, '--advertise-client-urls', client, '--listen-peer-urls', peer],
      ...['--initial-advertise-peer-urls', peer, '--initial-cluster', `${this.name}=${peer}`],
    ]);
    for (const file of [`mesh/${this.name}`, `${this.name}.config`])
      writeFileSync(join(folder, file), `endpoints: ["${client}"]\n`);
    writeFileSync(
      join(folder, `${this.name}.kubeconfig`),
      kubeconfigOf(`http://${await this.#http.listen()}`),
    );
    const addresses = [{ type: 'InternalIP', ip: `192.168.${n}.1` }];
    await this.#put('/apis/cilium.io/v2/ciliumnodes', {
      metadata: { name: `${this.name}-node` },
      spec: { addresses },
    });
    await this.#put('/api/v1/nodes', { metadata: { name: `${this.name}-node` } });
    await this.#put('/api/v1/namespaces', { metadata: { name: 'shop' } });
    await this.share(false);
    await this.serve(10);
    run(`operator ${this.name}`, process.execPath, [
      ...[PROGRAM, 'operator', ...this.#inputs()],
      ...['--socket', this.socket('operator')],
    ]);
    await this.#isReady('operator');
  }

  /** Starts the agent, which follows the etcds of both clusters. */
  async follow(): Promise<void> {
    run(`agent ${this.name}`, process.execPath, [
      ...[PROGRAM, 'agent', ...this.#inputs(), '--kvstore', 'etcd'],
      ...['--clustermesh-config', join(folder, 'mesh'), '--node-name', `${this.name}-node`],
      ...['--socket', this.socket('agent'), '--listen', '0', ...PAGE],
    ]);
    await this.#isReady('agent');
  }

  socket(of: 'agent' | 'operator'): string {
    return join(folder, `${this.name}-${of}.sock`);
  }

  /** Makes the service global, or local again. */
  share(isGlobal: boolean): Promise<void> {
    const annotations = { 'service.cilium.io/global': String(isGlobal) };
    return this.#put('/api/v1/namespaces/shop/services', {
      metadata: { name: 'checkout', namespace: 'shop', annotations },
      spec: {
        ...{ type: 'ClusterIP', clusterIP: `172.16.${NUMBER[this.name]}.10`, selector: { app: 'checkout' } },
        ports: [{ name: 'http', port: 80, protocol: 'TCP' }],
      },
    });
  }

  /** Sets the pods of the service, by the last part of their addresses. */
  serve(...ends: readonly number[]): Promise<void> {
    return this.#put('/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices', {
      metadata: {
        name: 'checkout-0',
        namespace: 'shop',
        labels: { 'kubernetes.io/service-name': 'checkout' },
      },
      addressType: 'IPv4',
      endpoints: ends.map((end) => ({ addresses: [`${this.#address}.${end}`], conditions: { ready: true } })),
      ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
    });
  }

  /** Resolves when its agent returns exactly these backends. */
  async sees(...addresses: readonly string[]): Promise<void> {
    let now = '';
    await until(`${this.name} sees ${addresses.join(', ')}`, async () => {
      const client = new ApiClient(this.socket('agent'), stop.signal);
      const answer = JSON.stringify(await client.ask('/v1/services/shop/checkout'));
      now = [...new Set(answer.match(/10\.\d\.0\.\d+/g))].sort().join(', ');
      return now === [...addresses].sort().join(', ');
    });
    say(`  in ${this.name} shop/checkout is served by ${now}`);
  }

  close(): Promise<void> {
    return this.#http.close();
  }

  #inputs(): readonly string[] {
    const [kubeconfig, etcd] = ['kubeconfig', 'config'].map((end) => join(folder, `${this.name}.${end}`));
    return [
      ...['--cluster', this.name, '--cluster-id', String(NUMBER[this.name])],
      ...['--kubeconfig', kubeconfig ?? '', '--kvstore-config', etcd ?? ''],
    ];
  }

  async #isReady(of: 'agent' | 'operator'): Promise<void> {
    await until(`the ${of} of ${this.name} is complete`, async () => {
      await new ApiClient(this.socket(of), stop.signal).ask('/readyz');
      return true;
    });
  }

  async #put(collection: string, object: Manifest): Promise<void> {
    const send = async (method: string, at: string): Promise<number> => {
      const closed = new AbortController().signal;
      const request = { method, path: at, authorization: '', contentType: 'application/json', closed };
      return (await this.#api.handle({ ...request, body: JSON.stringify(object) })).status;
    };
    if ((await send('POST', collection)) === 409) await send('PUT', `${collection}/${object.metadata.name}`);
  }
}

function kubeconfigOf(server: string): string {
  return JSON.stringify({
    ...{ apiVersion: 'v1', kind: 'Config', 'current-context': 'here' },
    clusters: [{ name: 'c', cluster: { server } }],
    users: [{ name: 'u', user: {} }],
    contexts: [{ name: 'here', context: { cluster: 'c', user: 'u' } }],
  });
}

async function play(atlantic: DemoCluster, baltic: DemoCluster): Promise<void> {
  const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, ENDS ? 0 : 3_000));
  say('Two clusters; each has a service shop/checkout of its own.');
  await atlantic.sees('10.1.0.10');
  await pause();
  say('The service is made global in both (service.cilium.io/global: "true").');
  await Promise.all([atlantic.share(true), baltic.share(true)]);
  await atlantic.sees('10.1.0.10', '10.2.0.10');
  await baltic.sees('10.1.0.10', '10.2.0.10');
  await pause();
  say('In baltic a second pod begins to serve it.');
  await baltic.serve(10, 11);
  await atlantic.sees('10.1.0.10', '10.2.0.10', '10.2.0.11');
  await pause();
  say('In baltic it is not global any more.');
  await baltic.share(false);
  await atlantic.sees('10.1.0.10');
  say(
    ENDS
      ? 'Over.'
      : 'The script is over; edit nothing, or look around: dpcache … --socket in the lines above. Ctrl-C ends.',
  );
}

async function main(): Promise<number> {
  if (spawnSync('etcd', ['--version']).status !== 0) {
    say('There is no etcd here, and this demonstration runs over real ones. Install it, and try again:');
    say('  apt-get install etcd-server    (Debian, Ubuntu)\n  brew install etcd              (macOS)');
    return 1;
  }
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());
  process.stdout.on('error', () => stop.abort()); // the reader of the output closed the pipe
  mkdirSync(join(folder, 'mesh'));
  const clusters = [new DemoCluster('atlantic'), new DemoCluster('baltic')] as const;
  try {
    await Promise.all(clusters.map((cluster) => cluster.start()));
    await Promise.all(clusters.map((cluster) => cluster.follow()));
    await play(...clusters);
    if (!ENDS && !stop.signal.aborted) await once(stop.signal, 'abort');
    return 0;
  } catch (error) {
    if (stop.signal.aborted) return 0;
    say(error instanceof Error ? error.message : String(error));
    return 1;
  } finally {
    stop.abort();
    const ended = children.map((child) => (child.exitCode === null ? once(child, 'exit') : undefined));
    for (const child of children.reverse()) child.kill('SIGTERM');
    await Promise.all(ended);
    await Promise.all(clusters.map((cluster) => cluster.close()));
    rmSync(folder, { recursive: true, force: true });
  }
}

process.exitCode = await main();
