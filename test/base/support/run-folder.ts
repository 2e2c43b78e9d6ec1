import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';

/** The environment variable with the folder of this run. */
const VARIABLE = 'DPCACHE_RUN_FOLDER';

/** Matches the name of the folder of a run, which contains the id of the process of Vitest. */
const NAME = /^dpcache-tests-(\d+)$/;

/**
 * Returns a new folder, whose name begins with `prefix`. It is removed at the end of the run at the latest: also if a
 * test fails, and by the next run if this one is killed.
 */
export function runFolder(prefix: string): string {
  return mkdtempSync(join(process.env[VARIABLE] ?? tmpdir(), prefix));
}

/** Before the tests: makes the folder of the run, and removes those of killed runs. Returns its removal. */
export function setup(project: Pick<TestProject, 'isRootProject'>): (() => void) | undefined {
  if (!project.isRootProject()) return undefined;
  for (const name of readdirSync(tmpdir())) {
    const pid = NAME.exec(name)?.[1];
    if (pid !== undefined && !isRunning(Number(pid))) remove(join(tmpdir(), name));
  }
  const folder = join(tmpdir(), `dpcache-tests-${process.pid}`);
  mkdirSync(folder, { recursive: true });
  process.env[VARIABLE] = folder;
  return () => remove(folder);
}

/** Ends the processes with a path in the folder on their command line, such as etcds, and removes the folder. */
function remove(folder: string): void {
  spawnSync('pkill', ['-KILL', '-f', `${folder}/`]);
  rmSync(folder, { recursive: true, force: true });
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'; // a process of another user
  }
}
