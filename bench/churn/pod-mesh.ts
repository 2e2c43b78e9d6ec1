import { encodeIPIdentityPair } from '../../src/kvstore/codec/ip-identity-pair.ts';
import { RandomOrder } from '../random-order.ts';

/** A key of a kvstore that is written, or deleted (no value). */
export interface PodEvent {
  readonly cluster: string;
  /** The key without the prefix: the address. */
  readonly name: string;
  readonly value: Uint8Array | undefined;
}

const PODS_OF_NODE = 100;
const NODES_OF_CLUSTER = 50;
const PODS_OF_DEPLOYMENT = 20;
/**
 * First address of a node's /24 that pods get. Addresses are used in turn, so a released one is reused after about 150
 * others.
 */
const FIRST_ADDRESS = 2;
const ADDRESSES = 252;

/** A node and the owners of its addresses. */
interface Node {
  readonly index: number;
  readonly taken: Set<number>;
  next: number;
}

interface Pod {
  node: Node;
  address: number;
  generation: number;
}

/** Pods on nodes in clusters, and the kvstore events of their creation and deletion. */
export class PodMesh {
  readonly clusters: number;
  readonly #nodes: readonly Node[];
  readonly #pods: readonly Pod[];
  #restarts = 0;

  constructor(pods: number) {
    const nodes = Math.ceil(pods / PODS_OF_NODE);
    this.clusters = Math.ceil(nodes / NODES_OF_CLUSTER);
    this.#nodes = Array.from({ length: nodes }, (_, index) => ({ index, taken: new Set(), next: 0 }));
    this.#pods = Array.from({ length: pods }, (_, i) => {
      const node = this.#node(i % nodes);
      return { node, address: takeAddress(node), generation: 0 };
    });
  }

  /** Creates every pod. */
  start(batch: number): Generator<readonly PodEvent[], void, void> {
    return inBatches(batch, this.#appearances());
  }

  /** Restarts every deployment, in random order, pod by pod. */
  restartAll(batch: number): Generator<readonly PodEvent[], void, void> {
    return inBatches(batch, this.#restarted());
  }

  *#appearances(): Generator<PodEvent, void, void> {
    const order = new RandomOrder(this.#pods.length, 1);
    for (let i = 0; i < order.size; i++) yield this.#appearance(order.at(i));
  }

  *#restarted(): Generator<PodEvent, void, void> {
    this.#restarts++;
    const order = new RandomOrder(Math.ceil(this.#pods.length / PODS_OF_DEPLOYMENT), 1 + this.#restarts);
    for (let i = 0; i < order.size; i++) {
      const first = order.at(i) * PODS_OF_DEPLOYMENT;
      const end = Math.min(first + PODS_OF_DEPLOYMENT, this.#pods.length);
      for (let pod = first; pod < end; pod++) yield* this.#restart(pod);
    }
  }

  /** Creates the pod on the next node of its cluster, then deletes the old one. */
  *#restart(index: number): Generator<PodEvent, void, void> {
    const pod = this.#pod(index);
    const { node, address } = pod;
    const first = node.index - (node.index % NODES_OF_CLUSTER);
    const span = Math.min(NODES_OF_CLUSTER, this.#nodes.length - first);
    pod.node = this.#node(first + ((node.index - first + 1) % span));
    pod.address = takeAddress(pod.node);
    pod.generation++;
    yield this.#appearance(index);
    node.taken.delete(address);
    yield { cluster: clusterOf(node), name: addressText(node, address), value: undefined };
  }

  #appearance(index: number): PodEvent {
    const { node, address, generation } = this.#pod(index);
    const deployment = Math.floor(index / PODS_OF_DEPLOYMENT);
    const name = addressText(node, address);
    const value = encodeIPIdentityPair({
      key: name,
      identity: 256 + (deployment % 5000),
      hostIP: `172.${16 + (node.index >>> 16)}.${(node.index >>> 8) & 255}.${node.index & 255}`,
      encryptKey: 0,
      k8s: {
        namespace: `namespace-${deployment % 200}`,
        podName: `workload-${deployment}-${generation}-${index}`,
      },
    });
    return { cluster: clusterOf(node), name, value };
  }

  #pod(index: number): Pod {
    const pod = this.#pods[index];
    if (pod === undefined) throw new Error(`no pod ${index}`);
    return pod;
  }

  #node(index: number): Node {
    const node = this.#nodes[index];
    if (node === undefined) throw new Error(`no node ${index}`);
    return node;
  }
}

function clusterOf(node: Node): string {
  return `cluster-${Math.floor(node.index / NODES_OF_CLUSTER)}`;
}

function addressText(node: Node, address: number): string {
  return `10.${node.index >>> 8}.${node.index & 255}.${FIRST_ADDRESS + address}`;
}

function takeAddress(node: Node): number {
  if (node.taken.size === ADDRESSES) throw new Error('a node has no address left');
  while (node.taken.has(node.next)) node.next = (node.next + 1) % ADDRESSES;
  const address = node.next;
  node.taken.add(address);
  node.next = (address + 1) % ADDRESSES;
  return address;
}

function* inBatches(size: number, events: Iterable<PodEvent>): Generator<readonly PodEvent[], void, void> {
  let batch: PodEvent[] = [];
  for (const event of events) {
    batch.push(event);
    if (batch.length < size) continue;
    yield batch;
    batch = [];
  }
  if (batch.length > 0) yield batch;
}
