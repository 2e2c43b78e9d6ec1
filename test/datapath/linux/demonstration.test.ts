import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { PROGRAM } from '../../cli/support/program.ts';
import { describeOnLinux } from './support/requirements.ts';
import { leftovers } from './support/scratch.ts';

const ROOT = new URL('../../..', import.meta.url).pathname;

describeOnLinux('the demonstration', ['sockets', 'routes', 'namespaces', 'ip'], () => {
  it('has a client that is answered by three clusters, loses one without an error, and leaves nothing', () => {
    const args = ['--import', 'tsx', 'scripts/demo-datapath.ts', '--program', PROGRAM];
    const run = spawnSync(process.execPath, args, { cwd: ROOT, encoding: 'utf8' });
    expect([run.status, run.stdout], run.stderr).toEqual([
      0,
      expect.stringMatching(
        /The client had no errors\.\nPackets by identity, .*\n.* from 65837: \d+ to 65836 /,
      ),
    ]);
    expect(run.stderr).not.toContain('no path to');
    expect(leftovers((pid) => pid !== run.pid)).toEqual([]);
  });
});
