import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** Collects all garbage, in a turn without creations or reads of weak references, which would keep them alive. */
export async function collectGarbage(): Promise<void> {
  setFlagsFromString('--expose-gc');
  const collect: unknown = runInNewContext('gc');
  await new Promise((resolve) => setImmediate(resolve));
  if (typeof collect !== 'function') throw new Error('no garbage collector to call');
  collect();
}

/** Returns the live bytes of this process, including buffers. */
export async function bytesInUse(): Promise<number> {
  await collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
