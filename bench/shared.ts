import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { IPCache } from '../src/ipcache/ipcache.ts';
import type { Claim } from '../src/ipcache/types.ts';
import { SharedLookup } from '../src/sharedlookup/shared-lookup.ts';
import { expect } from './expect.ts';
import { median } from './meter.ts';
import type { ReaderAnswer, ReaderKind, ReaderTask, Round } from './shared/protocol.ts';
import { short, textTable } from './text-table.ts';
import { threadMs } from './thread-clock.ts';

const BUDGET = { scaling: 1.8, lookups: 3_000_000, bytes: 40, changeUs: 0.5 } as const;

/** Changes a second that the writer applies while the workers read. */
const RATES = [0, 10_000, 100_000] as const;
const WORKERS = [1, 2] as const;
const ROUND_MS = 1_000;
/** Interval of the batches in which the writer applies its changes. */
const BATCH_MS = 5;
/** Number of rounds that measure the cost of a change. */
const ROUNDS = 5;
const MAX_BYTES: number = 2 ** 30;
const SEED = 20_261_123;
/** Number of addresses that are looked up together. */
const GROUP = 16;
/**
 * Script that builds the Go program whose readers share a map under a `sync.RWMutex`. This module runs in
 * `dist-bench/bench`.
 */
const BUILD_GO: string = fileURLToPath(new URL('../../bench/shared/rwmutex/build.sh', import.meta.url));

/** Result of a number of workers at a rate of changes. */
export interface SharedRow {
  readonly kind: ReaderKind | 'go';
  readonly workers: number;
  /** Changes a second: requested, and applied. */
  readonly rate: number;
  readonly applied: number;
  /** Lookups a second of all workers. */
  readonly lookups: number;
  /**
   * Lookups per second of the workers' CPU time, which they reach if each has a free core. NaN if the main thread
   * answers.
   */
  readonly lookupsOfCpu: number;
}

/** The result of {@link benchShared}. */
export interface SharedBenchReport {
  readonly entries: number;
  /** Bytes an entry: the shared memory, and the heap and buffers of each worker with a copy. */
  readonly bytesPerEntry: number;
  readonly copyBytesPerEntry: number;
  /** CPU microseconds of the writer per change. `off`: with a cache alone. `on`: with a `SharedLookup`. */
  readonly changeUs: { readonly off: number; readonly on: number };
  /** A Go map under a lock; undefined if there is no Go. */
  readonly go: Pick<GoReport, 'bytesPerEntry' | 'changeUs'> | undefined;
  readonly rows: readonly SharedRow[];
}

/** The output of `rwmutex/main.go`. */
interface GoReport {
  readonly bytesPerEntry: number;
  readonly changeUs: number;
  readonly rows: readonly Omit<SharedRow, 'kind'>[];
}

/**
 * Returns the figures of a Go map with the same number of addresses under a lock, with GOMAXPROCS=2 and exact lookups.
 * Undefined if Go is not installed.
 */
function measureGo(entries: number): GoReport | undefined {
  const built = spawnSync(BUILD_GO, { encoding: 'utf8' });
  if (built.status !== 0) return undefined;
  const args = [entries, GROUP, ROUND_MS, BATCH_MS, RATES.join(',')].map(String);
  const { stdout, status } = spawnSync(built.stdout.trim(), args, { encoding: 'utf8' });
  expect('status of the Go readers', status ?? -1, 0);
  return JSON.parse(stdout) as GoReport;
}

function keyOf(i: number): string {
  return `${10 + (i >>> 24)}.${(i >>> 16) & 255}.${(i >>> 8) & 255}.${i & 255}`;
}

function claimOf(i: number, round: number): Claim {
  return {
    identity: 65_536 + ((i + round) % 5_000),
    source: 'kvstore',
    hostIP: `192.168.${i % 4}.${i % 250}`,
  };
}

/** Writes changes of identities. */
class Writer {
  readonly cache: IPCache = new IPCache();
  readonly entries: number;
  #round = 1;
  #next = 0;

  constructor(entries: number) {
    this.entries = entries;
    for (let i = 0; i < entries; i++) this.cache.upsert(keyOf(i), claimOf(i, 0));
    expect('entries', this.cache.size, entries);
  }

  /** Writes a batch of changes, scattered over all entries. */
  write(changes: number): void {
    if (changes === 0) return;
    this.cache.batch(() => {
      for (let n = 0; n < changes; n++) {
        const i = (this.#next * 7919) % this.entries;
        this.cache.upsert(keyOf(i), claimOf(i, this.#round));
        if (++this.#next < this.entries) continue;
        this.#next = 0;
        this.#round++;
      }
    });
  }

  /** Returns CPU microseconds a change, in batches of 500. */
  cost(changes: number): number {
    const begun = threadMs();
    for (let done = 0; done < changes; done += 500) this.write(Math.min(500, changes - done));
    return ((threadMs() - begun) * 1000) / changes;
  }
}

/** A worker that looks up addresses in one of three ways. */
class Reader {
  readonly #worker: Worker;

  constructor(task: ReaderTask, cache: IPCache) {
    const script = new URL('./shared/reader.js', import.meta.url);
    this.#worker = new Worker(script, { workerData: task });
    const identities = new Uint32Array(task.group);
    this.#worker.on('message', (message: ReaderAnswer) => {
      if (message.kind !== 'ask') return;
      cache.lookupMany(message.addresses, identities);
      this.#worker.postMessage({ kind: 'identities', identities });
    });
  }

  /** Resolves to the next answer of a kind. */
  async #answer<K extends ReaderAnswer['kind']>(
    kind: K,
  ): Promise<Extract<ReaderAnswer, { readonly kind: K }>> {
    for (;;) {
      const [answer]: ReaderAnswer[] = await once(this.#worker, 'message');
      if (answer?.kind === kind) return answer as Extract<ReaderAnswer, { readonly kind: K }>;
    }
  }

  /** Resolves when the worker is ready, to the memory of its copy. */
  async ready(): Promise<number> {
    return (await this.#answer('ready')).copyBytes;
  }

  /** Looks up addresses for a time. */
  async read(round: Round): Promise<Extract<ReaderAnswer, { readonly kind: 'read' }>> {
    this.#worker.postMessage(round);
    return await this.#answer('read');
  }

  async end(): Promise<void> {
    await this.#worker.terminate();
  }
}

/** Writes at a rate until `done` resolves. Returns the number of changes. */
async function writeAt(writer: Writer, rate: number, done: Promise<unknown>): Promise<number> {
  let isDone = false;
  void done.finally(() => {
    isDone = true;
  });
  const begun = performance.now();
  let written = 0;
  while (!isDone) {
    const due = Math.floor(((performance.now() - begun) * rate) / 1000) - written;
    writer.write(due);
    written += due;
    await new Promise((resolve) => setTimeout(resolve, BATCH_MS));
  }
  return written;
}

/** Measures workers of one kind at each rate of changes. */
async function measure(
  kind: ReaderKind,
  writer: Writer,
  lookup: SharedLookup,
  rates: readonly number[],
): Promise<{ readonly rows: readonly SharedRow[]; readonly copyBytes: number }> {
  const rows: SharedRow[] = [];
  let copyBytes = 0;
  const readers: Reader[] = [];
  for (const workers of WORKERS) {
    const task = { kind, handle: lookup.handle, entries: writer.entries, group: GROUP, seed: SEED + workers };
    const reader = new Reader(task, writer.cache);
    readers.push(reader);
    copyBytes = await reader.ready();
    await Promise.all(readers.map((each) => each.read({ kind: 'round', ms: ROUND_MS }))); // warm up
    for (const rate of rates) {
      const begun = performance.now();
      const reading = Promise.all(readers.map((each) => each.read({ kind: 'round', ms: ROUND_MS })));
      const [answers, changes] = await Promise.all([reading, writeAt(writer, rate, reading)]);
      const seconds = (performance.now() - begun) / 1000;
      for (const { lookups, found } of answers) expect(`${kind}: addresses found`, found, lookups);
      const sum = (of: (answer: (typeof answers)[number]) => number): number =>
        answers.reduce((total, answer) => total + of(answer), 0);
      rows.push({
        kind,
        workers,
        rate,
        applied: changes / seconds,
        lookups: sum(({ lookups, ms }) => (lookups * 1000) / ms),
        lookupsOfCpu:
          kind === 'postMessage' ? Number.NaN : sum(({ lookups, cpuMs }) => (lookups * 1000) / cpuMs),
      });
    }
  }
  await Promise.all(readers.map((each) => each.end()));
  return { rows, copyBytes };
}

/** Measures lookups of worker threads in shared memory, beside asking the main thread, and a copy in each worker. */
export async function benchShared({
  n: entries = 1_000_000,
  json = false,
}: {
  readonly n?: number;
  readonly json?: boolean;
}): Promise<SharedBenchReport> {
  const writer = new Writer(entries);
  const changes = Math.min(entries, 500_000);
  writer.cost(changes); // warm up
  const off: number[] = [];
  const on: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    off.push(writer.cost(changes));
    using attached = new SharedLookup(writer.cache, { maxBytes: MAX_BYTES });
    expect('entries of the shared memory', attached.status().entries, entries);
    on.push(writer.cost(changes));
  }
  const lookup = new SharedLookup(writer.cache, { maxBytes: MAX_BYTES });
  writer.cost(changes);
  const bytesPerEntry = lookup.status().reservedBytes / entries;
  const shared = await measure('shared', writer, lookup, RATES);
  const asked = await measure('postMessage', writer, lookup, RATES);
  // Without changes, which is the best case of a copy.
  const copies = await measure('copy', writer, lookup, [0]);
  lookup.close();
  const go = measureGo(entries);
  const goRows = go?.rows.map((row) => ({ ...row, kind: 'go' as const })) ?? [];
  const report = {
    entries,
    bytesPerEntry,
    changeUs: { off: median(off), on: median(on) },
    copyBytesPerEntry: copies.copyBytes / entries,
    go: go && { bytesPerEntry: go.bytesPerEntry, changeUs: go.changeUs },
    rows: [...shared.rows, ...asked.rows, ...copies.rows, ...goRows],
  };
  if (!json) process.stdout.write(render(report));
  return report;
}

function render({
  entries,
  bytesPerEntry,
  copyBytesPerEntry,
  changeUs,
  go,
  rows,
}: SharedBenchReport): string {
  const verdict = (isKept: boolean): string => (isKept ? 'ok' : 'over');
  const table = rows.map(({ kind, workers, rate, applied, lookups, lookupsOfCpu }) => {
    const one = rows.find((row) => row.kind === kind && row.workers === 1 && row.rate === rate);
    const scaling = (of: 'lookups' | 'lookupsOfCpu', is: number): string =>
      workers === 1 || one === undefined ? '' : short(is / one[of]);
    const cells = [`${kind}, ${workers} worker${workers === 1 ? '' : 's'}`, rate.toLocaleString('en')];
    const counts = [applied, lookups, lookupsOfCpu].map((count) =>
      Number.isNaN(count) ? '–' : Math.round(count).toLocaleString('en'),
    );
    return [...cells, ...counts, scaling('lookups', lookups), scaling('lookupsOfCpu', lookupsOfCpu)];
  });
  const cost = changeUs.on - changeUs.off;
  const one = rows.find(({ kind, workers, rate }) => kind === 'shared' && workers === 1 && rate === 0);
  const two = rows.find(({ kind, workers, rate }) => kind === 'shared' && workers === 2 && rate === 0);
  const scaling = (two?.lookups ?? 0) / (one?.lookups ?? 0);
  const lookups = one?.lookupsOfCpu ?? 0;
  return `Lookups of ${entries.toLocaleString('en')} IPv4 addresses in random order by worker threads, in groups of 16 with \`lookupMany\`, while the main thread
changes identities in batches every ${BATCH_MS} ms. \`on free cores\`: lookups per CPU second of each worker. \`scaling\`: lookups of two workers, divided by those of one.

${textTable(['', 'changes/s', 'applied/s', 'lookups/s', 'on free cores', 'scaling', 'on free cores'], table)}
${textTable(
  ['', '', 'budget', ''],
  [
    [
      'lookups of a worker per CPU second',
      Math.round(lookups).toLocaleString('en'),
      BUDGET.lookups.toLocaleString('en'),
      verdict(lookups >= BUDGET.lookups),
    ],
    ['two workers, of one', short(scaling), String(BUDGET.scaling), verdict(scaling >= BUDGET.scaling)],
    [
      'bytes an entry, shared',
      short(bytesPerEntry),
      String(BUDGET.bytes),
      verdict(bytesPerEntry <= BUDGET.bytes),
    ],
    ['bytes an entry, each copy', short(copyBytesPerEntry), '', ''],
    ['writer, CPU µs a change', short(cost), String(BUDGET.changeUs), verdict(cost <= BUDGET.changeUs)],
  ],
)}
A change of the cache alone takes ${short(changeUs.off)} µs of CPU. ${
    go === undefined
      ? 'There is no Go here, so there is no row of a Go map.'
      : `Go: a map of exact addresses under a sync.RWMutex, GOMAXPROCS=2, one lock for a group; ${short(go.bytesPerEntry)} bytes an entry, ${short(go.changeUs)} µs a change.`
  }
`;
}
