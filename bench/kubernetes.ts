import { Cluster } from './kubernetes/cluster.ts';
import { FOLLOWERS, FollowerProcess } from './kubernetes/follower-process.ts';
import { ciliumEndpoint, TEAMS } from './kubernetes/objects.ts';
import type { FollowerName, FollowerTask, LoopFigures, Part } from './kubernetes/protocol.ts';
import { median } from './meter.ts';
import { short, textTable } from './text-table.ts';

const ROUNDS = 3;
const BURST_SIZE = 10_000;
const CHANGES = 100;
/** The budgets: event-loop delay, memory relative to the JavaScript informers, sync time relative to client-go. */
const BUDGET = { p99: 20, memory: 0.5, time: 1 } as const;

/** The medians of one follower over several rounds. */
export interface FollowerFigures {
  readonly follower: FollowerName;
  readonly syncMs: number;
  readonly syncCpuMs: number;
  /** During the sync; absent if there is no event loop. */
  readonly loop: LoopFigures | undefined;
  /** Maximum resident memory during the sync, and live memory afterwards. */
  readonly peakMB: number;
  readonly liveMB: number;
  readonly burstPerSecond: number;
  readonly burstCpuMs: number;
  readonly burstP99: number | undefined;
  /** From the start of a write until the follower has it. */
  readonly changeP50: number;
  readonly changeP99: number;
}

/** The result of {@link benchKubernetes}. */
export interface KubernetesBenchReport {
  readonly endpoints: number;
  readonly services: number;
  readonly burst: number;
  readonly figures: readonly FollowerFigures[];
}

interface Round {
  readonly synced: Part;
  readonly liveMB: number;
  readonly burst: Part;
  readonly lags: readonly number[];
}

function address(prefix: string, n: number): string {
  return `${prefix}${n >> 8}.${n & 255}`;
}

async function round(cluster: Cluster, name: FollowerName, task: FollowerTask): Promise<Round> {
  const follower = new FollowerProcess(name, task);
  try {
    const synced = await follower.report('synced');
    const moved = Array.from({ length: task.burst }, (_, n) =>
      ciliumEndpoint(n, address(task.burstPrefix, n)),
    );
    await cluster.put(moved);
    const burst = await follower.report('burst');
    const lags: number[] = [];
    for (let n = 0; n < CHANGES && n * TEAMS < task.endpoints; n++) {
      const ip = address(task.changePrefix, n);
      const begun = Date.now();
      await cluster.move(n, ip);
      const seen = await follower.report(ip);
      if (seen.type === 'change') lags.push(seen.at - begun);
    }
    if (synced.type !== 'synced' || burst.type !== 'burst') throw new Error('another report');
    return { synced: synced.part, liveMB: synced.liveMB, burst: burst.part, lags };
  } finally {
    follower.kill();
  }
}

function middleLoop(parts: readonly Part[]): LoopFigures | undefined {
  const loops = parts.flatMap(({ loop }) => loop ?? []);
  if (loops.length === 0) return undefined;
  const middle = (of: (loop: LoopFigures) => number): number => median(loops.map(of));
  return {
    p50: middle(({ p50 }) => p50),
    p99: middle(({ p99 }) => p99),
    max: middle(({ max }) => max),
    ownP99: middle(({ ownP99 }) => ownP99),
  };
}

function figures(follower: FollowerName, rounds: readonly Round[], burst: number): FollowerFigures {
  const middle = (of: (round: Round) => number): number => median(rounds.map(of));
  const lags = rounds.flatMap((one) => one.lags).sort((a, b) => a - b);
  const lag = (part: number): number => lags[Math.floor(lags.length * part)] ?? Number.NaN;
  return {
    follower,
    syncMs: middle(({ synced }) => synced.ms),
    syncCpuMs: middle(({ synced }) => synced.cpuMs),
    loop: middleLoop(rounds.map(({ synced }) => synced)),
    peakMB: middle(({ synced }) => synced.peakMB),
    liveMB: middle(({ liveMB }) => liveMB),
    burstPerSecond: middle((one) => (burst * 1000) / one.burst.ms),
    burstCpuMs: middle((one) => one.burst.cpuMs),
    burstP99: middleLoop(rounds.map((one) => one.burst))?.p99,
    changeP50: lag(0.5),
    changeP99: lag(0.99),
  };
}

const NAMES: Readonly<Record<FollowerName, string>> = {
  feed: 'feed into the engines',
  reflectors: 'reflectors alone',
  'client-node': 'informers of client-node',
  'client-go': 'informers of client-go',
};

function render({ endpoints, services, burst, figures: all }: KubernetesBenchReport): string {
  const head = [
    '',
    'sync',
    'CPU',
    'loop p99 / max',
    'own work p99',
    'peak',
    'live',
    'events/s',
    'CPU',
    'loop p99',
  ];
  const ms = (value: number | undefined): string => (value === undefined ? '' : `${Math.round(value)} ms`);
  const rows = all.map((one) => [
    NAMES[one.follower],
    ...[ms(one.syncMs), ms(one.syncCpuMs)],
    ...[one.loop === undefined ? '' : `${one.loop.p99} / ${ms(one.loop.max)}`, ms(one.loop?.ownP99)],
    ...[`${Math.round(one.peakMB)} MB`, `${Math.round(one.liveMB)} MB`],
    ...[short(one.burstPerSecond), ms(one.burstCpuMs), ms(one.burstP99)],
    ...[`${one.changeP50} / ${ms(one.changeP99)}`],
  ]);
  return [
    `${endpoints} CiliumEndpoints, ${services} services and slices, a kube-apiserver 1.20.2 on this machine; ${ROUNDS} rounds\n`,
    textTable([...head, 'a change, p50 / p99'], rows),
    `Events are ${burst} changes, written as fast as etcd accepts them. Lists are uncompressed, except for client-node, which cannot request that. ${verdicts(all)}\n`,
  ].join('\n');
}

/** Compares the feed, and the reflectors alone, which do the same as the informers, with the budgets. */
function verdicts(all: readonly FollowerFigures[]): string {
  const of = (name: FollowerName): FollowerFigures | undefined =>
    all.find(({ follower }) => follower === name);
  const [feed, reflectors, node, go] = [of('feed'), of('reflectors'), of('client-node'), of('client-go')];
  const ratios = (budget: number, of: (one: FollowerFigures) => number, other: FollowerFigures): string =>
    [feed, reflectors]
      .map((one) => (one === undefined ? Number.NaN : of(one) / of(other)))
      .map((ratio) => `${ratio.toFixed(2)} ${ratio <= budget ? 'ok' : 'OVER'}`)
      .join(', ');
  const isShort = (feed?.loop?.ownP99 ?? 0) < BUDGET.p99;
  return [
    `Own work between two turns of the loop, p99 < ${BUDGET.p99} ms: ${isShort ? 'ok' : 'OVER'}. The feed, and the reflectors alone:`,
    node &&
      `peak ≤ ${BUDGET.memory} × that of client-node: ${ratios(BUDGET.memory, (one) => one.peakMB, node)};`,
    go === undefined
      ? 'client-go is not here: bench/kubernetes/client-go/build.sh builds it.'
      : `sync ≤ ${BUDGET.time} × that of client-go: ${ratios(BUDGET.time, (one) => one.syncMs, go)}.`,
  ].join(' ');
}

/** Measures followers of `n` CiliumEndpoints and a tenth as many services. Prints a table unless `json` is set. */
export async function benchKubernetes({
  n: endpoints = 50_000,
  json = false,
}: {
  readonly n?: number;
  readonly json?: boolean;
}): Promise<KubernetesBenchReport> {
  const services = Math.max(1, Math.floor(endpoints / 10));
  const burst = Math.min(BURST_SIZE, endpoints);
  const cluster = await Cluster.start(endpoints, services);
  const rounds = new Map<FollowerName, Round[]>(FOLLOWERS.map((follower) => [follower, []]));
  try {
    await cluster.warm({ endpoints, services, slices: services });
    for (let run = 0; run < ROUNDS * FOLLOWERS.length; run++) {
      const follower = FOLLOWERS[run % FOLLOWERS.length] ?? 'feed';
      const { server, ca } = cluster.access;
      const prefixes = { burstPrefix: `10.${100 + run}.`, changePrefix: `10.${150 + run}.` };
      const task = { server, ca, token: 'admin-token', endpoints, services, burst, ...prefixes };
      rounds.get(follower)?.push(await round(cluster, follower, task));
    }
  } finally {
    await cluster.close();
  }
  const report = {
    endpoints,
    services,
    burst,
    figures: FOLLOWERS.map((follower) => figures(follower, rounds.get(follower) ?? [], burst)),
  };
  if (!json) console.log(render(report));
  return report;
}
