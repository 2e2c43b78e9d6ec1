import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import { keyAfter } from '../codec/key-range.ts';
import { abortedError, asKvstoreError, closedError, KvstoreError } from '../session/errors.ts';
import type {
  CallOptions,
  EndpointStatus,
  LeaseID,
  RangeRequest,
  RangeResponse,
  Transport,
  TxnRequest,
  TxnResponse,
  WatchObserver,
  WatchRequest,
  WatchStream,
} from '../session/transport.ts';
import type { MemoryServer } from './memory-server.ts';

// A write takes about 10 µs with the store and its watches, so this is 3 ms.
const OPERATIONS_PER_TURN = 256;
// A read ends its turn after so many keys or expanded blocks, because V8 may insert a step of its marking, which takes
// 5 to 10 ms, for each 128 KiB of buffers. The values of 1,024 IPs take 160 KiB; a block of values takes about 30 KiB
// while it is expanded and read.
const KEYS_PER_TURN = 1024;
const EXPANSIONS_PER_TURN = 8;

/**
 * The connection of a client to a {@link MemoryServer}. A call is answered in a later microtask. After many calls in
 * one turn of the event loop, calls are answered in a later turn, because a client that sends one call after another
 * would otherwise block the event loop.
 */
export class MemoryTransport implements Transport {
  readonly #server: MemoryServer;
  /** A function per open stream to end it. */
  readonly #streams = new Set<() => void>();
  #isClosed = false;
  /** Number of operations in this turn of the event loop. */
  #operations = 0;
  /** The next turn, if this one has operations. */
  #turn: Promise<void> | undefined;

  constructor(server: MemoryServer) {
    this.#server = server;
  }

  /**
   * Reads a range, in several turns if it has many keys, all as of the revision of the first turn. A read with
   * `minModRevision` is made in one turn, because each turn would visit all recent writes again.
   *
   * @param isOpen returns false when the stream of the read has ended; the read then fails
   */
  async range(
    request: RangeRequest,
    options?: CallOptions,
    isOpen: () => boolean = () => true,
  ): Promise<RangeResponse> {
    const read = (part: RangeRequest, maxBlocks?: number): Promise<RangeResponse> =>
      this.#call(options, () => {
        if (!isOpen()) throw new KvstoreError('unavailable', 'the stream ended');
        return this.#server.range(part, maxBlocks);
      });
    const { minModRevision = 0, revision = 0 } = request;
    if (minModRevision > 0) return read(request);
    const limit = request.limit || Number.POSITIVE_INFINITY;
    let page = await read({ ...request, limit: Math.min(limit, KEYS_PER_TURN) }, EXPANSIONS_PER_TURN);
    const { header, count } = page;
    const kvs = [...page.kvs];
    for (let last = kvs.at(-1); last !== undefined && page.more && kvs.length < limit; last = kvs.at(-1)) {
      await eventLoopTurn();
      const rest = { start: keyAfter(last.key), limit: Math.min(limit - kvs.length, KEYS_PER_TURN) };
      page = await read({ ...request, ...rest, revision: revision || header.revision }, EXPANSIONS_PER_TURN);
      for (const kv of page.kvs) kvs.push(kv);
    }
    return { header, kvs, more: page.more, count };
  }

  txn(request: TxnRequest, options?: CallOptions): Promise<TxnResponse> {
    return this.#call(options, () => this.#server.txnInTurns(request), request.writes.length);
  }

  grantLease(ttlSeconds: number, options?: CallOptions): Promise<LeaseID> {
    return this.#call(options, () => this.#server.grantLease(ttlSeconds));
  }

  keepLeaseAlive(lease: LeaseID, options?: CallOptions): Promise<number> {
    return this.#call(options, () => this.#server.keepLeaseAlive(lease));
  }

  revokeLease(lease: LeaseID, options?: CallOptions): Promise<void> {
    return this.#call(options, () => this.#server.revokeLease(lease));
  }

  endpoints(): Promise<readonly EndpointStatus[]> {
    return Promise.resolve([{ endpoint: 'memory', healthy: !this.#isClosed, isLeader: true }]);
  }

  watch(request: WatchRequest, observer: WatchObserver): WatchStream {
    const end = (): void => stream.end(closedError());
    const stream = this.#server.watch(request, observer, () => this.#streams.delete(end));
    this.#streams.add(end);
    if (this.#isClosed) end();
    return {
      range: (read, options) => this.range(read, options, () => stream.isOpen),
      pause: () => stream.pause(),
      resume: () => stream.resume(),
      requestProgress: () => stream.requestProgress(),
      cancel: () => stream.cancel(),
    };
  }

  close(): Promise<void> {
    this.#isClosed = true;
    for (const end of this.#streams) end();
    return Promise.resolve();
  }

  async #call<T>(options: CallOptions | undefined, run: () => T | Promise<T>, operations = 1): Promise<T> {
    await this.#admitted(operations);
    while (this.#server.idle !== undefined) await this.#server.idle;
    if (this.#isClosed) throw closedError();
    if (options?.signal?.aborted === true) throw abortedError();
    try {
      return await run();
    } catch (error) {
      throw asKvstoreError(error);
    }
  }

  /** Resolves in a microtask, or in the next turn if this one has had many operations. */
  #admitted(operations: number): Promise<void> {
    this.#turn ??= eventLoopTurn().then(() => {
      this.#turn = undefined;
      this.#operations = 0;
    });
    this.#operations += Math.max(1, operations);
    return this.#operations > OPERATIONS_PER_TURN ? this.#turn : Promise.resolve();
  }
}
