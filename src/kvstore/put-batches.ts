import { interruptible } from '../base/supervisor.ts';
import { abortedError, asKvstoreError, type KvstoreErrorCode } from './errors.ts';
import type { Compare, TxnRequest, TxnResponse } from './transport.ts';
import type { SendTxn } from './write-fence.ts';

/** etcd takes 128 operations in a transaction (`--max-txn-ops`). */
const MOST_PUTS = 100;
/** A third of what etcd takes in a request (`--max-request-bytes`, 1.5 MiB). */
const MOST_BYTES = 512 * 1024;

/** Of one put, perhaps: nothing was written, and the others need not be refused. */
const REFUSALS: ReadonlySet<KvstoreErrorCode> = new Set(['forbidden', 'invalid-request', 'lease-not-found']);

interface Waiting {
  readonly request: TxnRequest;
  readonly key: string;
  readonly bytes: number;
  readonly signal: AbortSignal | undefined;
  resolve(answer: TxnResponse): void;
  reject(error: unknown): void;
}

/**
 * Makes single puts that wait at the same time in one transaction, so that they cost one call and one fsync together: while
 * one transaction is under way the next gathers what comes. Puts go together that have the same comparisons and other keys;
 * everything else goes by itself, at once. What is refused together is tried one by one, so that no put fails for another's
 * sake; what fails otherwise fails for all.
 *
 * A put whose signal fires while it waits is not made; one that was sent may still take effect, as any write that is given up.
 */
export class PutBatches {
  readonly #send: SendTxn;
  #waiting: Waiting[] = [];
  #isBusy = false;

  /** @param send makes a transaction once; must not be ended by the signal of a single put */
  constructor(send: SendTxn) {
    this.#send = send;
  }

  /** Makes a transaction, with others if it can be. Rejects as `send` does, and with `aborted`. */
  async txn(request: TxnRequest, signal: AbortSignal | undefined): Promise<TxnResponse> {
    const [put, ...more] = request.writes;
    const isAlone = put?.op !== 'put' || more.length > 0 || (request.otherwise ?? []).length > 0;
    const made = (): Promise<TxnResponse> =>
      isAlone ? this.#send(request) : this.#together(request, put.key, put.value.length, signal);
    if (signal === undefined) return made();
    try {
      return await interruptible(made, signal);
    } catch (error) {
      throw signal.aborted ? abortedError() : error;
    }
  }

  #together(
    request: TxnRequest,
    key: string,
    bytes: number,
    signal: AbortSignal | undefined,
  ): Promise<TxnResponse> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ request, key, bytes: bytes + key.length, signal, resolve, reject });
      if (!this.#isBusy) void this.#work();
    });
  }

  async #work(): Promise<void> {
    this.#isBusy = true;
    while (this.#waiting.length > 0) await this.#make(this.#take());
    this.#isBusy = false;
  }

  /** What goes together with the one that has waited longest. */
  #take(): readonly Waiting[] {
    this.#waiting = this.#waiting.filter(({ signal }) => signal?.aborted !== true); // whose caller knows it
    const [first] = this.#waiting;
    const keys = new Set<string>();
    let bytes = 0;
    let count = 0;
    for (const { request, key, bytes: more } of this.#waiting) {
      const fits = count === 0 || (count < MOST_PUTS && bytes + more <= MOST_BYTES);
      if (!fits || keys.has(key) || !haveSame(request.compare, first?.request.compare ?? [])) break;
      keys.add(key);
      bytes += more;
      count++;
    }
    return this.#waiting.splice(0, count);
  }

  async #make(puts: readonly Waiting[]): Promise<void> {
    const [first] = puts;
    if (first === undefined) return;
    try {
      const writes = puts.flatMap(({ request }) => request.writes);
      const answer = await this.#send({ compare: first.request.compare, writes });
      for (const { resolve } of puts) resolve(answer);
    } catch (error) {
      if (puts.length > 1 && REFUSALS.has(asKvstoreError(error).code)) await this.#oneByOne(puts);
      else for (const { reject } of puts) reject(error);
    }
  }

  async #oneByOne(puts: readonly Waiting[]): Promise<void> {
    const make = ({ request, resolve, reject }: Waiting): Promise<void> =>
      this.#send(request).then(resolve, reject);
    await Promise.all(puts.map(make));
  }
}

/** The same objects: those of a fence are shared by all writes under it. */
function haveSame(a: readonly Compare[], b: readonly Compare[]): boolean {
  return a.length === b.length && a.every((one, index) => one === b[index]);
}
