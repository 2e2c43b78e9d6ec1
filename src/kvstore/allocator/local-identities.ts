import type { Clock, Random } from '../../base/clock.ts';
import { formatLabels, type Labels } from '../../identity/labels.ts';
import type { NumericIdentity } from '../../identity/numeric-identity.ts';
import { RetryQueue, type RetryQueueStatus } from '../store/retry-queue.ts';
import type { IdentityKeys } from './identity-keys.ts';

/** Labels that this node uses a number for. */
export interface LocalIdentity {
  readonly id: NumericIdentity;
  readonly labels: Labels;
  references: number;
}

/** What became of {@link LocalIdentities.release}. */
export type ReleaseOutcome = 'released' | 'still-used' | 'not-found';

/** Options of {@link LocalIdentities}. */
export interface LocalIdentitiesOptions {
  readonly keys: IdentityKeys;
  readonly clock: Clock;
  readonly random: Random;
  /** Called when the number turns out to stand for other labels. */
  onTaken(identity: LocalIdentity): void;
}

/**
 * The identities that this node uses, by labels (`formatLabels`), counted, and their keys kept in place: the master key
 * and this node's slave key while they are in use, no slave key when they are not. What fails is tried again until it
 * succeeds, each for itself: one that never succeeds holds back no other.
 *
 * A number that stands for other labels by now is *taken*: the references stay counted, the slave key goes, and the
 * labels have no number until they are allocated again.
 */
export class LocalIdentities {
  readonly #options: LocalIdentitiesOptions;
  readonly #used = new Map<string, LocalIdentity>();
  /** Those of which the number is not taken. */
  readonly #byID = new Map<number, LocalIdentity>();
  /** Labels whose slave key may be there, and should not be. */
  readonly #left = new Map<string, Labels>();
  /** What is under way, by labels: one allocation, release or repair at a time for each. */
  readonly #underWay = new Map<string, Promise<unknown>>();
  readonly #repairs: RetryQueue<string>;
  #signal: AbortSignal | undefined;

  constructor(options: LocalIdentitiesOptions) {
    this.#options = options;
    const { clock, random } = options;
    this.#repairs = new RetryQueue({ clock, random, attempt: (key, signal) => this.#repair(key, signal) });
  }

  /** Labels that are in use. */
  get size(): number {
    return this.#used.size;
  }

  /** Labels that are in use and whose number is taken. */
  get taken(): number {
    return this.#used.size - this.#byID.size;
  }

  /** The keys that are not in place. */
  status(): RetryQueueStatus {
    return this.#repairs.status();
  }

  /** The identity of labels that are in use, unless its number is taken. */
  get(key: string): LocalIdentity | undefined {
    const local = this.#used.get(key);
    return local !== undefined && this.#byID.get(local.id) === local ? local : undefined;
  }

  byID(id: number): LocalIdentity | undefined {
    return this.#byID.get(id);
  }

  /** Repairs what {@link check} asks for, until the signal fires. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    this.#signal = signal;
    await this.#repairs.run(signal);
  }

  isUnderWay(key: string): boolean {
    return this.#underWay.has(key);
  }

  /** What is under way for these labels has ended, well or not: look again, something else may be. */
  async ended(key: string): Promise<void> {
    await this.#underWay.get(key)?.catch(() => {});
  }

  /** Nothing else happens to the labels until the work has ended. Not while something is under way for them. */
  during<T>(key: string, work: Promise<T>): Promise<T> {
    const done = work.finally(() => this.#underWay.delete(key));
    this.#underWay.set(key, done);
    return done;
  }

  /** A slave key is about to be put: unless {@link use} follows, the next check deletes it. */
  begin(key: string, labels: Labels): void {
    this.#left.set(key, labels);
  }

  /** The labels have this number, and one reference more. */
  use(key: string, id: NumericIdentity, labels: Labels): void {
    const references = (this.#used.get(key)?.references ?? 0) + 1;
    const local = { id, labels, references };
    this.#left.delete(key);
    this.#used.set(key, local);
    this.#byID.set(id, local);
  }

  /** The keys of these labels may not be as they should be. */
  check(key: string): void {
    if (this.#used.has(key) || this.#left.has(key)) this.#repairs.add(key);
  }

  checkAll(): void {
    for (const key of [...this.#used.keys(), ...this.#left.keys()]) this.#repairs.add(key);
  }

  /** Gives one reference back; with the last one the slave key goes, now or as soon as it can be deleted. */
  async release(labels: Labels): Promise<ReleaseOutcome> {
    const key = formatLabels(labels);
    while (this.#underWay.has(key)) await this.ended(key);
    const local = this.#used.get(key);
    if (local === undefined) return 'not-found';
    local.references--;
    if (local.references > 0) return 'still-used';
    this.#used.delete(key);
    this.#forgetNumber(local);
    this.#left.set(key, labels);
    await this.during(key, this.#putRight(key, this.#signal)).catch(() => this.#repairs.add(key));
    return 'released';
  }

  async #repair(key: string, signal: AbortSignal): Promise<void> {
    if (!this.#underWay.has(key)) return this.during(key, this.#putRight(key, signal));
    // It may take as long as another client holds a lock.
    void this.ended(key).then(() => this.check(key));
  }

  async #putRight(key: string, signal: AbortSignal | undefined): Promise<void> {
    const { keys, onTaken } = this.#options;
    const local = this.get(key);
    if (local !== undefined) {
      if (await keys.ensureMaster(local.id, local.labels, { signal })) {
        await keys.putSlave(local.id, local.labels, { signal });
        return;
      }
      this.#forgetNumber(local);
      this.#left.set(key, local.labels);
      onTaken(local);
    }
    const left = this.#left.get(key);
    if (left === undefined) return;
    await keys.deleteSlave(left, { signal });
    this.#left.delete(key);
  }

  #forgetNumber(local: LocalIdentity): void {
    if (this.#byID.get(local.id) === local) this.#byID.delete(local.id);
  }
}
