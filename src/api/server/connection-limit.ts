import type { Server, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { openAnswers } from './open-answers.ts';

/** Maximum number of open connections of a server. */
const MAX_CONNECTIONS = 1_024;

/** Maximum number of open connections without an accepted request. */
const MAX_UNVERIFIED = 256;

/** Stream of a connection: a socket or TLS. */
type ConnectionStream = Duplex & Pick<Socket, 'remoteAddress' | 'remotePort'>;

type ConnectionKey = string | ConnectionStream;

/** A connection, and the stream that carries HTTP: the socket itself or TLS. */
interface VerifiedConnection {
  readonly socket: Socket;
  readonly http: Duplex;
}

/**
 * Keeps room for new connections, so that clients whose requests are refused cannot hold all of them. A connection
 * is unverified until one of its requests is accepted. If more than {@link MAX_UNVERIFIED} unverified connections are
 * open, the oldest of them is closed. If {@link MAX_CONNECTIONS} are open in total, the oldest unverified one before
 * the new one is closed. If there is none, the verified one that has been idle longest is closed, or else the new one.
 */
export class ConnectionLimit {
  /** Unverified connections by key, oldest first. */
  readonly #unverified = new Map<ConnectionKey, Socket>();
  /** Verified connections by key, least recently used first. */
  readonly #verified = new Map<ConnectionKey, VerifiedConnection>();
  readonly #onClose: () => void;

  /** @param onClose called for each connection that the limit closes */
  constructor(server: Server, onClose: () => void) {
    this.#onClose = onClose;
    server.on('connection', (socket) => this.#add(socket));
  }

  /** Records that a request of a connection was accepted. */
  verify(http: ConnectionStream): void {
    const key = keyOf(http);
    const socket = this.#socketOf(key);
    if (socket === undefined) return;
    this.#delete(key);
    this.#verified.set(key, { socket, http });
  }

  /** Closes all connections, also those in a TLS handshake, which `closeAllConnections` of a server ignores. */
  closeAll(): void {
    for (const socket of this.#unverified.values()) socket.destroy();
    for (const { socket } of this.#verified.values()) socket.destroy();
  }

  #add(socket: Socket): void {
    const key = keyOf(socket);
    this.#unverified.set(key, socket);
    socket.once('close', () => {
      if (this.#socketOf(key) === socket) this.#delete(key);
    });
    if (this.#unverified.size + this.#verified.size >= MAX_CONNECTIONS) this.#evict(key);
    else if (this.#unverified.size > MAX_UNVERIFIED) this.#close(this.#oldestUnverified(key));
  }

  /** Makes room for the next connection. */
  #evict(newest: ConnectionKey): void {
    const oldest = this.#oldestUnverified(newest);
    this.#close(oldest !== newest ? oldest : (this.#longestIdle() ?? newest));
  }

  /** Returns the key of the oldest unverified connection. `newest` is one of them. */
  #oldestUnverified(newest: ConnectionKey): ConnectionKey {
    const [oldest = newest] = this.#unverified.keys();
    return oldest;
  }

  #longestIdle(): ConnectionKey | undefined {
    for (const [key, { http }] of this.#verified) if (openAnswers(http) === 0) return key;
    return undefined;
  }

  #close(key: ConnectionKey): void {
    const socket = this.#socketOf(key);
    this.#delete(key);
    socket?.destroy();
    this.#onClose();
  }

  #socketOf(key: ConnectionKey): Socket | undefined {
    return this.#verified.get(key)?.socket ?? this.#unverified.get(key);
  }

  #delete(key: ConnectionKey): void {
    this.#unverified.delete(key);
    this.#verified.delete(key);
  }
}

/**
 * Returns the key of a connection. A TLS connection has the same key as its TCP connection: the client's address and
 * port. A connection to a unix socket has none, and is its own key.
 */
function keyOf(stream: ConnectionStream): ConnectionKey {
  const { remoteAddress, remotePort } = stream;
  return remoteAddress === undefined ? stream : `${remoteAddress} ${remotePort}`;
}
