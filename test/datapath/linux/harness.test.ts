import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { describeOnLinux } from './support/requirements.ts';
import { exec, leftovers, Scratch } from './support/scratch.ts';

const ROOT = new URL('../../..', import.meta.url).pathname;

/** Runs a process that makes one item of each kind and ends in some way. Returns its process id. */
function madeAndEnded(how: string): number {
  const program = join(ROOT, 'test/datapath/linux/support/making-and-ending.ts');
  const run = spawnSync(process.execPath, ['--import', 'tsx', program, how], { cwd: ROOT, encoding: 'utf8' });
  expect(run.stdout, run.stderr).toMatch(/^dpcache-test-/);
  return run.pid;
}

function leftBy(pid: number): readonly string[] {
  return leftovers((other) => other !== pid).map(({ what }) => what);
}

describeOnLinux('kernel objects of tests', ['maps', 'sockets', 'namespaces', 'ip'], () => {
  it.each(['end', 'throw', 'exit'])('is gone after the process that made it: %s', (how) => {
    expect(leftBy(madeAndEnded(how))).toEqual([]);
  });

  it('are found and can be removed after a process was killed', () => {
    const pid = madeAndEnded('kill');
    const kinds = leftBy(pid).map((what) => what.split(' dpcache')[0]?.split(' /')[0]);
    expect(kinds).toEqual(['network namespace', 'mount', 'cgroup', 'folder', 'folder']);
    for (const left of leftovers((other) => other !== pid)) left.remove();
    expect(leftBy(pid)).toEqual([]);
  });

  it('match their names: a namespace with a loopback, a bpffs, a cgroup for processes', () => {
    using scratch = new Scratch();
    const pod = scratch.namespace('pod');
    expect(pod.run('ip', '-o', 'link')).toMatch(/^1: lo: .*UP/);
    expect(exec('stat', '-f', '-c', '%t', scratch.bpffs()).trim()).toBe('cafe4a11');
    const cgroup = scratch.cgroup();
    exec('sh', '-c', `echo $$ > ${cgroup}/cgroup.procs && cat /proc/self/cgroup`);
    expect(readFileSync(join(cgroup, 'cgroup.procs'), 'utf8')).toBe('');
    expect(existsSync(pod.path)).toBe(true);
  });

  it('are removed even if a process still runs in them', () => {
    const scratch = new Scratch();
    const cgroup = scratch.cgroup();
    const { name } = scratch.namespace('pod');
    const sleeper = `echo $$ > ${cgroup}/cgroup.procs; exec ip netns exec ${name} sleep 1000`;
    const pid = Number(exec('sh', '-c', `sh -c '${sleeper}' >/dev/null 2>&1 & echo $!`));
    expect(existsSync(`/proc/${pid}`)).toBe(true);
    scratch[Symbol.dispose]();
    expect([existsSync(cgroup), existsSync(`/run/netns/${name}`)]).toEqual([false, false]);
  });

  it('are removed even if one cannot be removed, which is reported', () => {
    const scratch = new Scratch();
    const folder = scratch.folder();
    scratch.defer(() => {
      throw new Error('stuck');
    });
    expect(() => scratch[Symbol.dispose]()).toThrow(/not taken away: Error: stuck/);
    expect(existsSync(folder)).toBe(false);
  });
});

describe('a test that is impossible on a machine', () => {
  const scratch = new Scratch();
  afterAll(() => scratch[Symbol.dispose]());

  /** Returns the output of a Vitest run without the tools that check the kernel. */
  function run(required: string): { readonly status: number | null; readonly said: string } {
    const folder = scratch.folder();
    const support = join(ROOT, 'test/datapath/linux/support/requirements.ts');
    const program = `import { it } from 'vitest';
import { describeOnLinux } from '${support}';
describeOnLinux('routes', ['nft'], () => it('has been run', () => {}));
`;
    writeFileSync(join(folder, 'one.test.ts'), program);
    writeFileSync(join(folder, 'vitest.config.mjs'), 'export default {};\n');
    symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
    const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs');
    const args = [vitest, 'run', '--root', folder, '--reporter=verbose'];
    const env = { ...process.env, PATH: '/nowhere', REQUIRE_DATAPATH: required, NO_COLOR: '1' };
    const { status, stdout, stderr } = spawnSync(process.execPath, args, {
      cwd: ROOT,
      encoding: 'utf8',
      env,
    });
    return { status, said: `${stdout}${stderr}` };
  }

  it('is skipped, and its name contains the reason', () => {
    const { status, said } = run('');
    expect(said).toMatch(/↓.*routes > cannot run here: nft --version: .*ENOENT/);
    expect([status, said.includes('has been run')]).toEqual([0, false]);
  });

  it('fails with REQUIRE_DATAPATH=1', () => {
    const { status, said } = run('1');
    expect(said).toMatch(/REQUIRE_DATAPATH=1, but this cannot run here: nft --version: .*ENOENT/);
    expect([status, said.includes('has been run')]).toEqual([1, false]);
  });
});
