import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';

/** Incomplete responses of each connection. */
const OPEN = new WeakMap<Duplex, Set<ServerResponse>>();

/** Returns the number of incomplete responses of a connection. */
export function openAnswers(socket: Duplex): number {
  return OPEN.get(socket)?.size ?? 0;
}

/**
 * Counts a response as open until it emits `close`. When its connection closes, this function emits the event if
 * Node.js did not, because Node.js before 24 emits no `close` for pipelined responses that wait behind another one.
 */
export function trackAnswer({ socket }: IncomingMessage, answer: ServerResponse): void {
  const open = OPEN.get(socket) ?? trackConnection(socket);
  open.add(answer);
  answer.once('close', () => open.delete(answer));
}

function trackConnection(socket: Duplex): Set<ServerResponse> {
  const open = new Set<ServerResponse>();
  OPEN.set(socket, open);
  // In a later turn, so that Node.js can emit its own events first.
  socket.once('close', () => setImmediate(closeAll, open));
  return open;
}

function closeAll(open: ReadonlySet<ServerResponse>): void {
  for (const answer of [...open]) {
    answer.destroy();
    answer.emit('close');
  }
}
