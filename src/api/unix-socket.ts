import { link, mkdir, rename, rm } from 'node:fs/promises';
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

/** Where an agent's socket is by default: a folder of the user, or of the system where there is none. */
export function defaultSocketPath(env: { readonly XDG_RUNTIME_DIR?: string | undefined }): string {
  return join(env.XDG_RUNTIME_DIR || '/run/dpcache', 'dpcache.sock');
}

/**
 * Makes `server` listen on a unix socket that only this user can open. A stale socket, as a process
 * that was killed leaves one, is taken over; one that is served is the error `SocketInUseError`.
 */
export async function listenOnSocket(server: Server, path: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  await takeAway(path);
  // It is bound within the call, with the mode that the mask leaves: no other user can open it in between.
  const before = process.umask(0o177);
  const listening = listen(server, { path });
  process.umask(before);
  await listening;
}

/**
 * Takes a stale socket out of the way. It is moved before it is tried: of two agents that start at the same time, none
 * takes away the socket of the other.
 */
async function takeAway(path: string): Promise<void> {
  const aside = `${path}.${process.pid}.stale`;
  if (await isServed(path)) throw new SocketInUseError(path, await servingPid(path));
  try {
    await rename(path, aside);
  } catch (error) {
    if (isAbsent(error)) return;
    throw error;
  }
  const served = await isServed(aside);
  if (served) await link(aside, path).catch(() => undefined);
  await rm(aside, { force: true });
  if (served) throw new SocketInUseError(path, await servingPid(path));
}

function isAbsent(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT';
}

function isServed(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection(path);
    const end = (served: boolean): void => {
      socket.destroy();
      resolve(served);
    };
    socket.once('connect', () => end(true));
    socket.once('error', () => end(false));
  });
}

/** The pid of the agent behind a socket, if it says so. */
function servingPid(path: string): Promise<number | undefined> {
  return new Promise((resolve) => {
    const asked = request({ socketPath: path, path: '/healthz', timeout: ANSWER_MS }, (answer) => {
      let text = '';
      answer.setEncoding('utf8');
      answer.on('data', (part: string) => {
        text = (text + part).slice(0, 1_024);
      });
      answer.on('end', () => resolve(Number(/"pid":(\d{1,10})/.exec(text)?.[1]) || undefined));
    });
    asked.on('timeout', () => asked.destroy());
    asked.on('error', () => resolve(undefined));
    asked.end();
  });
}
