import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { arch, cpus, platform, release, totalmem } from 'node:os';
import { fileURLToPath } from 'node:url';
import { runBench } from './bench-process.ts';
import { BENCHES } from './catalog.ts';
import type { IPCacheReport } from './ipcache/report.ts';
import { renderIPCache } from './ipcache/table.ts';
import { short, textTable } from './text-table.ts';

// Runs every bench and writes bench/RESULTS.md. Progress goes to stderr; takes about half an hour.

const FILE = fileURLToPath(new URL('../../bench/RESULTS.md', import.meta.url));
/** Runs of the ipcache bench, each in a process of its own; the first one measures the peers too. */
const RUNS = 3;

function say(text: string): void {
  process.stderr.write(`${new Date().toISOString().slice(11, 19)} ${text}\n`);
}

async function outputOf(name: string, json: boolean, peers: boolean): Promise<string> {
  say(`${name}${peers ? ' with peers' : ''} …`);
  const { status, output } = await runBench(name, { json, peers }, 'pipe');
  if (status !== 0) throw new Error(`bench ${name} failed with status ${status}`);
  return output;
}

/** Ratios of every run beside each other, so that a reader sees how far they can be trusted. */
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

async function ipcacheSection(): Promise<string> {
  const reports: IPCacheReport[] = [];
  for (let run = 0; run < RUNS; run++) {
    reports.push(JSON.parse(await outputOf('ipcache', true, run === 0)) as IPCacheReport);
  }
  const [first] = reports;
  if (first === undefined) throw new Error('no run of the ipcache bench');
  return `${renderIPCache(first)}\nThe ratios of ${RUNS} runs, each in a process of its own; the tables above are of the first.\n\n${ratiosOfRuns(reports)}`;
}

/** Output that has no tables of its own keeps its columns in a fence. */
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

const sections: string[] = [];
for (const [name, { summary }] of Object.entries(BENCHES)) {
  const body = name === 'ipcache' ? await ipcacheSection() : asMarkdown(await outputOf(name, false, false));
  sections.push(`## ${name}\n\n\`npm run bench -- ${name}\`: ${summary}.\n\n${body.trim()}`);
}
writeFileSync(
  FILE,
  `# Measured\n\nWritten by \`npm run bench:results\`. Budgets and their workloads: the tables name them; Go figures are of the original, one core of such a machine.\n\n${machine()}\n\n${sections.join('\n\n')}\n`,
);
say(`written: ${FILE}`);
