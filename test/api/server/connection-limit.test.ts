import { EventEmitter } from 'node:events';
import { IncomingMessage, type Server, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { ConnectionLimit } from '../../../src/api/server/connection-limit.ts';
import { trackAnswer } from '../../../src/api/server/open-answers.ts';

const TCP = { remoteAddress: '192.0.2.1' };
const UNIX = {};

/** A limit for a server without a network. Connections are named by their ports. */
class LimitedServer {
  readonly #server = new EventEmitter();
  /** The number of connections that the limit reported as closed. */
  reported = 0;
  readonly #limit = new ConnectionLimit(this.#server as Server, () => {
    this.reported++;
  });
  /** The ports of the connections that the limit closed. */
  readonly closed: number[] = [];

  connect(port: number, address: { readonly remoteAddress?: string } = TCP): Socket {
    // As in Node.js, the event `close` comes later.
    const destroy = (): Socket => {
      this.closed.push(port);
      return socket;
    };
    const socket = Object.defineProperties(new Socket(), {
      remoteAddress: { value: address.remoteAddress },
      remotePort: { value: address === TCP ? port : undefined },
      destroy: { value: destroy },
    });
    this.#server.emit('connection', socket);
    return socket;
  }

  /** Connects and sends a request that is accepted. */
  verified(port: number): Socket {
    const socket = this.connect(port);
    this.verify(socket);
    return socket;
  }

  verify(socket: Socket): void {
    this.#limit.verify(socket);
  }
}

/** Starts an answer that is complete when it emits `close`. */
function answering(socket: Socket): ServerResponse {
  const incoming = new IncomingMessage(socket);
  const answer = new ServerResponse(incoming);
  trackAnswer(incoming, answer);
  return answer;
}

/** The numbers from `first` to `last`. */
const range = (first: number, last: number): number[] =>
  Array.from({ length: last - first + 1 }, (_, at) => first + at);

describe('the limit of connections', () => {
  it('keeps 256 without an accepted request, and closes the oldest when another one arrives', () => {
    const server = new LimitedServer();
    const sockets = range(1, 256).map((port) => server.connect(port));
    expect(server.closed).toEqual([]);
    server.connect(257);
    expect(server.closed).toEqual([1]);
    // Neither a verified nor a closed connection counts.
    for (const socket of sockets.slice(1, 2)) server.verify(socket);
    for (const socket of sockets.slice(3, 4)) socket.emit('close');
    for (const port of [258, 259]) server.connect(port);
    expect(server.closed).toEqual([1]);
    server.connect(260);
    expect(server.closed).toEqual([1, 3]);
    expect(server.reported).toBe(2);
  });

  it('keeps room for one more than 1,023, and closes the oldest without an accepted request', () => {
    const server = new LimitedServer();
    for (const port of range(1, 1_000)) server.verified(port);
    for (const port of range(1_001, 1_023)) server.connect(port);
    expect(server.closed).toEqual([]);
    server.connect(1_024);
    expect(server.closed).toEqual([1_001]);
    server.connect(1_025);
    expect(server.closed).toEqual([1_001, 1_002]);
  });

  it('closes the one whose last request is oldest if all are verified, and the new one if all wait for answers', () => {
    const server = new LimitedServer();
    const sockets = range(1, 1_023).map((port) => server.verified(port));
    const [first, second] = sockets;
    if (first === undefined || second === undefined) throw new Error('no connections');
    server.verify(first);
    const answer = answering(second);
    server.verified(1_024);
    expect(server.closed).toEqual([3]);
    answer.emit('close');
    server.verified(1_025);
    expect(server.closed).toEqual([3, 2]);
    for (const socket of sockets) answering(socket);
    for (const port of [1_026, 1_027]) server.verified(port);
    expect(server.closed).toEqual([3, 2, 1_024, 1_025]);
    for (const port of [1_028, 1_029]) answering(server.verified(port));
    expect(server.closed).toEqual([3, 2, 1_024, 1_025, 1_026, 1_027]);
    server.connect(1_030);
    expect(server.closed.slice(6)).toEqual([1_030]);
  });

  it('counts each connection to a unix socket, although they have no address', () => {
    const server = new LimitedServer();
    for (const port of range(1, 257)) server.connect(port, UNIX);
    expect(server.closed).toEqual([1]);
  });

  it('does not count closed connections', () => {
    const server = new LimitedServer();
    for (const port of range(1, 1_100)) server.verified(port).emit('close');
    for (const port of range(1, 1_023)) server.verified(port);
    expect(server.closed).toEqual([]);
  });

  it('counts a connection from the port of an earlier one that is reported as closed later', () => {
    const server = new LimitedServer();
    const earlier = server.connect(1);
    const later = server.connect(1);
    earlier.emit('close');
    const others = range(2, 256).map((port) => server.connect(port));
    expect(server.closed).toEqual([]);
    server.connect(257);
    expect(server.closed).toEqual([1]);
    server.verify(later); // does not count, because the limit has closed it
    for (const socket of others) server.verify(socket);
    for (const port of range(258, 1_024)) server.verified(port);
    expect(server.closed).toEqual([1]);
    server.connect(1_025);
    expect(server.closed).toEqual([1, 257]);
  });
});
