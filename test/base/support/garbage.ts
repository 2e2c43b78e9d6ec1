import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

function collector(): (options?: { readonly type: 'minor' }) => void {
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc');
}

/** Collects all garbage, in a turn without creations or reads of weak references, which would keep them alive. */
export async function collectGarbage(): Promise<void> {
  const collect = collector();
  await new Promise((resolve) => setImmediate(resolve));
  collect();
}

/** Collects the young generation, and moves the objects which stay to the old generation. */
export function collectYoungGarbage(): void {
  const collect = collector();
  for (let i = 0; i < 2; i++) collect({ type: 'minor' });
}

/** Returns the live bytes of this process, including buffers. */
export async function bytesInUse(): Promise<number> {
  await collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
