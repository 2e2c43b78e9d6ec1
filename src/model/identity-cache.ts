import { DeliveryQueue } from '../base/delivery-queue.ts';
import { CallbackGuard } from '../base/guard.ts';
import { ListenerSet } from '../base/listener-set.ts';
import { SortedMap } from '../base/sorted-map.ts';
import type { ListenerResult, Unsubscribe } from '../base/subscription.ts';
import { formatLabels, type Labels } from './labels.ts';
import type { NumericIdentity } from './numeric-identity.ts';

/** An identity allocated by a cluster, or a reserved one. */
export interface ClusterIdentity {
  /** The allocating cluster; empty for a reserved identity. */
  readonly cluster: string;
  readonly identity: number;
  readonly labels: Labels;
}

/** Receives the identities of a cluster: a replay of the existing ones, then changes, after the cache has changed. */
export interface IdentityListener {
  onIdentity(id: NumericIdentity, labels: Labels): ListenerResult;
  /** Called with the previous labels if an identity was removed, and before `onIdentity` if its labels changed. */
  onIdentityGone(id: NumericIdentity, labels: Labels): ListenerResult;
}

interface CachedIdentity {
  readonly id: NumericIdentity;
  /** The labels as text, by {@link formatLabels}. */
  readonly labelsText: string;
  readonly labels: Labels;
}

/** The number of the identity with certain labels; a list if several have them, which is rare. */
type LabelledNumbers = NumericIdentity | SortedMap<NumericIdentity, true>;

/**
 * The identities of one cluster: number ↔ labels. A cluster keeps its cache over reconnects.
 *
 * Several numbers may have the same labels, for example while a cluster replaces one number by another.
 * `lookupByLabels` then returns the first number in the order of `compare`, by default the smallest.
 */
export class IdentityCache {
  readonly #compare: (a: NumericIdentity, b: NumericIdentity) => number;
  readonly #byID = new Map<number, CachedIdentity>();
  readonly #byLabels = new Map<string, LabelledNumbers>();
  readonly #guard: CallbackGuard;
  readonly #listeners: ListenerSet<IdentityListener>;
  #changes = 0;

  /**
   * @param compare orders two numbers with the same labels; default: the smaller first. The order of two numbers must
   *   not change while both are in the cache
   * @param guard receives the errors of listeners; by default they are only counted
   */
  constructor(
    compare: (a: NumericIdentity, b: NumericIdentity) => number = (a, b) => a - b,
    guard: CallbackGuard = new CallbackGuard(),
  ) {
    this.#compare = compare;
    this.#guard = guard;
    this.#listeners = new ListenerSet(new DeliveryQueue(guard));
  }

  get size(): number {
    return this.#byID.size;
  }

  /** Increases with every change. */
  get changes(): number {
    return this.#changes;
  }

  /** Number of errors of listeners. */
  get listenerFaults(): number {
    return this.#guard.faults;
  }

  lookupByID(id: number): Labels | undefined {
    return this.#byID.get(id)?.labels;
  }

  /** Returns the identity with exactly these labels. */
  lookupByLabels(labels: Labels): NumericIdentity | undefined {
    const found = this.#byLabels.get(formatLabels(labels));
    return typeof found === 'object' ? found.first : found;
  }

  /** Yields all identities with their labels, in any order. */
  *entries(): Generator<readonly [number, Labels]> {
    for (const [id, { labels }] of this.#byID) yield [id, labels];
  }

  /**
   * Subscribes a listener, which receives the replay and then changes. An error that a listener throws does not affect
   * others. An error during the replay ends the subscription.
   */
  subscribe(listener: IdentityListener): Unsubscribe {
    const steps = (): IterableIterator<(one: IdentityListener) => unknown> =>
      Array.from(
        this.#byID.values(),
        ({ id, labels }) =>
          (one: IdentityListener) =>
            one.onIdentity(id, labels),
      ).values();
    return this.#listeners.subscribe(listener, { steps, ended: () => {} });
  }

  /** Adds an identity, or replaces its labels. Returns true if it has changed. */
  upsert(id: NumericIdentity, labels: Labels): boolean {
    const labelsText = formatLabels(labels);
    const previous = this.#byID.get(id);
    if (previous?.labelsText === labelsText) return false;
    this.#remove(id);
    this.#changes++;
    this.#byID.set(id, { id, labelsText, labels });
    this.#byLabels.set(labelsText, this.#withNumber(this.#byLabels.get(labelsText), id));
    if (previous !== undefined) this.#notifyGone(previous);
    this.#listeners.notify((one, known) => one.onIdentity(id, known), labels);
    return true;
  }

  /** Removes an identity. Returns true if it was in the cache. */
  delete(id: number): boolean {
    const removed = this.#remove(id);
    if (removed !== undefined) this.#notifyGone(removed);
    return removed !== undefined;
  }

  /** Removes all identities. */
  clear(): void {
    const removed = [...this.#byID.values()];
    this.#changes++;
    this.#byID.clear();
    this.#byLabels.clear();
    for (const entry of removed) this.#notifyGone(entry);
  }

  /** Removes an identity and returns it, without a notification. */
  #remove(id: number): CachedIdentity | undefined {
    const entry = this.#byID.get(id);
    if (entry === undefined) return undefined;
    this.#changes++;
    this.#byID.delete(id);
    const ids = this.#byLabels.get(entry.labelsText);
    if (typeof ids === 'object') ids.delete(entry.id);
    if (typeof ids !== 'object' || ids.size === 0) this.#byLabels.delete(entry.labelsText);
    return entry;
  }

  #notifyGone(entry: CachedIdentity): void {
    this.#listeners.notify((one, { id, labels }) => one.onIdentityGone(id, labels), entry);
  }

  /** Returns `id`, or a list of it and the other numbers with its labels. */
  #withNumber(others: LabelledNumbers | undefined, id: NumericIdentity): LabelledNumbers {
    if (others === undefined) return id;
    const list = typeof others === 'object' ? others : new SortedMap<NumericIdentity, true>(this.#compare);
    if (typeof others !== 'object') list.set(others, true);
    list.set(id, true);
    return list;
  }
}
