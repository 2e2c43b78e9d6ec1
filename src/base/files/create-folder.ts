import { mkdir, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { errorCode } from '../failure.ts';

/**
 * Creates a folder that only this user can open, and its parents, unless it exists. Node's `mkdir` with `recursive`
 * never returns if an existing parent answers ENOENT, as `/proc` does.
 */
export async function createFolder(path: string): Promise<void> {
  try {
    await createMissing(path);
  } catch (error) {
    if (errorCode(error) !== 'EEXIST' || !(await stat(path)).isDirectory()) throw error;
  }
}

async function createMissing(path: string): Promise<void> {
  try {
    await mkdir(path, { mode: 0o700 });
  } catch (error) {
    const parent = dirname(path);
    if (errorCode(error) !== 'ENOENT' || parent === path) throw error;
    await createFolder(parent);
    await mkdir(path, { mode: 0o700 });
  }
}
