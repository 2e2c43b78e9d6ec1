import { SplitMap } from '../../columns/split-map.ts';

/** Values by key, grouped by folder, so that the keys below a prefix are found without a visit of all others. */
export class KeyFolders<V> {
  /** By the part of the key up to its last slash. */
  readonly #folders = new Map<string, SplitMap<V>>();
  /** The last used folder, because successive keys usually have the same one. */
  #lastName = '';
  #last: SplitMap<V> | undefined;

  get isEmpty(): boolean {
    return this.#folders.size === 0;
  }

  get(key: string): V | undefined {
    return this.#folderOf(key)?.get(key);
  }

  set(key: string, value: V): void {
    let folder = this.#folderOf(key);
    if (folder === undefined) {
      folder = new SplitMap();
      this.#last = folder;
      this.#folders.set(this.#lastName, folder);
    }
    folder.set(key, value);
  }

  delete(key: string): void {
    const folder = this.#folderOf(key);
    folder?.delete(key);
    if (folder?.size !== 0) return;
    this.#folders.delete(this.#lastName);
    this.#last = undefined;
  }

  clear(): void {
    this.#folders.clear();
    this.#last = undefined;
  }

  /**
   * Iterates over the values of the keys that start with `prefix`, in any order. The table may change during the
   * iteration: deleted keys are not visited, and added keys may be.
   */
  *below(prefix: string): Generator<V, void, void> {
    for (const [name, folder] of this.#folders)
      if (name.startsWith(prefix)) yield* folder.values();
      else if (prefix.startsWith(name))
        for (const [key, value] of folder.entries()) if (key.startsWith(prefix)) yield value;
  }

  #folderOf(key: string): SplitMap<V> | undefined {
    const end = key.lastIndexOf('/') + 1;
    if (end !== this.#lastName.length || !key.startsWith(this.#lastName)) {
      this.#lastName = key.slice(0, end);
      this.#last = this.#folders.get(this.#lastName);
    }
    return this.#last;
  }
}
