import { KeyedQueue } from '../../base/keyed-queue.ts';
import { interruptible } from '../../base/supervisor.ts';
import { keyAfter } from '../codec/key-range.ts';
import { abortedError, asKvstoreError, type KvstoreErrorCode } from './errors.ts';
import type { Compare, TxnRequest, TxnResponse, WriteOperation } from './transport.ts';
import type { SendTxn } from './write-fence.ts';

/** etcd accepts 128 operations in a transaction (`--max-txn-ops`). */
const MAX_WRITES = 100;
/** A third of what etcd accepts in a request (`--max-request-bytes`, 1.5 MiB). */
const MAX_BYTES = 512 * 1024;

/** Errors that one write may have caused: nothing was written, and the other writes may be valid. */
const REJECTIONS: ReadonlySet<KvstoreErrorCode> = new Set([
  'forbidden',
  'invalid-request',
  'lease-not-found',
]);

interface Waiting {
  readonly request: TxnRequest;
  readonly key: string;
  readonly bytes: number;
  readonly signal: AbortSignal | undefined;
  resolve(answer: TxnResponse): void;
  reject(error: unknown): void;
}

/**
 * Combines single puts and deletes that wait at the same time in one transaction, so that they cost one call and one fsync. While a
 * transaction is in flight, the next one collects new writes. Writes are combined if they have the same comparisons and distinct
 * keys. Every other transaction is sent separately and immediately. If a combined transaction is rejected, its writes are tried one
 * by one, so that no write fails because of another; other errors fail all of them.
 *
 * A write whose signal fires while it waits is not sent. One that was sent may still take effect, like any abandoned write.
 */
export class WriteBatches {
  readonly #send: SendTxn;
  readonly #waiting = new KeyedQueue<Waiting>();
  #isBusy = false;

  /** @param send sends a transaction once; the signal of a single write must not abort it */
  constructor(send: SendTxn) {
    this.#send = send;
  }

  /**
   * Sends a transaction, combined with others if possible. `deleted` of the answer counts the keys of all of them. Rejects like
   * `send`, and with `aborted`.
   */
  async txn(request: TxnRequest, signal: AbortSignal | undefined): Promise<TxnResponse> {
    const [write, ...more] = request.writes;
    const key = more.length > 0 || (request.otherwise ?? []).length > 0 ? undefined : keyOf(write);
    const send = (): Promise<TxnResponse> =>
      key === undefined ? this.#send(request) : this.#combined(request, key, bytesOf(write), signal);
    if (signal === undefined) return send();
    try {
      return await interruptible(send, signal);
    } catch (error) {
      throw signal.aborted ? abortedError() : error;
    }
  }

  #combined(
    request: TxnRequest,
    key: string,
    bytes: number,
    signal: AbortSignal | undefined,
  ): Promise<TxnResponse> {
    return new Promise((resolve, reject) => {
      this.#waiting.set({ request, key, bytes: bytes + key.length, signal, resolve, reject }, undefined);
      if (!this.#isBusy) void this.#work();
    });
  }

  async #work(): Promise<void> {
    this.#isBusy = true;
    while (this.#waiting.size > 0) await this.#sendBatch(this.#nextBatch());
    this.#isBusy = false;
  }

  /** Takes the write that has waited longest, and the following ones that can be combined with it. */
  #nextBatch(): readonly Waiting[] {
    const batch: Waiting[] = [];
    const keys = new Set<string>();
    let bytes = 0;
    for (const [waiting] of this.#waiting) {
      const [first] = batch;
      if (waiting.signal?.aborted !== true) {
        const fits =
          batch.length < MAX_WRITES && bytes + waiting.bytes <= MAX_BYTES && !keys.has(waiting.key);
        const isFirst = first === undefined;
        if (!isFirst && !(fits && haveSame(waiting.request.compare, first.request.compare))) break;
        batch.push(waiting);
        keys.add(waiting.key);
        bytes += waiting.bytes;
      }
      this.#waiting.delete(waiting);
    }
    return batch;
  }

  async #sendBatch(batch: readonly Waiting[]): Promise<void> {
    const [first] = batch;
    if (first === undefined) return;
    try {
      const writes = batch.flatMap(({ request }) => request.writes);
      const answer = await this.#send({ compare: first.request.compare, writes });
      for (const { resolve } of batch) resolve(answer);
    } catch (error) {
      if (batch.length > 1 && REJECTIONS.has(asKvstoreError(error).code)) await this.#oneByOne(batch);
      else for (const { reject } of batch) reject(error);
    }
  }

  async #oneByOne(batch: readonly Waiting[]): Promise<void> {
    const send = ({ request, resolve, reject }: Waiting): Promise<void> =>
      this.#send(request).then(resolve, reject);
    await Promise.all(batch.map(send));
  }
}

/** Returns the key of a put, or of a delete of one key. */
function keyOf(write: WriteOperation | undefined): string | undefined {
  if (write?.op === 'put') return write.key;
  if (write === undefined || write.range.end !== keyAfter(write.range.start)) return undefined;
  return write.range.start;
}

function bytesOf(write: WriteOperation | undefined): number {
  return write?.op === 'put' ? write.value.length : 0;
}

/** Compares identities, because all writes under a fence share its objects. */
function haveSame(a: readonly Compare[], b: readonly Compare[]): boolean {
  return a.length === b.length && a.every((one, index) => one === b[index]);
}
