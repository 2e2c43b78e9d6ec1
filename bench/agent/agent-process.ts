import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { AgentError, ApiClient } from '../../src/api/api-client.ts';
import type { ProbeReport } from './probe.ts';

const MAIN = fileURLToPath(new URL('../../src/cli/main.js', import.meta.url));
/** The agent reads its version from the package, two folders above its main file. */
const PACKAGE = new URL('../../../package.json', import.meta.url);
const PACKAGE_COPY = new URL('../../package.json', import.meta.url);
const PROBE = new URL('./probe.js', import.meta.url).href;
const POLL_MS = 100;

/** Memory of a process, in bytes. */
export interface AgentMemory {
  readonly peak: number;
  readonly now: number;
}

/** A `dpcache agent` in a process of its own. */
export class AgentProcess {
  readonly #process: ChildProcess;
  readonly #ended = new AbortController();
  readonly #api: ApiClient;

  /** @param folder folder of the socket */
  constructor(folder: string, args: readonly string[]) {
    copyFileSync(PACKAGE, PACKAGE_COPY);
    const socket = join(folder, 'agent.sock');
    const options = ['--import', PROBE, MAIN, 'agent', '--socket', socket, '--log-level', 'error', ...args];
    this.#process = spawn(process.execPath, options, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
    this.#process.once('exit', () => this.#ended.abort(new Error('the agent has ended')));
    this.#api = new ApiClient(socket, this.#ended.signal);
  }

  /** Resolves when the API of the agent answers. */
  listening(): Promise<void> {
    return this.#until(
      (error) => error === undefined || (error instanceof AgentError && error.problem !== undefined),
    );
  }

  /** Resolves when the agent is ready. */
  ready(): Promise<void> {
    return this.#until((error) => error === undefined);
  }

  /** Asks whether the agent is ready, until `isDone` accepts the error, or the success. */
  async #until(isDone: (error: unknown) => boolean): Promise<void> {
    for (;;) {
      this.#ended.signal.throwIfAborted();
      const error = await this.#api.ask('/readyz').then(
        () => undefined,
        (thrown: unknown) => thrown,
      );
      if (isDone(error)) return;
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }

  /** Returns the number of entries of its IPCache. */
  async entries(): Promise<number> {
    let sum = 0;
    for await (const line of this.#api.lines('/metrics'))
      if (line.startsWith('dpcache_ipcache_entries{')) sum += Number(line.split(' ').at(-1));
    return sum;
  }

  /** Returns the figures of the agent since the last call. */
  async figures(): Promise<ProbeReport> {
    const answer = once(this.#process, 'message', { signal: this.#ended.signal });
    this.#process.send('report');
    const [report] = await answer;
    return report as ProbeReport; // as the probe sends it
  }

  memory(): AgentMemory {
    const text = readFileSync(`/proc/${this.#process.pid}/status`, 'utf8');
    const bytes = (field: string): number =>
      Number(new RegExp(`${field}:\\s+(\\d+) kB`).exec(text)?.[1]) * 1024;
    return { peak: bytes('VmHWM'), now: bytes('VmRSS') };
  }

  async stop(): Promise<void> {
    const exit = once(this.#process, 'exit');
    this.#process.kill('SIGTERM');
    await exit;
  }
}
