import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { loadavg } from 'node:os';
import { performance } from 'node:perf_hooks';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { createApp } from '../src/api/app.ts';
import { ChangeFeed } from '../src/api/change-feed.ts';
import type { OriginDocument } from '../src/api/documents.ts';
import { AgentMetrics } from '../src/api/metrics/agent-metrics.ts';
import type { ReadModel } from '../src/api/read-model.ts';
import { ApiServer } from '../src/api/server/api-server.ts';
import type { StatusDocument } from '../src/api/status-document.ts';
import type { RejectionStatus } from '../src/base/rejection.ts';
import { systemClock } from '../src/base/system-clock.ts';
import { IPCache } from '../src/ipcache/ipcache.ts';
import type { Labels } from '../src/model/labels.ts';
import { NodeManager } from '../src/nodemanager/node-manager.ts';
import { ServiceCache } from '../src/servicecache/service-cache.ts';
import type { LoadOptions, LoadReport, PagesOptions, PagesReport } from './api/clients.ts';
import { expect } from './expect.ts';
import { CHECK_MS, delayDuring, type LoopDelay } from './loop-delay.ts';
import { liveBytes } from './meter.ts';
import { podAddress } from './pod-address.ts';
import { short, textTable } from './text-table.ts';
import { processMs, threadMs } from './thread-clock.ts';

/** Parameters of the bench. */
export interface ApiBenchOptions {
  /** Prefixes; default 1,000,000. */
  readonly n?: number | undefined;
  /** If true, prints nothing: the caller prints the result. */
  readonly json?: boolean | undefined;
}

/** Milliseconds, over many samples. */
interface Spread {
  readonly p50: number;
  readonly p99: number;
}

/** The result of {@link benchApi}. */
export interface ApiBenchReport {
  readonly prefixes: number;
  readonly seconds: number;
  readonly changesPerSecond: number;
  /** Delay of a change until it was in the engines and listeners were notified. */
  readonly lag: Spread;
  readonly loop: LoopDelay;
  /** The delay of the event loop in CPU time of the agent, which other processes do not increase. */
  readonly blocked: Spread;
  /** CPU time of the agent per second: 1 is a whole core. */
  readonly cpu: number;
  /** Load average over one minute: at the beginning, and after the load. */
  readonly load: readonly [before: number, after: number];
  /** Growth of the live memory during the run, in bytes. */
  readonly growth: number;
  readonly clients: LoadReport;
  /** Memory for a monitor that never reads during the load, in bytes. */
  readonly unreadBytes: number;
  readonly unreadChanges: number;
  /** Time of a page of 1,000 prefixes, from the request to the end of the answer, over a connection. */
  readonly page: Spread;
  /** CPU time of the agent for a page, in milliseconds. */
  readonly pageCPU: number;
  /** CPU time of the event loop for a search, in milliseconds. */
  readonly search: Spread;
}

const DEFAULT_PREFIXES = 1_000_000;
const MONITORS = 50;
const REQUESTS_PER_SECOND = 1_000;
const CHANGES_PER_SECOND = 10_000;
/** Maximum number of changes in one turn: about 2 ms with 50 monitors. */
const MOST_CHANGES = 200;
const SECONDS = 20;
const UNREAD_SECONDS = 60;
const PAGES = 1_000;
const SEARCH_ROUNDS = 50;
const LABELS: Labels = [
  { source: 'k8s', key: 'app', value: 'checkout' },
  { source: 'k8s', key: 'io.kubernetes.pod.namespace', value: 'shop' },
];

class BenchModel implements ReadModel {
  readonly ipcache: IPCache = new IPCache({ maxEntries: 20_000_000 });
  readonly services: ServiceCache = new ServiceCache({ clusterName: 'own' });
  readonly nodes: NodeManager = new NodeManager({
    ipcache: this.ipcache,
    clock: systemClock,
    random: Math.random,
    clusterName: 'own',
    nodeName: 'here',
  });
  #written = 0;
  readonly labelsOf = (): Labels => LABELS;
  readonly restoredOf = (): undefined => undefined;
  readonly clusterOf = (): string => '';
  readonly originOf = (): OriginDocument => ({ text: 'this agent', store: 'agent' });
  readonly restoredIdentity = (): undefined => undefined;
  readonly identities = (): readonly [] => [];
  readonly clusterNames = (): readonly [] => [];
  readonly cluster = (): undefined => undefined;
  readonly clusterMetrics = (): readonly [] => [];
  readonly rejections = (): RejectionStatus => ({
    total: 0,
    byReason: {},
    recent: [],
  });
  readonly status = (): StatusDocument => ({
    cluster: 'own',
    clusterID: 1,
    kvstore: 'memory',
    clusters: [],
    configProblems: [],
    steps: [],
    ipcache: { prefixes: this.ipcache.size, revision: 0, shadowed: 0, overruled: 0, listenerFaults: 0 },
    nodes: { nodes: 0, overruled: 0, heldBack: [] },
    services: { announced: 0, backends: 0, contested: 0, unknown: 0, listenerFaults: 0 },
    rejected: { total: 0, byReason: {}, recent: [] },
  });

  /** Writes a prefix with a new value. */
  write(number: number): void {
    const identity = 256 + (this.#written++ % 65_521);
    const k8s = { namespace: 'shop', podName: `checkout-${number}` };
    const hostIP = `192.168.0.${number % 250}`;
    this.ipcache.upsert(podAddress(number), { identity, source: 'kvstore', hostIP, k8s });
  }
}

function spread(values: readonly number[]): Spread {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (part: number): number => sorted[Math.floor(sorted.length * part)] ?? Number.NaN;
  return { p50: at(0.5), p99: at(0.99) };
}

/**
 * Writes changes at a constant rate, and returns the delay of each batch of a millisecond. A turn writes a limited
 * number. If the machine is too busy, changes are therefore late, because a turn that wrote all of them would block the
 * measured requests and make the next turn even longer.
 */
async function flow(model: BenchModel, prefixes: number, seconds: number): Promise<readonly number[]> {
  const late: number[] = [];
  const begun = performance.now();
  let done = 0;
  for (let now = 0; now < seconds * 1000; now = performance.now() - begun) {
    const due = Math.min(Math.floor((now * CHANGES_PER_SECOND) / 1000), done + MOST_CHANGES);
    const first = (done * 1000) / CHANGES_PER_SECOND;
    const doneBefore = done;
    for (; done < due; done++) model.write((done * 7919) % prefixes);
    if (done > doneBefore) late.push(performance.now() - begun - first);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  return late;
}

async function clients<R extends LoadReport | PagesReport>(
  options: R extends LoadReport ? LoadOptions : PagesOptions,
): Promise<R> {
  const script = fileURLToPath(new URL('./api/clients.js', import.meta.url));
  const child = spawn(process.execPath, [script, JSON.stringify(options)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  return JSON.parse(await text(child.stdout));
}

/** Returns the milliseconds of CPU time that the agent uses for `work`. */
async function cpuOf(work: () => Promise<void>): Promise<number> {
  const before = processMs();
  await work();
  return processMs() - before;
}

/**
 * Returns the CPU milliseconds of the event loop for searches of each kind: exact ones, partial addresses, parts of
 * names, labels, and without results.
 */
async function searchTimes(app: ReturnType<typeof createApp>, prefixes: number): Promise<Spread> {
  const times: number[] = [];
  for (let round = -SEARCH_ROUNDS; round < SEARCH_ROUNDS; round++) {
    const pod = (Math.abs(round) * 7919) % prefixes;
    for (const query of [
      '10.3.7.9',
      '10.3.',
      `checkout-${pod}`,
      'checkout-9',
      'app=checkout',
      'hecko',
      'none',
    ]) {
      const before = threadMs(); // a search takes less than the marking of a large heap by the helper threads
      await app.request(`/v1/search?q=${query}`);
      if (round >= 0) times.push(threadMs() - before); // negative rounds are the warm-up
    }
  }
  return spread(times);
}

/**
 * Every 5 ms, reads the CPU time used since the last read. Returns the excess over 5 ms, which is the time for which
 * the agent blocked its own event loop, even if the machine is busy. Helper threads are included.
 */
async function blockedDuring(work: () => Promise<void>): Promise<Spread> {
  const excess: number[] = [];
  let last = process.cpuUsage();
  const timer = setInterval(() => {
    const { user, system } = process.cpuUsage(last);
    last = process.cpuUsage();
    excess.push(Math.max(0, (user + system) / 1000 - CHECK_MS));
  }, CHECK_MS);
  await work();
  clearInterval(timer);
  return spread(excess);
}

/** A monitor that never reads. */
async function unreadMonitor(url: string): Promise<Socket> {
  const { port } = new URL(url);
  const socket = connect(Number(port), '127.0.0.1');
  socket.pause();
  await once(socket, 'connect');
  socket.write('GET /v1/monitor HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n');
  return socket;
}

function render(report: ApiBenchReport): string {
  const {
    prefixes,
    seconds,
    lag,
    loop,
    blocked,
    cpu,
    load,
    growth,
    clients: seen,
    page,
    pageCPU,
    search,
  } = report;
  const ms = (value: number): string => `${short(value)} ms`;
  const mb = (bytes: number): string => `${short(bytes / 1e6)} MB`;
  const rows: readonly (readonly string[])[] = [
    ['engines behind, p50 / p99', `${ms(lag.p50)} / ${ms(lag.p99)}`, 'p99 ≤ 100 ms'],
    ['event loop delay, p99 / longest', `${ms(loop.p99)} / ${ms(loop.max)}`, 'p99 < 20 ms'],
    ['of it, by CPU time of the agent, p99', ms(blocked.p99), ''],
    ['CPU time of the agent', `${Math.round(cpu * 100)} % of a core`, ''],
    ['request, p50 / p99', `${ms(seen.p50)} / ${ms(seen.p99)}`, ''],
    ['change seen by a monitor, p50 / p99', `${ms(seen.seenP50)} / ${ms(seen.seenP99)}`, ''],
    ['growth over the run', mb(growth), 'flat'],
    [`a monitor that never reads, ${report.unreadChanges} changes`, mb(report.unreadBytes), '< 8 MB'],
    ['page of 1,000, p50 / p99', `${ms(page.p50)} / ${ms(page.p99)}`, 'p99 < 10 ms'],
    ['of it, CPU time of the agent', ms(pageCPU), ''],
    ['CPU time of a search, p50 / p99', `${ms(search.p50)} / ${ms(search.p99)}`, 'p99 < 30 ms'],
  ];
  return [
    `API of ${prefixes.toLocaleString('en')} prefixes: ${MONITORS} monitors, ${Math.round(seen.requests / seconds)} requests/s (${seen.refused} refused), ${report.changesPerSecond} changes/s for ${seconds} s; ${mb(seen.monitored / seconds)}/s to monitors. Load of the machine: ${load.map(short).join(', then ')}.\n`,
    textTable(['', 'measured', 'wanted'], rows),
    '',
  ].join('\n');
}

/** Measures the API of an agent during concurrent requests, monitors and changes. */
export async function benchApi(options: ApiBenchOptions = {}): Promise<ApiBenchReport> {
  const prefixes = options.n ?? DEFAULT_PREFIXES;
  const model = new BenchModel();
  for (let i = 0; i < prefixes; i++) model.write(i);
  expect('prefixes', model.ipcache.size, prefixes);
  const feed = new ChangeFeed(model, systemClock);
  const following = feed.follow();
  const app = createApp({
    model,
    feed,
    metrics: new AgentMetrics(model, feed),
    clock: systemClock,
    instance: 'bench',
    version: '0',
    blockers: () => [],
    onFault: (error) => {
      throw error;
    },
  });
  const server = new ApiServer({ app, tcp: { host: '127.0.0.1', port: 0 } });
  await server.start();
  const url = server.url ?? '';
  const loadBefore = loadavg()[0] ?? Number.NaN;
  let page: PagesReport = { p50: Number.NaN, p99: Number.NaN };
  const pageCPU = await cpuOf(async () => {
    page = await clients<PagesReport>({ url, pages: PAGES });
  });
  const search = await searchTimes(app, prefixes);
  for (let i = 0; i < 70_000; i++) model.write(i % prefixes); // the maximum number of kept snapshots
  const load = { url, prefixes, monitors: MONITORS, requestsPerSecond: REQUESTS_PER_SECOND };
  await Promise.all([clients<LoadReport>({ ...load, seconds: 3 }), flow(model, prefixes, 3)]);
  const before = await liveBytes();
  let late: readonly number[] = [];
  let seen: LoadReport | undefined;
  let cpuMs = Number.NaN;
  let blocked: Spread = { p50: Number.NaN, p99: Number.NaN };
  const measured = async (): Promise<void> => {
    [seen, late] = await Promise.all([
      clients<LoadReport>({ ...load, seconds: SECONDS }),
      flow(model, prefixes, SECONDS),
    ]);
  };
  const { delay, ms } = await delayDuring(async () => {
    cpuMs = await cpuOf(async () => {
      blocked = await blockedDuring(measured);
    });
  });
  const loadAfter = loadavg()[0] ?? Number.NaN;
  const quiet = await liveBytes();
  const unread = await unreadMonitor(url);
  const from = feed.revision;
  await flow(model, prefixes, UNREAD_SECONDS);
  const unreadBytes = (await liveBytes()) - quiet;
  const unreadChanges = feed.revision - from;
  unread.destroy();
  following();
  await server.stop();
  model.nodes.close();
  if (seen === undefined) throw new Error('the clients have reported nothing');
  const report: ApiBenchReport = {
    prefixes,
    seconds: SECONDS,
    changesPerSecond: CHANGES_PER_SECOND,
    lag: spread(late),
    loop: delay,
    growth: quiet - before,
    clients: seen,
    unreadBytes,
    unreadChanges,
    page,
    pageCPU: pageCPU / PAGES,
    search,
    blocked,
    cpu: cpuMs / ms,
    load: [loadBefore, loadAfter],
  };
  if (options.json !== true) process.stdout.write(render(report));
  return report;
}
