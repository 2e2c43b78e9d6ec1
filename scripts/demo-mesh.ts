import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ApiClient } from '../src/api/api-client.ts';
import { systemClock } from '../src/base/system-clock.ts';
import { ApiHttpServer } from '../src/k8s/memory/api-http-server.ts';
import { MemoryApiServer } from '../src/k8s/memory/memory-api-server.ts';
import {
  type Demonstration,
  demonstration,
  ENDS,
  kubeconfigOf,
  PAGE,
  PROGRAM,
  say,
} from './demo/demonstration.ts';

// `npm run demo:mesh`: two clusters on this machine. Each has an API server in this process, a real etcd, an operator that publishes
// the objects into the etcd, and an agent that follows both etcds. A service that becomes global in one cluster appears in the other,
// and disappears again. Ends at Ctrl-C, or with `--end` after the script.

const CLUSTERS = ['atlantic', 'baltic'] as const;
type Cluster = (typeof CLUSTERS)[number];
const NUMBER: Readonly<Record<Cluster, number>> = { atlantic: 1, baltic: 2 };

interface Manifest {
  readonly metadata: { readonly name: string; readonly [field: string]: unknown };
  readonly [field: string]: unknown;
}

/** A small cluster in this process: one node, one service and its pods. */
class DemoCluster {
  readonly name: Cluster;
  readonly #demo: Demonstration;
  readonly #api = new MemoryApiServer({ clock: systemClock });
  readonly #http = new ApiHttpServer(this.#api);

  constructor(demo: Demonstration, name: Cluster) {
    this.#demo = demo;
    this.name = name;
  }

  get #address(): string {
    return `10.${NUMBER[this.name]}.0`;
  }

  /** Starts its etcd, and the operator that publishes the cluster there. */
  async start(): Promise<void> {
    const n = NUMBER[this.name];
    const client = await this.#demo.startEtcd(this.name);
    const { folder } = this.#demo;
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
    this.#demo.run(`operator ${this.name}`, process.execPath, [
      ...[PROGRAM, 'operator', ...this.#inputs()],
      ...['--socket', this.socket('operator')],
    ]);
    await this.#isReady('operator');
  }

  /** Starts the agent, which follows the etcds of both clusters. */
  async follow(): Promise<void> {
    this.#demo.run(`agent ${this.name}`, process.execPath, [
      ...[PROGRAM, 'agent', ...this.#inputs(), '--kvstore', 'etcd'],
      ...['--clustermesh-config', join(this.#demo.folder, 'mesh'), '--node-name', `${this.name}-node`],
      ...['--socket', this.socket('agent'), '--listen', '0', ...PAGE],
    ]);
    await this.#isReady('agent');
  }

  socket(of: 'agent' | 'operator'): string {
    return join(this.#demo.folder, `${this.name}-${of}.sock`);
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
    await this.#demo.until(`${this.name} sees ${addresses.join(', ')}`, async () => {
      const client = new ApiClient(this.socket('agent'), this.#demo.signal);
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
    const [kubeconfig, etcd] = ['kubeconfig', 'config'].map((end) =>
      join(this.#demo.folder, `${this.name}.${end}`),
    );
    return [
      ...['--cluster', this.name, '--cluster-id', String(NUMBER[this.name])],
      ...['--kubeconfig', kubeconfig ?? '', '--kvstore-config', etcd ?? ''],
    ];
  }

  async #isReady(of: 'agent' | 'operator'): Promise<void> {
    await this.#demo.isReady(`the ${of} of ${this.name}`, this.socket(of));
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

const demo = demonstration();
if (demo !== undefined) {
  mkdirSync(join(demo.folder, 'mesh'));
  const clusters = [new DemoCluster(demo, 'atlantic'), new DemoCluster(demo, 'baltic')] as const;
  await demo.play(
    async () => {
      await Promise.all(clusters.map((cluster) => cluster.start()));
      await Promise.all(clusters.map((cluster) => cluster.follow()));
      await play(...clusters);
    },
    () => Promise.all(clusters.map((cluster) => cluster.close())),
  );
}
