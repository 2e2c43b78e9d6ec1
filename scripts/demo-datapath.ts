import { type ChildProcess, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ApiClient } from '../src/api/api-client.ts';
import type { DatapathDiffDocument } from '../src/api/datapath-document.ts';
import type { ServiceDocument } from '../src/api/documents.ts';
import type { StatusDocument } from '../src/api/status-document.ts';
import { probeHost, readHost } from '../src/datapath/linux/probe.ts';
import { IdentityTraffic } from '../src/datapath/linux/traffic/identity-traffic.ts';
import { exec, type Namespace, Scratch } from '../test/datapath/linux/support/scratch.ts';
import { PROGRAM, print } from './demo/demonstration.ts';

// `npm run demo:datapath`, as root: three clusters on this machine. Each is a network namespace with an agent that
// manages its kernel tables; each pod is a network namespace, too. A client reaches a service of all three clusters by
// its cluster IP. One cluster is removed, and the client has no error. Removes everything at the end.

const CLUSTER_IP = '172.16.0.10';
const PORT = 8080;
const CLUSTERS = ['atlantic', 'baltic', 'caspian'] as const;
type Cluster = (typeof CLUSTERS)[number];
const NUMBER: Readonly<Record<Cluster, number>> = { atlantic: 1, baltic: 2, caspian: 3 };
const nodeIP = (cluster: Cluster): string => `192.168.77.${NUMBER[cluster]}`;
/** Identities of the pods of a cluster: of the server and of the client. */
const servingID = (cluster: Cluster): number => NUMBER[cluster] * 65_536 + 300;
const clientID = (cluster: Cluster): number => NUMBER[cluster] * 65_536 + 301;
const podIP = (cluster: Cluster, last = 10): string => `10.${NUMBER[cluster]}.0.${last}`;

/** Answers each connection with the name of its cluster. */
const SERVER = `require('node:net').createServer((socket) => {
  socket.on('error', () => {});
  socket.end(process.argv[1]);
}).listen(${PORT}, () => console.log('listens'));`;

/** Connects to the service repeatedly and prints a line for each answer or error. */
const CLIENT = `const { connect } = require('node:net');
const once = () => {
  let answer = '';
  const socket = connect(${PORT}, '${CLUSTER_IP}');
  socket.setTimeout(10_000, () => socket.destroy(new Error('timeout')));
  socket.setEncoding('utf8').on('data', (text) => { answer += text; });
  socket.on('error', ({ code, message }) => console.log('error ' + (code ?? message)));
  socket.on('close', (failed) => { if (!failed) console.log(answer); setTimeout(once, 5); });
};
once();`;

async function until(condition: string, isTrue: () => boolean | Promise<boolean>): Promise<void> {
  for (let left = 3_000; left > 0; left--) {
    if (await isTrue()) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`not true after a minute: ${condition}`);
}

/**
 * Starts a process in a network namespace and an optional cgroup. Uses nsenter, because `ip netns exec` would hide the
 * mounts below /sys.
 */
function run(scratch: Scratch, { path }: Namespace, words: readonly string[], cgroup?: string): ChildProcess {
  const join = cgroup === undefined ? '' : `echo $$ > '${cgroup}/cgroup.procs' && `;
  const command = [...words].map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(' ');
  const child = spawn('sh', ['-c', `${join}exec nsenter --net='${path}' ${command}`], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  child.stdout?.setEncoding('utf8');
  scratch.defer(() => void child.kill('SIGKILL'));
  return child;
}

/** Counts the answers and errors that the client prints, by name of the cluster. */
class Answers {
  readonly counts: Map<string, number> = new Map();
  #rest = '';

  read(text: string): void {
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop() ?? '';
    for (const line of lines) this.counts.set(line, (this.counts.get(line) ?? 0) + 1);
  }

  of(name: string): number {
    return this.counts.get(name) ?? 0;
  }

  get total(): number {
    return [...this.counts.values()].reduce((sum, count) => sum + count, 0);
  }

  get errors(): number {
    return [...this.counts].reduce((sum, [line, count]) => sum + (line.startsWith('error') ? count : 0), 0);
  }

  get text(): string {
    return CLUSTERS.map((name) => `${this.of(name)} from ${name}`).join(', ');
  }
}

/** Returns the keys of the three clusters: nodes, pods, and the shared service. */
function meshLines(): readonly string[] {
  return CLUSTERS.flatMap((cluster) => {
    const name = `${cluster}-node`;
    const ClusterID = NUMBER[cluster];
    const key = (path: string, value: object): string =>
      JSON.stringify({ store: cluster, key: `cilium/${path}`, value: JSON.stringify(value) });
    const pod = (IP: string, ID: number): string =>
      key(`state/ip/v1/default/${IP}`, { IP, Mask: null, HostIP: nodeIP(cluster), ID, Key: 0, Metadata: '' });
    return [
      key(`cluster-config/${cluster}`, { id: ClusterID, capabilities: {} }),
      key(`state/nodes/v1/${cluster}/${name}`, {
        Name: name,
        Cluster: cluster,
        ClusterID,
        IPAddresses: [{ Type: 'InternalIP', IP: nodeIP(cluster) }],
        IPv4AllocCIDR: { IP: podIP(cluster, 0), Mask: '////AA==' },
      }),
      pod(podIP(cluster), servingID(cluster)),
      pod(podIP(cluster, 20), clientID(cluster)),
      key(`state/services/v1/${cluster}/shop/checkout`, {
        cluster,
        namespace: 'shop',
        name: 'checkout',
        clusterID: ClusterID,
        shared: true,
        includeExternal: true,
        labels: {},
        selector: {},
        frontends: { [CLUSTER_IP]: { http: { Port: PORT, Protocol: 'TCP' } } },
        backends: { [podIP(cluster)]: { http: { Port: PORT, Protocol: 'TCP' } } },
      }),
    ];
  });
}

const manifests = (cluster: Cluster): string => `
apiVersion: v1
kind: Service
metadata: { name: checkout, namespace: shop, annotations: { service.cilium.io/global: "true" } }
spec: { clusterIP: ${CLUSTER_IP}, ports: [{ name: http, port: ${PORT}, protocol: TCP }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: checkout-1, namespace: shop, labels: { kubernetes.io/service-name: checkout } }
addressType: IPv4
ports: [{ name: http, port: ${PORT}, protocol: TCP }]
endpoints: [{ addresses: [${podIP(cluster)}], conditions: { ready: true } }]
`;

/** Connects each node with each other one by a link. */
function connectNodes(nodes: ReadonlyMap<Cluster, Namespace>): void {
  for (const [a, from] of nodes) {
    from.run('sysctl', '-qw', 'net.ipv4.ip_forward=1');
    for (const [b, to] of nodes) {
      if (NUMBER[a] >= NUMBER[b]) continue;
      exec(
        'ip',
        '-n',
        from.name,
        ...`link add to-${b} type veth peer name to-${a} netns ${to.name}`.split(' '),
      );
      for (const [here, near, far] of [
        [from, a, b],
        [to, b, a],
      ] as const) {
        here.run('ip', ...`address add ${nodeIP(near)} peer ${nodeIP(far)} dev to-${far}`.split(' '));
        here.run('ip', 'link', 'set', `to-${far}`, 'up');
      }
    }
  }
}

/** Creates a pod: a namespace behind its node. */
function addPod(scratch: Scratch, cluster: Cluster, node: Namespace, name: string, ip: string): Namespace {
  const pod = scratch.namespace(`${cluster}-${name}`);
  exec('ip', '-n', node.name, ...`link add ${name} type veth peer name eth0 netns ${pod.name}`.split(' '));
  node.run('ip', ...`address add ${podIP(cluster, 1)}/32 dev ${name}`.split(' '));
  node.run('ip', 'link', 'set', name, 'up');
  node.run('ip', ...`route add ${ip}/32 dev ${name}`.split(' '));
  pod.run('ip', ...`address add ${ip}/32 dev eth0`.split(' '));
  pod.run('ip', 'link', 'set', 'eth0', 'up');
  pod.run('ip', ...`route add ${podIP(cluster, 1)} dev eth0`.split(' '));
  pod.run('ip', ...`route add default via ${podIP(cluster, 1)}`.split(' '));
  return pod;
}

/** Prints the traffic of the client to each cluster, by the identities in the agent's map. */
function printTraffic(traffic: IdentityTraffic): void {
  const flows = traffic.flows();
  const counted = CLUSTERS.map((cluster) => {
    const [from, to] = [clientID('atlantic'), servingID(cluster)];
    const packets = flows.find((one) => one.source === from && one.destination === to)?.packets ?? 0;
    if (packets === 0) throw new Error(`no packets from identity ${from} to ${to}: ${JSON.stringify(flows)}`);
    return `${packets} to ${to} (${cluster})`;
  });
  print(
    'Packets by identity, counted by a program at the interface of the client that looks both ends up in the map',
  );
  print(`  (attached by ${traffic.by}), from ${clientID('atlantic')}: ${counted.join(', ')}`);
}

async function demonstrate(scratch: Scratch): Promise<void> {
  const pins = scratch.bpffs();
  const cgroup = scratch.cgroup();
  const answer = probeHost(readHost(), { pinFolder: pins, cgroup });
  const missing = new Set(
    answer.pieces.flatMap(({ piece, missing: of }) => (piece === 'nftables' ? [] : of)),
  );
  if (missing.size > 0) throw new Error(`missing on this machine: ${[...missing].join('; ')}`);

  print('Three clusters, a network namespace each; each has a pod of the service shop/checkout.');
  const folder = scratch.folder();
  const nodes = new Map(CLUSTERS.map((cluster) => [cluster, scratch.namespace(cluster)] as const));
  connectNodes(nodes);
  writeFileSync(join(folder, 'mesh.jsonl'), meshLines().join('\n'));
  const sockets = new Map<Cluster, ApiClient>();
  const pods = new Map<Cluster, ChildProcess>();
  const groups = new Map<Cluster, string>();
  for (const [cluster, node] of nodes) {
    const pod = addPod(scratch, cluster, node, 'checkout', podIP(cluster));
    const server = run(scratch, pod, [process.execPath, '-e', SERVER, cluster]);
    pods.set(cluster, server);
    writeFileSync(join(folder, `${cluster}.yaml`), manifests(cluster));
    groups.set(cluster, scratch.cgroup(cgroup));
  }

  print('An agent in each of them: routes to the pods of the others, prefixes and services in maps.');
  const leaves = join(folder, 'leaves.yaml');
  writeFileSync(leaves, '- after: 15\n  say: baltic leaves the mesh\n  do: [{ leave: baltic }]\n');
  for (const [cluster, node] of nodes) {
    const socket = join(folder, `${cluster}.sock`);
    sockets.set(cluster, new ApiClient(socket, new AbortController().signal));
    run(scratch, node, [
      ...[process.execPath, PROGRAM, 'agent', '--socket', socket, '--log-level', 'error'],
      ...['--cluster', cluster, '--node-name', `${cluster}-node`, '--load', join(folder, 'mesh.jsonl')],
      ...['--manifests', join(folder, `${cluster}.yaml`), '--datapath', 'linux'],
      ...['--datapath-pins', join(pins, cluster), '--datapath-cgroup', groups.get(cluster) ?? cgroup],
      ...(cluster === 'atlantic' ? ['--play', leaves] : []),
    ]).stdout?.resume();
  }
  const ask = async <T>(cluster: Cluster, path: string): Promise<T | undefined> =>
    (await sockets
      .get(cluster)
      ?.ask(path)
      .catch(() => undefined)) as T | undefined;
  for (const cluster of CLUSTERS) {
    await until(`the agent of ${cluster} has written its caches into the kernel`, async () => {
      const status = await ask<StatusDocument>(cluster, '/v1/status');
      const { tables = [], waitsFor = ['its start'] } = status?.datapath ?? {};
      return (
        waitsFor.length === 0 &&
        tables.length >= 3 &&
        tables.every((one) => one.state === 'in-sync' && one.pending === 0)
      );
    });
    const diff = await ask<DatapathDiffDocument>(cluster, '/v1/datapath/diff');
    if (diff?.total !== 0) throw new Error(`${cluster}: the kernel differs: ${JSON.stringify(diff)}`);
  }

  print(`A client in a pod of atlantic connects to the cluster IP ${CLUSTER_IP}:${PORT} repeatedly:`);
  const atlantic = nodes.get('atlantic');
  if (atlantic === undefined) throw new Error('there is no cluster atlantic');
  const clientPod = addPod(scratch, 'atlantic', atlantic, 'client', podIP('atlantic', 20));
  const traffic = IdentityTraffic.open({
    ipcache: join(pins, 'atlantic', 'ipcache'),
    namespace: atlantic.path,
    interface: 'client',
    direction: 'ingress',
  });
  scratch.defer(() => traffic[Symbol.dispose]());
  const answers = new Answers();
  const client = run(scratch, clientPod, [process.execPath, '-e', CLIENT], groups.get('atlantic'));
  client.stdout?.on('data', (text: string) => answers.read(text));
  await until('all clusters have answered', () => CLUSTERS.every((name) => answers.of(name) >= 20));
  print(`  ${answers.text}, ${answers.errors} errors`);

  print('The cluster baltic leaves the mesh, and is then switched off.');
  await until('no backend of baltic is left', async () => {
    const service = await ask<ServiceDocument>('atlantic', '/v1/services/shop/checkout');
    const diff = await ask<DatapathDiffDocument>('atlantic', '/v1/datapath/diff');
    return service !== undefined && diff?.total === 0 && !JSON.stringify(service).includes(podIP('baltic'));
  });
  // The client makes one connection after the other. So the second answer from now belongs to a connection that began
  // after baltic left.
  const marked = answers.total;
  await until('the connection under way has ended', () => answers.total >= marked + 2);
  const before = answers.of('baltic');
  pods.get('baltic')?.kill('SIGKILL');
  exec('ip', 'netns', 'delete', nodes.get('baltic')?.name ?? '');
  const marks = [answers.of('atlantic') + 100, answers.of('caspian') + 100] as const;
  await until(
    'the other clusters answer',
    () => answers.of('atlantic') >= marks[0] && answers.of('caspian') >= marks[1],
  );
  print(`  ${answers.text}, ${answers.errors} errors`);
  if (answers.errors > 0)
    throw new Error(`connections of the client failed: ${JSON.stringify([...answers.counts])}`);
  if (answers.of('baltic') > before) throw new Error('baltic answered after it was switched off');
  print('The client had no errors.');
  printTraffic(traffic);
}

const scratch = new Scratch();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
try {
  await demonstrate(scratch);
} catch (error) {
  process.exitCode = 1;
  process.stderr.write(`demo:datapath: ${error instanceof Error ? error.message : String(error)}\n`);
} finally {
  scratch[Symbol.dispose]();
  print('Removed all namespaces, maps and files.');
}
