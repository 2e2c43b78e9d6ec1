import { createServer, type Server } from 'node:http';
import { join } from 'node:path';
import { listenOnSocket, SocketInUseError } from '../api/server/unix-socket.ts';
import { messageOf } from '../base/failure.ts';
import { InputError } from '../process/input-error.ts';
import type { Logger } from '../process/log.ts';

/**
 * Exclusive use of a folder by one process of this machine. The lock is a unix socket in the folder on which the
 * process listens. The kernel closes it with the process, so no lock outlives its holder. It also works between
 * containers, where several processes have the same pid.
 */
export class FolderLock {
  /** The setting with the folder, such as `--state-dir /var/lib/dpcache`. */
  readonly #option: string;
  readonly #socket: string;
  readonly #log: Logger;
  #server: Server | undefined;

  constructor(option: '--state-dir' | '--tape', path: string, log: Logger) {
    this.#option = `${option} ${path}`;
    // Different names, because one folder may have the state and the tape of a process.
    this.#socket = join(path, option === '--tape' ? 'tape.lock' : 'lock');
    this.#log = log;
  }

  /**
   * Locks the folder. Throws `InputError` if another process holds the lock. If no socket can be created in the folder,
   * for example on a read-only disk, this is logged and the folder is used without a lock.
   */
  async acquire(): Promise<void> {
    // A process that finds the socket in use asks for this pid, to name the holder.
    const server = createServer((_request, response) => response.end(JSON.stringify({ pid: process.pid })));
    try {
      await listenOnSocket(server, this.#socket);
    } catch (error) {
      server.close();
      if (error instanceof SocketInUseError)
        throw new InputError(`${this.#option}: in use by ${error.holder}: stop it, or set another folder`);
      this.#log.warn(
        `${this.#option}: cannot lock the folder: ${messageOf(error)}; do not start another agent with it`,
      );
      return;
    }
    this.#server = server;
  }

  async release(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (server === undefined) return;
    await new Promise((resolve) => {
      server.close(resolve);
      server.closeAllConnections();
    });
  }
}
