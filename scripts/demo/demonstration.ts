import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { ApiClient } from '../../src/api/api-client.ts';
import { freePort } from '../../test/base/support/free-port.ts';

const { program, end } = parseArgs({
  options: { program: { type: 'string' }, end: { type: 'boolean', default: false } },
}).values;

/** The built program, or the one of `--program`. */
export const PROGRAM: string = program ?? fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
/** Arguments that serve the page. Empty with `--program`, which may have been built without the page. */
export const PAGE: readonly string[] = program === undefined ? ['--ui'] : [];
/** True with `--end`: the demonstration ends after its script, without pauses. */
export const ENDS: boolean = end;

/** Prints a line. */
export function print(text = ''): void {
  process.stdout.write(`${text}\n`);
}

/** The temporary folder and the child processes of a demonstration over real etcds. Both are removed at its end. */
export class Demonstration {
  readonly folder: string = mkdtempSync(join(tmpdir(), 'dpcache-demo-'));
  readonly #children = new Set<ChildProcess>();
  readonly #stop = new AbortController();

  /** Aborts at Ctrl-C, and when the reader of the output closes the pipe. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** Resolves when a condition is true. Fails after a minute. */
  async until(condition: string, isTrue: () => Promise<boolean>): Promise<void> {
    for (let left = 1_200; left > 0 && !this.signal.aborted; left--) {
      if (await isTrue().catch(() => false)) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`not true after a minute: ${condition}`);
  }

  /** Resolves when the process with this socket is ready. */
  waitUntilReady(name: string, socket: string): Promise<void> {
    return this.until(`${name} is complete`, async () => {
      await new ApiClient(socket, this.signal).ask('/readyz');
      return true;
    });
  }

  /** Starts a child process whose lines are printed with its name. It ends with this process. Throws after Ctrl-C. */
  run(name: string, command: string, words: readonly string[]): void {
    this.signal.throwIfAborted();
    const child = spawn(command, words, { stdio: ['ignore', 'pipe', 'pipe'] });
    this.#children.add(child);
    child.once('exit', () => this.#children.delete(child));
    for (const stream of [child.stdout, child.stderr])
      createInterface({ input: stream }).on('line', (line) => {
        if (line.trim() !== '') print(`${name.padEnd(18)}│ ${line}`);
      });
  }

  /** Starts an etcd with its data in the folder. Returns its URL before its port answers. */
  async startEtcd(name: string): Promise<string> {
    const [client, peer] = [`http://127.0.0.1:${await freePort()}`, `http://127.0.0.1:${await freePort()}`];
    this.run(`etcd ${name}`, 'etcd', [
      ...['--name', name, '--data-dir', join(this.folder, `${name}.etcd`)],
      ...['--log-level', 'error', '--logger', 'zap'],
      ...['--listen-client-urls', client, '--advertise-client-urls', client, '--listen-peer-urls', peer],
      ...['--initial-advertise-peer-urls', peer, '--initial-cluster', `${name}=${peer}`],
    ]);
    return client;
  }

  /**
   * Runs a script, then waits for Ctrl-C unless `--end` is given. Stops the processes, removes the folder and sets the
   * exit status: 1 if the script fails, or if there is no etcd.
   */
  async play(script: () => Promise<void>, close: () => Promise<unknown>): Promise<void> {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => this.#stop.abort());
    process.stdout.on('error', () => this.#stop.abort());
    try {
      await script();
      if (!ENDS && !this.signal.aborted) await once(this.signal, 'abort');
    } catch (error) {
      if (!this.signal.aborted) {
        print(error instanceof Error ? error.message : String(error));
        process.exitCode = 1;
      }
    } finally {
      this.#stop.abort();
      const running = [...this.#children].reverse();
      const ended = running.map((child) => once(child, 'exit'));
      for (const child of running) child.kill('SIGTERM');
      await Promise.all(ended);
      await close();
      rmSync(this.folder, { recursive: true, force: true });
    }
  }
}

/** Returns a new demonstration. If no etcd is installed, prints a remedy, sets exit status 1 and returns undefined. */
export function demonstration(): Demonstration | undefined {
  if (spawnSync('etcd', ['--version']).status === 0) return new Demonstration();
  print('etcd is not installed, and the demonstration needs it. Install it and try again:');
  print('  apt-get install etcd-server    (Debian, Ubuntu)\n  brew install etcd              (macOS)');
  process.exitCode = 1;
  return undefined;
}

/** Returns a kubeconfig for a server without TLS, with an optional token. */
export function kubeconfigOf(server: string, token?: string): string {
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'here',
    clusters: [{ name: 'c', cluster: { server } }],
    users: [{ name: 'u', user: token === undefined ? {} : { token } }],
    contexts: [{ name: 'here', context: { cluster: 'c', user: 'u' } }],
  });
}
