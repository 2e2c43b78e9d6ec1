// Enriches flows: reads binary records from standard input and prints the names of both ends.
//
// A record has 16 bytes in network byte order: source IPv4, destination IPv4, number of bytes, end of the flow in
// seconds since 1970. When a late flow arrives, its IPs may belong to other pods, so names are looked up for the time
// of the flow. A chunk of the stream may end within a record, so the remainder is put before the next chunk.
//
// With `--workers N`, N threads enrich the records, in the order of the stream. They read the current identities from
// shared memory. Pods and the history are only in the main thread, so the threads print names of identities.
import { once } from 'node:events';
import { parseArgs } from 'node:util';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { History, IPCache, reservedIdentityName } from 'datapath-cache';
import { openLookup, SharedLookup } from 'datapath-cache/shared';

const RECORD_BYTES = 16;

/**
 * Code that loads this file in a worker and registers tsx there. In a program without tsx, pass
 * `new URL(import.meta.url)` to `Worker` instead.
 */
const PROGRAM = `import('tsx/esm/api').then((tsx) => tsx.register(), () => {}).then(() => import('${import.meta.url}'))`;

/** Returns the name of each address at the time with the same index. */
type NamesOf = (ips: readonly string[], times: readonly number[]) => readonly string[];

function nameOfIdentity(identity: number): string {
  return reservedIdentityName(identity) ?? `identity ${identity}`;
}

function startCache(): IPCache {
  const ipcache = new IPCache();
  // In an agent, LocalCluster and ClusterMesh write these claims; see follow-mesh.ts.
  ipcache.upsert('0.0.0.0/0', { identity: 2, source: 'local' });
  ipcache.upsert('10.1.0.0/16', { identity: 900, source: 'kvstore' });
  ipcache.upsert('10.1.2.3', {
    identity: 66_000,
    source: 'kvstore',
    k8s: { namespace: 'shop', podName: 'checkout-0' },
  });
  return ipcache;
}

/**
 * Returns a function that names addresses by the history of a cache: by the pod, or by the name or number of the
 * identity. A name ends with `?` if it is not certain.
 */
function namesOfHistory(ipcache: IPCache): NamesOf {
  // Records every change from now on; 16 MiB hold about 400,000.
  const history = new History({ ipcache });
  history.start();
  return (ips, times) => {
    const certain = new Uint8Array(ips.length);
    const entries = history.lookupEntries(ips, times, certain);
    const { from } = history.retained;
    return ips.map((ip, i) => {
      // A flow from before the retained changes gets the current names, which are not certain.
      const entry = (times[i] ?? 0) < from ? ipcache.lookup(ip) : entries[i];
      if (entry === undefined) return 'unknown';
      const { identity, k8s } = entry;
      const name = k8s ? `${k8s.namespace}/${k8s.podName}` : nameOfIdentity(identity);
      return certain[i] === 1 ? name : `${name}?`;
    });
  };
}

/** Names both ends of all records in one call, because a call for each address costs several times as much. */
function linesOf(bytes: Uint8Array, namesOf: NamesOf): string {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const now = Date.now();
  const ips: string[] = [];
  const times: number[] = [];
  for (let from = 0; from < bytes.length; from += RECORD_BYTES) {
    ips.push(bytes.subarray(from, from + 4).join('.'), bytes.subarray(from + 4, from + 8).join('.'));
    // Limited to now, because the clock of the sender may be ahead.
    const at = Math.min(view.getUint32(from + 12) * 1000, now);
    times.push(at, at);
  }
  const names = namesOf(ips, times);
  let lines = '';
  for (let i = 0; i < ips.length; i += 2) {
    const count = view.getUint32((i / 2) * RECORD_BYTES + 8);
    lines += `${ips[i]} (${names[i]}) -> ${ips[i + 1]} (${names[i + 1]}): ${count} bytes\n`;
  }
  return lines;
}

/** In a worker: answers each chunk of records with its lines. */
function serve(): void {
  const reader = openLookup(workerData);
  const namesOf: NamesOf = (ips) => {
    const identities = new Uint32Array(ips.length);
    reader.lookupMany(ips, identities);
    return ips.map((_, i) => (identities[i] ? nameOfIdentity(identities[i]) : 'unknown')); // 0: not found
  };
  parentPort?.on('message', (bytes: Uint8Array) => parentPort?.postMessage(linesOf(bytes, namesOf)));
}

/** A thread that enriches one chunk after the other. */
class EnrichingWorker {
  readonly #worker: Worker;
  #last: Promise<string> = Promise.resolve('');

  constructor(lookup: SharedLookup) {
    this.#worker = new Worker(PROGRAM, { eval: true, workerData: lookup.handle });
  }

  enrich(bytes: Uint8Array): Promise<string> {
    this.#last = this.#last.then(async () => {
      this.#worker.postMessage(bytes);
      const [lines] = await once(this.#worker, 'message');
      return lines;
    });
    return this.#last;
  }

  async end(): Promise<void> {
    await this.#worker.terminate();
  }
}

function startWorkers(ipcache: IPCache, count: number): readonly EnrichingWorker[] {
  if (count === 0) return [];
  const lookup = new SharedLookup(ipcache);
  return Array.from({ length: count }, () => new EnrichingWorker(lookup));
}

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { workers: { type: 'string', default: '0' } } });
  const count = Number(values.workers);
  if (!Number.isSafeInteger(count) || count < 0 || count > 64)
    throw new RangeError(`--workers: invalid number ${values.workers}: use 0 to 64`);

  const ipcache = startCache();
  const namesOf = namesOfHistory(ipcache);
  const workers = startWorkers(ipcache, count);
  let chunks = 0;
  const pending: (string | Promise<string>)[] = [];
  const print = async (atMost: number): Promise<void> => {
    while (pending.length > atMost) process.stdout.write((await pending.shift()) ?? '');
  };

  let rest: Uint8Array = new Uint8Array(0);
  for await (const chunk of process.stdin) {
    const bytes = Buffer.concat([rest, chunk]);
    const complete = bytes.length - (bytes.length % RECORD_BYTES);
    const records = bytes.subarray(0, complete);
    pending.push(workers[chunks++ % count]?.enrich(records) ?? linesOf(records, namesOf));
    rest = bytes.subarray(complete);
    await print(2 * count); // the stream is read no faster than it is enriched
  }
  await print(0);
  for (const worker of workers) await worker.end();
  if (rest.length > 0) console.error(`${rest.length} bytes at the end are no whole record`);
}

if (isMainThread) await main();
else serve();
