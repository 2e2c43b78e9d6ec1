import { parentPort, workerData } from 'node:worker_threads';
import { openLookup, type SharedLookupHandle } from '../../../src/sharedlookup/shared-reader.ts';

/** The task of a checking worker. */
export interface CheckTask {
  readonly handle: SharedLookupHandle;
  /** Number of pairs of lookups. */
  readonly pairs: number;
  readonly keys: number;
  /** Seed of the order of its addresses. */
  readonly seed: number;
}

/** The results of a checking worker. */
export interface CheckReport {
  readonly lookups: number;
  /** The first lookups that were torn, stale, or half of a batch. */
  readonly faults: readonly string[];
  /** Number of different revisions that it has read. */
  readonly revisions: number;
}

const { handle, pairs, keys, seed } = workerData as CheckTask;
const FAULTS = 5;
/** Minimum number of revisions: a worker with fewer continues. */
const REVISIONS = 100;

/** Every identity of a batch is its number, except that of a deleted key, whose /24 has the number, too. */
function check(): CheckReport {
  const reader = openLookup(handle);
  const faults: string[] = [];
  const many = new Uint32Array(8);
  const asked = new Uint32Array(8);
  let random = seed | 1;
  let latest = 0;
  let revisions = 0;
  let lookups = 0;
  const note = (text: string): void => {
    if (faults.length < FAULTS) faults.push(text);
  };
  for (let pair = 0; pair < pairs || revisions < REVISIONS; pair++) {
    const revision = reader.revision;
    if (revision !== latest) revisions++;
    if (revision < latest) note(`revision ${revision} after ${latest}`);
    latest = Math.max(latest, revision);
    for (let i = 0; i < asked.length; i++) {
      random = (Math.imul(random, 1_103_515_245) + 12_345) | 0;
      asked[i] = 0x0a00_0000 + ((random >>> 8) % keys);
    }
    const first = reader.lookupIdentity(asked[0] ?? 0) ?? 0;
    const second = reader.lookupIdentity(asked[1] ?? 0) ?? 0;
    if (first < latest) note(`stale: ${first} at revision ${latest}`);
    if (second < first) note(`half of a batch, or stale: ${second} after ${first}`);
    latest = Math.max(latest, second);
    if (pair % 4 === 0) {
      reader.lookupMany(asked, many);
      for (const identity of many) {
        if (identity < latest) note(`half of a batch, or stale: ${identity} after ${latest}, of many`);
        latest = Math.max(latest, identity);
      }
      lookups += many.length;
    }
    lookups += 2;
  }
  const newest = reader.revision;
  if (latest > newest) note(`identity ${latest} is of no published revision; the latest is ${newest}`);
  return { lookups, faults, revisions };
}

parentPort?.postMessage(check());
