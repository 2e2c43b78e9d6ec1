import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { systemClock } from '../src/base/system-clock.ts';
import { Bpf } from '../src/datapath/linux/bpf/bpf.ts';
import { DesiredIPCache, IPCacheTable, markPrefixes } from '../src/datapath/linux/ipcache-map.ts';
import { KeptTable } from '../src/datapath/linux/kept-table.ts';
import { DesiredServices } from '../src/datapath/linux/services/desired-services.ts';
import { ServicePins } from '../src/datapath/linux/services/service-pins.ts';
import { ServiceMapTable } from '../src/datapath/linux/services/service-table.ts';
import { Kernel } from '../src/datapath/linux/syscall/kernel.ts';
import { IPCache } from '../src/ipcache/ipcache.ts';
import { PROTOCOL_NUMBERS } from '../src/net/port.ts';
import { createBackend, createEndpointSlice, type EndpointSlice } from '../src/servicecache/backend.ts';
import { createService } from '../src/servicecache/service.ts';
import { ServiceCache } from '../src/servicecache/service-cache.ts';
import { expect } from './expect.ts';
import { type Delayed, delayDuring } from './loop-delay.ts';
import { podAddress } from './pod-address.ts';
import { short, textTable } from './text-table.ts';
import { threadMs } from './thread-clock.ts';

/** Parameters of the bench. */
export interface DatapathBenchOptions {
  /** Number of prefixes; default 500,000. There is one service per 50 prefixes. */
  readonly n?: number | undefined;
  /** If true, prints nothing: the caller prints the result. */
  readonly json?: boolean | undefined;
}

/** One pass over a table of the kernel. */
export interface PassReport extends Delayed {
  /** Prefixes, or entries of all maps of services. */
  readonly entries: number;
  /** CPU time of the thread, in milliseconds. */
  readonly threadMs: number;
}

/** Time of one change until the kernel has it, in microseconds. */
export interface ChangeReport {
  readonly p50: number;
  readonly p99: number;
}

/** The result of {@link benchDatapath}. */
export interface DatapathBenchReport {
  readonly passes: Readonly<Record<string, PassReport>>;
  readonly changes: Readonly<Record<string, ChangeReport>>;
  /** Entries per second of `bpftool batch`, which writes the same prefixes; undefined without it. */
  readonly bpftoolPerSecond: number | undefined;
}

const DEFAULT_PREFIXES = 500_000;
const PREFIXES_PER_SERVICE = 50;
const BACKENDS = 10;
const CHANGES = 5000;
const BPFTOOL_ENTRIES = 20_000;
const CONTEXT = { clock: systemClock, random: Math.random, nextTurn: setImmediate };
const PORT = { port: 8080, protocol: PROTOCOL_NUMBERS.TCP };

async function pass(entries: number, work: () => Promise<unknown>): Promise<PassReport> {
  let cpu = 0;
  const delayed = await delayDuring(async () => {
    const begun = threadMs();
    await work();
    cpu = threadMs() - begun;
  });
  return { entries, threadMs: cpu, ...delayed };
}

async function changes(change: (i: number) => void, flushed: () => Promise<void>): Promise<ChangeReport> {
  const times: number[] = [];
  for (let i = 0; i < CHANGES; i++) {
    const begun = performance.now();
    change(i);
    await flushed();
    times.push((performance.now() - begun) * 1000);
  }
  times.sort((a, b) => a - b);
  return { p50: times[CHANGES / 2] ?? 0, p99: times[(CHANGES * 99) / 100] ?? 0 };
}

function fill(ipcache: IPCache, n: number): void {
  ipcache.batch(() => {
    for (let i = 0; i < n; i++) {
      const hostIP = `192.168.${(i >> 8) & 15}.${i & 255}`;
      ipcache.upsert(podAddress(i), { identity: 256 + (i % 5000), hostIP, source: 'kvstore' });
    }
  });
}

async function benchPrefixes(bpf: Bpf, path: string, n: number) {
  const ipcache = new IPCache();
  using table = IPCacheTable.open(bpf, { path, maxEntries: Math.max(n, 1) });
  const start = (): KeptTable<unknown> => {
    const kept = new KeptTable(table, new DesiredIPCache(ipcache), CONTEXT);
    return kept as KeptTable<unknown>;
  };
  const first = start();
  await first.adopt();
  const off = ipcache.subscribe(markPrefixes((prefix) => first.mark(prefix)));
  fill(ipcache, n);
  const written = await pass(n, () => first.flushed());
  expect('prefixes in the kernel', first.status().actual, n);
  const compared = await pass(n, async () => {
    expect('differences', (await first.plan()).length, 0);
  });
  const change = await changes(
    (i) => void ipcache.upsert(podAddress(i % n), { identity: 10_000 + i, source: 'kvstore' }),
    () => first.flushed(),
  );
  off();
  first[Symbol.dispose]();
  const next = start();
  const adopted = await pass(n, async () => {
    await next.adopt();
    await next.flushed();
  });
  expect('prefixes written again', next.status().upserts, 0);
  next[Symbol.dispose]();
  return {
    passes: { 'prefixes written': written, 'prefixes compared': compared, 'prefixes adopted': adopted },
    change,
  };
}

function sliceOf(i: number, from: number): EndpointSlice {
  const backends = Array.from({ length: BACKENDS }, (_, at) =>
    createBackend({ address: podAddress(i * 16 + from + at), ports: new Map([['web', PORT]]) }),
  );
  return createEndpointSlice({ service: { namespace: 'bench', name: `s${i}` }, name: 'slice', backends });
}

async function benchServices(bpf: Bpf, folder: string, n: number) {
  const cache = new ServiceCache({ clusterName: 'own' });
  const desired = new DesiredServices({ nodePort: { enabled: false }, nodeName: 'here', clients: 'inside' });
  using pins = new ServicePins(bpf, { folder, capacity: { slots: 20 * n, backends: 20 * n, clients: 1024 } });
  const start = (): KeptTable<unknown> =>
    new KeptTable(new ServiceMapTable(pins.maps), desired, CONTEXT) as KeptTable<unknown>;
  const kept = start();
  await kept.adopt();
  kept.allowDeletes();
  cache.markSynced();
  for (let i = 0; i < n; i++) {
    cache.updateEndpoints(sliceOf(i, 0));
    cache.updateService(
      createService({
        id: { namespace: 'bench', name: `s${i}` },
        addressing: 'assigned',
        clusterIPs: [`172.${16 + (i >> 16)}.${(i >> 8) & 255}.${i & 255}`],
        ports: [['web', { ...PORT, port: 80, nodePort: 0 }]],
      }),
    );
  }
  // A frontend, its slots, and as many backends.
  const entries = n * (1 + 2 * BACKENDS);
  cache.subscribe(desired.listener((frontend) => kept.mark(frontend)));
  const written = await pass(entries, () => kept.flushed());
  // Each service has a frontend, and one for all other ports.
  expect('frontends in the kernel', kept.status().actual, 2 * n);
  const change = await changes(
    (i) => cache.updateEndpoints(sliceOf(i % n, 1 + (i & 1))),
    () => kept.flushed(),
  );
  // Each change writes one frontend.
  expect('frontends written', kept.status().upserts, 2 * n + CHANGES);
  kept[Symbol.dispose]();
  const next = start();
  const adopted = await pass(entries, async () => {
    await next.adopt();
    next.allowDeletes();
    await next.flushed();
  });
  expect('services written again', next.status().upserts + next.status().deletes, 0);
  next[Symbol.dispose]();
  return { passes: { 'services written': written, 'services adopted': adopted }, change };
}

/** Returns the entries per second of `bpftool` for the same prefixes, in a process. */
function benchBpftool(bpf: Bpf, folder: string): number | undefined {
  const path = join(folder, 'bpftool');
  using table = IPCacheTable.open(bpf, { path, maxEntries: BPFTOOL_ENTRIES });
  const lines = Array.from({ length: BPFTOOL_ENTRIES }, (_, i) => {
    const key = [64, 0, 0, 0, 0, 0, 0, 1, 10, 0, i >> 8, i & 255, ...Array(12).fill(0)].join(' ');
    return `map update pinned ${path} key ${key} value 1 0 0 0 0 0 0 0 0 0 0 0`;
  });
  const scratch = mkdtempSync(join(tmpdir(), 'dpcache-bench-'));
  const file = join(scratch, 'batch');
  writeFileSync(file, `${lines.join('\n')}\n`);
  const begun = performance.now();
  const { status } = spawnSync('bpftool', ['batch', 'file', file], { stdio: 'ignore' });
  const ms = performance.now() - begun;
  rmSync(scratch, { recursive: true });
  if (status !== 0) return undefined;
  let count = 0;
  for (const _ of table.dump()) count++;
  expect('entries of bpftool', count, BPFTOOL_ENTRIES);
  return (BPFTOOL_ENTRIES / ms) * 1000;
}

function print({ passes, changes: one, bpftoolPerSecond }: DatapathBenchReport): void {
  const rows = Object.entries(passes).map(([name, { entries, ms, threadMs: cpu, delay }]) => [
    name,
    String(entries),
    `${ms} ms`,
    `${short(entries / ms)} k/s`,
    `${short(entries / cpu)} k/s`,
    String(delay.p99),
    String(delay.max),
  ]);
  process.stdout.write(
    textTable(['pass', 'entries', 'time', 'per second', 'per CPU s', 'loop p99 ms', 'longest'], rows),
  );
  const changed = Object.entries(one).map(([name, { p50, p99 }]) => [name, short(p50), short(p99)]);
  process.stdout.write(
    `\n${textTable(['one change, until the kernel has it', 'p50 µs', 'p99 µs'], changed)}`,
  );
  if (bpftoolPerSecond !== undefined)
    process.stdout.write(`\nbpftool batch: ${short(bpftoolPerSecond / 1000)} k/s\n`);
}

/**
 * Writes prefixes and services into maps of this kernel, in a separate bpffs. Requires the privilege to create them.
 */
export async function benchDatapath({
  n = DEFAULT_PREFIXES,
  json,
}: DatapathBenchOptions): Promise<DatapathBenchReport> {
  const kernel = new Kernel();
  const bpf = new Bpf(kernel);
  const folder = mkdtempSync(join(tmpdir(), 'dpcache-bench-'));
  execFileSync('mount', ['-t', 'bpf', 'bpf', folder]);
  try {
    const prefixes = await benchPrefixes(bpf, join(folder, 'ipcache'), n);
    const services = await benchServices(bpf, folder, Math.max(1, Math.floor(n / PREFIXES_PER_SERVICE)));
    const report: DatapathBenchReport = {
      passes: { ...prefixes.passes, ...services.passes },
      changes: { 'a prefix': prefixes.change, 'a service of 10 backends': services.change },
      bpftoolPerSecond: benchBpftool(bpf, folder),
    };
    if (json !== true) print(report);
    return report;
  } finally {
    execFileSync('umount', ['-l', folder]);
    rmdirSync(folder);
  }
}
