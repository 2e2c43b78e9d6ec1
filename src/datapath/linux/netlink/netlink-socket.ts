import { closeSync } from 'node:fs';
import { constants } from 'node:os';
import { disposeOnError } from '../../../base/dispose-on-error.ts';
import { runInNamespace } from '../syscall/in-namespace.ts';
import { type Kernel, SOCK_CLOEXEC, SOL_SOCKET } from '../syscall/kernel.ts';
import { SyscallError } from '../syscall/syscall-error.ts';
import { AF } from './address-bytes.ts';
import { endsAnswer, errorIn } from './answer.ts';
import { type NetlinkMessage, readMessages, viewOf } from './message-reader.ts';
import { MessageWriter, NLM_F } from './message-writer.ts';

export const NETLINK = { route: 0, netfilter: 12 } as const;

const SOCK_RAW = 3;
const SO_RCVBUF = 8;
const SO_RCVBUFFORCE = 33;
const SOL_NETLINK = 270;
const NETLINK_ADD_MEMBERSHIP = 1;
const NETLINK_CAP_ACK = 10;
const NETLINK_EXT_ACK = 11;
const NETLINK_GET_STRICT_CHK = 12;

const { ENOBUFS } = constants.errno;

const ADDRESS_BYTES = 12;
/** Maximum size of one send: the buffer of a system call without the address, which is in the same buffer. */
const SEND_BYTES = (1 << 16) - ADDRESS_BYTES;
/**
 * Size of the receive buffer. Each request of a send may cause an error answer. A send of 64 KB contains at most 2,300
 * requests of 28 bytes, and an answer takes 1 KB in the buffer.
 */
const RECEIVE_BYTES = 4 << 20;
/** Maximum number of attempts to dump a table that changes during the dump. */
const DUMP_TRIES = 8;

/** One request: a description, its type and flags, and its body. */
export interface NetlinkRequest {
  /** For errors: `add 10.1.0.0/24`. */
  readonly operation: string;
  readonly type: number;
  readonly flags: number;
  readonly write: (writer: MessageWriter) => void;
}

export interface NetlinkSocketOptions {
  readonly protocol?: number | undefined;
  /** Path of a network namespace, such as `/run/netns/a`; default that of the process. */
  readonly namespace?: string | undefined;
  readonly groups?: readonly number[] | undefined;
  /** The sequence number before that of the first request; default 0. */
  readonly lastSequence?: number | undefined;
}

/**
 * A netlink socket. Synchronous: when `send` returns, the kernel has executed the request and its answer is ready. If
 * several requests are sent, errors are returned; the error of a single request is thrown (`SyscallError`).
 */
export class NetlinkSocket implements Disposable {
  readonly #kernel: Kernel;
  readonly #fd: number;
  readonly #to: Uint8Array = socketAddress();
  readonly #writer = new MessageWriter();
  /** The sequence number of the last request: 32 bits. */
  #sequence: number;
  #isClosed = false;
  /** The port of this socket, which identifies changes made through this socket. */
  readonly port: number;

  constructor(
    kernel: Kernel,
    { protocol = NETLINK.route, namespace, groups = [], lastSequence = 0 }: NetlinkSocketOptions = {},
  ) {
    this.#kernel = kernel;
    this.#sequence = lastSequence;
    this.#fd = runInNamespace(kernel, namespace, () =>
      kernel.socket(AF.netlink, SOCK_RAW | SOCK_CLOEXEC, protocol),
    );
    this.port = disposeOnError([this], () => {
      this.#configure(groups);
      return viewOf(kernel.socketName(this.#fd, ADDRESS_BYTES)).getUint32(4, true);
    });
  }

  /**
   * Sends requests and returns their outcomes, in order. One message contains as many requests as fit. Only the last
   * one requests an acknowledgement, because failed requests are answered in any case.
   */
  transact(requests: readonly NetlinkRequest[]): readonly (SyscallError | undefined)[] {
    const outcomes: (SyscallError | undefined)[] = new Array(requests.length).fill(undefined);
    for (let next = 0; next < requests.length; ) next = this.#sendFrom(requests, next, outcomes);
    return outcomes;
  }

  /** Sends one request. Throws if the kernel refuses it. */
  change(request: NetlinkRequest): void {
    const [error] = this.transact([request]);
    if (error !== undefined) throw error;
  }

  /** Returns the answer to a request for one object. Throws if the kernel refuses it, or if the answer was lost. */
  ask<T>(request: NetlinkRequest, read: (message: NetlinkMessage) => T | undefined): T | undefined {
    this.#encode([request], 0);
    const answers: NetlinkMessage[] = [];
    const isComplete = this.#exchange((message) => answers.push(message));
    const [value] = this.#valuesIn(answers, request.operation, read);
    if (value === undefined && !isComplete) throw lostAnswer(request.operation);
    return value;
  }

  /**
   * Returns all objects of a kind for which `read` does not return `undefined`. If the table changes during the dump,
   * the dump is repeated. If the table changes during every attempt, the last dump is returned; the changes that it
   * misses arrive as events.
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
   * Does the work of {@link dump} in pieces of one system call each, so that the event loop can run between them. The
   * socket must not be used for other requests during that time. The piece `again` means that the table has changed and
   * is read from the start.
   */
  *dumpPieces<T>(
    request: Omit<NetlinkRequest, 'flags'>,
    read: (message: NetlinkMessage) => T | undefined,
  ): Generator<readonly T[] | 'again', void, void> {
    for (let tries = 1; ; tries++) {
      this.#encode([{ ...request, flags: NLM_F.dump }], 0);
      this.#send();
      let isComplete = true;
      for (let messages = this.receive(); messages !== undefined; messages = this.receive()) {
        if (messages === 'overrun') {
          isComplete = false;
          continue;
        }
        isComplete &&= messages.every(({ flags }) => (flags & NLM_F.dumpInterrupted) === 0);
        yield this.#valuesIn(messages, request.operation, read);
      }
      if (isComplete || tries === DUMP_TRIES) return;
      yield 'again';
    }
  }

  /**
   * Returns the messages of one system call: answers, and events of the joined groups. Returns `undefined` if there are
   * none, and `overrun` if messages were lost: everything must be dumped again.
   */
  receive(): readonly NetlinkMessage[] | 'overrun' | undefined {
    try {
      const bytes = this.#kernel.receive(this.#fd);
      return bytes && readMessages(bytes);
    } catch (error) {
      if (error instanceof SyscallError && error.code === 'ENOBUFS') return 'overrun';
      throw error;
    }
  }

  /** Calls back when there are messages to receive, until the result is disposed of. */
  onEvents(callback: () => void): Disposable {
    return this.#kernel.native.onReadable(this.#fd, callback);
  }

  /** Idempotent, because a closed descriptor number may be reused. */
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
      // Without the privilege, as in a user namespace, the system setting limits the size.
      set(SOL_SOCKET, SO_RCVBUF, RECEIVE_BYTES);
    }
    this.#kernel.bind(this.#fd, socketAddress());
    for (const group of groups) set(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group);
  }

  /** Sends as many requests as fit, from `first` on, and stores their outcomes. Returns the index of the next one. */
  #sendFrom(
    requests: readonly NetlinkRequest[],
    first: number,
    outcomes: (SyscallError | undefined)[],
  ): number {
    const next = this.#encode(requests, first);
    // The request at index i has the sequence number `base + i`, modulo 2^32.
    const base = this.#sequence - next + 1;
    const isComplete = this.#exchange((message) => {
      const index = (message.sequence - base) >>> 0;
      const request = requests[index];
      if (request === undefined || index < first || !endsAnswer(message)) return;
      outcomes[index] ??= errorIn(message, request.operation);
    });
    for (let index = first; !isComplete && index < next; index++)
      outcomes[index] ??= lostAnswer(requests[index]?.operation ?? '');
    return next;
  }

  /** Writes requests until a send is full. Returns the index of the next one. */
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

  /** Returns the values in the answers to the last request. Throws the error with which the answer ends. */
  #valuesIn<T>(
    messages: readonly NetlinkMessage[],
    operation: string,
    read: (message: NetlinkMessage) => T | undefined,
  ): readonly T[] {
    const values: T[] = [];
    for (const message of messages) {
      if (message.sequence !== this.#sequence) continue;
      if (endsAnswer(message)) {
        const error = errorIn(message, operation);
        if (error !== undefined) throw error;
        continue;
      }
      const value = read(message);
      if (value !== undefined) values.push(value);
    }
    return values;
  }

  #send(): void {
    this.#kernel.send(this.#fd, this.#writer.written(), this.#to);
  }

  /**
   * Sends the written requests, and passes on all messages until the queue is empty. The kernel has all answers ready
   * when the send returns. Returns false if an answer was lost.
   */
  #exchange(onMessage: (message: NetlinkMessage) => void): boolean {
    this.#send();
    let isComplete = true;
    for (let messages = this.receive(); messages !== undefined; messages = this.receive()) {
      if (messages === 'overrun') isComplete = false;
      else for (const message of messages) onMessage(message);
    }
    return isComplete;
  }
}

function lostAnswer(operation: string): SyscallError {
  return new SyscallError(operation, ENOBUFS, 'the kernel dropped the answer');
}

/** `struct sockaddr_nl`: family, padding, port, groups. Port 0 is the kernel; for `bind`, any free port. */
function socketAddress(): Uint8Array {
  const bytes = new Uint8Array(ADDRESS_BYTES);
  viewOf(bytes).setUint16(0, AF.netlink, true);
  return bytes;
}

function int(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  viewOf(bytes).setInt32(0, value, true);
  return bytes;
}
