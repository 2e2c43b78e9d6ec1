import { assert } from '../base/assert.ts';
import { OPEN_GATE, type TurnGate } from '../base/turn-gate.ts';
import { keyRange, prefixRange } from './codec/key-range.ts';
import {
  type DeleteOptions,
  type KeyWrite,
  type KvstoreLock,
  MAX_COMPARED_WRITES,
  MAX_WRITES,
  type WriteOptions,
  type WrittenAll,
} from './session/backend.ts';
import type { CallLimits, Timed } from './session/call-limits.ts';
import { asKvstoreError, KvstoreError, neverTakesEffect, rethrowWithRight } from './session/errors.ts';
import type { Binding } from './session/lease-bindings.ts';
import type { LeaseKeeper } from './session/lease-keeper.ts';
import {
  type CallOptions,
  type Compare,
  type LeaseID,
  NO_LEASE,
  type Transport,
  type TxnRequest,
  type TxnResponse,
  type WriteOperation,
} from './session/transport.ts';
import { guardedTxn, type WriteFence } from './session/write-fence.ts';
import type { ClientWrites } from './watch/client-writes.ts';

export interface KvstoreWriterOptions {
  readonly transport: Pick<Transport, 'txn'>;
  readonly limits: CallLimits;
  readonly fence: WriteFence;
  readonly leases: LeaseKeeper;
  /** The leases of the keys with `expires-first`. */
  readonly firstExpiringLeases: LeaseKeeper;
  readonly clientWrites: ClientWrites;
  /** See `BackendOptions`. */
  readonly mayWrite?: (() => boolean) | undefined;
  readonly writeTimeoutMs?: number | undefined;
  readonly gate?: TurnGate | undefined;
}

/** A binding that ends if `write` is applied. `holder` keeps the lease of the binding. */
interface ReleasedBinding {
  readonly write: KeyWrite;
  readonly holder: LeaseKeeper;
  readonly binding: Binding;
}

/**
 * The result of a transaction of writes. `isComplete` is also false if the condition of the transaction did not hold.
 */
interface Committed extends WrittenAll {
  readonly deleted: number;
}

type TimedWrite = Timed<WriteOptions>;

type Put = KeyWrite & { readonly value: Uint8Array };

/** The writes of a client: binds keys to leases, adds the guards of fence and lock, and records the results. */
export class KvstoreWriter {
  // A write passes these methods:
  //
  //   commit          binds the keys to leases, and records the result
  //   #txn            waits for the fence
  //   #txnWithFence   adds the fence and the lock as guards
  //   #sendTxn        checks that this process is the leader, and sends within the limits of calls

  readonly #options: KvstoreWriterOptions;

  constructor(options: KvstoreWriterOptions) {
    this.#options = options;
  }

  /** See `KvstoreBackend`. */
  async writeAll(writes: readonly KeyWrite[], options: WriteOptions): Promise<WrittenAll> {
    const compared = writes.filter(mayBeOmitted);
    if (writes.length === 0 || writes.length > MAX_WRITES || compared.length > MAX_COMPARED_WRITES)
      throw new KvstoreError(
        'invalid-request',
        `${writes.length} writes, ${compared.length} compared: must be 1 to ${MAX_WRITES}, and at most ${MAX_COMPARED_WRITES}`,
      );
    const keys = new Set<string>();
    for (const { key } of writes) {
      // etcd does not notice a delete in one nested transaction and a put in another.
      if (keys.has(key))
        throw new KvstoreError('invalid-request', `${key} is written twice in a transaction`);
      keys.add(key);
    }
    const { revision, isComplete } = await this.commit(writes, options);
    return { revision, isComplete };
  }

  /** See `KvstoreBackend`. */
  async deletePrefix(prefix: string, options: Omit<DeleteOptions, 'ifModRevision'>): Promise<number> {
    const { gate = OPEN_GATE, clientWrites } = this.#options;
    const previous = this.#keepers.map(({ bindings }) => bindings.count);
    clientWrites.forgetBelow(prefix);
    const writes = [{ op: 'delete', range: prefixRange(prefix) } as const];
    const { header, deleted } = await this.#txn({ compare: [], writes }, options);
    await gate.runSteps(this.#unbindBelow(prefix, header.revision, previous));
    return deleted;
  }

  /**
   * Sends writes of distinct keys in one transaction, and records their effects on the leases. If the lease of all puts
   * does not exist any more, writes again under a new lease, once.
   *
   * @param condition of all writes; none if a write has `mayBeEqual`
   */
  async commit(
    writes: readonly KeyWrite[],
    options: TimedWrite,
    condition?: Compare,
    isLastTry = false,
  ): Promise<Committed> {
    const { limits, clientWrites } = this.#options;
    const timed = limits.timed(options);
    const puts = writes.filter(isPut);
    const keeper = this.#keeperOf(options);
    const released = this.#releasedBy(writes, keeper);
    const bindings =
      keeper === undefined ? [] : await limits.wait(timed, (signal) => keeper.bindAll(puts, signal));
    for (const { key, value } of writes) if (value === undefined) clientWrites.forget(key);
    const request = transactionOf(writes, bindings, condition);
    let answer: TxnResponse;
    try {
      answer = await this.#txn(request, timed);
    } catch (thrown) {
      const error = asKvstoreError(thrown);
      keeper?.bindings.settle(bindings, !neverTakesEffect(error));
      const lease = endedLease(error, bindings);
      if (isLastTry || lease === undefined) throw thrown;
      keeper?.markLost(lease);
      return this.commit(writes, timed, condition, true);
    }
    const { header, succeeded, deleted } = answer;
    const { revision } = header;
    // Without a condition, each put was applied, or was omitted because the store has it under this lease.
    keeper?.bindings.settle(bindings, condition === undefined || succeeded, revision);
    const mayOmit = request.otherwise !== undefined;
    // A transaction that may omit writes compares their values: if it succeeded, all values were equal.
    const isComplete = mayOmit ? !succeeded : succeeded;
    const isApplied = (write: KeyWrite): boolean => isComplete || (mayOmit && !mayBeOmitted(write));
    this.#recordApplied(writes, isApplied, released, keeper, revision);
    return { revision, isComplete, deleted };
  }

  /**
   * Records applied writes: ends the bindings that they release, and updates `clientWrites`.
   *
   * @param keeper of the leases of the puts; undefined if they have no lease
   */
  #recordApplied(
    writes: readonly KeyWrite[],
    isApplied: (write: KeyWrite) => boolean,
    released: readonly ReleasedBinding[],
    keeper: LeaseKeeper | undefined,
    revision: number,
  ): void {
    const { clientWrites } = this.#options;
    const ended = released.filter(({ write }) => isApplied(write));
    for (const { holder, binding } of ended) holder.bindings.unbind(binding, revision);
    const isAppliedPut = (write: KeyWrite): write is Put => isPut(write) && isApplied(write);
    if (keeper === undefined) for (const { key } of writes.filter(isAppliedPut)) clientWrites.forget(key);
    // One put and one delete are enough, because a transaction is applied completely or not at all.
    const put = keeper && writes.find(isAppliedPut);
    if (put !== undefined) clientWrites.put(put.key, put.value, revision);
    const deletion = ended.find(({ write }) => write.value === undefined && !this.#isBound(write.key));
    if (deletion !== undefined) clientWrites.recordDelete(deletion.write.key, revision);
  }

  /**
   * Returns the bindings ended by the writes: those of deleted keys, and those of put keys in keepers other than
   * `keeper`.
   */
  #releasedBy(writes: readonly KeyWrite[], keeper: LeaseKeeper | undefined): readonly ReleasedBinding[] {
    const released: ReleasedBinding[] = [];
    for (const holder of this.#keepers)
      for (const write of writes) {
        const isKept = holder === keeper && write.value !== undefined;
        const binding = isKept ? undefined : holder.bindings.bindingOf(write.key);
        if (binding !== undefined) released.push({ write, holder, binding });
      }
    return released;
  }

  /**
   * Unbinds the keys after a delete of their prefix, in steps.
   *
   * @param previous number of bindings of each keeper before the delete
   */
  *#unbindBelow(prefix: string, revision: number, previous: readonly number[]): Generator<void, void, void> {
    for (const [index, keeper] of this.#keepers.entries()) {
      for (const keys of keeper.bindings.unbindBelow(prefix, revision, previous[index] ?? 0)) {
        for (const key of keys)
          if (!this.#isBound(key)) this.#options.clientWrites.recordDelete(key, revision);
        yield;
      }
    }
  }

  /** Returns the keeper of the leases for a write; undefined if it is not leased. */
  #keeperOf({ leased = false }: WriteOptions): LeaseKeeper | undefined {
    if (leased === false) return undefined;
    return leased === 'expires-first' ? this.#options.firstExpiringLeases : this.#options.leases;
  }

  /** Returns true if a key is bound to a held lease. */
  #isBound(key: string): boolean {
    return this.#keepers.some((keeper) => keeper.bindings.bindingOf(key) !== undefined);
  }

  /** Sends a transaction, with the lock and the fence as guards if requested. */
  async #txn(request: TxnRequest, options: TimedWrite): Promise<TxnResponse> {
    const { limits, fence: writeFence } = this.#options;
    const timed = limits.timed(options);
    const attempt = (fence: readonly Compare[]): Promise<TxnResponse | undefined> =>
      this.#txnWithFence(request, fence, timed);
    const answer =
      timed.fenced === true
        ? await limits.wait(timed, (until) => writeFence.write(attempt, { signal: until }))
        : await attempt([]);
    assert(answer, 'a response if no fence guards the write');
    return answer;
  }

  /**
   * Sends a transaction with the lock, if requested, and the fence as guards. Returns undefined if the fence has
   * changed. Throws if the lock was lost.
   */
  async #txnWithFence(
    request: TxnRequest,
    fence: readonly Compare[],
    timed: TimedWrite,
  ): Promise<TxnResponse | undefined> {
    const { ifLocked } = timed;
    const send = (txn: TxnRequest): Promise<TxnResponse> => this.#sendTxn(txn, timed);
    const lock = ifLocked === undefined ? [] : [lockGuard(ifLocked)];
    const answer = await guardedTxn(request, [...lock, ...fence], send);
    if (answer !== undefined || ifLocked === undefined) return answer;
    const isLockHeld = fence.length > 0 && (await send({ compare: lock, writes: [] })).succeeded;
    if (isLockHeld) return undefined;
    throw new KvstoreError('lock-lost', `the lock ${ifLocked.key} was lost`);
  }

  /** Sends a transaction once, if this process may be the leader. */
  #sendTxn(txn: TxnRequest, timed: TimedWrite): Promise<TxnResponse> {
    const { writeTimeoutMs, transport, limits } = this.#options;
    const send = async ({ signal, deadlineMs = writeTimeoutMs }: CallOptions): Promise<TxnResponse> => {
      this.checkLeader();
      const limitMs =
        deadlineMs === undefined ? undefined : Math.min(deadlineMs, writeTimeoutMs ?? deadlineMs);
      return transport.txn(txn, { signal, deadlineMs: limitMs });
    };
    return limits.call(send, timed).catch(rethrowWithRight('readwrite', keyOf(txn)));
  }

  /** Throws if another process may be the leader. */
  checkLeader(): void {
    if (this.#options.mayWrite?.() === false)
      throw new KvstoreError(
        'not-leader',
        'the write was rejected, because this process has not renewed its Lease or lock, which another process may hold now',
      );
  }

  get #keepers(): readonly LeaseKeeper[] {
    return [this.#options.firstExpiringLeases, this.#options.leases];
  }
}

function isPut(write: KeyWrite): write is Put {
  return write.value !== undefined;
}

/** Returns true if a transaction may omit the write. A delete is never omitted. */
function mayBeOmitted({ value, mayBeEqual = false }: KeyWrite): boolean {
  return value !== undefined && mayBeEqual;
}

/**
 * Returns the lease of all bindings if the error shows that it has ended. Undefined if the bindings have several
 * leases, because etcd does not name the lease in its error.
 */
function endedLease({ code }: KvstoreError, bindings: readonly Binding[]): LeaseID | undefined {
  const [lease, ...others] = new Set(bindings.map(({ held }) => held.id));
  return code === 'lease-not-found' && others.length === 0 ? lease : undefined;
}

/**
 * Returns the transaction of several writes. If writes may be omitted (`mayBeEqual`), the transaction compares their
 * values, and its `otherwise` has all writes.
 *
 * @param bindings of the puts in their order; empty if they have no lease
 */
function transactionOf(
  writes: readonly KeyWrite[],
  bindings: readonly Binding[],
  condition: Compare | undefined,
): TxnRequest {
  const compare: Compare[] = condition === undefined ? [] : [condition];
  let puts = 0;
  const all = writes.map(({ key, value }): WriteOperation => {
    if (value === undefined) return { op: 'delete', range: keyRange(key) };
    return { op: 'put', key, value, lease: bindings[puts++]?.held.id ?? NO_LEASE };
  });
  if (!writes.some(mayBeOmitted)) return { compare, writes: all };
  const necessary = all.filter((operation, index) => {
    if (operation.op === 'delete' || writes[index]?.mayBeEqual !== true) return true;
    const { key, value, lease } = operation;
    compare.push({ key, target: 'value', equals: value });
    if (lease !== NO_LEASE) compare.push({ key, target: 'lease', equals: lease });
    return false;
  });
  return { compare, writes: necessary, otherwise: all };
}

/** Returns the key that the error names if a right for the transaction is missing. */
function keyOf({ compare, writes, otherwise = [] }: TxnRequest): string {
  const write = writes[0] ?? otherwise[0];
  if (write === undefined) return compare[0]?.key ?? '';
  return write.op === 'put' ? write.key : write.range.start;
}

/** Returns a comparison which holds while the lock is held. */
function lockGuard({ key, revision }: KvstoreLock): Compare {
  return { key, target: 'create-revision', equals: revision };
}
