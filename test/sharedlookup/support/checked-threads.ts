import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import { SharedLookup } from '../../../src/sharedlookup/shared-lookup.ts';
import type { CheckReport, CheckTask } from './checked-reader.ts';
import { bundlePatched, type Patch } from './patched.ts';

const READER = new URL('checked-reader.ts', import.meta.url).pathname;

/** Returns the program of a checking worker, of the readers of `src` or of a mutant. */
export function checkedReader(patch?: Patch): Promise<string> {
  return bundlePatched(`import ${JSON.stringify(READER)};`, patch);
}

/** Starts a worker that runs a program. */
export function startWorker(program: string, workerData: unknown): Worker {
  const url = new URL(`data:text/javascript,${encodeURIComponent(program)}`);
  return new Worker(url, { workerData, execArgv: [] });
}

/**
 * A cache whose batches change all its keys: after batch n, the identity of every address is n. In each batch
 * some addresses are deleted, so that a lookup finds the prefix that contains them, and others are added.
 */
export class NumberedBatches {
  readonly cache: IPCache = new IPCache();
  readonly lookup: SharedLookup;
  readonly keys: number;
  #random = 7;

  constructor(keys: number) {
    this.keys = keys;
    this.write();
    this.lookup = new SharedLookup(this.cache, { maxBytes: 1 << 24 });
  }

  /** Writes one batch. */
  write(): void {
    this.cache.batch(() => {
      const identity = this.cache.revision + 1;
      for (let net = 0; net < this.keys; net += 256)
        this.cache.upsert(`10.${net >>> 16}.${(net >>> 8) & 255}.0/24`, { identity, source: 'kvstore' });
      for (let key = 0; key < this.keys; key++) {
        this.#random = (Math.imul(this.#random, 1_103_515_245) + 12_345) | 0;
        const address = `10.${key >>> 16}.${(key >>> 8) & 255}.${key & 255}`;
        if (this.#random >= 0) this.cache.upsert(address, { identity, source: 'kvstore' });
        else this.cache.delete(address, { source: 'kvstore' });
      }
    });
  }
}

/** Runs checking workers while this thread writes batches. Returns their reports. */
export async function checkInThreads(
  program: string,
  { workers, pairs, keys }: { readonly workers: number; readonly pairs: number; readonly keys: number },
): Promise<readonly CheckReport[]> {
  const batches = new NumberedBatches(keys);
  let running = workers;
  const reports = Array.from({ length: workers }, async (_, seed) => {
    const task: CheckTask = { handle: batches.lookup.handle, pairs, keys, seed: seed * 77 };
    const worker = startWorker(program, task);
    try {
      const [report] = await once(worker, 'message');
      return report as CheckReport;
    } finally {
      running--;
      await worker.terminate();
    }
  });
  while (running > 0) {
    for (let i = 0; i < 50; i++) batches.write();
    await new Promise((resolve) => setImmediate(resolve));
  }
  batches.lookup.close();
  return Promise.all(reports);
}
