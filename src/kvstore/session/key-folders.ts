import { SplitMap } from '../../columns/split-map.ts';

/** Values by key, grouped by folder, so that the keys below a prefix are found without a visit of all others. */
export class KeyFolders<V> {
  /** By the part of the key up to its last slash. */
  readonly #folders = new Map<string, SplitMap<V>>();
  /** The folder of the last key, because successive keys usually have the same one; undefined if it has no values. */
  #selected: SplitMap<V> | undefined;
  #selectedName = '';

  get isEmpty(): boolean {
    return this.#folders.size === 0;
  }

  get(key: string): V | undefined {
    return this.#select(key)?.get(key);
  }

  set(key: string, value: V): void {
    let folder = this.#select(key);
    if (folder === undefined) {
      folder = new SplitMap();
      this.#selected = folder;
      this.#folders.set(this.#selectedName, folder);
    }
    folder.set(key, value);
  }

  delete(key: string): void {
    const folder = this.#select(key);
    folder?.delete(key);
    if (folder?.size !== 0) return;
    this.#folders.delete(this.#selectedName);
    this.#selected = undefined;
  }

  clear(): void {
    this.#folders.clear();
    this.#selected = undefined;
  }

  /**
   * Iterates over the values of the keys that start with `prefix`, in any order. Values may change during the
   * iteration: deleted keys are not visited, and added keys may be.
   */
  *below(prefix: string): Generator<V, void, void> {
    for (const [name, folder] of this.#folders)
      if (name.startsWith(prefix)) yield* folder.values();
      else if (prefix.startsWith(name))
        for (const [key, value] of folder.entries()) if (key.startsWith(prefix)) yield value;
  }

  /** Selects the folder of a key, and returns it if it exists. */
  #select(key: string): SplitMap<V> | undefined {
    const end = key.lastIndexOf('/') + 1;
    if (end !== this.#selectedName.length || !key.startsWith(this.#selectedName)) {
      this.#selectedName = key.slice(0, end);
      this.#selected = this.#folders.get(this.#selectedName);
    }
    return this.#selected;
  }
}
