import { bytesOfText } from '../codec/bytes.ts';
import { keyRange } from '../codec/key-range.ts';
import { INIT_LOCKS_PREFIX } from '../codec/keys.ts';
import { asKvstoreError, missingNewLease, neverTakesEffect } from './errors.ts';
import { type LeaseKeeper, leaseHex } from './lease-keeper.ts';
import type { CallOptions, Compare, LeaseID, TxnRequest, TxnResponse } from './transport.ts';
import { untilAborted } from './until-aborted.ts';

/** Sends a transaction once. */
export type SendTxn = (request: TxnRequest) => Promise<TxnResponse>;

/**
 * Sends a transaction whose comparisons include the guards. If a guard does not hold, nothing is written, and the
 * result is `undefined`. A failed transaction does not show which comparison failed, so a second transaction checks the
 * guards.
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
  const second = await send({ compare: guards, writes: otherwise });
  return second.succeeded ? { ...second, succeeded: false } : undefined;
}

/**
 * Prevents late effects of writes (SEMANTICS 5, "Late writes"). A write that got no answer may be delayed for any time,
 * by a stalled link or a slow server. So every write is guarded by the value of a key which only this
 * client uses, the *fence*. If the outcome of a write is unknown, the next write first puts a new value of the fence.
 * Earlier writes then have either taken effect or never will.
 *
 *     write k=1   if fence is 7   no answer …………………………………………… arrives: the fence is 8, nothing happens
 *     put fence=8                 answered
 *     delete k    if fence is 8   answered: k is deleted permanently
 *
 * Not covered: delayed writes of a killed process, until its session has ended. If the user has no right to put the
 * fence, writes are not guarded.
 */
export class WriteFence {
  readonly #leases: LeaseKeeper;
  readonly #send: SendTxn;
  /**
   * The key of the fence, which never changes. The id of the first lease makes it unique among all clients, also when
   * the fence is bound to a later lease.
   */
  #key: string | undefined;
  /** The last value of the fence. Each value is used once. */
  #lastValue = 0;
  #isForbidden = false;
  /**
   * The comparison with the present value of the fence, empty if the fence is forbidden. Undefined if the next write
   * must put a new value.
   */
  #guards: Promise<readonly Compare[]> | undefined;

  /** @param send sends the transactions for the fence; the signal of a single call must not abort it */
  constructor(leases: LeaseKeeper, send: SendTxn) {
    this.#leases = leases;
    this.#send = send;
  }

  /** True if the user has no right to put the fence. */
  get isForbidden(): boolean {
    return this.#isForbidden;
  }

  /**
   * Makes a write under the fence. Repeats it if the fence has changed.
   *
   * @param attempt returns `undefined` if one of the guards does not hold, like {@link guardedTxn}
   */
  async write(
    attempt: (guards: readonly Compare[]) => Promise<TxnResponse | undefined>,
    { signal }: CallOptions = {},
  ): Promise<TxnResponse> {
    for (;;) {
      const current = this.#currentGuards();
      const guards = await untilAborted(current, signal);
      try {
        const answer = await attempt(guards);
        if (answer !== undefined) return answer;
      } catch (error) {
        if (!neverTakesEffect(asKvstoreError(error))) this.#forget(current);
        throw error;
      }
      this.#forget(current);
    }
  }

  /** Calls {@link write} with a single transaction. */
  txn(request: TxnRequest, send: SendTxn, options?: CallOptions): Promise<TxnResponse> {
    return this.write((guards) => guardedTxn(request, guards, send), options);
  }

  /**
   * If the fence of an earlier session is bound to this lease, deletes the fence, so that delayed writes of that
   * session fail.
   */
  async deleteFenceOf(lease: LeaseID): Promise<void> {
    const range = keyRange(`${INIT_LOCKS_PREFIX}${leaseHex(lease)}`);
    try {
      await this.#send({ compare: [], writes: [{ op: 'delete', range }] });
    } catch (thrown) {
      if (asKvstoreError(thrown).code !== 'forbidden') throw thrown;
    }
  }

  /** Returns the guards, shared by all writes until {@link #forget} is called. Puts the fence if there are none. */
  #currentGuards(): Promise<readonly Compare[]> {
    if (this.#guards !== undefined) return this.#guards;
    const guards = this.#putFence();
    this.#guards = guards;
    guards.catch(() => this.#forget(guards));
    return guards;
  }

  #forget(guards: Promise<readonly Compare[]>): void {
    if (this.#guards === guards) this.#guards = undefined;
  }

  async #putFence(): Promise<readonly Compare[]> {
    const { lease, isNew } = await this.#leases.anyGranted();
    this.#key ??= `${INIT_LOCKS_PREFIX}${leaseHex(lease)}`;
    const key = this.#key;
    const value = bytesOfText(String(++this.#lastValue));
    try {
      await this.#send({ compare: [], writes: [{ op: 'put', key, value, lease }] });
      this.#isForbidden = false;
      return [{ key, target: 'value', equals: value }];
    } catch (thrown) {
      const { code } = asKvstoreError(thrown);
      if (code === 'forbidden') {
        this.#isForbidden = true;
        return [];
      }
      if (code !== 'lease-not-found') throw thrown;
      this.#leases.markLost(lease);
      if (isNew) throw missingNewLease(lease);
      return this.#putFence();
    }
  }
}
