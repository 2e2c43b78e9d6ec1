import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';
import { StateFiles } from '../../../src/agent/state-files.ts';
import { temporaryFolder } from '../../agent/support/temporary-folder.ts';
import { bundledScript, linesUntilKilled } from '../../base/support/killed-process.ts';
import { restart } from './world.ts';

const WRITER = fileURLToPath(new URL('checkpoint-writer.ts', import.meta.url));
const ENTRIES = 3_000;
/** A checkpoint takes some ms: kills are spread over several of them. */
const SPREAD_MS = 60;

/**
 * Runs the writer from a generation on, kills it after some time, and returns the last generation that it has
 * written.
 */
async function killed(script: string, path: string, first: number, afterMs: number): Promise<number> {
  const lines = await linesUntilKilled(script, [path, first, ENTRIES], { lines: 1, afterMs });
  return Number(lines.at(-1));
}

/**
 * Kills a process that writes checkpoints, repeatedly, each time at another moment. After each kill there
 * must be a complete checkpoint, not older than the last written one. Returns the number of kills during a
 * write.
 */
export async function killWriters(kills: number): Promise<number> {
  const folder = temporaryFolder({});
  const script = await bundledScript(WRITER);
  const path = join(folder, 'state');
  let generation = 1;
  let unfinished = 0;
  for (let kill = 0; kill < kills; kill++) {
    const written = await killed(script, path, generation, (kill * 7.3) % SPREAD_MS);
    const files = new StateFiles(path);
    if ((await files.names()).some((name) => name.endsWith('.unfinished'))) unfinished++;
    const { next, restoration } = restart(files);
    const outcome = await restoration.read();
    expect(outcome).toMatchObject({ kind: 'restored', entries: ENTRIES });
    const found = outcome.kind === 'restored' ? outcome.writtenAt : 0;
    expect([written, written + 1]).toContain(found);
    const identities = new Set(Array.from(next.ipcache.entries(), ({ identity }) => identity));
    expect([...identities]).toEqual([found % 2 === 0 ? 2 : 1]);
    generation = found + 1;
  }
  return unfinished;
}
