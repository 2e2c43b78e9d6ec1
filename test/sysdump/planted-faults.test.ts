import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { examineSysdump, type SysdumpReport } from '../../src/sysdump/examine.ts';
import { reportLines } from '../../src/sysdump/report-text.ts';
import { tarGzOf, tarOf, type WrittenFile, writeFolder, zipOf } from './support/archive-writer.ts';
import {
  BOTH,
  type DumpStyle,
  dumpedCluster,
  type Expected,
  type Fault,
  type Table,
} from './support/dumped-cluster.ts';

const CONTAINERS = ['zip', 'tar', 'tar.gz', 'folder'] as const;
type Container = (typeof CONTAINERS)[number];

const number = fc.nat({ max: 500 });
const tables = fc.constantFrom<readonly Table[]>(BOTH, ['agent'], ['map']);
const fault: fc.Arbitrary<Fault> = fc.oneof(
  fc.record({
    kind: fc.constantFrom('identity', 'stale', 'missing', 'host', 'duplicate'),
    node: number,
    pod: number,
    tables,
  }),
  fc.record({ kind: fc.constantFrom('disagreement', 'identity-labels', 'failed-command'), node: number }),
  fc.record({
    kind: fc.constantFrom('claimed-twice', 'unknown-identity', 'overlapping-pod-cidrs'),
    pod: number,
  }),
  fc.record({
    kind: fc.constantFrom('no-backends', 'service-backends', 'service-missing', 'service-stale'),
    node: number,
    service: number,
  }),
  fc.record({ kind: fc.constantFrom('node-missing', 'node-stale', 'node-address'), node: number }),
);
const style: fc.Arbitrary<DumpStyle> = fc.record({
  nodes: fc.integer({ min: 1, max: 5 }),
  podsPerNode: fc.integer({ min: 1, max: 9 }),
  ...{
    old: fc.boolean(),
    markdown: fc.boolean(),
    mapAsJson: fc.boolean(),
    nativeRouting: fc.boolean(),
    nested: fc.boolean(),
  },
});

/** Returns one line for each kind and subject: its nodes, and the tables of all of them. */
function linesOf(findings: readonly Expected[]): readonly string[] {
  const bySubject = new Map<string, Expected[]>();
  for (const finding of findings) {
    const name = `${finding.kind} ${finding.subject}`;
    bySubject.set(name, [...(bySubject.get(name) ?? []), finding]);
  }
  return Array.from(bySubject, ([name, same]) => {
    const nodes = new Set(same.flatMap(({ nodes: at }) => at));
    const inTables = new Set(same.flatMap(({ tables: has }) => has));
    return `${name} at ${[...nodes].sort()} in ${[...inTables].sort()}`;
  }).sort();
}

const ABOUT_PREFIXES: ReadonlySet<string> = new Set(['identity', 'stale', 'missing', 'host', 'duplicate']);

describe('dpcache sysdump finds every planted fault and nothing else', () => {
  let folder = '';
  let count = 0;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'dpcache-sysdump-'));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  async function examine(files: readonly WrittenFile[], container: Container): Promise<SysdumpReport> {
    const path = join(folder, String(count++));
    if (container === 'folder') writeFolder(path, files);
    else writeFileSync(path, { zip: zipOf, tar: tarOf, 'tar.gz': tarGzOf }[container](files));
    const report = await examineSysdump(path);
    rmSync(path, { recursive: true });
    return report;
  }

  it('in random clusters, versions and archives', async () => {
    await fc.assert(
      fc.asyncProperty(
        style,
        fc.array(fault, { maxLength: 12 }),
        fc.constantFrom(...CONTAINERS),
        async (how, faults, container) => {
          const { files, expected } = dumpedCluster(how, faults);
          const report = await examine(files, container);
          expect(linesOf(report.findings)).toEqual(linesOf(expected));
          for (const { kind, last } of report.findings)
            expect(last !== undefined).toBe(ABOUT_PREFIXES.has(kind));
          expect(report.unread.total).toBe(0);
          expect(report.notes).toEqual([]);
          expect(reportLines(report).length).toBeLessThanOrEqual(40);
        },
      ),
      { numRuns: 60 },
    );
  });
});
