import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { TestAuthority } from '../kvstore/etcd/support/certificates.ts';
import { runFolder, setup } from './support/run-folder.ts';

describe('the folder of a run', () => {
  let outside: string;
  beforeEach(() => {
    outside = runFolder('outside-');
    vi.stubEnv('TMPDIR', outside);
    vi.stubEnv('DPCACHE_RUN_FOLDER', undefined);
  });
  afterEach(() => {
    vi.unstubAllEnvs();
    rmSync(outside, { recursive: true });
  });

  it('is removed at the end, with the folders that tests have left (regression: certificates stayed in /tmp)', () => {
    const end = setup({ isRootProject: () => true });
    const { folder } = new TestAuthority('left');
    expect(dirname(dirname(folder))).toBe(outside);
    end?.();
    expect(readdirSync(outside)).toEqual([]);
  });

  it('is removed by the next run if its own was killed, and by no other run', () => {
    const { pid } = spawnSync('true');
    for (const name of [`dpcache-tests-${pid}`, `dpcache-tests-${process.ppid}`, 'dpcache-other'])
      mkdirSync(join(outside, name));
    setup({ isRootProject: () => true })?.();
    expect(readdirSync(outside).sort()).toEqual(['dpcache-other', `dpcache-tests-${process.ppid}`]);
  });

  it('is removed after its processes were ended (regression: the etcds of killed runs ran on for hours)', async () => {
    const end = setup({ isRootProject: () => true });
    const path = join(runFolder('etcd-'), 'data');
    const child = spawn(process.execPath, ['-e', 'setInterval(() => console.log(), 9)', path]);
    await once(child.stdout, 'data');
    end?.();
    expect(await once(child, 'exit')).toEqual([null, 'SIGKILL']);
  });

  it('is made once, and not for each project', () => {
    expect(setup({ isRootProject: () => false })).toBeUndefined();
    expect(readdirSync(outside)).toEqual([]);
  });
});

it('the configuration of these tests has a folder of the run', () => {
  const folder = runFolder('here-');
  expect(basename(dirname(folder))).toMatch(/^dpcache-tests-\d+$/);
  expect(existsSync(folder)).toBe(true);
});
