import { existsSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { createFolder } from '../../../src/base/files/create-folder.ts';
import { temporaryFolder } from '../../agent/support/temporary-folder.ts';

describe('a created folder', () => {
  it('has its parents, is open to this user only, and may exist', async () => {
    const path = join(temporaryFolder({}), 'a', 'b');
    await Promise.all([createFolder(path), createFolder(path)]);
    await createFolder(path);
    expect(statSync(path).mode & 0o777).toBe(0o700);
  });

  it('cannot be below a file, nor replace one', async () => {
    const folder = temporaryFolder({});
    writeFileSync(join(folder, 'file'), '');
    await expect(createFolder(join(folder, 'file'))).rejects.toMatchObject({ code: 'EEXIST' });
    await expect(createFolder(join(folder, 'file', 'a'))).rejects.toMatchObject({ code: 'ENOTDIR' });
  });

  it.runIf(existsSync('/proc/self'))('fails below /proc (regression: never returned)', async () => {
    for (const path of ['/proc/dpcache', '/proc/dpcache/state'])
      await expect(createFolder(path)).rejects.toMatchObject({ code: 'ENOENT' });
  });
});
