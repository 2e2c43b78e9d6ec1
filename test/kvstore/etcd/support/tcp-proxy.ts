import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';

/**
 * `refuse`: no connections; `black-hole`: data is lost; `stalled`: data arrives when the link is open again.
 */
export type LinkMode = 'open' | 'refuse' | 'black-hole' | 'stalled';

// Interval between two chunks of a slow link.
const TICK_MS = 10;

/** A TCP link that a test can cut, close, stall, slow down, or turn into a black hole. */
export class TcpProxy {
  readonly #target: number;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #mode: LinkMode = 'open';
  #cutAfterBytes = Number.POSITIVE_INFINITY;
  #bytesPerSecond = Number.POSITIVE_INFINITY;
  /** When a slow link will have forwarded its data. */
  #freeAt = 0;
  #received = 0;
  #port = 0;

  constructor(targetPort: number) {
    this.#target = targetPort;
    this.#server = createServer((client) => this.#accept(client));
  }

  get port(): number {
    return this.#port;
  }

  /** Number of open connections. */
  get connections(): number {
    return this.#sockets.size / 2;
  }

  async start(): Promise<void> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    const address = this.#server.address();
    if (address !== null && typeof address === 'object') this.#port = address.port;
  }

  /** Breaks every connection. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Breaks every connection after this number of further bytes from the server. */
  cutAfter(bytes: number): void {
    this.#cutAfterBytes = bytes;
  }

  /** Number of bytes from the server. */
  get received(): number {
    return this.#received;
  }

  /** Limits the speed of all connections together, from the server. */
  set bytesPerSecond(rate: number) {
    this.#bytesPerSecond = rate;
    this.#freeAt = 0;
  }

  set mode(mode: LinkMode) {
    const before = this.#mode;
    this.#mode = mode;
    if (mode === 'refuse') this.cut();
    if (mode === 'black-hole' || mode === 'stalled') for (const socket of this.#sockets) socket.pause();
    if (mode !== 'open') return;
    if (before === 'stalled') for (const socket of this.#sockets) socket.resume();
    // Data in the black hole is lost with its connections, as if the peer had restarted.
    else this.cut();
  }

  async close(): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #accept(client: Socket): void {
    if (this.#mode === 'refuse') {
      client.destroy();
      return;
    }
    const server = connect(this.#target, '127.0.0.1');
    this.#join(client, server, (chunk) => void server.write(chunk));
    this.#join(server, client, (chunk) => {
      this.#count(chunk.length);
      if (Number.isFinite(this.#bytesPerSecond)) void this.#trickle(server, client, chunk);
      else client.write(chunk);
    });
  }

  #join(from: Socket, to: Socket, carry: (chunk: Buffer) => void): void {
    this.#sockets.add(from);
    from.on('data', (chunk: Buffer) => {
      if (this.#mode !== 'black-hole') carry(chunk);
    });
    if (this.#mode === 'stalled') from.pause();
    from.on('error', () => {});
    from.on('close', () => {
      this.#sockets.delete(from);
      to.destroy();
    });
  }

  /** Forwards a chunk piece by piece. Until then, reads nothing more from the server. */
  async #trickle(from: Socket, to: Socket, chunk: Buffer): Promise<void> {
    from.pause();
    const piece = Math.max(1, Math.floor((this.#bytesPerSecond * TICK_MS) / 1000));
    for (let at = 0; at < chunk.length && !to.destroyed; at += piece) {
      const begin = Math.max(this.#freeAt, performance.now());
      this.#freeAt = begin + TICK_MS;
      await new Promise((resolve) => setTimeout(resolve, this.#freeAt - performance.now()));
      to.write(chunk.subarray(at, at + piece));
    }
    if (this.#mode === 'open') from.resume();
  }

  #count(bytes: number): void {
    this.#received += bytes;
    this.#cutAfterBytes -= bytes;
    if (this.#cutAfterBytes > 0) return;
    this.#cutAfterBytes = Number.POSITIVE_INFINITY;
    this.cut();
  }
}
