import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { zipOf } from '../sysdump/support/archive-writer.ts';
import { BOTH, dumpedCluster, type Fault } from '../sysdump/support/dumped-cluster.ts';

const NODES = 100;
const PODS = 200;
const MAX_CPU_SECONDS = 60;
const MAX_BYTES = 2 ** 30;

/** Prints the resource usage of a process when it ends. */
const METER = `data:text/javascript,process.on('exit',()=>process.stderr.write('USAGE '+JSON.stringify(process.resourceUsage())+'\\n'))`;

const FAULTS: readonly Fault[] = [
  { kind: 'identity', node: 7, pod: 4_321, tables: BOTH },
  { kind: 'stale', node: 99, pod: 77, tables: ['map'] },
  { kind: 'missing', node: 50, pod: 19_999, tables: ['agent'] },
  { kind: 'disagreement', node: 3 },
];

describe('dpcache sysdump of 100 nodes with 20,000 endpoints', () => {
  let folder = '';
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'dpcache-sysdump-'));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it(`takes at most ${MAX_CPU_SECONDS} s of CPU and 1 GiB, and finds the faults`, () => {
    const style = {
      nodes: NODES,
      podsPerNode: PODS,
      old: false,
      markdown: false,
      mapAsJson: false,
      nativeRouting: false,
      nested: true,
    };
    const { files, expected } = dumpedCluster(style, FAULTS);
    const path = join(folder, 'sysdump.zip');
    writeFileSync(path, zipOf(files));
    const program = new URL('../../src/cli/main.ts', import.meta.url).pathname;
    const run = spawnSync(
      process.execPath,
      ['--import', 'tsx', '--import', METER, program, 'sysdump', '-q', '-o', 'json', path],
      {
        encoding: 'utf8',
        maxBuffer: 64 << 20,
      },
    );
    const usage = JSON.parse(/USAGE (.*)/.exec(run.stderr)?.[1] ?? '{}') as Readonly<Record<string, number>>;
    const { findings, nodes } = JSON.parse(run.stdout) as {
      findings: { kind: string; subject: string }[];
      nodes: { tables: { agent: { entries: number } } }[];
    };
    expect(findings.map(({ kind, subject }) => `${kind} ${subject}`).sort()).toEqual(
      expected.map(({ kind, subject }) => `${kind} ${subject}`).sort(),
    );
    expect(nodes).toHaveLength(NODES);
    expect(Math.min(...nodes.map(({ tables }) => tables.agent.entries))).toBeGreaterThan(NODES * PODS);
    const { userCPUTime = Number.NaN, systemCPUTime = Number.NaN, maxRSS = Number.NaN } = usage;
    expect((userCPUTime + systemCPUTime) / 1e6).toBeLessThan(MAX_CPU_SECONDS);
    expect(maxRSS * 1024).toBeLessThan(MAX_BYTES);
  });
});
