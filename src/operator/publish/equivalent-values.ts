import { forEachInSteps } from '../../base/turn-gate.ts';
import { equalBytes } from '../../kvstore/codec/bytes.ts';
import type { LocalKeyStore } from '../../kvstore/stores/shared-store.ts';

/**
 * The wanted keys of a prefix where other writers put the same keys: if the kvstore has an equivalent value of another
 * writer, it is kept, otherwise the wanted value is put. Nothing is put before the existing values are known.
 */
export class EquivalentValues {
  readonly #store: LocalKeyStore;
  readonly #isEquivalent: (found: Uint8Array, wanted: Uint8Array) => boolean;
  readonly #wanted = new Map<string, Uint8Array>();
  /** The existing values in the kvstore. */
  readonly #found = new Map<string, Uint8Array>();
  /** The values passed to the store: the wanted values, or equivalent values of other writers. */
  readonly #published = new Map<string, Uint8Array>();
  /** True if all existing values are known. */
  #isListed = false;

  constructor(store: LocalKeyStore, isEquivalent: (found: Uint8Array, wanted: Uint8Array) => boolean) {
    this.#store = store;
    this.#isEquivalent = isEquivalent;
  }

  /** Number of wanted keys. */
  get size(): number {
    return this.#wanted.size;
  }

  /** Number of wanted keys that wait until all existing values are known. */
  get waiting(): number {
    return this.#wanted.size - this.#published.size;
  }

  has(name: string): boolean {
    return this.#wanted.has(name);
  }

  /** @param value not copied */
  upsert(name: string, value: Uint8Array): void {
    this.#wanted.set(name, value);
    this.#publish(name);
  }

  delete(name: string): void {
    this.#wanted.delete(name);
    this.#published.delete(name);
    this.#store.delete(name);
  }

  /** Records a value in the kvstore. */
  recordFound(name: string, value: Uint8Array): void {
    this.#found.set(name, value);
    this.#publish(name);
  }

  /** Records that the kvstore does not have a key any more. */
  recordMissing(name: string): void {
    this.#found.delete(name);
    this.#publish(name);
  }

  /** Records that all existing values are known, and publishes the keys that waited for this, in steps. */
  *publishWaiting(keysPerStep: number): Generator<undefined, void, void> {
    this.#isListed = true;
    yield* forEachInSteps(this.#wanted.keys(), keysPerStep, (name) => this.#publish(name));
  }

  /** Passes a wanted key to the store, with the wanted value or the equivalent value of another writer. */
  #publish(name: string): void {
    const wanted = this.#wanted.get(name);
    if (wanted === undefined || !this.#isListed) return;
    const found = this.#found.get(name);
    const mayKeep = found !== undefined && this.#isEquivalent(found, wanted);
    const value = mayKeep ? found : wanted;
    const published = this.#published.get(name);
    if (published !== undefined && equalBytes(published, value)) return;
    this.#published.set(name, value);
    if (mayKeep) this.#store.adoptValue(name, value);
    else this.#store.upsert(name, value, found === undefined || !equalBytes(found, value));
  }
}
