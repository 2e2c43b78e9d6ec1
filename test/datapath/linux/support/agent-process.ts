import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { ApiClient } from '../../../../src/api/api-client.ts';
import type { DatapathDocument, DatapathTableDocument } from '../../../../src/api/datapath-document.ts';
import type { StatusDocument } from '../../../../src/api/status-document.ts';
import { runCommand } from '../../../../src/cli/program.ts';
import { PROGRAM } from '../../../cli/support/program.ts';
import { nothing } from '../../../cli/support/run.ts';
import type { Scratch } from './scratch.ts';

const LOOK_MS = 20;

/** An agent that is queried over its socket. */
export abstract class AskedAgent {
  readonly socket: string;
  readonly #client: ApiClient;

  constructor(scratch: Scratch) {
    this.socket = join(scratch.folder(), 'agent.sock');
    this.#client = new ApiClient(this.socket, new AbortController().signal);
  }

  /** All of its output. */
  abstract get said(): string;
  abstract get hasEnded(): boolean;
  /** Ends it like a user, and waits for the end. */
  abstract stop(): Promise<void>;

  ask(path: string, body?: unknown): Promise<unknown> {
    return this.#client.ask(path, body);
  }

  async datapath(): Promise<DatapathDocument> {
    const { datapath } = (await this.ask('/v1/status')) as StatusDocument;
    if (datapath === undefined) throw new Error('it steers no datapath');
    return datapath;
  }

  async table(name: string): Promise<DatapathTableDocument> {
    const { tables } = await this.datapath();
    const found = tables.find((table) => table.name === name);
    if (found === undefined) throw new Error(`there is no table ${name}: ${this.said}`);
    return found;
  }

  /** Resolves when its datapath fulfils the condition. Fails if the process ends before. */
  async until(isSo: (datapath: DatapathDocument) => boolean): Promise<DatapathDocument> {
    for (;;) {
      if (this.hasEnded) throw new Error(`the agent has ended: ${this.said}`);
      const datapath = await this.datapath().catch(() => undefined);
      if (datapath !== undefined && isSo(datapath)) return datapath;
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }

  /** Resolves when the caches are complete and the kernel has their content. */
  settled(): Promise<DatapathDocument> {
    return this.until(
      ({ tables, waitsFor }) =>
        waitsFor.length === 0 &&
        tables.length > 0 &&
        tables.every(({ state, pending }) => state === 'in-sync' && pending === 0),
    );
  }
}

/** An agent in a separate process, which can be killed. */
export class AgentProcess extends AskedAgent {
  readonly #child: ChildProcess;
  #said = '';

  /**
   * Starts the agent, which is killed with `scratch` at the latest. `through`: a command that runs it, such
   * as `ip netns exec`.
   */
  constructor(scratch: Scratch, words: readonly string[], through: readonly string[] = []) {
    super(scratch);
    const node = [process.execPath, PROGRAM, 'agent', '--socket', this.socket, ...words];
    const [command = '', ...args] = [...through, ...node];
    this.#child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [this.#child.stdout, this.#child.stderr])
      stream?.setEncoding('utf8').on('data', (text: string) => {
        this.#said += text;
      });
    scratch.defer(() => void this.#child.kill('SIGKILL'));
  }

  override get said(): string {
    return this.#said;
  }

  override get hasEnded(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  override stop(): Promise<void> {
    return this.kill('SIGTERM');
  }

  /** Sends the signal and waits for the end. */
  async kill(signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    const ended = once(this.#child, 'exit');
    this.#child.kill(signal);
    await ended;
  }
}

/** An agent in this process, which starts faster. */
export class AgentHere extends AskedAgent {
  readonly #stop = new AbortController();
  readonly #ended: Promise<unknown>;
  #said = '';
  #hasEnded = false;

  /** Starts the agent. The caller must stop it. */
  constructor(scratch: Scratch, words: readonly string[]) {
    super(scratch);
    const output = {
      write: (text: string) => {
        this.#said += text;
      },
    };
    const io = { stdout: output, stderr: output, stdin: nothing(), env: {}, signal: this.#stop.signal };
    this.#ended = runCommand(['agent', '--socket', this.socket, ...words], io).finally(() => {
      this.#hasEnded = true;
    });
  }

  override get said(): string {
    return this.#said;
  }

  override get hasEnded(): boolean {
    return this.#hasEnded;
  }

  override async stop(): Promise<void> {
    this.#stop.abort();
    await this.#ended;
  }
}
