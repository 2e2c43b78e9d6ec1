import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { zipOf } from '../sysdump/support/archive-writer.ts';
import { BOTH, dumpedCluster, type Fault } from '../sysdump/support/dumped-cluster.ts';
import { dpcache } from './support/run.ts';

const STYLE = {
  nodes: 3,
  podsPerNode: 20,
  old: false,
  markdown: true,
  mapAsJson: false,
  nativeRouting: false,
  nested: true,
};

function sysdump(faults: readonly Fault[]): string {
  const path = join(temporaryFolder({}), 'sysdump.zip');
  writeFileSync(path, zipOf(dumpedCluster(STYLE, faults).files));
  return path;
}

describe('dpcache sysdump', () => {
  it('exits with 0 if there are no faults, and prints the progress on stderr', async () => {
    const { status, stdout, stderr } = await dpcache('sysdump', sysdump([]));
    expect(status).toBe(0);
    expect(stdout).toContain('cluster atlantic, 3 nodes\n');
    expect(stdout).toContain('no faults found\n');
    expect(stdout).toContain(
      'expected differences: node-local identities 6, reserved entries 6, own endpoints 60, other clusters 18',
    );
    expect(stderr).toContain('examined node-2, 3 nodes so far\n');
  });

  it('exits with 1 if there are faults: worst first, with the last write, at most 40 lines', async () => {
    const faults: Fault[] = Array.from({ length: 60 }, (_, pod) => ({
      kind: 'stale',
      node: 1,
      pod: pod + 5,
      tables: ['map'],
    }));
    const { status, stdout, stderr } = await dpcache(
      'sysdump',
      '-q',
      sysdump([{ kind: 'identity', node: 2, pod: 4, tables: BOTH }, ...faults]),
    );
    const lines = stdout.trimEnd().split('\n');
    expect([status, stderr, lines.length <= 40]).toEqual([1, '', true]);
    expect(lines[2]).toBe('1 prefix with another identity');
    expect(lines[3]).toMatch(
      /^ {2}10\.10\.1\.5\/32 at node-2: identity \d+ \(k8s:app=app-\d+\); the sources have identity \d+ .* of shop\/pod-0-4; last write on node-2: update to identity 77 at 2023-11-14T20:00:00.000Z$/,
    );
    expect(lines[4]).toMatch(/^\d+ stale prefixes, \d+ shown$/);
    expect(lines[5]).toMatch(
      /no source has it, only in the map; last write on node-1: delete .*failed: device busy$/,
    );
  });

  it('prints all findings as JSON', async () => {
    const { stdout } = await dpcache(
      'sysdump',
      '-q',
      '-o',
      'json',
      sysdump([{ kind: 'missing', node: 1, pod: 3, tables: ['agent'] }]),
    );
    const report = JSON.parse(stdout);
    expect(report.counts).toEqual({ missing: 1 });
    expect(report.findings).toMatchObject([
      { kind: 'missing', subject: '10.10.1.4/32', nodes: ['node-1'], tables: ['agent'] },
    ]);
    expect(report.nodes).toHaveLength(3);
    expect(report.unread.total).toBe(0);
  });

  it('exits with 1 and the remedy if the file cannot be read', async () => {
    const path = join(temporaryFolder({ file: 'hello' }), 'file');
    const { status, stderr } = await dpcache('sysdump', path);
    expect([status, stderr]).toEqual([
      1,
      `dpcache: ${path}: is no zip, tar or tar.gz file: name a Cilium sysdump, a bug report, or a folder\n`,
    ]);
  });
});

describe('dpcache diff', () => {
  it('refuses operands of another form', async () => {
    expect((await dpcache('diff', 'agent', 'file')).status).toBe(2);
    for (const url of ['https://user:planted@127.0.0.1:1', 'https://127.0.0.1:1/planted'])
      for (const operands of [
        [url, 'file'],
        ['unix:/tmp/none.sock', url],
      ]) {
        const refused = await dpcache('diff', ...operands);
        expect(refused.status).toBe(2);
        expect(refused.stderr).toContain('invalid URL of an agent');
        expect(refused.stdout + refused.stderr).not.toContain('planted');
      }
    expect((await dpcache('diff', 'cilium:/tmp/none.sock', 'file')).status).toBe(2);
  });
});
