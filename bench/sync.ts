import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { EtcdTransport } from '../src/kvstore/etcd/etcd-transport.ts';
import { type EtcdProcess, startEtcd } from '../test/kvstore/etcd/support/etcd-process.ts';
import { IP_PREFIX, writeConfiguration, writeIPs } from './sync/keys.ts';
import type { FollowerName, FollowerTask, Part, PartName } from './sync/protocol.ts';
import { textTable } from './text-table.ts';

const FOLLOWER = fileURLToPath(new URL('./sync/follower.js', import.meta.url));
const CACHE = process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache');
/** The path of the binary of `sync/client-v3/build.sh`. */
const GO = join(CACHE, 'datapath-cache/kube-apiserver-1.20.2/etcd-client-v3-follower');

const CLUSTER = 'remote';

/** The result of {@link benchSync}. */
export interface SyncBenchReport {
  readonly keys: number;
  readonly followers: Readonly<Partial<Record<FollowerName, readonly Part[]>>>;
}

/** A follower in a separate process. */
class Follower {
  readonly #process: ChildProcess;
  readonly #parts: AsyncIterator<string>;
  readonly #name: FollowerName;

  constructor(name: FollowerName, task: FollowerTask) {
    this.#name = name;
    const json = JSON.stringify(task);
    const [program, args] =
      name === 'go' ? [GO, [json]] : [process.execPath, ['--expose-gc', FOLLOWER, name, json]];
    this.#process = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    if (this.#process.stdout === null) throw new Error('no pipe');
    this.#parts = createInterface(this.#process.stdout)[Symbol.asyncIterator]();
  }

  begin(part: PartName): void {
    this.#process.stdin?.write(`${part}\n`);
  }

  async part(): Promise<Part> {
    const { value, done } = await this.#parts.next();
    if (done === true) throw new Error(`${this.#name} has ended`);
    return JSON.parse(value) as Part;
  }

  end(): void {
    this.#process.stdin?.end();
  }
}

async function measure(
  name: FollowerName,
  etcd: EtcdProcess,
  transport: EtcdTransport,
  keys: number,
  round: number,
): Promise<readonly Part[]> {
  const follower = new Follower(name, { endpoint: etcd.url, cluster: CLUSTER, prefix: IP_PREFIX, keys });
  const parts = [await follower.part()];
  follower.begin('watch');
  await writeIPs(transport, keys, round);
  parts.push(await follower.part());
  follower.begin('resync');
  await etcd.kill();
  await etcd.start();
  parts.push(await follower.part());
  follower.end();
  return parts;
}

function render({ keys, followers }: SyncBenchReport): string {
  const head = ['', 'CPU per key', 'CPU', 'time', 'peak memory', 'at rest', 'loop p99', 'max', 'first entry'];
  const rows = Object.entries(followers).flatMap(([name, parts]) =>
    parts.map(({ part, ms, cpuMs, peakMB, steadyMB, loop, firstMs }) => [
      `${part}, ${name}`,
      `${((cpuMs * 1000) / keys).toFixed(1)} µs`,
      `${(cpuMs / 1000).toFixed(2)} s`,
      `${(ms / 1000).toFixed(2)} s`,
      `${peakMB.toFixed(0)} MiB`,
      `${steadyMB.toFixed(0)} MiB`,
      loop === undefined ? '' : `${loop.p99} ms`,
      loop === undefined ? '' : `${loop.max} ms`,
      firstMs === undefined ? '' : `${firstMs.toFixed(0)} ms`,
    ]),
  );
  return `${keys} IPs of a remote cluster in a real etcd, all listed, written once more, and compared after a restart of the server.

${textTable(head, rows)}`;
}

/** Measures a follower of a large cluster, beside other programs. Prints a table unless `json` is set. */
export async function benchSync({
  n: keys = 300_000,
  json = false,
}: {
  readonly n?: number;
  readonly json?: boolean;
}): Promise<SyncBenchReport> {
  const [etcd] = await startEtcd(1, { flags: ['--quota-backend-bytes', String(8 * 2 ** 30)] });
  if (etcd === undefined) throw new Error('no etcd');
  const transport = new EtcdTransport({ endpoints: [etcd.url] }, Math.random);
  try {
    await writeConfiguration(transport, CLUSTER, 1);
    await writeIPs(transport, keys, 0);
    const names: readonly FollowerName[] = [
      'datapath-cache',
      'node',
      ...(existsSync(GO) ? (['go'] as const) : []),
    ];
    const followers: Partial<Record<FollowerName, readonly Part[]>> = {};
    for (const [at, name] of names.entries())
      followers[name] = await measure(name, etcd, transport, keys, at + 1);
    const report = { keys, followers };
    if (!json) process.stdout.write(render(report));
    return report;
  } finally {
    await transport.close();
    await etcd.dispose();
  }
}
