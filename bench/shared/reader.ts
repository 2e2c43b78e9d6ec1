import { once } from 'node:events';
import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { openLookup } from '../../src/sharedlookup/shared-reader.ts';
import { RandomOrder } from '../random-order.ts';
import { threadMs } from '../thread-clock.ts';
import type { Identities, ReaderAnswer, ReaderTask, Round } from './protocol.ts';

// A worker of the bench. For each message, it looks up addresses for the requested time.

const task: ReaderTask = workerData;
if (parentPort === null) throw new Error('not a worker');
const port: MessagePort = parentPort;
const addresses = new Uint32Array(task.group);
const identities = new Uint32Array(task.group);
const order = new RandomOrder(task.entries, task.seed);
let next = 0;

function answer(message: ReaderAnswer): void {
  port.postMessage(message);
}

/** Looks up the next group, and returns the number of addresses that were found. */
type Lookup = () => number | Promise<number>;

function ownCache(): IPCache {
  const cache = new IPCache();
  for (let i = 0; i < task.entries; i++) {
    const ip = `${10 + (i >>> 24)}.${(i >>> 16) & 255}.${(i >>> 8) & 255}.${i & 255}`;
    cache.upsert(ip, {
      identity: 65_536 + (i % 5_000),
      source: 'kvstore',
      hostIP: `192.168.${i % 4}.${i % 250}`,
    });
  }
  return cache;
}

function lookupOf(): Lookup {
  if (task.kind === 'shared') {
    const reader = openLookup(task.handle);
    return () => reader.lookupMany(addresses, identities);
  }
  if (task.kind === 'copy') {
    const cache = ownCache();
    return () => cache.lookupMany(addresses, identities);
  }
  return async () => {
    const answered = once(port, 'message');
    answer({ kind: 'ask', addresses });
    const [message]: (Identities | Round)[] = await answered;
    if (message?.kind !== 'identities') throw new Error('no answer');
    return message.identities.reduce((found, identity) => found + Number(identity > 0), 0);
  };
}

async function read(lookup: Lookup, ms: number): Promise<void> {
  const begun = performance.now();
  const begunCpu = threadMs();
  let groups = 0;
  let found = 0;
  while (performance.now() - begun < ms)
    for (let turn = 0; turn < (task.kind === 'postMessage' ? 1 : 64); turn++) {
      for (let at = 0; at < task.group; at++) addresses[at] = 0x0a00_0000 + order.at(next++ % task.entries);
      const result = lookup();
      found += typeof result === 'number' ? result : await result;
      groups++;
    }
  const cpuMs = threadMs() - begunCpu;
  answer({ kind: 'read', lookups: groups * task.group, found, ms: performance.now() - begun, cpuMs });
}

globalThis.gc?.();
const before = process.memoryUsage();
const lookup = lookupOf();
globalThis.gc?.();
const after = process.memoryUsage();
const copyBytes = after.heapUsed + after.arrayBuffers - before.heapUsed - before.arrayBuffers;
port.on('message', (message: Round | Identities) => {
  if (message.kind === 'round') void read(lookup, message.ms);
});
answer({ kind: 'ready', copyBytes });
