import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { NAMESPACES } from '../src/k8s/feed/kinds.ts';
import { KubernetesClient } from '../src/k8s/kubernetes-client.ts';
import { identified } from '../src/k8s/resource.ts';
import { EtcdTransport } from '../src/kvstore/etcd/etcd-transport.ts';
import { NO_LEASE } from '../src/kvstore/transport.ts';
import { RealApiServer } from '../test/apiserver/support/real-apiserver.ts';
import { ApiUser } from '../test/k8s/support/api-user.ts';
import { until } from '../test/kvstore/support/until.ts';
import { KINDS } from './kubernetes/following.ts';
import {
  ciliumEndpoint,
  endpointName,
  endpointSlice,
  type StoredObject,
  service,
  TEAMS,
} from './kubernetes/objects.ts';
import {
  FOLLOWERS,
  type FollowerName,
  type FollowerReport,
  type FollowerTask,
  type Part,
} from './kubernetes/protocol.ts';
import { median } from './meter.ts';
import { short, textTable } from './text-table.ts';

const ROUNDS = 3;
const BURST_SIZE = 10_000;
const CHANGES = 100;
const WRITERS = 16;
/** Of the issue's budgets: what may hold up the event loop, and memory beside the informers'. */
const BUDGET = { p99: 20, memory: 0.5 } as const;
const FOLLOWER = fileURLToPath(new URL('./kubernetes/follower.js', import.meta.url));

/** What one follower needed, in the middle of several rounds. */
export interface FollowerFigures {
  readonly follower: FollowerName;
  readonly syncMs: number;
  readonly syncCpuMs: number;
  readonly heldP99: number;
  readonly p99: number;
  readonly max: number;
  /** Resident at most while it synced, and alive afterwards. */
  readonly peakMB: number;
  readonly liveMB: number;
  readonly burstPerSecond: number;
  readonly burstCpuMs: number;
  readonly burstP99: number;
  /** From the moment at which a write begins until the follower has it. */
  readonly changeP50: number;
  readonly changeP99: number;
}

/** What {@link benchKubernetes} measured. */
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

/** A kube-apiserver with objects. */
class Cluster {
  readonly server: RealApiServer;
  readonly #etcd: EtcdTransport;
  readonly #endpoints: ApiUser;

  private constructor(server: RealApiServer) {
    this.server = server;
    this.#etcd = new EtcdTransport({ endpoints: [server.etcd] }, Math.random);
    this.#endpoints = new ApiUser(server.transport, KINDS.endpoints, endpointName(0).namespace);
  }

  static async start(endpoints: number, services: number): Promise<Cluster> {
    const cluster = new Cluster(await RealApiServer.start());
    await cluster.server.serve({ ...KINDS.endpoints, kind: 'CiliumEndpoint' });
    // Objects that are put into etcd need none; those that are changed do.
    await new ApiUser(cluster.server.transport, NAMESPACES).create(endpointName(0).namespace);
    await cluster.put(Array.from({ length: endpoints }, (_, n) => ciliumEndpoint(n)));
    await cluster.put(Array.from({ length: services }, (_, n) => service(n)));
    await cluster.put(Array.from({ length: services }, (_, n) => endpointSlice(n)));
    return cluster;
  }

  /** How it is reached. */
  get access(): { readonly server: string; readonly ca: string } {
    const { server, ca } = this.server.access;
    if (ca === undefined || !('file' in ca)) throw new Error('no file of an authority');
    return { server, ca: ca.file };
  }

  /** Waits until the API server has all objects in its memory, from which it lists. */
  async warm(counts: Readonly<Record<keyof typeof KINDS, number>>): Promise<void> {
    const client = new KubernetesClient(this.server.access);
    const sink = { apply: () => {}, onListed: () => {} };
    const followed = Object.values(KINDS).map((kind) => client.follow(kind, sink, { keep: identified }));
    await until('it has read everything', () =>
      Object.values(counts).every((count, i) => (followed[i]?.status().objects ?? 0) >= count),
    );
    await client.close();
  }

  /**
   * Straight into etcd. One in a transaction: those of one would share a version, and of these an API server that resumes
   * its own watch in between loses the rest.
   */
  async put(objects: readonly StoredObject[]): Promise<void> {
    const left = objects.values();
    const writer = async (): Promise<void> => {
      for (const { key, object } of left) {
        const value = new TextEncoder().encode(JSON.stringify(object));
        const writes = [{ op: 'put', key, value, lease: NO_LEASE }] as const;
        await this.#etcd.txn({ compare: [], writes }, { deadlineMs: 60_000 });
      }
    };
    await Promise.all(Array.from({ length: WRITERS }, writer));
  }

  /** Gives an endpoint of the first namespace another address, through the API server. */
  async move(n: number, ipv4: string): Promise<void> {
    const { name } = endpointName(n * TEAMS);
    await this.#endpoints.patch(name, { status: { networking: { addressing: [{ ipv4 }] } } });
  }

  async close(): Promise<void> {
    await this.#etcd.close();
    await this.server.close();
  }
}

/** A follower's process, and what it says. */
class FollowerProcess {
  readonly #process: ChildProcess;
  readonly #reports = new Map<string, FollowerReport>();
  readonly #waiting = new Map<string, (report: FollowerReport) => void>();
  #failed: ((reason: Error) => void) | undefined;

  constructor(task: FollowerTask) {
    const flags = ['--expose-gc', FOLLOWER, JSON.stringify(task)];
    this.#process = spawn(process.execPath, flags, { stdio: ['ignore', 'pipe', 'inherit'] });
    const { stdout } = this.#process;
    if (stdout === null) throw new Error('no pipe');
    createInterface(stdout).on('line', (line) => {
      const report: FollowerReport = JSON.parse(line);
      const about = report.type === 'change' ? report.ip : report.type;
      this.#reports.set(about, report);
      this.#waiting.get(about)?.(report);
    });
    this.#process.on('exit', () => this.#failed?.(new Error(`${task.follower} has ended`)));
  }

  report(about: string): Promise<FollowerReport> {
    return new Promise((resolve, reject) => {
      this.#failed = reject;
      const report = this.#reports.get(about);
      if (report === undefined) this.#waiting.set(about, resolve);
      else resolve(report);
    });
  }

  kill(): void {
    this.#failed = undefined;
    this.#process.kill();
  }
}

function address(prefix: string, n: number): string {
  return `${prefix}${n >> 8}.${n & 255}`;
}

async function round(cluster: Cluster, task: FollowerTask): Promise<Round> {
  const follower = new FollowerProcess(task);
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

function figures(follower: FollowerName, rounds: readonly Round[], burst: number): FollowerFigures {
  const middle = (of: (round: Round) => number): number => median(rounds.map(of));
  const lags = rounds.flatMap((one) => one.lags).sort((a, b) => a - b);
  const lag = (part: number): number => lags[Math.floor(lags.length * part)] ?? Number.NaN;
  return {
    follower,
    syncMs: middle(({ synced }) => synced.ms),
    syncCpuMs: middle(({ synced }) => synced.cpuMs),
    heldP99: middle(({ synced }) => synced.heldP99),
    p99: middle(({ synced }) => synced.delay.p99),
    max: middle(({ synced }) => synced.delay.max),
    peakMB: middle(({ synced }) => synced.peakMB),
    liveMB: middle(({ liveMB }) => liveMB),
    burstPerSecond: middle((one) => (burst * 1000) / one.burst.ms),
    burstCpuMs: middle((one) => one.burst.cpuMs),
    burstP99: middle((one) => one.burst.delay.p99),
    changeP50: lag(0.5),
    changeP99: lag(0.99),
  };
}

const NAMES: Readonly<Record<FollowerName, string>> = {
  feed: 'feed into the engines',
  reflectors: 'reflectors alone',
  'client-node': 'informers of client-node',
};

function render({ endpoints, services, burst, figures: all }: KubernetesBenchReport): string {
  const head = [
    '',
    'sync',
    'CPU',
    'loop p99 / max',
    'own work p99',
    'peak',
    'alive',
    'events/s',
    'CPU',
    'loop p99',
  ];
  const ms = (value: number): string => `${Math.round(value)} ms`;
  const rows = all.map((one) => [
    NAMES[one.follower],
    ...[ms(one.syncMs), ms(one.syncCpuMs), `${one.p99} / ${ms(one.max)}`, ms(one.heldP99)],
    ...[`${Math.round(one.peakMB)} MB`, `${Math.round(one.liveMB)} MB`],
    ...[short(one.burstPerSecond), ms(one.burstCpuMs), ms(one.burstP99)],
    ...[`${one.changeP50} / ${ms(one.changeP99)}`],
  ]);
  const [feed, , peer] = all;
  const verdict = (isKept: boolean): string => (isKept ? 'ok' : 'OVER');
  const isSmall = (feed?.peakMB ?? 0) <= (peer?.peakMB ?? 0) * BUDGET.memory;
  return [
    `${endpoints} CiliumEndpoints, ${services} services and slices, a kube-apiserver 1.20.2 on this machine; ${ROUNDS} rounds\n`,
    textTable([...head, 'a change, p50 / p99'], rows),
    `Events are ${burst} changes, as fast as etcd takes them. Own work between two turns of the loop, p99 < ${BUDGET.p99} ms: ${verdict((feed?.heldP99 ?? 0) < BUDGET.p99)};`,
    `peak ≤ ${BUDGET.memory} × that of the informers: ${verdict(isSmall)}.\n`,
  ].join('\n');
}

/** Measures how `n` CiliumEndpoints and a tenth as many services are followed. Prints a table unless `json` is set. */
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
      const task = { follower, server, ca, token: 'admin-token', endpoints, services, burst, ...prefixes };
      rounds.get(follower)?.push(await round(cluster, task));
    }
  } finally {
    await cluster.close();
  }
  const report = {
    ...{ endpoints, services, burst },
    figures: FOLLOWERS.map((follower) => figures(follower, rounds.get(follower) ?? [], burst)),
  };
  if (!json) console.log(render(report));
  return report;
}
