import type { Runtime } from '../../base/system-clock.ts';
import { formatLabels, type Labels } from '../../model/labels.ts';
import type { NumericIdentity } from '../../model/numeric-identity.ts';
import { RetryQueue, type RetryQueueStatus } from '../stores/retry-queue.ts';
import type { IdentityKeys } from './identity-keys.ts';

/** Labels in use on this node, with their number. */
export interface LocalKey {
  readonly id: NumericIdentity;
  readonly labels: Labels;
  references: number;
}

/** Outcome of the release of an identity. */
export type ReleaseOutcome = 'released' | 'still-used' | 'not-found';

export interface LocalKeysOptions extends Runtime {
  readonly keys: IdentityKeys;
  /** Called if the number belongs to other labels. */
  onReassigned(identity: LocalKey): void;
}

/**
 * The identities that this node uses, by labels (`formatLabels`), with reference counts. Maintains the keys of each
 * identity: while it is in use, its master key and the slave key of this node exist; otherwise the slave key does not
 * exist. A failed write is retried until it succeeds, separately for each identity.
 *
 * If a number now belongs to other labels, it was *reassigned*: the references remain counted, the slave key is
 * deleted, and the labels have no number until they are allocated again.
 */
export class LocalKeys {
  readonly #options: LocalKeysOptions;
  readonly #inUse = new Map<string, LocalKey>();
  /** The identities whose number was not reassigned. */
  readonly #byID = new Map<number, LocalKey>();
  /** Labels whose slave key may exist but must not. */
  readonly #orphans = new Map<string, Labels>();
  /** The running work of each label set: an allocation, a release or a repair. */
  readonly #running = new Map<string, Promise<unknown>>();
  /** Label sets to check when their running work has ended. */
  readonly #deferred = new Set<string>();
  readonly #repairs: RetryQueue<string>;
  /** The signal of the run; undefined before the first run. */
  #signal: AbortSignal | undefined;

  constructor(options: LocalKeysOptions) {
    this.#options = options;
    const { clock, random } = options;
    this.#repairs = new RetryQueue({ clock, random, attempt: ([key], signal) => this.#repair(key, signal) });
  }

  /** Number of label sets in use. */
  get size(): number {
    return this.#inUse.size;
  }

  /** Number of label sets in use whose number belongs to other labels. */
  get reassigned(): number {
    return this.#inUse.size - this.#byID.size;
  }

  status(): RetryQueueStatus {
    return this.#repairs.status();
  }

  /** Returns the identity of labels in use, unless its number was reassigned. */
  get(key: string): LocalKey | undefined {
    const local = this.#inUse.get(key);
    return local !== undefined && this.#byID.get(local.id) === local ? local : undefined;
  }

  byID(id: number): LocalKey | undefined {
    return this.#byID.get(id);
  }

  /** Runs the repairs queued by {@link check} until the signal fires. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    this.#signal = signal;
    await this.#repairs.run(signal);
  }

  isBusy(key: string): boolean {
    return this.#running.has(key);
  }

  /**
   * Resolves when the running work for these labels has ended, successfully or not. The caller must check again,
   * because other work may have begun.
   */
  async untilIdle(key: string): Promise<void> {
    await this.#running.get(key)?.catch(() => {});
  }

  /** Blocks other work for the labels until `work` has ended. Must not be called while other work runs for them. */
  block<T>(key: string, work: Promise<T>): Promise<T> {
    const done = work.finally(() => {
      this.#running.delete(key);
      if (this.#deferred.delete(key)) this.check(key);
    });
    this.#running.set(key, done);
    return done;
  }

  /** Call it before a slave key is written. If {@link assign} does not follow, the next check deletes the key. */
  announce(key: string, labels: Labels): void {
    this.#orphans.set(key, labels);
  }

  /** Assigns the number to the labels, also if other labels of this node had it, and adds one reference. */
  assign(key: string, id: NumericIdentity, labels: Labels): void {
    const present = this.#inUse.get(key);
    const formerOwner = this.#byID.get(id);
    const local = { id, labels, references: (present?.references ?? 0) + 1 };
    this.#orphans.delete(key);
    this.#inUse.set(key, local);
    this.#byID.set(id, local);
    if (formerOwner === undefined || formerOwner === present) return;
    const formerKey = formatLabels(formerOwner.labels);
    this.#loseNumber(formerKey, formerOwner);
    this.check(formerKey);
  }

  /** Queues a check of the keys of these labels. */
  check(key: string): void {
    if (this.#inUse.has(key) || this.#orphans.has(key)) this.#repairs.add(key);
  }

  checkAll(): void {
    for (const key of [...this.#inUse.keys(), ...this.#orphans.keys()]) this.#repairs.add(key);
  }

  /** Removes one reference. If it was the last, deletes the slave key, now or as soon as possible. */
  async release(labels: Labels): Promise<ReleaseOutcome> {
    const key = formatLabels(labels);
    while (this.#running.has(key)) await this.untilIdle(key);
    const local = this.#inUse.get(key);
    if (local === undefined) return 'not-found';
    local.references--;
    if (local.references > 0) return 'still-used';
    this.#inUse.delete(key);
    this.#forgetNumber(local);
    this.#orphans.set(key, labels);
    await this.block(key, this.#reconcile(key, this.#signal)).catch(() => this.#repairs.add(key));
    return 'released';
  }

  async #repair(key: string, signal: AbortSignal): Promise<void> {
    if (!this.#running.has(key)) return this.block(key, this.#reconcile(key, signal));
    this.#deferred.add(key); // does not wait, because the running work may wait for a lock of another client
  }

  async #reconcile(key: string, signal: AbortSignal | undefined): Promise<void> {
    const { keys } = this.#options;
    const local = this.get(key);
    if (local !== undefined) {
      if (await keys.ensureMaster(local.id, local.labels, { signal })) {
        await keys.putSlave(local.id, local.labels, { signal });
        return;
      }
      this.#loseNumber(key, local);
    }
    const orphan = this.#orphans.get(key);
    if (orphan === undefined) return;
    await keys.deleteSlave(orphan, { signal });
    this.#orphans.delete(key);
  }

  /** Records and reports the reassigned number of these labels. */
  #loseNumber(key: string, local: LocalKey): void {
    this.#forgetNumber(local);
    this.#orphans.set(key, local.labels);
    this.#options.onReassigned(local);
  }

  #forgetNumber(local: LocalKey): void {
    if (this.#byID.get(local.id) === local) this.#byID.delete(local.id);
  }
}
