import { closeSync } from 'node:fs';
import { constants } from 'node:os';
import { inNamespace } from '../syscall/in-namespace.ts';
import type { Kernel } from '../syscall/kernel.ts';
import { SyscallError } from '../syscall/syscall-error.ts';
import { AF } from './address-bytes.ts';
import { endsAnswer, errorIn } from './answer.ts';
import { type NetlinkMessage, readMessages, viewOf } from './message-reader.ts';
import { MessageWriter, NLM_F } from './message-writer.ts';

/** Families of netlink. */
export const NETLINK = { route: 0, netfilter: 12 } as const;

const SOCK_RAW = 3;
const SOCK_CLOEXEC = 0o2000000;
const SOL_SOCKET = 1;
const SO_RCVBUF = 8;
const SO_RCVBUFFORCE = 33;
const SOL_NETLINK = 270;
const NETLINK_ADD_MEMBERSHIP = 1;
const NETLINK_CAP_ACK = 10;
const NETLINK_EXT_ACK = 11;
const NETLINK_GET_STRICT_CHK = 12;

const { ENOBUFS } = constants.errno;

const ADDRESS_BYTES = 12;
/** What one send may hold: as much as the buffer of a system call, in which the address is, too. */
const SEND_BYTES = (1 << 16) - ADDRESS_BYTES;
/** Room for an error to each message of a send: 64 KB of requests are at most 2,300 of 28 bytes; an error takes 1 KB there. */
const RECEIVE_BYTES = 4 << 20;
/** How often a dump is repeated that the table has changed under. */
const DUMP_TRIES = 8;

/** One request: what is asked in words, its type and flags, and its body. */
export interface NetlinkRequest {
  /** For errors: `add 10.1.0.0/24`. */
  readonly what: string;
  readonly type: number;
  readonly flags: number;
  readonly write: (writer: MessageWriter) => void;
}

/** Where a socket is opened, and what it listens to. */
export interface NetlinkSocketOptions {
  /** One of {@link NETLINK}. */
  readonly protocol?: number | undefined;
  /** Path of a network namespace, such as `/run/netns/a`; by default the one that the process is in. */
  readonly namespace?: string | undefined;
  /** Multicast groups, by number. */
  readonly groups?: readonly number[] | undefined;
}

/**
 * A netlink socket. Synchronous: the kernel has done what it is asked, and has its answer ready, when `send` returns. What the
 * kernel refuses is a value where one of several requests fails, and is thrown (`SyscallError`) where it is the only one.
 */
export class NetlinkSocket implements Disposable {
  readonly #kernel: Kernel;
  readonly #fd: number;
  readonly #to: Uint8Array = socketAddress(0);
  readonly #writer = new MessageWriter();
  #sequence = 0;
  #isClosed = false;
  /** The own address: what this socket has changed carries it. */
  readonly port: number;

  constructor(
    kernel: Kernel,
    { protocol = NETLINK.route, namespace, groups = [] }: NetlinkSocketOptions = {},
  ) {
    this.#kernel = kernel;
    this.#fd = inNamespace(kernel, namespace, () =>
      kernel.socket(AF.netlink, SOCK_RAW | SOCK_CLOEXEC, protocol),
    );
    try {
      this.#configure(groups);
      this.port = viewOf(kernel.socketName(this.#fd, ADDRESS_BYTES)).getUint32(4, true);
    } catch (error) {
      closeSync(this.#fd);
      throw error;
    }
  }

  /**
   * Sends requests, and gives what became of each, in their order. As many as fit go in one message, of which only the last
   * asks for an acknowledgement: those that fail answer in any case.
   */
  transact(requests: readonly NetlinkRequest[]): readonly (SyscallError | undefined)[] {
    const outcomes: (SyscallError | undefined)[] = new Array(requests.length).fill(undefined);
    for (let next = 0; next < requests.length; ) next = this.#sendFrom(requests, next, outcomes);
    return outcomes;
  }

  /** Sends one request; throws what the kernel refuses. */
  change(request: NetlinkRequest): void {
    const [error] = this.transact([request]);
    if (error !== undefined) throw error;
  }

  /** The answer to a question about one thing. Throws what the kernel refuses. */
  ask<T>(request: NetlinkRequest, read: (message: NetlinkMessage) => T | undefined): T | undefined {
    this.#encode([request], 0);
    const answers: NetlinkMessage[] = [];
    this.#exchange((message) => answers.push(message));
    return this.#piece(answers, request.what, read)[0];
  }

  /**
   * All that the kernel has of a kind; what `read` gives `undefined` for is left out. Is repeated when the table changes
   * meanwhile; a table that never stands still is given as it was read last: what it lacks comes as an event.
   */
  dump<T>(request: Omit<NetlinkRequest, 'flags'>, read: (message: NetlinkMessage) => T | undefined): T[] {
    let found: T[] = [];
    for (const piece of this.dumpPieces(request, read)) {
      if (piece === 'again') found = [];
      else found.push(...piece);
    }
    return found;
  }

  /**
   * The same in pieces of one system call each, so that the event loop may turn between them; meanwhile nothing else may be
   * asked of this socket. `again`: the table has changed, so that all of it is read anew.
   */
  *dumpPieces<T>(
    request: Omit<NetlinkRequest, 'flags'>,
    read: (message: NetlinkMessage) => T | undefined,
  ): Generator<readonly T[] | 'again', void, void> {
    for (let tries = 1; ; tries++) {
      this.#encode([{ ...request, flags: NLM_F.dump }], 0);
      this.#send();
      let isWhole = true;
      for (let got = this.events(); got !== undefined; got = this.events()) {
        if (got === 'overrun') isWhole = false;
        else {
          if (got.some(({ flags }) => (flags & NLM_F.dumpInterrupted) !== 0)) isWhole = false;
          yield this.#piece(got, request.what, read);
        }
      }
      if (isWhole || tries === DUMP_TRIES) return;
      yield 'again';
    }
  }

  /**
   * What has been received meanwhile, of the groups that the socket listens to: at most one system call's worth; `undefined`
   * when there is nothing. `overrun`: some of it is lost, so that everything has to be dumped again.
   */
  events(): readonly NetlinkMessage[] | 'overrun' | undefined {
    try {
      const bytes = this.#kernel.receive(this.#fd);
      return bytes && readMessages(bytes);
    } catch (error) {
      if (error instanceof SyscallError && error.code === 'ENOBUFS') return 'overrun';
      throw error;
    }
  }

  /** Calls back when there are events, until that is disposed of. */
  onEvents(callback: () => void): Disposable {
    return this.#kernel.native.onReadable(this.#fd, callback);
  }

  /** Idempotent: the number of a descriptor that is closed may be another's by then. */
  [Symbol.dispose](): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    closeSync(this.#fd);
  }

  #configure(groups: readonly number[]): void {
    const set = (level: number, option: number, value: number): void =>
      this.#kernel.setSocketOption(this.#fd, level, option, int(value));
    for (const option of [NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK])
      set(SOL_NETLINK, option, 1);
    try {
      set(SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES);
    } catch {
      // In a user namespace: as much as an administrator lets everybody have.
      set(SOL_SOCKET, SO_RCVBUF, RECEIVE_BYTES);
    }
    this.#kernel.bind(this.#fd, socketAddress(0));
    for (const group of groups) set(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group);
  }

  /** Sends as many requests as fit, from `first` on, and puts down what became of them; gives the index of the next one. */
  #sendFrom(
    requests: readonly NetlinkRequest[],
    first: number,
    outcomes: (SyscallError | undefined)[],
  ): number {
    const next = this.#encode(requests, first);
    const sequence = this.#sequence - next;
    const isWhole = this.#exchange((message) => {
      const index = message.sequence - sequence - 1;
      const request = requests[index];
      if (request === undefined || index < first || !endsAnswer(message)) return;
      outcomes[index] ??= errorIn(message, request.what);
    });
    for (let index = first; !isWhole && index < next; index++)
      outcomes[index] ??= new SyscallError(requests[index]?.what ?? '', ENOBUFS, 'the answer is lost');
    return next;
  }

  /** Writes requests until they fill a send, and gives the index of the next one. */
  #encode(requests: readonly NetlinkRequest[], first: number): number {
    const writer = this.#writer;
    writer.clear();
    let last = 0;
    let next = first;
    for (; next < requests.length; next++) {
      const request = requests[next];
      const start = writer.length;
      if (request === undefined) break;
      writer.begin(request.type, request.flags | NLM_F.request, (this.#sequence + 1) >>> 0);
      request.write(writer);
      writer.end();
      if (writer.length > SEND_BYTES && next > first) {
        writer.truncate(start);
        break;
      }
      this.#sequence = (this.#sequence + 1) >>> 0;
      last = start;
    }
    writer.addFlags(last, NLM_F.ack);
    return next;
  }

  #piece<T>(
    messages: readonly NetlinkMessage[],
    what: string,
    read: (message: NetlinkMessage) => T | undefined,
  ): readonly T[] {
    const piece: T[] = [];
    for (const message of messages) {
      if (message.sequence !== this.#sequence) continue;
      if (endsAnswer(message)) {
        const error = errorIn(message, what);
        if (error !== undefined) throw error;
        continue;
      }
      const value = read(message);
      if (value !== undefined) piece.push(value);
    }
    return piece;
  }

  #send(): void {
    this.#kernel.send(this.#fd, this.#writer.written(), this.#to);
  }

  /** Sends what is written, and receives until nothing is left: the kernel has all its answers ready by then. */
  #exchange(receive: (message: NetlinkMessage) => void): boolean {
    this.#send();
    let isWhole = true;
    for (let got = this.events(); got !== undefined; got = this.events()) {
      if (got === 'overrun') isWhole = false;
      else for (const message of got) receive(message);
    }
    return isWhole;
  }
}

/** `struct sockaddr_nl`: family, padding, port, groups. */
function socketAddress(port: number): Uint8Array {
  const bytes = new Uint8Array(ADDRESS_BYTES);
  viewOf(bytes).setUint16(0, AF.netlink, true);
  viewOf(bytes).setUint32(4, port, true);
  return bytes;
}

function int(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  viewOf(bytes).setInt32(0, value, true);
  return bytes;
}
