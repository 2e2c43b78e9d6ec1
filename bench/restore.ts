import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { StateFiles } from '../src/agent/state-files.ts';
import { systemClock } from '../src/base/system-clock.ts';
import { TurnGate } from '../src/base/turn-gate.ts';
import { IPCache } from '../src/ipcache/ipcache.ts';
import { NodeManager } from '../src/nodemanager/node-manager.ts';
import { type CheckpointEngines, checkpointSections } from '../src/restore/checkpoint.ts';
import { type Section, writeCheckpoint } from '../src/restore/checkpoint-file.ts';
import { Restoration } from '../src/restore/restoration.ts';
import { ServiceCache } from '../src/servicecache/service-cache.ts';
import { expect } from './expect.ts';
import { type Delayed, delayDuring } from './loop-delay.ts';
import { podAddress } from './pod-address.ts';

/** Budgets at 1,000,000 entries: bytes on disk, event-loop delay, and time until the first answer. */
const BUDGET = { bytes: 80, stallMs: 5, readMs: 3_000 } as const;

const CLUSTER = 'own';
const NODES = 1_000;

/** A duration, and the CPU time of the process during it, on which other processes have little effect. */
interface Timed extends Delayed {
  readonly cpuMs: number;
}

async function measured(work: () => Promise<void>): Promise<Timed> {
  const before = process.cpuUsage();
  const delayed = await delayDuring(work);
  const { user, system } = process.cpuUsage(before);
  return { ...delayed, cpuMs: Math.round((user + system) / 1000) };
}

/** The result of {@link benchRestore}. */
export interface RestoreBenchReport {
  readonly entries: number;
  readonly bytesPerEntry: number;
  readonly write: Timed;
  /** The longest piece of work between two turns of the event loop while writing, in milliseconds. */
  readonly longestStepMs: number;
  readonly read: Timed;
  readonly release: Timed;
}

function engines(): CheckpointEngines {
  const ipcache = new IPCache();
  const nodes = new NodeManager({
    ipcache,
    clock: systemClock,
    random: Math.random,
    clusterName: CLUSTER,
    nodeName: 'here',
  });
  return { ipcache, nodes, services: new ServiceCache({ clusterName: CLUSTER }) };
}

/** Pods with host and metadata, in the order of addresses, and some nodes. */
function filled(entries: number): CheckpointEngines {
  const known = engines();
  for (let i = 0; i < entries; i++) {
    const k8s = {
      namespace: `team-${i % 200}`,
      podName: `checkout-${(i % 977).toString(36)}-7d9c5b8f6d-${i.toString(36).padStart(5, 'x')}`,
    };
    const hostIP = `192.168.${(i % NODES) >> 8}.${(i % NODES) & 255}`;
    known.ipcache.upsert(podAddress(i), { identity: 65_536 + (i % 5_000), source: 'kvstore', hostIP, k8s });
  }
  for (let i = 0; i < NODES; i++) {
    const ip = `172.16.${i >> 8}.${i & 255}`;
    const addresses = [{ type: 'InternalIP', ip }];
    known.nodes.nodeUpdated({ cluster: CLUSTER, name: `node-${i}`, source: 'kvstore', addresses });
  }
  return known;
}

/** Yields the sections, and calls `onStep` with the duration of each step. */
function* timed(sections: Iterator<Section>, onStep: (ms: number) => void): Generator<Section, void, void> {
  for (;;) {
    const begun = performance.now();
    const next = sections.next();
    onStep(performance.now() - begun);
    if (next.done === true) return;
    yield next.value;
  }
}

/** Measures the write and the read of a checkpoint. Prints a table unless `json` is set. */
export async function benchRestore({
  n = 1_000_000,
  json = false,
}: {
  readonly n?: number;
  readonly json?: boolean;
}): Promise<RestoreBenchReport> {
  const path = mkdtempSync(join(tmpdir(), 'dpcache-bench-'));
  try {
    const folder = new StateFiles(path);
    const known = filled(n);
    let bytes = 0;
    let longestStepMs = 0;
    const onStep = (ms: number): void => {
      longestStepMs = Math.max(longestStepMs, ms);
    };
    const header = { cluster: CLUSTER, writtenAt: Date.now(), knownAt: new Map() };
    const writing = async (): Promise<void> => {
      bytes = await writeCheckpoint(folder, timed(checkpointSections(known, [], header), onStep));
    };
    await writing(); // warm up
    longestStepMs = 0;
    const write = await measured(writing);

    const next = engines();
    const gate = new TurnGate({ clock: systemClock, nextTurn: setImmediate });
    const restoration = new Restoration({ ...next, folder, clusterName: CLUSTER, gate });
    const read = await measured(async () => {
      await restoration.read();
    });
    expect('entries restored', next.ipcache.size, n + NODES);
    const release = await measured(() => restoration.release(CLUSTER));
    expect('entries left', next.ipcache.size, 0);

    const report = { entries: n, bytesPerEntry: bytes / n, write, longestStepMs, read, release };
    if (!json) print(report);
    return report;
  } finally {
    rmSync(path, { recursive: true });
  }
}

function print({ entries, bytesPerEntry, write, longestStepMs, read, release }: RestoreBenchReport): void {
  const verdict = (isKept: boolean): string => (isKept ? 'ok' : 'OVER');
  const row = (what: string, { ms, cpuMs, delay }: Timed): string =>
    `${what.padEnd(24)} ${String(ms).padStart(6)} ms   CPU ${cpuMs} ms   loop p99 ${delay.p99} ms, max ${delay.max} ms`;
  console.log(`\ncheckpoint of ${entries} entries and ${NODES} nodes`);
  console.log(
    `bytes an entry           ${bytesPerEntry.toFixed(1)}   ${verdict(bytesPerEntry <= BUDGET.bytes)}`,
  );
  console.log(row('write', write));
  console.log(
    `longest step of writing  ${longestStepMs.toFixed(1)} ms   ${verdict(longestStepMs < BUDGET.stallMs)}`,
  );
  console.log(`${row('read', read)}   ${verdict(read.ms < BUDGET.readMs)}`);
  console.log(row('release all', release));
}
