import { createWriteStream } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { pipeline } from 'node:stream/promises';
import { systemClock } from '../src/base/system-clock.ts';
import { textOfBytes } from '../src/kvstore/codec/bytes.ts';
import { encodeClusterConfig } from '../src/kvstore/codec/cluster-config.ts';
import { encodeIPIdentityPair } from '../src/kvstore/codec/ip-identity-pair.ts';
import { clusterConfigKey, resourcePrefix } from '../src/kvstore/codec/keys.ts';
import { EtcdBackend } from '../src/kvstore/etcd/etcd-backend.ts';
import { MAX_WRITES } from '../src/kvstore/session/backend.ts';
import { startEtcd } from '../test/kvstore/etcd/support/etcd-process.ts';
import { type AgentMemory, AgentProcess } from './agent/agent-process.ts';
import type { ProbeReport } from './agent/probe.ts';
import { expect } from './expect.ts';
import { podAddress } from './pod-address.ts';
import { textTable } from './text-table.ts';

/** The figures of one agent with the prefixes of one remote cluster. */
export interface AgentRun {
  readonly source: 'load' | 'etcd';
  readonly prefixes: number;
  /** Time from the start of the process until the agent was ready. */
  readonly readyMs: number;
  /** Until its API answered: almost all of it is the loading of modules. */
  readonly loading: ProbeReport;
  /** From then until it was ready. */
  readonly start: ProbeReport;
  readonly memory: AgentMemory;
  /** Figures while {@link CHANGES_PER_SECOND} values a second changed; only with etcd. */
  readonly changing: (ProbeReport & { readonly ms: number }) | undefined;
}

/** The result of {@link benchAgent}. */
export interface AgentBenchReport {
  readonly runs: readonly AgentRun[];
}

const CLUSTER = 'remote';
const PREFIX = resourcePrefix('ip', CLUSTER);
const CHANGES_PER_SECOND = 1000;
const CHANGE_MS = 15_000;
/** Interval of the changes. */
const TICK_MS = 20;
/** Time without changes before the memory at rest is read. */
const REST_MS = 5000;

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

function pairOf(i: number, round: number): Uint8Array {
  return encodeIPIdentityPair({
    key: podAddress(i),
    identity: 65_536 + 256 + ((i + round) % 5000),
    hostIP: `192.168.${Math.floor(i / 110) >> 8}.${Math.floor(i / 110) & 255}`, // 110 pods per node
    encryptKey: 0,
    k8s: { namespace: `namespace-${i % 50}`, podName: `workload-${i % 977}-${i.toString(36)}` },
  });
}

const CONFIG = encodeClusterConfig({ id: 1, capabilities: { syncedCanaries: false, cached: false } });

function* recording(prefixes: number): Generator<string, void, void> {
  const line = (key: string, value: Uint8Array): string =>
    `${JSON.stringify({ store: CLUSTER, key, value: textOfBytes(value) })}\n`;
  yield line(clusterConfigKey(CLUSTER), CONFIG);
  for (let i = 0; i < prefixes; i++) yield line(`${PREFIX}${podAddress(i)}`, pairOf(i, 0));
}

async function fill(backend: EtcdBackend, prefixes: number): Promise<void> {
  await backend.update(clusterConfigKey(CLUSTER), CONFIG);
  for (let i = 0; i < prefixes; i += MAX_WRITES) {
    const count = Math.min(MAX_WRITES, prefixes - i);
    await backend.writeAll(
      Array.from({ length: count }, (_, n) => ({
        key: `${PREFIX}${podAddress(i + n)}`,
        value: pairOf(i + n, 0),
      })),
    );
  }
}

/** Changes values at a constant rate, spread over all prefixes. */
async function change(backend: EtcdBackend, prefixes: number): Promise<void> {
  // A transaction may not write a key twice.
  const perTick = Math.min(prefixes, (CHANGES_PER_SECOND * TICK_MS) / 1000);
  const stride = Math.max(1, Math.floor(prefixes / perTick));
  const begun = performance.now();
  for (let tick = 0; tick * TICK_MS < CHANGE_MS; tick++) {
    await pause(Math.max(0, begun + tick * TICK_MS - performance.now()));
    const writes = Array.from({ length: perTick }, (_, n) => (n * stride + tick) % prefixes);
    await backend.writeAll(
      writes.map((i) => ({ key: `${PREFIX}${podAddress(i)}`, value: pairOf(i, tick + 1) })),
    );
  }
}

async function measure(
  agent: AgentProcess,
  source: AgentRun['source'],
  prefixes: number,
  whileReady: (() => Promise<void>) | undefined,
): Promise<AgentRun> {
  const begun = performance.now();
  await agent.listening();
  const loading = await agent.figures();
  await agent.ready();
  const readyMs = performance.now() - begun;
  const start = await agent.figures();
  expect(`entries of the agent (${source})`, await agent.entries(), prefixes);
  await pause(REST_MS);
  const memory = agent.memory();
  let changing: AgentRun['changing'];
  if (whileReady !== undefined) {
    await agent.figures();
    const changed = performance.now();
    await whileReady();
    changing = { ...(await agent.figures()), ms: performance.now() - changed };
  }
  await agent.stop();
  return { source, prefixes, readyMs, loading, start, memory, changing };
}

async function withLoad(folder: string, prefixes: number): Promise<AgentRun> {
  const file = join(folder, 'recording.jsonl');
  await pipeline(recording(prefixes), createWriteStream(file));
  const agent = new AgentProcess(folder, ['--cluster', 'own', '--load', file]);
  return measure(agent, 'load', prefixes, undefined);
}

async function withEtcd(folder: string, prefixes: number): Promise<AgentRun> {
  const [etcd] = await startEtcd(1, { flags: ['--quota-backend-bytes', String(8 * 2 ** 30)] });
  if (etcd === undefined) throw new Error('no etcd');
  const runtime = { clock: systemClock, random: Math.random };
  const backend = new EtcdBackend({ endpoints: [etcd.url] }, runtime);
  await fill(backend, prefixes);
  const configs = join(folder, 'clustermesh');
  await mkdir(configs, { recursive: true });
  await writeFile(join(configs, CLUSTER), `endpoints:\n- ${etcd.url}\n`);
  const agent = new AgentProcess(folder, ['--cluster', 'own', '--clustermesh-config', configs]);
  const run = await measure(agent, 'etcd', prefixes, () => change(backend, prefixes));
  await backend.close();
  await etcd.dispose();
  return run;
}

function render({ runs }: AgentBenchReport): string {
  const mib = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(0)} MiB`;
  const head = [
    'prefixes, source',
    'ready',
    'CPU',
    'modules, max',
    'loop p99',
    'max',
    'own work p99',
    'max',
    'peak memory',
    'at rest',
  ];
  const changes = [`CPU at ${CHANGES_PER_SECOND} changes/s`, 'loop p99'];
  const rows = runs.map(({ source, prefixes, readyMs, loading, start, memory, changing }) => [
    `${prefixes.toLocaleString('en')} ${source === 'load' ? '`--load`' : 'etcd'}`,
    `${(readyMs / 1000).toFixed(1)} s`,
    `${((loading.cpuMs + start.cpuMs) / 1000).toFixed(1)} s`,
    `${loading.max} ms`,
    `${start.p99} ms`,
    `${start.max} ms`,
    `${start.ownP99.toFixed(0)} ms`,
    `${start.ownMax.toFixed(0)} ms`,
    mib(memory.peak),
    mib(memory.now),
    changing === undefined ? '–' : `${((100 * changing.cpuMs) / changing.ms).toFixed(1)} % of a core`,
    changing === undefined ? '–' : `${changing.p99} ms`,
  ]);
  return textTable([...head, ...changes], rows);
}

/** Measures a whole agent that follows one remote cluster. Prints a table unless `json` is set. */
export async function benchAgent({
  n = 1_000_000,
  json = false,
}: {
  readonly n?: number;
  readonly json?: boolean;
}): Promise<AgentBenchReport> {
  const runs: AgentRun[] = [];
  const sizes = [n / 100, n / 10, n].map(Math.ceil);
  for (const run of [withLoad, withEtcd])
    for (const prefixes of sizes) {
      const folder = await mkdtemp(join(tmpdir(), 'bench-agent-'));
      try {
        runs.push(await run(folder, prefixes));
      } finally {
        await rm(folder, { recursive: true });
      }
    }
  const report = { runs };
  if (!json) console.log(render(report));
  return report;
}
