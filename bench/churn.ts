import { IPCache } from '../src/ipcache/ipcache.ts';
import type { Claim } from '../src/ipcache/types.ts';
import { decodeIPIdentityPair } from '../src/kvstore/codec/ip-identity-pair.ts';
import { type PodEvent, PodMesh } from './churn/pod-mesh.ts';
import { expect } from './expect.ts';
import { interleave } from './interleave.ts';
import { type Cost, collectGarbage, Meter, medianCost, PauseLog } from './meter.ts';
import { short, textTable } from './text-table.ts';

/** Parameters of the bench. */
export interface ChurnBenchOptions {
  /** Pods; default 100,000. */
  readonly n?: number | undefined;
  /** If true, prints nothing: the caller prints the result. */
  readonly json?: boolean | undefined;
}

/** The result of {@link benchChurn}. An event is the creation or deletion of one pod; a restart is two events. */
export interface ChurnBenchReport {
  readonly pods: number;
  readonly clusters: number;
  /** Restarts of every pod. */
  readonly rounds: number;
  readonly events: number;
  /** CPU nanoseconds for one event: decoding its value, the `IPCache`, and a `Map` with the same changes. */
  readonly decodeNs: number;
  readonly engineNs: number;
  readonly mapNs: number;
  /** Wall time through decoder and engine. */
  readonly eventsPerSecond: number;
  /** Growth of the engine over all rounds, in bytes per entry, which shows leaks. */
  readonly growthPerEntry: number;
}

const DEFAULT_PODS = 100_000;
const ROUNDS = 5;
const WARM_UP_PODS = 4000;
/** Number of events that are decoded and then applied together, as in a batch of a watch. */
const BATCH = 256;

interface Decoded {
  readonly key: string;
  /** Undefined if the pod is deleted. */
  readonly claim: Claim | undefined;
  readonly owner: string;
}

function decode({ name, cluster, value }: PodEvent): Decoded {
  if (value === undefined) return { key: name, claim: undefined, owner: cluster };
  const decoded = decodeIPIdentityPair(name, value, name);
  if (!decoded.ok) throw new Error(`a value of the bench cannot be decoded: ${decoded.rejection.reason}`);
  const { identity, hostIP, encryptKey, k8s } = decoded.value;
  const claim: Claim = { source: 'clustermesh', owner: cluster, identity, hostIP, encryptKey, k8s };
  return { key: decoded.value.key, claim, owner: cluster };
}

/** The decoder, the engine and a `Map`, which process the same events. */
class Life {
  readonly cache = new IPCache();
  readonly map = new Map<string, Claim>();
  changes = 0;

  constructor() {
    this.cache.subscribe({
      onChanges: (changes) => {
        this.changes += changes.length;
      },
    });
  }

  /** Plays events, and returns the cost of decoder, engine and `Map` for one of them. */
  async play(pauses: PauseLog, events: Iterable<readonly PodEvent[]>): Promise<Record<string, Cost>> {
    const [decoding, engine, yardstick] = [new Meter(pauses), new Meter(pauses), new Meter(pauses)];
    let count = 0;
    for (const batch of events) {
      let decoded: readonly Decoded[] = [];
      decoding.time(() => {
        decoded = batch.map(decode);
      });
      engine.time(() => this.#applyToEngine(decoded));
      yardstick.time(() => this.#applyToMap(decoded));
      count += batch.length;
    }
    return {
      decode: await decoding.cost(count),
      engine: await engine.cost(count),
      map: await yardstick.cost(count),
    };
  }

  #applyToEngine(events: readonly Decoded[]): void {
    for (const { key, claim, owner } of events) {
      if (claim === undefined) this.cache.delete(key, { source: 'clustermesh', owner });
      else this.cache.upsert(key, claim);
    }
  }

  #applyToMap(events: readonly Decoded[]): void {
    for (const { key, claim } of events) {
      if (claim === undefined) this.map.delete(key);
      else this.map.set(key, claim);
    }
  }
}

async function run(pauses: PauseLog, pods: number, rounds: number): Promise<ChurnBenchReport> {
  collectGarbage();
  const mesh = new PodMesh(pods);
  const life = new Life();
  await life.play(pauses, mesh.start(BATCH));
  expect('entries', life.cache.size, pods);
  const { bytes } = life.cache.status();
  const costs = await interleave(rounds, [() => life.play(pauses, mesh.restartAll(BATCH))]);
  expect('entries', life.cache.size, pods);
  expect('entries of the map', life.map.size, pods);
  expect('changes', life.changes, pods + 2 * rounds * pods);
  const costOf = (stage: string): Cost => medianCost(costs.flatMap((cost) => cost[stage] ?? []));
  return {
    pods,
    clusters: mesh.clusters,
    rounds,
    events: 2 * rounds * pods,
    decodeNs: costOf('decode').cpuNs,
    engineNs: costOf('engine').cpuNs,
    mapNs: costOf('map').cpuNs,
    eventsPerSecond: 1e9 / (costOf('decode').wallNs + costOf('engine').wallNs),
    growthPerEntry: (life.cache.status().bytes - bytes) / pods,
  };
}

/** Returns the report in Markdown. */
export function renderChurn(report: ChurnBenchReport): string {
  const { pods, clusters, rounds, events, decodeNs, engineNs, mapNs } = report;
  const count = (value: number): string => value.toLocaleString('en');
  return [
    `Churn: ${count(pods)} pods in ${clusters} clusters, every deployment restarted ${rounds} times, pod by pod: ${count(events)} events. CPU time, medians of ${rounds} rounds.\n`,
    textTable(
      ['one event', 'ns', 'of `Map`'],
      [
        ['decoding the value', short(decodeNs), ''],
        ['`IPCache`, one listener', short(engineNs), short(engineNs / mapNs)],
        ['`Map.set` or `Map.delete`', short(mapNs), '1.00'],
      ],
    ),
    `${count(Math.round(report.eventsPerSecond))} events/s through decoder and engine; the engine grew by ${short(report.growthPerEntry)} bytes an entry.\n`,
  ].join('\n');
}

/**
 * Replays the changes of a mesh: pods of all clusters, then rolling restarts of every deployment, in which each pod is
 * created with another address on another node before the old one is deleted. Verifies that nothing is lost.
 */
export async function benchChurn(options: ChurnBenchOptions = {}): Promise<ChurnBenchReport> {
  const pauses = new PauseLog();
  await run(pauses, WARM_UP_PODS, 2);
  const report = await run(pauses, options.n ?? DEFAULT_PODS, ROUNDS);
  pauses.stop();
  if (options.json !== true) process.stdout.write(renderChurn(report));
  return report;
}
