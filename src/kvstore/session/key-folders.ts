/** Values by key, grouped by folder, so that the keys below a prefix are found without a visit of all others. */
export class KeyFolders<V> {
  /** By the part of the key up to its last slash. */
  readonly #folders = new Map<string, Map<string, V>>();
  /** The last used folder, because successive keys usually have the same one. */
  #lastName = '';
  #last: Map<string, V> | undefined;

  get isEmpty(): boolean {
    return this.#folders.size === 0;
  }

  get(key: string): V | undefined {
    return this.#folderOf(key)?.get(key);
  }

  set(key: string, value: V): void {
    let folder = this.#folderOf(key);
    if (folder === undefined) {
      folder = new Map();
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
   * Iterates over the values of the keys that start with `prefix`, in any order. The table may change during the iteration:
   * deleted keys are not visited, added keys may be.
   */
  *below(prefix: string): Generator<V, void, void> {
    for (const [name, folder] of this.#folders)
      if (name.startsWith(prefix)) yield* firstOf(folder.values(), folder.size);
      else if (prefix.startsWith(name))
        for (const [key, value] of firstOf(folder, folder.size)) if (key.startsWith(prefix)) yield value;
  }

  #folderOf(key: string): Map<string, V> | undefined {
    const end = key.lastIndexOf('/') + 1;
    if (end !== this.#lastName.length || !key.startsWith(this.#lastName)) {
      this.#lastName = key.slice(0, end);
      this.#last = this.#folders.get(this.#lastName);
    }
    return this.#last;
  }
}

/** Yields the items of a collection that grows, at most `count`, so that the loop ends. */
function* firstOf<T>(items: Iterable<T>, count: number): Generator<T, void, void> {
  let left = count;
  for (const item of items) {
    if (left-- === 0) return;
    yield item;
  }
}
