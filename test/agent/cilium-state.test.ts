import { utimesSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { readCiliumState } from '../../src/agent/cilium-state.ts';
import * as regularFile from '../../src/base/files/regular-file.ts';
import { temporaryFolder } from './support/temporary-folder.ts';

const FILES = ['local_allocator_state.json', 'nodes.json'] as const;

function stateFolder(): string {
  return temporaryFolder(Object.fromEntries(FILES.map((file) => [file, '[]'])));
}

it.each(FILES)('the state of a Cilium agent is as old as its newest file: %s', async (newest) => {
  const folder = stateFolder();
  for (const file of FILES) utimesSync(join(folder, file), 0, file === newest ? 2_000 : 1_000);
  expect((await readCiliumState(folder)).writtenAt).toBe(2_000_000);
});

it('a file of a Cilium agent without read permission is a problem, not a missing file', async () => {
  const { readFileHead } = regularFile;
  vi.spyOn(regularFile, 'readFileHead').mockImplementation((path, bytes) => {
    if (!path.endsWith('nodes.json')) return readFileHead(path, bytes);
    return Promise.reject(Object.assign(new Error('denied'), { code: 'EACCES', syscall: 'open' }));
  });
  const { problems } = await readCiliumState(stateFolder());
  expect(problems).toMatchObject([
    {
      file: 'nodes.json',
      rejection: { reason: 'unreadable', message: expect.stringContaining('permission') },
    },
  ]);
});
