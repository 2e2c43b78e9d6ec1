import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface, type Interface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Namespace } from '../../support/scratch.ts';

const SCRIPT = fileURLToPath(new URL('traffic.mjs', import.meta.url));

/** An address and port. */
export interface Place {
  readonly ip: string;
  readonly port: number;
  /** The address of TCP clients; by default the kernel selects it. */
  readonly from?: string;
}

/** Backends and clients in a namespace: real sockets in a separate process. */
export class Traffic implements Disposable {
  readonly #process: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly #interface: Interface;

  constructor({ name }: Namespace) {
    const child = spawn('ip', ['netns', 'exec', name, process.execPath, SCRIPT], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.#process = child;
    this.#interface = createInterface({ input: child.stdout });
    this.#lines = this.#interface[Symbol.asyncIterator]();
  }

  async listen(place: Place): Promise<void> {
    await this.#ask({ command: 'listen', ...place });
  }

  /**
   * Opens this number of connections, and counts them by the answering backend; failed ones by code or
   * `timeout`.
   */
  async count(
    place: Place,
    times: number,
    protocol: 'tcp' | 'udp' = 'tcp',
    progressTimeoutMs = 30_000,
  ): Promise<Readonly<Record<string, number>>> {
    return JSON.parse(
      await this.#ask({ command: 'count', ...place, times, udp: protocol === 'udp', progressTimeoutMs }),
    );
  }

  /** Opens a lasting connection. Returns the name of its backend. */
  async keep(place: Place): Promise<string> {
    return JSON.parse(await this.#ask({ command: 'keep', ...place }));
  }

  async again(name: string): Promise<string> {
    return JSON.parse(await this.#ask({ command: 'again', name }));
  }

  [Symbol.dispose](): void {
    this.#interface.close();
    this.#process.kill('SIGKILL');
  }

  async #ask(command: object): Promise<string> {
    this.#process.stdin?.write(`${JSON.stringify(command)}\n`);
    const { value, done } = await this.#lines.next();
    if (done === true) throw new Error('the process with the backends has ended');
    return value;
  }
}
