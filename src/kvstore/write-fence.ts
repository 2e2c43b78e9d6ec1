import { interruptible } from '../base/supervisor.ts';
import { bytesOfText } from './bytes.ts';
import { INIT_LOCKS_PREFIX } from './codec/keys.ts';
import { abortedError, asKvstoreError, isOutcomeKnown } from './errors.ts';
import { type LeaseKeeper, leaseHex } from './lease-keeper.ts';
import type { CallOptions, Compare, TxnRequest, TxnResponse } from './transport.ts';

/** Makes a transaction, once. */
export type SendTxn = (request: TxnRequest) => Promise<TxnResponse>;

/**
 * Makes a transaction only while all guards hold; `undefined`: one of them does not, and nothing was written. A
 * transaction has one negative outcome only: whether it is a guard's is asked by a second one.
 */
export async function guardedTxn(
  { compare, writes, otherwise = [] }: TxnRequest,
  guards: readonly Compare[],
  send: SendTxn,
): Promise<TxnResponse | undefined> {
  if (guards.length === 0) return send({ compare, writes, otherwise });
  const answer = await send({ compare: [...guards, ...compare], writes });
  if (answer.succeeded) return answer;
  if (compare.length === 0) return undefined;
  const negative = await send({ compare: guards, writes: otherwise });
  return negative.succeeded ? { ...negative, succeeded: false } : undefined;
}

/**
 * Keeps writes from taking effect late (ETCD, "Leases, locks and rights"). A write whose answer did not come may be on its
 * way for any time: behind a link that stalls, or in a server that is slow. So every write is guarded by the value of a key of the client's own, the
 * *fence*; after a write whose outcome is not known the fence is put with another value before the next write. What was
 * written before that has taken effect by then, or never will.
 *
 *     write k=1   if fence is 7   no answer …………………………………………… arrives: the fence is 8, nothing happens
 *     put fence=8                 answered
 *     delete k    if fence is 8   answered: k is gone for good
 *
 * Not covered: writes of a process that was killed, until its session has ended. Where the user may not write the
 * fence, writes go unguarded.
 */
export class WriteFence {
  readonly #leases: LeaseKeeper;
  readonly #send: SendTxn;
  /** Constant once the first lease has given it a name that no other client has. */
  #key: string | undefined;
  /** The values so far: none is used twice. */
  #raised = 0;
  #isForbidden = false;
  #guards: Promise<readonly Compare[]> | undefined;

  /** @param send makes the transactions that put the fence; must not be ended by the signal of a single call */
  constructor(leases: LeaseKeeper, send: SendTxn) {
    this.#leases = leases;
    this.#send = send;
  }

  /** Whether the user has no right to put the fence. */
  get isForbidden(): boolean {
    return this.#isForbidden;
  }

  /**
   * Makes a write under the fence, again when the fence has moved meanwhile.
   *
   * @param attempt gives `undefined` when one of the guards does not hold, as {@link guardedTxn}
   */
  async write(
    attempt: (guards: readonly Compare[]) => Promise<TxnResponse | undefined>,
    { signal }: CallOptions = {},
  ): Promise<TxnResponse> {
    for (;;) {
      const current = this.#current();
      const guards = await untilAborted(current, signal);
      try {
        const answer = await attempt(guards);
        if (answer !== undefined) return answer;
      } catch (error) {
        if (!isOutcomeKnown(asKvstoreError(error))) this.#forget(current);
        throw error;
      }
      this.#forget(current);
    }
  }

  /** {@link write} of a single transaction. */
  txn(request: TxnRequest, send: SendTxn, options?: CallOptions): Promise<TxnResponse> {
    return this.write((guards) => guardedTxn(request, guards, send), options);
  }

  /** One for all writes that begin at the same time. */
  #current(): Promise<readonly Compare[]> {
    if (this.#guards !== undefined) return this.#guards;
    const guards = this.#raise();
    this.#guards = guards;
    guards.catch(() => this.#forget(guards));
    return guards;
  }

  #forget(guards: Promise<readonly Compare[]>): void {
    if (this.#guards === guards) this.#guards = undefined;
  }

  async #raise(): Promise<readonly Compare[]> {
    const lease = await this.#leases.any();
    this.#key ??= `${INIT_LOCKS_PREFIX}${leaseHex(lease)}`;
    const key = this.#key;
    const value = bytesOfText(String(++this.#raised));
    try {
      await this.#send({ compare: [], writes: [{ op: 'put', key, value, lease }] });
      this.#isForbidden = false;
      return [{ key, target: 'value', equals: value }];
    } catch (thrown) {
      const { code } = asKvstoreError(thrown);
      if (code === 'lease-not-found') this.#leases.markLost(lease);
      else if (code !== 'forbidden') throw thrown;
      else {
        this.#isForbidden = true;
        return [];
      }
      return this.#raise();
    }
  }
}

async function untilAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  try {
    return await interruptible(() => promise, signal);
  } catch (error) {
    throw signal.aborted ? abortedError() : error;
  }
}
