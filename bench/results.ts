import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { arch, cpus, platform, release, totalmem } from 'node:os';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { runBench } from './bench-process.ts';
import { BENCHES, type BenchOptions } from './catalog.ts';
import type { IPCacheReport } from './ipcache/report.ts';
import { renderIPCache } from './ipcache/table.ts';
import { short, textTable } from './text-table.ts';

// results.js [NAME…] [--runs N] [--largest]: runs the named benches, or all, and replaces their sections in
// bench/RESULTS.md, after each. Prints progress on stderr. All benches take half an hour, and much longer with ten
// million entries, which require 14 GiB of free memory.

const FILE = fileURLToPath(new URL('../../bench/RESULTS.md', import.meta.url));
const { values, positionals } = parseArgs({
  options: { largest: { type: 'boolean', default: false }, runs: { type: 'string', default: '3' } },
  allowPositionals: true,
});
const NAMES = positionals.length === 0 ? Object.keys(BENCHES) : positionals;
const unknown = NAMES.find((name) => !Object.hasOwn(BENCHES, name));
if (unknown !== undefined) throw new Error(`unknown bench '${unknown}'`);
/** Runs of the ipcache bench, each in a separate process. */
const RUNS = Number(values.runs);
if (!Number.isSafeInteger(RUNS) || RUNS < 1) throw new Error(`--runs ${values.runs}: not a count`);
/** Number of entries for peers. It is small, because the slowest peer takes a minute for a round of a million. */
const PEER_ENTRIES = 100_000;

/** Beginning of the file, which explains the words of all tables. */
const PREAMBLE = `Written by \`npm run bench:results\`, except the sections at the end that no benchmark writes.
The cost of an IPCache operation is mostly its [cache lines](../src/lpm/README.md#cache-lines-of-an-operation).

| in the tables | means |
| --- | --- |
| budget, wanted; ok, over | the limit that the project has set; whether the figure is within the limit |
| loop, stall, event loop: p50, p99, max | delay of the event loop; its budget is p99 < 20 ms and max < 50 ms |
| own work | CPU time of the thread between two checks of the event loop, which other processes do not influence |
| peak, at rest, live | maximum resident memory; resident memory after a garbage collection; memory of the live objects |
| fresh, unchanged, identity change, exact | upsert of a new key, of an equal claim, of a claim with another identity; lookup of a key |
| by text, Sorted | the keys are used in the order of their text, so most are in the CPU cache; otherwise in random order |
| sparse | addresses of which almost none shares a /26 with another one |
| Go a / b | figures of Cilium 1.8.11 / 1.17-dev on one core of such a machine |`;

/** Sizes in addition to the million of {@link RUNS}. */
const SIZES: readonly number[] = [10_000, 100_000];
const LARGEST = 10_000_000;

/** Prints progress with the time of day on stderr. */
function logProgress(text: string): void {
  process.stderr.write(`${new Date().toISOString().slice(11, 19)} ${text}\n`);
}

async function outputOf(name: string, options: BenchOptions): Promise<string> {
  logProgress(`${name} ${JSON.stringify(options)} …`);
  const { status, output } = await runBench(name, options, 'pipe');
  if (status !== 0) throw new Error(`bench ${name} failed with status ${status}`);
  return output;
}

/** Returns a table with the ratios of all runs, which shows their variation. */
function ratiosOfRuns(reports: readonly IPCacheReport[]): string {
  const names = Object.keys(reports[0]?.rows ?? {}).filter((name) =>
    reports.every(({ rows }) => name in rows),
  );
  const rows = names.map((name) => [
    name,
    ...reports.map((report) => short(report.rows[name]?.ratio ?? Number.NaN)),
  ]);
  return textTable(['ratio', ...reports.map((_, run) => `run ${run + 1}`)], rows);
}

async function ipcacheReport(options: { readonly n?: number } = {}): Promise<IPCacheReport> {
  return JSON.parse(await outputOf('ipcache', { ...options, json: true, peers: false })) as IPCacheReport;
}

/** Returns a table with the ratios of every size, if measured. */
function ratiosOfSizes(reports: readonly IPCacheReport[]): string {
  const names = [...new Set(reports.flatMap(({ rows }) => Object.keys(rows)))];
  const rows = names
    .filter((name) => !name.includes('.'))
    .map((name) => [name, ...reports.map((report) => short(report.rows[name]?.ratio ?? Number.NaN))]);
  const bytes = (report: IPCacheReport): string => short(report.bytesPerEntry);
  const head = ['ratio', ...reports.map(({ n }) => n.toLocaleString('en'))];
  return textTable(head, [...rows, ['bytes per entry', ...reports.map(bytes)]]);
}

async function ipcacheSection(): Promise<string> {
  const reports: IPCacheReport[] = [];
  for (let run = 0; run < RUNS; run++) reports.push(await ipcacheReport());
  const sizes: IPCacheReport[] = [];
  for (const n of SIZES) sizes.push(await ipcacheReport({ n }));
  sizes.push(...reports.slice(0, 1));
  if (values.largest) sizes.push(await ipcacheReport({ n: LARGEST }));
  const peers = await outputOf('ipcache', { n: PEER_ENTRIES, json: false, peers: true });
  const [first] = reports;
  if (first === undefined) throw new Error('no run of the ipcache bench');
  const ratios =
    RUNS < 2
      ? ''
      : `\nThe ratios of ${RUNS} runs, each in a separate process. The tables above are from the first run.\n\n${ratiosOfRuns(reports)}`;
  return `${renderIPCache(first)}${ratios}\n### Sizes\n\n${ratiosOfSizes(sizes)}\n### Beside its peers\n\n${peers}`;
}

/** Output without Markdown tables is put into a code block. */
function asMarkdown(output: string): string {
  return output.includes('\n| ') ? output : `\`\`\`text\n${output.trimEnd()}\n\`\`\``;
}

function machine(): string {
  const [cpu] = cpus();
  const commit = execFileSync('git', ['rev-parse', '--short', 'HEAD'], { encoding: 'utf8' }).trim();
  const { node, v8 } = process.versions;
  return [
    `- ${new Date().toISOString().slice(0, 10)}, commit ${commit}`,
    `- ${cpus().length} × ${cpu?.model ?? 'unknown'}, ${(totalmem() / 2 ** 30).toFixed(0)} GiB, ${platform()} ${release()} ${arch()}`,
    `- Node ${node}, V8 ${v8}`,
  ].join('\n');
}

/** Returns the sections of the file by bench; empty if there is no file. */
function sectionsOfFile(): Map<string, string> {
  let text = '';
  try {
    text = readFileSync(FILE, 'utf8');
  } catch {
    // the file does not exist yet
  }
  const [, ...sections] = text.split(/^## /m);
  return new Map(sections.map((section) => [section.split('\n')[0] ?? '', `## ${section.trim()}`]));
}

function write(sections: ReadonlyMap<string, string>): void {
  const names = new Set([...Object.keys(BENCHES), ...sections.keys()]); // other sections come last, unchanged
  const texts = [...names].flatMap((name) => sections.get(name) ?? []);
  writeFileSync(FILE, `# Measured\n\n${PREAMBLE}\n\n${texts.join('\n\n')}\n`);
}

const sections = sectionsOfFile();
for (const name of NAMES) {
  const body =
    name === 'ipcache'
      ? await ipcacheSection()
      : asMarkdown(await outputOf(name, { json: false, peers: false }));
  const head = `## ${name}\n\n\`npm run bench -- ${name}\`: ${BENCHES[name]?.summary}.\n\n${machine()}`;
  sections.set(name, `${head}\n\n${body.trim()}`);
  write(sections);
}
logProgress(`written: ${FILE}`);
