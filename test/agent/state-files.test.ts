import { mkdirSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { StateFiles } from '../../src/agent/state-files.ts';
import { temporaryFolder } from './support/temporary-folder.ts';

describe('a state folder in the file system', () => {
  it('has another version of a file after each write, even if size and modification time are the same', async () => {
    const folder = temporaryFolder({ a: 'one' });
    const path = join(folder, 'a');
    const files = new StateFiles(folder);
    const versionOf = async (): Promise<string | undefined> => {
      const file = await files.open('a');
      await file?.close();
      return file?.version;
    };
    const time = new Date(1_000_000);
    utimesSync(path, time, time);
    const first = await versionOf();
    expect(await versionOf()).toBe(first);
    const { ctimeMs } = statSync(path);
    // The clock of the file system has a resolution of some milliseconds.
    do {
      writeFileSync(path, 'two');
      utimesSync(path, time, time);
    } while (statSync(path).ctimeMs === ctimeMs);
    expect(await versionOf()).not.toBe(first);
  });

  it('that is missing is empty, and is created with its first file, both for the owner only', async () => {
    const path = join(temporaryFolder({}), 'state');
    const files = new StateFiles(path);
    expect([await files.names(), await files.open('a')]).toEqual([[], undefined]);
    const sink = await files.create('a');
    await sink.write(new Uint8Array([1, 2, 3]));
    await sink.close();
    expect([statSync(path).mode & 0o777, statSync(join(path, 'a')).mode & 0o777]).toEqual([0o700, 0o600]);
    expect(await files.names()).toEqual(['a']);
    await expect(files.create('a')).rejects.toThrow('EEXIST');
  });

  it('reads parts at a position, up to the end of the file', async () => {
    const files = new StateFiles(temporaryFolder({ a: 'abcdef' }));
    const file = await files.open('a');
    const [into, first, second] = [new Uint8Array(4), new Uint8Array(2), new Uint8Array(4)];
    expect(file?.size).toBe(6);
    expect([await file?.read(into, 1), Buffer.from(into).toString()]).toEqual([4, 'bcde']);
    expect(await file?.read(into, 4)).toBe(2);
    expect(await file?.readParts?.([first, second], 1)).toBe(5);
    expect([Buffer.from(first).toString(), Buffer.from(second).toString('utf8', 0, 3)]).toEqual([
      'bc',
      'def',
    ]);
    await file?.close();
  });

  it('renames and removes files, also one that does not exist', async () => {
    const folder = temporaryFolder({ a: 'x' });
    const files = new StateFiles(folder);
    await files.rename('a', 'b');
    expect(await files.names()).toEqual(['b']);
    await files.remove('b');
    await files.remove('b');
    expect(await files.names()).toEqual([]);
    await expect(files.rename('a', 'b')).rejects.toThrow('ENOENT');
  });

  it('reports other errors than a missing file', async () => {
    const folder = temporaryFolder({ file: 'x' });
    mkdirSync(join(folder, 'sub'));
    await expect(new StateFiles(join(folder, 'file')).names()).rejects.toThrow('ENOTDIR');
    await expect(new StateFiles(folder).open('sub')).rejects.toThrow();
  });
});
