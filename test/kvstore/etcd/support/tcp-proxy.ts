import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';

/** `refuse`: no connection; `black-hole`: what is sent is lost; `stalled`: it arrives once the link is open again. */
export type LinkMode = 'open' | 'refuse' | 'black-hole' | 'stalled';

/** A TCP link that a test can cut, close, stall, and turn into a black hole. */
export class TcpProxy {
  readonly #target: number;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #mode: LinkMode = 'open';
  #cutAfterBytes = Number.POSITIVE_INFINITY;
  #port = 0;

  constructor(targetPort: number) {
    this.#target = targetPort;
    this.#server = createServer((client) => this.#accept(client));
  }

  get port(): number {
    return this.#port;
  }

  /** Connections that are open. */
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

  /** Breaks every connection once so many more bytes have come from the server. */
  cutAfter(bytes: number): void {
    this.#cutAfterBytes = bytes;
  }

  set mode(mode: LinkMode) {
    const before = this.#mode;
    this.#mode = mode;
    if (mode === 'refuse') this.cut();
    if (mode === 'black-hole' || mode === 'stalled') for (const socket of this.#sockets) socket.pause();
    if (mode !== 'open') return;
    if (before === 'stalled') for (const socket of this.#sockets) socket.resume();
    // What was held in the hole is lost with its connections: a peer that comes back has forgotten them.
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
    this.#join(client, server, () => {});
    this.#join(server, client, (bytes) => this.#count(bytes));
  }

  #join(from: Socket, to: Socket, onBytes: (bytes: number) => void): void {
    this.#sockets.add(from);
    from.on('data', (chunk) => {
      if (this.#mode === 'black-hole') return;
      to.write(chunk);
      onBytes(chunk.length);
    });
    if (this.#mode === 'stalled') from.pause();
    from.on('error', () => {});
    from.on('close', () => {
      this.#sockets.delete(from);
      to.destroy();
    });
  }

  #count(bytes: number): void {
    this.#cutAfterBytes -= bytes;
    if (this.#cutAfterBytes > 0) return;
    this.#cutAfterBytes = Number.POSITIVE_INFINITY;
    this.cut();
  }
}
