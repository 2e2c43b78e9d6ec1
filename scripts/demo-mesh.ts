import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { OperatorDocument } from '../src/agent/operator/run-operator.ts';
import { ApiClient } from '../src/api/api-client.ts';
import { systemClock } from '../src/base/system-clock.ts';
import { ApiHttpServer } from '../src/k8s/memory/api-http-server.ts';
import { MemoryApiServer } from '../src/k8s/memory/memory-api-server.ts';
import { derivedName } from '../src/operator/mcs/names.ts';
import {
  type Demonstration,
  demonstration,
  ENDS,
  kubeconfigOf,
  PAGE,
  PROGRAM,
  print,
} from './demo/demonstration.ts';

// `npm run demo:mesh`: two clusters on this machine. Each has an API server in this process, a real etcd, an operator
// that publishes the objects into the etcd, and an agent that follows both etcds. A service that becomes global in one
// cluster appears in the other, and disappears again. A service that one cluster exports by a ServiceExport is imported
// and reached in the other. Ends at Ctrl-C, or with `--end` after the script.

const CLUSTERS = ['atlantic', 'baltic'] as const;
type Cluster = (typeof CLUSTERS)[number];
const NUMBER: Readonly<Record<Cluster, number>> = { atlantic: 1, baltic: 2 };

const EXPORTS = '/apis/multicluster.x-k8s.io/v1beta1/namespaces/shop';

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

  /** Starts the cluster's etcd, and the operator that publishes the cluster there. */
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
    await this.setPods('checkout', 10);
    this.#demo.run(`operator ${this.name}`, process.execPath, [
      ...[PROGRAM, 'operator', ...this.#inputOptions()],
      ...['--mcs-api', '--clustermesh-config', join(this.#demo.folder, 'mesh')],
      ...['--socket', this.socket('operator'), '--listen', '0', ...PAGE],
    ]);
    await this.#waitUntilReady('operator');
    // Ready before it leads. An agent that starts before this cluster is published would report an error.
    await this.#demo.until(`${this.name} is published`, async () => {
      const client = new ApiClient(this.socket('operator'), this.#demo.signal);
      const { duties } = (await client.ask('/v1/status')) as OperatorDocument;
      return duties.some(
        ({ name, published }) => name === 'cluster configuration' && (published?.writes ?? 0) > 0,
      );
    });
  }

  /** Starts the agent, which follows the etcds of both clusters. */
  async startAgent(): Promise<void> {
    this.#demo.run(`agent ${this.name}`, process.execPath, [
      ...[PROGRAM, 'agent', ...this.#inputOptions(), '--kvstore', 'etcd'],
      ...['--clustermesh-config', join(this.#demo.folder, 'mesh'), '--node-name', `${this.name}-node`],
      ...['--socket', this.socket('agent'), '--listen', '0', ...PAGE],
    ]);
    await this.#waitUntilReady('agent');
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
        type: 'ClusterIP',
        clusterIP: `172.16.${NUMBER[this.name]}.10`,
        selector: { app: 'checkout' },
        ports: [{ name: 'http', port: 80, protocol: 'TCP' }],
      },
    });
  }

  /** Creates a service that is not global, and its pods. */
  async create(service: string, ...ends: readonly number[]): Promise<void> {
    await this.#put('/api/v1/namespaces/shop/services', {
      metadata: { name: service, namespace: 'shop' },
      spec: {
        type: 'ClusterIP',
        clusterIP: `172.16.${NUMBER[this.name]}.20`,
        selector: { app: service },
        ports: [{ name: 'http', port: 80, protocol: 'TCP' }],
        ipFamilies: ['IPv4'],
      },
    });
    await this.setPods(service, ...ends);
  }

  /** Exports a service to the other clusters. */
  export(service: string): Promise<void> {
    return this.#put(`${EXPORTS}/serviceexports`, { metadata: { name: service, namespace: 'shop' } });
  }

  async unexport(service: string): Promise<void> {
    await this.#send('DELETE', `${EXPORTS}/serviceexports/${service}`);
  }

  /**
   * Resolves when the cluster's operator has imported a service. Sets an IP in the derived Service, which a real API
   * server would allocate.
   */
  async waitForImport(service: string): Promise<void> {
    const path = `/api/v1/namespaces/shop/services/${derivedName('shop', service)}`;
    await this.#demo.until(`${this.name} imports shop/${service}`, async () => {
      const ip = { spec: { clusterIP: `172.16.${NUMBER[this.name]}.30` } };
      return (await this.#send('PATCH', path, ip, 'application/merge-patch+json')) < 300;
    });
  }

  /** Sets the pods of a service, by the last part of their addresses. */
  setPods(service: string, ...ends: readonly number[]): Promise<void> {
    return this.#put('/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices', {
      metadata: {
        name: `${service}-0`,
        namespace: 'shop',
        labels: { 'kubernetes.io/service-name': service },
      },
      addressType: 'IPv4',
      endpoints: ends.map((end) => ({ addresses: [`${this.#address}.${end}`], conditions: { ready: true } })),
      ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
    });
  }

  /** Resolves when the cluster's agent returns exactly these backends of a service. */
  async waitForBackends(service: string, ...addresses: readonly string[]): Promise<void> {
    const now = addresses.toSorted().join(', ');
    await this.#demo.until(`${this.name} sees ${now}`, async () => {
      const client = new ApiClient(this.socket('agent'), this.#demo.signal);
      const answer = JSON.stringify(await client.ask(`/v1/services/shop/${service}`));
      return [...new Set(answer.match(/10\.\d\.0\.\d+/g))].sort().join(', ') === now;
    });
    print(`  in ${this.name} shop/${service} is served by ${now}`);
  }

  /** Resolves when the cluster's agent does not have a service any more. */
  async waitUntilGone(service: string): Promise<void> {
    await this.#demo.until(`${this.name} has no shop/${service}`, async () => {
      const client = new ApiClient(this.socket('agent'), this.#demo.signal);
      return !JSON.stringify(await client.ask('/v1/services?namespace=shop')).includes(service);
    });
    print(`  in ${this.name} there is no shop/${service}`);
  }

  close(): Promise<void> {
    return this.#http.close();
  }

  #inputOptions(): readonly string[] {
    const [kubeconfig, etcd] = ['kubeconfig', 'config'].map((end) =>
      join(this.#demo.folder, `${this.name}.${end}`),
    );
    return [
      ...['--cluster', this.name, '--cluster-id', String(NUMBER[this.name])],
      ...['--kubeconfig', kubeconfig ?? '', '--kvstore-config', etcd ?? ''],
    ];
  }

  async #waitUntilReady(of: 'agent' | 'operator'): Promise<void> {
    await this.#demo.waitUntilReady(`the ${of} of ${this.name}`, this.socket(of));
  }

  async #put(collection: string, object: Manifest): Promise<void> {
    if ((await this.#send('POST', collection, object)) === 409)
      await this.#send('PUT', `${collection}/${object.metadata.name}`, object);
  }

  /** Sends a request to the cluster's API server. Returns the status. */
  async #send(
    method: string,
    path: string,
    body?: object,
    contentType = 'application/json',
  ): Promise<number> {
    const closed = new AbortController().signal;
    const text = body === undefined ? '' : JSON.stringify(body);
    return (await this.#api.handle({ method, path, authorization: '', contentType, closed, body: text }))
      .status;
  }
}

/** Shows a service of one cluster only, which the other reaches by its import. */
async function exportAndImport(
  atlantic: DemoCluster,
  baltic: DemoCluster,
  pause: () => Promise<void>,
): Promise<void> {
  const imported = derivedName('shop', 'stock');
  print(
    `Baltic alone has shop/stock, and exports it by a ServiceExport. Its import is shop/${imported} everywhere.`,
  );
  await baltic.create('stock', 20);
  await baltic.export('stock');
  await Promise.all([atlantic.waitForImport('stock'), baltic.waitForImport('stock')]);
  await atlantic.waitForBackends(imported, '10.2.0.20');
  await pause();
  print('In baltic a second pod serves it.');
  await baltic.setPods('stock', 20, 21);
  await atlantic.waitForBackends(imported, '10.2.0.20', '10.2.0.21');
  if (!ENDS)
    return print('It stays exported: the pages of the agent and of the operator of atlantic show it.');
  print('Its ServiceExport is deleted.');
  await baltic.unexport('stock');
  await atlantic.waitUntilGone(imported);
}

async function play(atlantic: DemoCluster, baltic: DemoCluster): Promise<void> {
  const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, ENDS ? 0 : 3_000));
  print('Two clusters; each has a service shop/checkout of its own.');
  await atlantic.waitForBackends('checkout', '10.1.0.10');
  await pause();
  print('The service is made global in both (service.cilium.io/global: "true").');
  await Promise.all([atlantic.share(true), baltic.share(true)]);
  await atlantic.waitForBackends('checkout', '10.1.0.10', '10.2.0.10');
  await baltic.waitForBackends('checkout', '10.1.0.10', '10.2.0.10');
  await pause();
  print('In baltic a second pod serves it.');
  await baltic.setPods('checkout', 10, 11);
  await atlantic.waitForBackends('checkout', '10.1.0.10', '10.2.0.10', '10.2.0.11');
  await pause();
  print('In baltic it becomes local again.');
  await baltic.share(false);
  await atlantic.waitForBackends('checkout', '10.1.0.10');
  await pause();
  await exportAndImport(atlantic, baltic, pause);
  print(
    ENDS
      ? 'Done.'
      : 'The script is done. The sockets and pages of the agents and operators are above. Ctrl-C ends.',
  );
}

const demo = demonstration();
if (demo !== undefined) {
  mkdirSync(join(demo.folder, 'mesh'));
  const clusters = [new DemoCluster(demo, 'atlantic'), new DemoCluster(demo, 'baltic')] as const;
  await demo.play(
    async () => {
      await Promise.all(clusters.map((cluster) => cluster.start()));
      await Promise.all(clusters.map((cluster) => cluster.startAgent()));
      await play(...clusters);
    },
    () => Promise.all(clusters.map((cluster) => cluster.close())),
  );
}
