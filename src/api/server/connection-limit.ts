import type { Server, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { openAnswers } from './open-answers.ts';

/** Maximum number of open connections of a server. */
export const MAX_CONNECTIONS = 1_024;

/** Maximum number of open connections without an accepted request. */
const MAX_UNVERIFIED = 256;

/**
 * A TCP connection. `http` is the stream that carries HTTP (the socket itself or TLS), set when a request is accepted.
 */
interface CountedConnection {
  readonly socket: Socket;
  http: Duplex | undefined;
}

/**
 * Keeps room for new TCP connections, so that clients whose requests are refused cannot hold all of them. A connection
 * is unverified until one of its requests is accepted. If more than {@link MAX_UNVERIFIED} unverified connections are
 * open, the oldest of them is closed. If {@link MAX_CONNECTIONS} are open in total, the oldest unverified one is
 * closed. If there is none, the verified one that has been idle longest is closed, or else the new one.
 */
export class ConnectionLimit {
  /** Unverified connections by client address and port, oldest first. */
  readonly #unverified = new Map<string, CountedConnection>();
  /** Verified connections by client address and port, least recently used first. */
  readonly #verified = new Map<string, CountedConnection>();

  constructor(server: Server) {
    server.on('connection', (socket) => this.#add(socket));
  }

  /** Records that a request of a connection was accepted. */
  verify(http: Duplex & Pick<Socket, 'remoteAddress' | 'remotePort'>): void {
    const key = keyOf(http);
    const connection = this.#verified.get(key) ?? this.#unverified.get(key);
    if (connection === undefined) return;
    connection.http = http;
    this.#delete(key);
    this.#verified.set(key, connection);
  }

  #add(socket: Socket): void {
    const key = keyOf(socket);
    const connection = { socket, http: undefined };
    this.#unverified.set(key, connection);
    socket.once('close', () => {
      if (this.#unverified.get(key) === connection || this.#verified.get(key)?.socket === socket)
        this.#delete(key);
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
    for (const [key, { http }] of this.#verified)
      if (http !== undefined && openAnswers(http) === 0) return key;
    return undefined;
  }

  #close(key: string): void {
    const { socket } = this.#unverified.get(key) ?? this.#verified.get(key) ?? {};
    this.#delete(key);
    socket?.destroy();
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
