import { link, lstat, mkdir, rename, rm } from 'node:fs/promises';
import { request } from 'node:http';
import type { Server } from 'node:net';
import { createConnection } from 'node:net';
import { dirname, join } from 'node:path';
import { listen } from './listen.ts';

/** Another agent serves the socket. */
export class SocketInUseError extends Error {
  constructor(path: string, pid: number | undefined) {
    const who = pid === undefined ? 'another process' : `the agent with pid ${pid}`;
    super(`${path} is served by ${who}: stop it, or choose another socket with --socket`);
    this.name = 'SocketInUseError';
  }
}

/** How long another agent may take to say who it is. */
const ANSWER_MS = 2_000;

/** `sun_path` of Linux (unix(7)) has 108, one of them for its end. */
const PATH_BYTES = 107;

/**
 * Makes `server` listen on a unix socket that only this user can open. A stale socket, as a process
 * that was killed leaves one, is taken over; one that is served is the error `SocketInUseError`.
 */
export async function listenOnSocket(server: Server, path: string): Promise<void> {
  const aside = join(dirname(path), `.${process.pid}`);
  if (Math.max(...[path, aside].map((name) => Buffer.byteLength(name))) > PATH_BYTES)
    throw new Error(`${path}: the path of a socket has at most ${PATH_BYTES} bytes, with its folder`);
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  await takeAway(path, aside);
  // It is bound within the call, with the mode that the mask leaves: no other user can open it in between.
  const before = process.umask(0o177);
  const listening = listen(server, { path });
  process.umask(before);
  try {
    await listening;
  } catch (error) {
    throw codeOf(error) === 'EADDRINUSE' ? new SocketInUseError(path, await servingPid(path)) : error;
  }
}

/**
 * Takes a stale socket out of the way, and nothing that is no socket. It is moved before it is tried again: of two agents
 * that start at the same time, none takes away the socket of the other.
 */
async function takeAway(path: string, aside: string): Promise<void> {
  try {
    if (!(await lstat(path)).isSocket())
      throw new Error(`${path} is there and no socket: it is left as it is`);
    if (await isServed(path)) throw new SocketInUseError(path, await servingPid(path));
    await rename(path, aside);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return;
    throw error;
  }
  const served = await isServed(aside);
  if (served) await link(aside, path).catch(() => undefined);
  await rm(aside, { force: true });
  if (served) throw new SocketInUseError(path, await servingPid(path));
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && 'code' in error ? error.code : undefined;
}

/** Whether somebody listens. Rejects where that cannot be said: of a socket that we may not open. */
function isServed(path: string): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const socket = createConnection({ path });
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', (error) => {
      const code = codeOf(error);
      if (code === 'ECONNREFUSED' || code === 'ENOENT') resolve(false);
      else if (code === 'EAGAIN')
        resolve(true); // more wait for it to accept than it lets wait
      else reject(error);
    });
  });
}

/** The pid of the agent behind a socket, if it says so. */
function servingPid(path: string): Promise<number | undefined> {
  return new Promise((resolve) => {
    const options = {
      socketPath: path,
      path: '/healthz',
      agent: false,
      signal: AbortSignal.timeout(ANSWER_MS),
    };
    const asked = request(options, (answer) => {
      let text = '';
      answer.setEncoding('utf8');
      answer.on('data', (part: string) => {
        text = (text + part).slice(0, 1_024);
      });
      answer.on('error', () => undefined); // it has hung up in the middle: what it has said counts
      answer.on('close', () => resolve(Number(/"pid":(\d{1,10})/.exec(text)?.[1]) || undefined));
    });
    asked.on('error', () => resolve(undefined));
    asked.end();
  });
}
