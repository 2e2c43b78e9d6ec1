import fc from 'fast-check';
import { RECOVERY_MS, type RunningMesh } from './running-mesh.ts';
import type { Cluster } from './world.ts';

/** Chooses an index, a name or a flag from a number of the generator. */
function pick<T>(items: readonly T[], choice: number): T | undefined {
  return items[choice % items.length];
}

/** A change of what exists in a cluster. Each combination of numbers means something in each world. */
type Change = (cluster: Cluster, a: number, b: number) => void;

const APPS = ['web', 'cart', 'test'] as const;
const PHASES = ['creating', 'starting', 'terminating', undefined] as const;

function nameOfPod({ namespaces, pods }: Cluster, a: number): string {
  return `${pick(Object.keys(namespaces), a)}/pod-${Object.keys(pods).length}-${a}`;
}

function setPod(
  cluster: Cluster,
  name: string,
  node: string,
  ip: string,
  app: string,
  phase?: (typeof PHASES)[number],
): void {
  for (const [other, pod] of Object.entries(cluster.pods)) if (pod.ip === ip) delete cluster.pods[other];
  cluster.pods[name] = phase === undefined ? { node, ip, app } : { node, ip, app, phase };
}

/** The changes by name, for the report of a failure. */
const CHANGES: Readonly<Record<string, Change>> = {
  'create a pod': (cluster, a, b) => {
    const [node, { number = 0 } = {}] = pick(Object.entries(cluster.nodes), a) ?? [''];
    setPod(
      cluster,
      nameOfPod(cluster, b),
      node,
      `${number}.${30 + (b % 20)}`,
      pick(APPS, a + b) ?? '',
      pick(PHASES, b),
    );
  },
  'change the phase of a pod': (cluster, a, b) => {
    const [name, pod] = pick(Object.entries(cluster.pods), a) ?? [];
    if (name !== undefined && pod !== undefined)
      setPod(cluster, name, pod.node, pod.ip, pod.app, pick(PHASES, b));
  },
  'delete a pod': ({ pods }, a) => {
    delete pods[pick(Object.keys(pods), a) ?? ''];
  },
  'give the address of a pod to a pod of another node': (cluster, a, b) => {
    const pod = pick(Object.values(cluster.pods), a);
    const node = pick(Object.keys(cluster.nodes), b);
    if (pod !== undefined && node !== undefined)
      setPod(cluster, nameOfPod(cluster, b), node, pod.ip, pick(APPS, b) ?? '');
  },
  'recreate a pod with other labels': (cluster, a, b) => {
    const [name, pod] = pick(Object.entries(cluster.pods), a) ?? [];
    if (name !== undefined && pod !== undefined) setPod(cluster, name, pod.node, pod.ip, pick(APPS, b) ?? '');
  },
  'add a node': ({ nodes }, a) => {
    const used = new Set(Object.values(nodes).map(({ number }) => number));
    const number = pick(
      [5, 6, 7].filter((one) => !used.has(one)),
      a,
    );
    if (number !== undefined) nodes[`n${number}`] = { number, isControlPlane: a % 2 === 0 };
  },
  'remove a node and its pods': ({ nodes, pods }, a) => {
    const node = pick(Object.keys(nodes), a);
    if (node === undefined || Object.keys(nodes).length === 1) return;
    delete nodes[node];
    for (const [name, pod] of Object.entries(pods)) if (pod.node === node) delete pods[name];
  },
  'replace a node by one with the same addresses': ({ nodes, pods }, a, b) => {
    const [name, node] = pick(Object.entries(nodes), a) ?? [];
    if (name === undefined || node === undefined) return;
    delete nodes[name];
    const next = `${name.split('-')[0]}-${b}`;
    nodes[next] = node;
    for (const [podName, pod] of Object.entries(pods))
      if (pod.node !== name) continue;
      else if (b % 2 === 0) delete pods[podName];
      else pods[podName] = { ...pod, node: next };
  },
  'make a node a control-plane node, or a worker': ({ nodes }, a) => {
    const [name, node] = pick(Object.entries(nodes), a) ?? [];
    if (name !== undefined && node !== undefined)
      nodes[name] = { ...node, isControlPlane: !node.isControlPlane };
  },
  'change the labels of a namespace': ({ namespaces }, a, b) => {
    const [name, namespace] = pick(Object.entries(namespaces), a) ?? [];
    if (name !== undefined && namespace !== undefined)
      namespaces[name] = { ...namespace, labels: { team: pick(['retail', 'platform'], b) ?? '' } };
  },
  'publish a namespace, or not': ({ namespaces }, a) => {
    const [name, namespace] = pick(Object.entries(namespaces), a) ?? [];
    if (name !== undefined && namespace !== undefined)
      namespaces[name] = { ...namespace, isGlobal: namespace.isGlobal === false };
  },
  'create a service, or change its annotations': ({ services }, a, b) => {
    const app = pick(APPS, a) ?? '';
    const isGlobal = pick([true, true, false, undefined], b);
    const isShared = pick([true, false, undefined], b >> 2);
    const affinity = pick(['local', 'remote', undefined] as const, b >> 4);
    const nodePort = pick([30_080 + (a % APPS.length), undefined], b >> 6);
    services[`shop/${app}`] = {
      app,
      ip: String(10 + (a % APPS.length)),
      ...(isGlobal === undefined ? {} : { isGlobal }),
      ...(isShared === undefined ? {} : { isShared }),
      ...(affinity === undefined ? {} : { affinity }),
      ...(nodePort === undefined ? {} : { nodePort }),
    };
  },
  'delete a service': ({ services }, a) => {
    delete services[pick(Object.keys(services), a) ?? ''];
  },
  'export a service, or not': ({ exports }, a) => {
    const name = `shop/${pick(APPS, a)}`;
    if (!exports.delete(name)) exports.add(name);
  },
  'change a group of CIDRs': ({ groups }, a, b) => {
    const name = pick(['partners', 'others'], a) ?? '';
    const cidrs =
      name === 'partners' ? ['203.0.113.0/24', '2001:db8::/32'] : ['198.51.100.0/24', '192.0.2.0/25'];
    if (b % 3 === 0) delete groups[name];
    else groups[name] = cidrs.slice(0, b % 3);
  },
};

/** Ends a fault. */
type End = () => void | Promise<void>;

/** What happens to the servers and processes of a cluster during the changes of a step. */
const FAULTS: Readonly<
  Record<string, (mesh: RunningMesh, name: string, choice: number) => End | Promise<End>>
> = {
  'no fault': () => () => {},
  'the API server is away': (mesh, name, choice) => {
    const { server } = mesh.cluster(name).api;
    server.down();
    return () => {
      if (choice % 2 === 0) server.compact();
      server.up();
    };
  },
  'the etcd is away': (mesh, name, choice) => {
    const { etcd } = mesh.cluster(name);
    etcd.away();
    return () => {
      if (choice % 2 === 0) etcd.server.compact();
      etcd.back();
    };
  },
  'the watches of Kubernetes break': (mesh, name, choice) => {
    const { server } = mesh.cluster(name).api;
    return () => (choice % 2 === 0 ? server.cut() : server.endWatches());
  },
  'the API server is restored from a backup': (mesh, name) => {
    const { api } = mesh.cluster(name);
    const restore = api.backup();
    return async () => {
      api.server.down();
      await mesh.settle(5000);
      restore();
    };
  },
  'the etcd is restored from a backup': (mesh, name) => {
    const { server } = mesh.cluster(name).etcd;
    const backup = server.snapshot();
    return () => server.restore(backup);
  },
  'the keys of its operator expire': async (mesh, name) => {
    await mesh.stop(name, 'operator');
    await mesh.settle(1_200_000);
    return () => mesh.start(name, 'operator');
  },
  'a process is restarted': async (mesh, name, choice) => {
    const process = pick([...mesh.cluster(name).processes.keys()], choice) ?? 'operator';
    await mesh.stop(name, process);
    return () => mesh.start(name, process);
  },
  'it has left the mesh': (mesh, name) => {
    const { remotes } = mesh.cluster(name).cluster;
    const left = [...remotes];
    remotes.clear();
    return () => {
      for (const remote of left) remotes.add(remote);
    };
  },
};

/** A step: changes while a cluster has a fault. */
export interface RandomStep {
  readonly fault: string;
  readonly cluster: number;
  readonly choice: number;
  readonly changes: readonly {
    readonly change: string;
    readonly cluster: number;
    readonly a: number;
    readonly b: number;
  }[];
  /** Time between two changes. */
  readonly pauseMs: number;
}

const choice = fc.nat(1000);
const cluster = fc.nat(1);

export const randomStep: fc.Arbitrary<RandomStep> = fc.record({
  fault: fc.constantFrom(...Object.keys(FAULTS)),
  cluster,
  choice,
  changes: fc.array(
    fc.record({ change: fc.constantFrom(...Object.keys(CHANGES)), cluster, a: choice, b: choice }),
    {
      minLength: 1,
      maxLength: 5,
    },
  ),
  pauseMs: fc.constantFrom(0, 100, 1000, 15_000, 70_000),
});

/** Plays a step, and waits until nothing changes any more. */
export async function playStep(mesh: RunningMesh, step: RandomStep): Promise<void> {
  const names = [...mesh.clusters.keys()];
  const nameOf = (index: number): string => names[index] ?? '';
  const end = await FAULTS[step.fault]?.(mesh, nameOf(step.cluster), step.choice);
  for (const { change, cluster: index, a, b } of step.changes) {
    CHANGES[change]?.(mesh.cluster(nameOf(index)).cluster, a, b);
    await mesh.settle(step.pauseMs);
  }
  await end?.();
  if (step.fault === 'no fault') return mesh.settle();
  // Kvstoremesh keeps the copy of a cluster that has left the mesh for 180 s.
  await mesh.settle(step.fault === 'it has left the mesh' ? 300_000 : RECOVERY_MS);
}
