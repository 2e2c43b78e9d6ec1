import { OPEN_GATE, type TurnGate } from '../../base/turn-gate.ts';
import type { KvstoreBackend } from '../session/backend.ts';
import { abortedError, asKvstoreError } from '../session/errors.ts';
import { FAILED, type InheritedLease, type Job, type SyncKeys, UNKNOWN, WAITING } from './sync-keys.ts';

export interface LeaseAdoptionOptions {
  readonly backend: KvstoreBackend;
  readonly gate?: TurnGate | undefined;
  readonly keys: SyncKeys;
  /** True if the keys are bound to leases that can be adopted. */
  readonly isLeased: boolean;
  /** Receives the job of a lease that a key begins to wait for. The job must call {@link LeaseAdoption.adopt}. */
  onWait(job: Job): void;
  /** Called when a key does not wait any more. If it was not adopted, it must be written. */
  onEnd(row: number, isAdopted: boolean): void;
}

/**
 * Adopts the leases that an earlier session has left. A key that has its wanted value under such a lease is not
 * written: it waits until the lease is adopted with it.
 */
export class LeaseAdoption {
  readonly #options: LeaseAdoptionOptions;
  #isActive: boolean;

  constructor(options: LeaseAdoptionOptions, isActive: boolean) {
    this.#options = options;
    this.#isActive = isActive;
  }

  /** True until {@link end}, if the store adopts leases. */
  get isActive(): boolean {
    return this.#isActive;
  }

  /** Adopts no more leases, and forgets the values of the earlier session. */
  end(): void {
    this.#isActive = false;
    this.#options.keys.disinheritAll();
  }

  /** Makes a key wait for its lease if the lease may be adopted with it. Returns true if the key waits. */
  wait(row: number): boolean {
    const { keys, onWait } = this.#options;
    if (keys.is(row, WAITING)) return true;
    const lease = this.#leaseFor(row);
    if (lease === undefined) return false;
    keys.set(row, WAITING);
    lease.waiting.push(row);
    onWait(lease.job);
    return true;
  }

  /** Adopts a lease with all keys that wait for it, in steps. */
  async adopt(lease: InheritedLease, signal: AbortSignal): Promise<void> {
    const { keys, gate = OPEN_GATE } = this.#options;
    while (lease.done < lease.waiting.length) {
      const rows = lease.waiting.slice(lease.done, lease.done + gate.slice);
      if (!(await gate.pass(rows.length, signal))) throw abortedError();
      const due = rows.filter((row) => this.#leaseFor(row) === lease);
      const dueKeys = due.map((row) => keys.keyAt(row));
      if (dueKeys.length > 0 && !(await this.#adoptKeys(lease, dueKeys, signal))) lease.isRefused = true;
      lease.done += rows.length;
      this.#endWaits(lease, rows, due);
    }
    lease.waiting = [];
    lease.done = 0;
  }

  /**
   * Ends the wait of keys after an attempt to adopt their lease.
   *
   * @param due those of `rows`, in their order, which the attempt included
   */
  #endWaits(lease: InheritedLease, rows: readonly number[], due: readonly number[]): void {
    const { keys, onEnd } = this.#options;
    let next = 0;
    for (const row of rows) {
      const wasDue = row === due[next];
      if (wasDue) next++;
      keys.update(row, WAITING, 0);
      onEnd(row, wasDue && this.#leaseFor(row) === lease);
    }
  }

  /** Returns false if the lease cannot be adopted. */
  async #adoptKeys({ id }: InheritedLease, keys: readonly string[], signal: AbortSignal): Promise<boolean> {
    try {
      return (await this.#options.backend.adoptLease?.(id, keys, { signal })) === true;
    } catch (thrown) {
      if (asKvstoreError(thrown).code === 'forbidden') return false;
      throw thrown;
    }
  }

  /** Returns the lease under which an earlier session has left the wanted value, if it may be adopted. */
  #leaseFor(row: number): InheritedLease | undefined {
    const { keys, isLeased } = this.#options;
    if (!this.#isActive || !isLeased || keys.is(row, UNKNOWN | FAILED)) return undefined;
    const lease = keys.leaseOfWanted(row);
    return lease?.isRefused === false ? lease : undefined;
  }
}
