import { randomUUID } from 'node:crypto';
import { lstatSync, rmSync } from 'node:fs';
import { link, lstat, rename, rm } from 'node:fs/promises';
import { createConnection, type Server } from 'node:net';
import { dirname, join } from 'node:path';
import { errorCode } from '../../base/failure.ts';
import { createFolder } from '../../base/files/create-folder.ts';
import { ApiClient } from '../api-client.ts';
import { listen } from './listen.ts';

/** Thrown if another process listens on the socket. */
export class SocketInUseError extends Error {
  /** The listening process, such as `the process with pid 12`. */
  readonly holder: string;

  constructor(path: string, pid: number | undefined) {
    const holder = pid === undefined ? 'another process' : `the process with pid ${pid}`;
    super(`${path} is in use by ${holder}: stop it, or set another socket with --socket`);
    this.name = 'SocketInUseError';
    this.holder = holder;
  }
}

/** Time limit of the request for the pid of the listening process. */
const ANSWER_MS = 2_000;

/** Maximum length of a socket path. `sun_path` of Linux has 108 bytes including the final NUL (unix(7)). */
const MAX_PATH_BYTES = 107;

/**
 * Makes `server` listen on a unix socket that only this user can open. Replaces the stale socket of a killed process.
 * Rejects with {@link SocketInUseError} if a process listens on it. When the server closes, removes the file if it is
 * still the same socket.
 */
export async function listenOnSocket(server: Server, path: string): Promise<void> {
  const temporary = join(dirname(path), `.${randomUUID().slice(0, 8)}`);
  if (Math.max(...[path, temporary].map((name) => Buffer.byteLength(name))) > MAX_PATH_BYTES)
    throw new Error(`${path}: the path of a socket must have at most ${MAX_PATH_BYTES} bytes`);
  await createFolder(dirname(path));
  await removeStale(path, temporary);
  // bind(2) runs within this call and applies the umask, so no other user can ever open the socket.
  const previous = process.umask(0o177);
  const listening = listen(server, { path: temporary });
  process.umask(previous);
  await listening;
  try {
    // On close, libuv deletes the bound path even if another process has put a socket there. So bind a temporary path,
    // and link the path to it.
    const { ino, dev } = await lstat(temporary);
    server.once('close', () => {
      const found = lstatSync(path, { throwIfNoEntry: false });
      if (found?.ino === ino && found.dev === dev) rmSync(path, { force: true });
    });
    await link(temporary, path);
  } catch (error) {
    server.close();
    throw errorCode(error) === 'EEXIST' ? new SocketInUseError(path, await servingPid(path)) : error;
  } finally {
    await rm(temporary, { force: true });
  }
}

/**
 * Removes a stale socket. Rejects if the path is not a socket. Moves the socket to the temporary path and tests it
 * again before the removal, so that two agents that start concurrently do not remove each other's sockets.
 */
async function removeStale(path: string, temporary: string): Promise<void> {
  try {
    if (!(await lstat(path)).isSocket())
      throw new Error(`${path} exists and is not a socket: remove it, or set another socket with --socket`);
    if (await isServed(path)) throw new SocketInUseError(path, await servingPid(path));
    await rename(path, temporary);
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return;
    throw error;
  }
  const served = await isServed(temporary);
  if (served) await link(temporary, path).catch(() => undefined);
  await rm(temporary, { force: true });
  if (served) throw new SocketInUseError(path, await servingPid(path));
}

/**
 * Returns true if a process listens on the socket. Rejects if this cannot be determined, for example without permission
 * to open the socket.
 */
function isServed(path: string): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const socket = createConnection({ path });
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', (error) => {
      const code = errorCode(error);
      if (code === 'ECONNREFUSED' || code === 'ENOENT') resolve(false);
      else if (code === 'EAGAIN')
        resolve(true); // the accept queue is full
      else reject(error);
    });
  });
}

/** Returns the pid of the process that serves a socket; undefined if it does not report one. */
async function servingPid(path: string): Promise<number | undefined> {
  const { ask } = new ApiClient(path, AbortSignal.timeout(ANSWER_MS));
  const { pid }: { readonly pid?: unknown } = Object(await ask('/healthz').catch(() => undefined));
  return typeof pid === 'number' ? pid : undefined;
}
