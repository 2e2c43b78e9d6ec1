import type { Clock } from '../src/base/clock.ts';
import { IPCache } from '../src/ipcache/ipcache.ts';
import { NodeManager } from '../src/nodemanager/node-manager.ts';
import type { NodeSpec } from '../src/nodemanager/node-spec.ts';
import { expect } from './expect.ts';
import { type Cost, Meter, medianCost, PauseLog } from './meter.ts';

/**
 * The budgets: CPU microseconds of the thread for one node with three addresses; the Go original uses 7.7 / 4.3 / 6.8.
 */
const BUDGET_US: Readonly<Record<string, number>> = { add: 3.5, unchanged: 1, delete: 3 };

/** A clock whose timers never fire. Synchronous handlers that succeed need no timer. */
const STILL: Clock = { now: () => 0, wallTime: () => 0, after: () => ({ cancel: () => {} }) };

/** The cost of one operation: the median of the rounds, in microseconds per node. */
export interface NodeBenchRow {
  readonly operation: string;
  /** CPU time of the thread, including pauses of the collector. */
  readonly cpuUs: number;
  /** Pauses of the collector, which also moves the decoded nodes. */
  readonly gcUs: number;
  readonly wallUs: number;
  readonly budgetUs: number | undefined;
}

/** The result of {@link benchNodes}. */
export interface NodeBenchReport {
  readonly nodes: number;
  readonly rounds: number;
  /** The operations of the node manager, and for comparison the same work on three address strings without it. */
  readonly rows: readonly NodeBenchRow[];
}

/** A node as if just decoded: every string fresh, all objects of one shape. */
function decoded(i: number, bootID: string): NodeSpec {
  const [high, low] = [(i >> 8) & 255, i & 255];
  const json = JSON.stringify({
    name: `node-${i}`,
    cluster: 'east',
    source: 'kvstore',
    clusterID: 1,
    addresses: [
      { type: 'InternalIP', ip: `172.${16 + (i >> 16)}.${high}.${low}` },
      { type: 'ExternalIP', ip: `198.${18 + (i >> 16)}.${high}.${low}` },
      { type: 'CiliumInternalIP', ip: `10.${high}.${low}.${1 + (i >> 16)}` },
    ],
    ipv4AllocCIDR: `10.${high}.${low}.0/24`,
    encryptionKey: 0,
    nodeIdentity: 0,
    wireguardPubKey: '',
    bootID,
    zone: `zone-${i % 3}`,
  });
  const { zone, ...fields } = JSON.parse(json) as NodeSpec & { readonly zone: string };
  return {
    name: fields.name,
    cluster: fields.cluster,
    source: fields.source,
    clusterID: fields.clusterID,
    addresses: fields.addresses,
    ipv4AllocCIDR: fields.ipv4AllocCIDR,
    ipv6AllocCIDR: undefined,
    ipv4SecondaryAllocCIDRs: [],
    ipv6SecondaryAllocCIDRs: [],
    ipv4HealthIP: undefined,
    ipv6HealthIP: undefined,
    ipv4IngressIP: undefined,
    ipv6IngressIP: undefined,
    encryptionKey: fields.encryptionKey,
    labels: new Map([['zone', zone]]),
    annotations: new Map(),
    nodeIdentity: fields.nodeIdentity,
    wireguardPubKey: fields.wireguardPubKey,
    bootID: fields.bootID,
  };
}

const ROUNDS = 9;
/** Nodes that are decoded and then applied: a batch of a watch. */
const BATCH = 256;

/** Runs `work` on `count` fresh nodes and returns the cost of one, without their construction. */
function timed(
  pauses: PauseLog,
  count: number,
  bootID: string,
  work: (node: NodeSpec) => unknown,
): Promise<Cost> {
  const meter = new Meter(pauses);
  for (let from = 0; from < count; from += BATCH) {
    const nodes = Array.from({ length: Math.min(BATCH, count - from) }, (_, i) => decoded(from + i, bootID));
    meter.time(() => {
      for (const node of nodes) work(node);
    });
  }
  return meter.cost(count);
}

/** One life of `count` nodes; the engines have a listener and a handler that count. */
async function round(pauses: PauseLog, count: number): Promise<Readonly<Record<string, Cost>>> {
  let changes = 0;
  const ipcache = new IPCache();
  ipcache.subscribe({ onChanges: ({ length }) => (changes += length) });
  const manager = new NodeManager({ ipcache, clock: STILL, clusterName: 'east', nodeName: 'me' });
  const countOne = (): void => {
    changes++;
  };
  manager.subscribe({ nodeAdd: countOne, nodeUpdate: countOne, nodeDelete: countOne });
  const map = new Map<string, NodeSpec>();
  const setThree = (node: NodeSpec): void => {
    for (const { ip } of node.addresses ?? []) map.set(ip, node);
  };
  const bare = new IPCache();
  bare.subscribe({ onChanges: () => {} });
  const upsertThree = (node: NodeSpec): void => {
    for (const { ip } of node.addresses ?? [])
      bare.upsert(ip, { identity: 6, source: node.source, owner: node.name });
  };
  const result = {
    'Map.set × 3': await timed(pauses, count, '1', setThree),
    'IPCache.upsert × 3': await timed(pauses, count, '1', upsertThree),
    add: await timed(pauses, count, '1', (node) => manager.nodeUpdated(node)),
    unchanged: await timed(pauses, count, '1', (node) => manager.nodeUpdated(node)),
    update: await timed(pauses, count, '2', (node) => manager.nodeUpdated(node)),
    delete: await timed(pauses, count, '2', (node) => manager.nodeDeleted(node)),
  };
  // 3 addresses and the node are added and deleted; only the handler receives the update.
  expect('changes', changes, count * 9);
  return result;
}

/** Measures the node manager with a real IPCache, against its budgets. Prints a table unless `json` is set. */
export async function benchNodes(
  options: { readonly n?: number; readonly json?: boolean } = {},
): Promise<NodeBenchReport> {
  const { n = 20_000, json = false } = options;
  const pauses = new PauseLog();
  await round(pauses, n); // warm up
  const measured: Readonly<Record<string, Cost>>[] = [];
  for (let i = 0; i < ROUNDS; i++) {
    measured.push(await round(pauses, n));
    await new Promise((resolve) => setImmediate(resolve)); // let the collector's helpers finish
  }
  pauses.stop();
  const rows = Object.keys(measured[0] ?? {}).map((operation): NodeBenchRow => {
    const { cpuNs, gcNs, wallNs } = medianCost(measured.flatMap((one) => one[operation] ?? []));
    return {
      operation,
      cpuUs: cpuNs / 1e3,
      gcUs: gcNs / 1e3,
      wallUs: wallNs / 1e3,
      budgetUs: BUDGET_US[operation],
    };
  });
  if (!json) print(n, rows);
  return { nodes: n, rounds: ROUNDS, rows };
}

function print(nodes: number, rows: readonly NodeBenchRow[]): void {
  console.log(
    `\nnode manager, ${nodes} nodes with 3 addresses, µs a node; cpu is of the thread, gc within it`,
  );
  console.log('operation              cpu      gc    wall  budget');
  for (const { operation, cpuUs, gcUs, wallUs, budgetUs } of rows) {
    const verdict = budgetUs === undefined ? '' : cpuUs <= budgetUs ? ' ok' : ' OVER';
    const figures = [cpuUs.toFixed(2), gcUs.toFixed(2), wallUs.toFixed(2), budgetUs?.toFixed(1) ?? '–'];
    console.log(`${operation.padEnd(18)}${figures.map((each) => each.padStart(8)).join('')}${verdict}`);
  }
}
