import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import type { Scratch } from './scratch.ts';

/** The answer of a peer. */
export interface PeerAnswer {
  readonly error?: string;
  readonly name?: string;
  readonly echo?: string;
  readonly counts?: Readonly<Record<string, number>>;
  readonly connections?: number;
  readonly errors?: number;
}

/** How a peer is called: by TCP, by datagrams of a connected socket, or by datagrams with an address each. */
export type PeerProtocol = 'tcp' | 'connected-udp' | 'udp';

/** A process that serves and calls in a cgroup and a network namespace. */
export class SocketPeer {
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #waiting = new Map<number, (answer: PeerAnswer) => void>();
  #asked = 0;

  private constructor(child: ChildProcessByStdio<Writable, Readable, null>) {
    this.#child = child;
    createInterface({ input: child.stdout }).on('line', (line) => {
      const { id, ...answer } = JSON.parse(line) as PeerAnswer & { readonly id: number };
      this.#waiting.get(id)?.(answer);
      this.#waiting.delete(id);
    });
  }

  /** Starts a peer, which ends with the scratch. */
  static async start(
    scratch: Scratch,
    place: { readonly cgroup: string; readonly netns: string },
  ): Promise<SocketPeer> {
    const script = fileURLToPath(new URL('socket-peer.mjs', import.meta.url));
    // A cgroup is joined before anything else, because a socket belongs to the cgroup of its creation.
    const child = spawn('nsenter', [`--net=${place.netns}`, process.execPath, script], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    scratch.defer(() => void child.kill('SIGKILL'));
    await once(child, 'spawn');
    writeFileSync(join(place.cgroup, 'cgroup.procs'), String(child.pid));
    return new SocketPeer(child);
  }

  do(command: string, rest: Readonly<Record<string, unknown>> = {}): Promise<PeerAnswer> {
    const id = ++this.#asked;
    return new Promise((resolve) => {
      this.#waiting.set(id, resolve);
      this.#child.stdin.write(`${JSON.stringify({ id, do: command, ...rest })}\n`);
    });
  }

  /** Returns how often each backend answered, and the address that it saw. */
  async ask(
    protocol: PeerProtocol,
    ip: string,
    port: number,
    count: number,
  ): Promise<Readonly<Record<string, number>>> {
    return (await this.do('ask', { protocol, ip, port, count })).counts ?? {};
  }
}
