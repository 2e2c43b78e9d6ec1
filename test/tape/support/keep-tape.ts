import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import type { AnyHappening } from '../../clustermesh/support/mesh-laws.ts';
import { tapeMesh } from './taped-mesh.ts';

/**
 * Runs a law on a mesh under faults. If it fails and the environment variable DPCACHE_TAPES names a folder, the script
 * runs again with a tape in a new folder there. The clock and the random numbers are fake, so that it does the same.
 */
export async function keepTape(
  script: readonly AnyHappening[],
  law: (script: readonly AnyHappening[]) => Promise<void>,
  folder: string | undefined = process.env['DPCACHE_TAPES'],
): Promise<void> {
  try {
    await law(script);
  } catch (error) {
    if (folder !== undefined) await tapeMesh(await mkdtemp(join(folder, 'mesh-')), script);
    throw error;
  }
}
