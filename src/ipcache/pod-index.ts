import { assert } from '../base/assert.ts';
import { HashChains } from '../columns/hash-chains.ts';
import { Int32Rows } from '../columns/int32-rows.ts';
import { hashText } from '../columns/mix.ts';
import type { EntryIndex } from './entry-indexes.ts';
import { SlotLinks } from './slot-links.ts';
import type { IPCacheEntry, K8sMetadata } from './types.ts';

// Columns of the row of a pod.
/** The first of two columns of `HashChains`. In a free row it has the next free row + 1; 0 means none. */
const CHAIN = 0;
/** The list of the pod's slots; 0 if the row is free. */
const SLOTS = 2;
const COLUMNS = 3;

const NONE: readonly number[] = [];

interface Namespace {
  /** Hash of the name: the seed of the hashes of its pods. */
  readonly seed: number;
  /** The list of the rows of its pods in `#rowLinks`. */
  rows: number;
  podCount: number;
}

/**
 * Index of entries by pod. It stores no names of pods: a lookup compares the names in the entries. It is no `Map`,
 * because a `Map` of a million pods moves all its items in one turn when it grows.
 *
 *     (namespace, pod) ─► hash ─► HashChains ─► row of the pod ─► SlotLinks: slot ─► slot ─► …
 *     namespace ─► SlotLinks: row of its latest pod ─► row ─► …
 *
 * A pod of one slot takes 32 bytes.
 */
export class PodIndex implements EntryIndex {
  readonly #metadataOf: (slot: number) => K8sMetadata | undefined;
  readonly #seed: number;
  readonly #namespaces = new Map<string, Namespace>();
  readonly #rows = new Int32Rows(COLUMNS);
  readonly #chains: HashChains = new HashChains(this.#rows, CHAIN);
  /** The list of slots of each pod. */
  readonly #slotLinks = new SlotLinks();
  /** The list of rows of each namespace. */
  readonly #rowLinks = new SlotLinks();
  /** Number of rows, free ones included. */
  #limit = 0;
  /** The row freed last, plus one; 0 if there is none. */
  #free = 0;

  /**
   * `metadataOf` returns the metadata of the current entry of a slot in the index. A secret `seed` prevents attackers
   * from choosing pods with one hash, whose lookups take linear time.
   */
  constructor(metadataOf: (slot: number) => K8sMetadata | undefined, seed = 0) {
    this.#metadataOf = metadataOf;
    this.#seed = seed | 0;
  }

  /** Returns the namespaces with pods, unordered. */
  namespaces(): Iterable<string> {
    return this.#namespaces.keys();
  }

  /**
   * Yields the names of the pods of a namespace, unordered, at most `limit`. If the index changes during the iteration,
   * a pod that exists all the time is yielded once. The first pod costs one pass over the pods up to the limit.
   */
  *podsOf(namespace: string, limit: number = Number.POSITIVE_INFINITY): Generator<string, void, void> {
    const { rows = 0, podCount = 0 } = this.#namespaces.get(namespace) ?? {};
    // A copy, because the iteration cannot continue from a deleted row. The list has the latest row first.
    const copy = new Int32Array(Math.min(podCount, limit));
    let at = copy.length;
    for (const row of this.#rowLinks.of(rows)) {
      if (at === 0) break;
      at--;
      copy[at] = row;
    }
    for (const row of copy) {
      const pod = this.#podAt(row);
      if (pod?.namespace === namespace) yield pod.podName;
    }
  }

  /** Returns the slots of a pod, unordered. */
  of(namespace: string, podName: string): Iterable<number> {
    const known = this.#namespaces.get(namespace);
    if (known === undefined) return NONE;
    const row = this.#find(namespace, podName, hashText(podName, known.seed));
    return row < 0 ? NONE : this.#slotLinks.of(this.#rows.get(row, SLOTS));
  }

  add(slot: number, { k8s }: IPCacheEntry): void {
    if (k8s === undefined) return;
    const namespace = this.#namespaces.get(k8s.namespace) ?? this.#addNamespace(k8s.namespace);
    const hash = hashText(k8s.podName, namespace.seed);
    let row = this.#find(k8s.namespace, k8s.podName, hash);
    if (row < 0) row = this.#addPod(namespace, hash);
    this.#slotLinks.addFirst(slot, this.#rows.get(row, SLOTS));
    this.#rows.set(row, SLOTS, slot + 1);
  }

  remove(slot: number, { k8s }: IPCacheEntry): void {
    if (k8s === undefined) return;
    const namespace = this.#namespaces.get(k8s.namespace);
    assert(namespace !== undefined, 'a removed slot is in the index');
    const isFirst = this.#slotLinks.isFirst(slot);
    const rest = this.#slotLinks.remove(slot);
    if (!isFirst) return;
    // The row is found by the slot, because the metadata of the slot may be that of another pod already.
    const hash = hashText(k8s.podName, namespace.seed);
    let row = this.#chains.first(hash);
    while (row >= 0 && this.#rows.get(row, SLOTS) !== slot + 1) row = this.#chains.after(row, hash);
    assert(row >= 0, 'a removed slot is in the index');
    this.#rows.set(row, SLOTS, rest);
    if (rest !== 0) return;
    this.#deletePod(namespace, row);
    if (namespace.podCount === 0) this.#namespaces.delete(k8s.namespace);
  }

  isSame(old: IPCacheEntry, { k8s }: IPCacheEntry): boolean {
    return old.k8s?.podName === k8s?.podName && old.k8s?.namespace === k8s?.namespace;
  }

  #addNamespace(name: string): Namespace {
    const namespace = { seed: hashText(name, this.#seed), rows: 0, podCount: 0 };
    this.#namespaces.set(name, namespace);
    return namespace;
  }

  /** Returns the pod of a row; undefined if the row is free. */
  #podAt(row: number): K8sMetadata | undefined {
    const first = this.#rows.get(row, SLOTS);
    return first === 0 ? undefined : this.#metadataOf(first - 1);
  }

  /** Returns the row of a pod; -1 if it has none. */
  #find(namespace: string, podName: string, hash: number): number {
    let row = this.#chains.first(hash);
    for (; row >= 0; row = this.#chains.after(row, hash)) {
      const pod = this.#podAt(row);
      if (pod?.podName === podName && pod.namespace === namespace) break;
    }
    return row;
  }

  /** Adds a pod without slots. Returns its row. */
  #addPod(namespace: Namespace, hash: number): number {
    const row = this.#free === 0 ? this.#limit++ : this.#free - 1;
    if (this.#free === 0) this.#rows.reserve(row);
    else this.#free = this.#rows.get(row, CHAIN);
    this.#rowLinks.addFirst(row, namespace.rows);
    namespace.rows = row + 1;
    namespace.podCount++;
    this.#chains.add(row, hash);
    return row;
  }

  #deletePod(namespace: Namespace, row: number): void {
    this.#chains.delete(row);
    const isFirst = this.#rowLinks.isFirst(row);
    const rest = this.#rowLinks.remove(row);
    if (isFirst) namespace.rows = rest;
    namespace.podCount--;
    this.#rows.set(row, CHAIN, this.#free);
    this.#free = row + 1;
  }
}
