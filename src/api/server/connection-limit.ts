import type { Server, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { openAnswers } from './open-answers.ts';

/** Maximum number of open connections of a server. */
export const MAX_CONNECTIONS = 1_024;

/** Maximum number of open connections without an accepted request. */
const MAX_UNVERIFIED = 256;

/** A TCP connection, and the stream that carries HTTP: the socket itself or TLS. */
interface VerifiedConnection {
  readonly socket: Socket;
  readonly http: Duplex;
}

/**
 * Keeps room for new TCP connections, so that clients whose requests are refused cannot hold all of them. A connection
 * is unverified until one of its requests is accepted. If more than {@link MAX_UNVERIFIED} unverified connections are
 * open, the oldest of them is closed. If {@link MAX_CONNECTIONS} are open in total, the oldest unverified one is
 * closed. If there is none, the verified one that has been idle longest is closed, or else the new one.
 */
export class ConnectionLimit {
  /** Unverified connections by client address and port, oldest first. */
  readonly #unverified = new Map<string, Socket>();
  /** Verified connections by client address and port, least recently used first. */
  readonly #verified = new Map<string, VerifiedConnection>();

  constructor(server: Server) {
    server.on('connection', (socket) => this.#add(socket));
  }

  /** Records that a request of a connection was accepted. */
  verify(http: Duplex & Pick<Socket, 'remoteAddress' | 'remotePort'>): void {
    const key = keyOf(http);
    const socket = this.#socketOf(key);
    if (socket === undefined) return;
    this.#delete(key);
    this.#verified.set(key, { socket, http });
  }

  #add(socket: Socket): void {
    const key = keyOf(socket);
    this.#unverified.set(key, socket);
    socket.once('close', () => {
      if (this.#socketOf(key) === socket) this.#delete(key);
    });
    if (this.#unverified.size + this.#verified.size >= MAX_CONNECTIONS) this.#evict(key);
    else if (this.#unverified.size > MAX_UNVERIFIED) this.#close(this.#oldestUnverified() ?? key);
  }

  /** Makes room for the next connection. */
  #evict(newest: string): void {
    const oldest = this.#oldestUnverified();
    this.#close(oldest !== undefined && oldest !== newest ? oldest : (this.#longestIdle() ?? newest));
  }

  #oldestUnverified(): string | undefined {
    const [oldest] = this.#unverified.keys();
    return oldest;
  }

  #longestIdle(): string | undefined {
    for (const [key, { http }] of this.#verified) if (openAnswers(http) === 0) return key;
    return undefined;
  }

  #close(key: string): void {
    const socket = this.#socketOf(key);
    this.#delete(key);
    socket?.destroy();
  }

  #socketOf(key: string): Socket | undefined {
    return this.#verified.get(key)?.socket ?? this.#unverified.get(key);
  }

  #delete(key: string): void {
    this.#unverified.delete(key);
    this.#verified.delete(key);
  }
}

/** Returns the key of a connection. A TLS connection has the same key as its TCP connection. */
function keyOf({ remoteAddress, remotePort }: Pick<Socket, 'remoteAddress' | 'remotePort'>): string {
  return `${remoteAddress} ${remotePort}`;
}
