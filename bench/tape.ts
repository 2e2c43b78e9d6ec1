import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { StateFiles } from '../src/agent/state-files.ts';
import { RejectionLog } from '../src/base/rejection.ts';
import { systemClock } from '../src/base/system-clock.ts';
import { TurnGate } from '../src/base/turn-gate.ts';
import { ClusterStores } from '../src/clustermesh/cluster-stores.ts';
import { NO_LIMITS } from '../src/clustermesh/decoders.ts';
import type { MeshTap } from '../src/clustermesh/mesh-tap.ts';
import { IPCache } from '../src/ipcache/ipcache.ts';
import { encodeIPIdentityPair } from '../src/kvstore/codec/ip-identity-pair.ts';
import { ipKey } from '../src/kvstore/codec/keys.ts';
import type { Watch, WatchEvent } from '../src/kvstore/session/backend.ts';
import { IdentityCache } from '../src/model/identity-cache.ts';
import { replayTape } from '../src/tape/replay-tape.ts';
import { WATCH_STATUS } from '../src/tape/replayed-cluster.ts';
import { Tape } from '../src/tape/tape.ts';
import { expect } from './expect.ts';
import { median } from './meter.ts';
import { podAddress } from './pod-address.ts';
import { processMs } from './thread-clock.ts';

/** Budgets: CPU and bytes of an event on the tape, and events that a replay applies in a second of CPU. */
const BUDGET = { eventUs: 3, bytes: 60, replayed: 100_000 } as const;

const ROUNDS = 3;
const BATCH = 16;

/** The result of {@link benchTape}. */
export interface TapeBenchReport {
  readonly events: number;
  /** CPU microseconds of an event without and with a tape, of all threads. */
  readonly off: number;
  readonly on: number;
  readonly bytesPerEvent: number;
  /** Events in a second of CPU. */
  readonly replayed: number;
}

/** Returns puts of pods, each with another identity than the earlier one of the same address. */
function eventsOf(n: number): readonly WatchEvent[] {
  return Array.from({ length: n }, (_, i) => {
    const pod = (i * 7919) % Math.ceil(n / 2);
    const key = podAddress(pod);
    const suffix = ((i * 2_654_435_761) >>> 0).toString(36).slice(0, 5);
    const value = encodeIPIdentityPair({
      key,
      identity: 65_536 + (i % 5000),
      hostIP: `192.168.${(i >> 6) % 20}.${i % 250}`,
      encryptKey: 0,
      k8s: { namespace: `ns-${i % 50}`, podName: `app-${i % 2000}-7d4b9c8f6d-${suffix}` },
    });
    return { type: 'modify', key: ipKey(key), value, modRevision: 1000 + i };
  });
}

/** Applies the events to an IPCache, in small batches, as a watch delivers them. */
async function apply(
  events: readonly WatchEvent[],
  ipcache: IPCache,
  tap: MeshTap | undefined,
): Promise<void> {
  const stores = new ClusterStores({
    cluster: 'baltic',
    writer: { source: 'clustermesh', owner: 'baltic' },
    limits: () => NO_LIMITS,
    engines: { ipcache, tap },
    identities: new IdentityCache(),
    rejections: new RejectionLog(),
    gate: new TurnGate({ clock: systemClock, nextTurn: setImmediate }),
    onApplied: () => {},
    onFault: () => {},
  });
  const watch: Watch = {
    status: () => WATCH_STATUS,
    async *[Symbol.asyncIterator]() {
      for (let from = 0; from < events.length; from += BATCH) yield events.slice(from, from + BATCH);
    },
  };
  const { signal } = new AbortController();
  await stores.follow('ip', {
    backend: { watch: () => watch },
    signal,
    layout: 'state',
    mayDelete: undefined,
    keepUnlisted: true,
    onListed: () => {},
    onReaderState: () => {},
  });
}

/** Measures the cost of writing a tape and the speed of its replay. */
export async function benchTape({
  n = 200_000,
  json = false,
}: {
  readonly n?: number;
  readonly json?: boolean;
}): Promise<TapeBenchReport> {
  const events = eventsOf(n);
  const costs: Record<'off' | 'on' | 'replay', number[]> = { off: [], on: [], replay: [] };
  let bytes = 0;
  const timed = async (work: () => Promise<unknown>): Promise<number> => {
    const begun = processMs();
    await work();
    return ((processMs() - begun) * 1000) / n;
  };
  const tapeTo = async (folder: string): Promise<void> => {
    const ipcache = new IPCache();
    const tape = new Tape({
      folder: new StateFiles(folder),
      maxBytes: 1 << 30,
      ipcache,
      clock: systemClock,
      onFailure: () => {},
      version: '0.0.0',
      gate: new TurnGate({ clock: systemClock, nextTurn: setImmediate }),
      settings: {
        clusterName: 'atlantic',
        clusterID: 1,
        nodeName: 'n',
        maxConnectedClusters: 255,
        serviceV2: 'auto',
        network: {
          remoteNodeIdentities: true,
          encryption: false,
          nodeEncryption: false,
          hostFirewall: false,
          underlay: 'ipv4',
        },
      },
    });
    tape.start();
    await apply(events, ipcache, tape.mesh);
    await tape.stop();
    expect('lines lost', tape.status().lost, 0);
    ({ bytes } = tape.status());
  };
  await apply(events.slice(0, 20_000), new IPCache(), undefined); // warm up
  for (let round = 0; round < ROUNDS; round++) {
    const folder = await mkdtemp(join(tmpdir(), 'bench-tape-'));
    try {
      costs.off.push(await timed(() => apply(events, new IPCache(), undefined)));
      costs.on.push(await timed(() => tapeTo(folder)));
      costs.replay.push(
        await timed(async () => {
          const { replay, difference } = await replayTape(folder);
          expect('prefixes', replay.ipcache.size, Math.ceil(n / 2));
          expect('differences', difference === undefined ? 0 : 1, 0);
          await replay.close();
        }),
      );
    } finally {
      await rm(folder, { recursive: true });
    }
  }
  const report = {
    events: n,
    off: median(costs.off),
    on: median(costs.on),
    bytesPerEvent: bytes / n,
    replayed: 1e6 / median(costs.replay),
  };
  if (!json) print(report);
  return report;
}

function print({ events, off, on, bytesPerEvent, replayed }: TapeBenchReport): void {
  const verdict = (isKept: boolean): string => (isKept ? 'ok' : 'OVER');
  console.log(`\ntape of ${events} events of IPs, ${BATCH} in a batch (CPU of all threads)`);
  console.log(
    `event            ${off.toFixed(2)} µs without, ${on.toFixed(2)} µs with a tape   ${verdict(on - off <= BUDGET.eventUs)}`,
  );
  console.log(`bytes an event   ${bytesPerEvent.toFixed(1)}   ${verdict(bytesPerEvent <= BUDGET.bytes)}`);
  console.log(`replay           ${Math.round(replayed)} events/s   ${verdict(replayed >= BUDGET.replayed)}`);
}
