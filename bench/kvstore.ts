import { type IntervalHistogram, monitorEventLoopDelay, performance } from 'node:perf_hooks';
import { Etcd3 } from 'etcd3';
import { RejectionLog } from '../src/base/rejection.ts';
import { systemClock } from '../src/base/system-clock.ts';
import { ipObserver } from '../src/clustermesh/observers.ts';
import { IPCache } from '../src/ipcache/ipcache.ts';
import { decodeIPIdentityPair } from '../src/kvstore/codec/ip-identity-pair.ts';
import { prefixRange } from '../src/kvstore/codec/key-range.ts';
import { EtcdBackend } from '../src/kvstore/etcd/etcd-backend.ts';
import { EtcdTransport } from '../src/kvstore/etcd/etcd-transport.ts';
import { KvstoreClient } from '../src/kvstore/kvstore-client.ts';
import type { KvstoreBackend } from '../src/kvstore/session/backend.ts';
import type { Transport, WatchObserver } from '../src/kvstore/session/transport.ts';
import { type StoreObserver, WatchStore } from '../src/kvstore/stores/watch-store.ts';
import { PageSize } from '../src/kvstore/watch/page-size.ts';
import { listPages } from '../src/kvstore/watch/paged-list.ts';
import { WATCH_LIMITS } from '../src/kvstore/watch/watch-limits.ts';
import { RESERVED_IDENTITIES } from '../src/model/numeric-identity.ts';
import { startEtcd } from '../test/kvstore/etcd/support/etcd-process.ts';
import { IP_PREFIX, writeIPs } from './sync/keys.ts';

/** One way to read everything, and its cost. */
export interface KvstoreBenchRow {
  readonly what: string;
  readonly items: number;
  readonly seconds: number;
  readonly perSecond: number;
  /** Event-loop delay, milliseconds. */
  readonly delayP50: number;
  readonly delayP99: number;
  readonly delayMax: number;
  /** Highest resident memory above that at the start of the row, MB. */
  readonly peakMB: number;
}

/** The result of {@link benchKvstore}. */
export interface KvstoreBenchReport {
  readonly keys: number;
  readonly events: number;
  readonly rows: readonly KvstoreBenchRow[];
}

const millis = (histogram: IntervalHistogram, percentile: number): number =>
  histogram.percentile(percentile) / 1e6;

/** Runs `work`, which returns the number of items read, and measures event loop and memory during it. */
async function measured(what: string, work: () => Promise<number>): Promise<KvstoreBenchRow> {
  globalThis.gc?.();
  const delay = monitorEventLoopDelay({ resolution: 1 });
  const before = process.memoryUsage().rss;
  let peak = before;
  const sampler = setInterval(() => {
    peak = Math.max(peak, process.memoryUsage().rss);
  }, 5);
  delay.enable();
  const start = performance.now();
  const items = await work();
  const seconds = (performance.now() - start) / 1000;
  delay.disable();
  clearInterval(sampler);
  return {
    what,
    items,
    seconds,
    perSecond: items / seconds,
    delayP50: millis(delay, 50),
    delayP99: millis(delay, 99),
    delayMax: delay.max / 1e6,
    peakMB: (peak - before) / 1e6,
  };
}

/** Reads `enough` items, then ends. */
type Reader = (backend: KvstoreBackend, enough: number) => Promise<number>;

const viaDriver: Reader = async (backend, enough) => {
  let items = 0;
  for await (const batch of backend.watch(IP_PREFIX)) {
    items += batch.length;
    if (items >= enough) break;
  }
  return items;
};

/** Runs a watch store with `observer` until the observer has received `enough` updates. */
async function viaStore<T>(
  backend: KvstoreBackend,
  enough: number,
  decode: ConstructorParameters<typeof WatchStore<T>>[0]['decode'],
  observer: StoreObserver<T>,
): Promise<number> {
  const left = new AbortController();
  let updates = 0;
  const counted: StoreObserver<T> = {
    ...observer,
    onUpdate: (name, value) => {
      observer.onUpdate(name, value);
      if (++updates === enough) left.abort();
    },
  };
  const store = new WatchStore<T>({ decode, observer: counted, rejections: new RejectionLog() });
  await store.run({ backend, prefix: IP_PREFIX, signal: left.signal });
  return updates;
}

const viaDecode: Reader = (backend, enough) =>
  viaStore(backend, enough, decodeIPIdentityPair, { onUpdate: () => {}, onDelete: () => {} });

const viaEngine: Reader = async (backend, enough) => {
  const ipcache = new IPCache();
  let changeCount = 0;
  ipcache.subscribe({
    onChanges: (changes) => {
      changeCount += changes.length;
    },
  });
  const observer = ipObserver(ipcache, { source: 'kvstore' }, RESERVED_IDENTITIES['remote-node']);
  await viaStore(backend, enough, decodeIPIdentityPair, observer);
  return changeCount;
};

async function withBackend(url: string, enough: number, read: Reader): Promise<number> {
  const backend = new EtcdBackend({ endpoints: [url] });
  try {
    return await read(backend, enough);
  } finally {
    await backend.close();
  }
}

async function listTransport(transport: EtcdTransport): Promise<number> {
  let items = 0;
  for await (const { kvs } of listPages({
    prefix: IP_PREFIX,
    range: prefixRange(IP_PREFIX),
    revision: 0,
    clock: systemClock,
    pageSize: new PageSize(WATCH_LIMITS),
    read: (request) => transport.range(request),
  })) {
    items += kvs.length;
  }
  return items;
}

/** The peer: the paged listing of the etcd3 client, because a single listing would exceed the memory. */
async function listEtcd3(url: string): Promise<number> {
  const client = new Etcd3({ hosts: url, grpcOptions: { 'grpc.max_receive_message_length': -1 } });
  let items = 0;
  let from = IP_PREFIX;
  for (;;) {
    const { kvs, more } = await client
      .getAll()
      .inRange({ start: from, end: `${IP_PREFIX.slice(0, -1)}0` })
      .limit(10_000)
      .exec();
    items += kvs.length;
    const last = kvs.at(-1);
    if (!more || last === undefined) break;
    from = `${last.key.toString()}\0`;
  }
  client.close();
  return items;
}

/** Follows the stream from `revision` on, and counts. */
function followTransport(transport: EtcdTransport, revision: number, enough: number): Promise<number> {
  return new Promise((resolve, reject) => {
    let items = 0;
    const observer: WatchObserver = {
      onCreated: () => {},
      onProgress: () => {},
      onEnd: reject,
      onEvents: (events) => {
        items += events.length;
        if (items < enough) return;
        stream.cancel();
        resolve(items);
      },
    };
    const stream = transport.watch({ prefix: IP_PREFIX, startRevision: revision }, observer);
  });
}

/** The peer: the etcd3 watcher over the same history. */
async function followEtcd3(url: string, revision: number, enough: number): Promise<number> {
  const client = new Etcd3({ hosts: url, grpcOptions: { 'grpc.max_receive_message_length': -1 } });
  const watcher = await client.watch().prefix(IP_PREFIX).startRevision(String(revision)).create();
  const items = await new Promise<number>((resolve) => {
    let seen = 0;
    watcher.on('put', () => {
      if (++seen === enough) resolve(seen);
    });
  });
  await watcher.cancel();
  client.close();
  return items;
}

/**
 * Writes the keys again, so that a client that knows them and was disconnected receives the changes at full speed.
 * Returns the revision before the writes.
 */
async function history(transport: EtcdTransport, events: number, keys: number): Promise<number> {
  const { header } = await transport.range({ start: IP_PREFIX, end: `${IP_PREFIX}\0`, limit: 1 });
  for (let written = 0, round = 1; written < events; round++) {
    const count = Math.min(keys, events - written);
    await writeIPs(transport, count, round);
    written += count;
  }
  return header.revision + 1;
}

/** Returns a transport whose lists are empty at `revision`, so that its watch receives all later changes. */
function since(transport: EtcdTransport, revision: number): Transport {
  return {
    range: async (request, options) => {
      const { header } = await transport.range({ ...request, limit: 1, keysOnly: true }, options);
      return { header: { ...header, revision: revision - 1 }, kvs: [], more: false, count: 0 };
    },
    txn: (request, options) => transport.txn(request, options),
    watch: (request, observer) => transport.watch(request, observer),
    grantLease: (ttl, options) => transport.grantLease(ttl, options),
    keepLeaseAlive: (lease, options) => transport.keepLeaseAlive(lease, options),
    revokeLease: (lease, options) => transport.revokeLease(lease, options),
    endpoints: (options) => transport.endpoints(options),
    close: () => transport.close(),
  };
}

async function following(url: string, revision: number, enough: number, read: Reader): Promise<number> {
  const transport = since(new EtcdTransport({ endpoints: [url] }, Math.random), revision);
  const client = new KvstoreClient({ kind: 'etcd', transport, clock: systemClock, random: Math.random });
  try {
    return await read(client, enough);
  } finally {
    await client.close();
  }
}

function print({ keys, events, rows }: KvstoreBenchReport): void {
  console.log(`kvstore: ${keys} keys, ${events} events, etcd on this machine`);
  for (const row of rows) {
    const { what, perSecond, seconds, delayP50, delayP99, delayMax, peakMB } = row;
    const delays = [delayP50, delayP99, delayMax].map((ms) => ms.toFixed(1)).join(' / ');
    console.log(
      `  ${what.padEnd(34)} ${Math.round(perSecond / 1000)
        .toString()
        .padStart(5)} k/s  ${seconds.toFixed(2).padStart(6)} s` +
        `  loop delay p50/p99/max ${delays} ms  peak +${Math.round(peakMB)} MB`,
    );
  }
}

/**
 * Measures the initial listing and the following of `n` keys (default 100,000) of a real etcd, each through
 * the transport alone, the driver, the decoder and the engine, with the etcd3 client as the peer.
 */
export async function benchKvstore(
  options: { n?: number; json?: boolean } = {},
): Promise<KvstoreBenchReport> {
  const keys = options.n ?? 100_000;
  const events = Math.min(keys, 200_000);
  const [etcd] = await startEtcd(1, { flags: ['--quota-backend-bytes', String(8 << 30)] });
  if (etcd === undefined) throw new Error('no etcd');
  const { url } = etcd;
  const transport = new EtcdTransport({ endpoints: [url] }, Math.random);
  try {
    await writeIPs(transport, keys, 0);
    const rows = [
      await measured('list: transport', () => listTransport(transport)),
      await measured('list: + driver', () => withBackend(url, keys, viaDriver)),
      await measured('list: + decoder', () => withBackend(url, keys, viaDecode)),
      await measured('list: + engine', () => withBackend(url, keys, viaEngine)),
      await measured('list: etcd3, pages of 10,000', () => listEtcd3(url)),
    ];
    const revision = await history(transport, events, keys);
    rows.push(
      await measured('watch: transport', () => followTransport(transport, revision, events)),
      await measured('watch: + driver', () => following(url, revision, events, viaDriver)),
      await measured('watch: + decoder', () => following(url, revision, events, viaDecode)),
      await measured('watch: + engine', () => following(url, revision, events, viaEngine)),
      await measured('watch: etcd3', () => followEtcd3(url, revision, events)),
    );
    const report = { keys, events, rows };
    if (options.json !== true) print(report);
    return report;
  } finally {
    await transport.close();
    await etcd.dispose();
  }
}
