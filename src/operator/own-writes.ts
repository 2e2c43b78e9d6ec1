import type { KubernetesObject, ResourceEvent } from '../k8s/resource.ts';

interface Result<T> {
  /** The object after the request; undefined if it does not exist. */
  readonly object: T | undefined;
  readonly uid: string;
  /** Versions replaced by this process whose events may still arrive. */
  readonly replaced: ReadonlySet<string>;
}

/**
 * The results of requests of a duty, until the watch delivers them or a later state. Without them, an object would be
 * written again until its event arrives. Versions are compared for equality only. One request at a time.
 */
export class OwnWrites<T extends KubernetesObject = KubernetesObject> {
  readonly #results = new Map<string, Result<T>>();
  /** The last request, and whether the watch has delivered its result or a later state since it was sent. */
  #sent: { readonly key: string; readonly known: T | undefined; isOvertaken: boolean } | undefined;

  /** Returns the latest known state of an object. `observed` is its state as the watch delivered it last. */
  latest(key: string, observed: T | undefined): T | undefined {
    const result = this.#results.get(key);
    return result === undefined ? observed : result.object;
  }

  /** Must be called immediately before a request is sent. `known` is the latest known state of the object. */
  beginRequest(key: string, known: T | undefined): void {
    this.#sent = { key, known, isOvertaken: false };
  }

  /**
   * Records the object after the last request; undefined if it does not exist. Returns false, and records nothing, if
   * the watch has already delivered this state or a later one.
   */
  endRequest(object: T | undefined): boolean {
    if (this.#sent === undefined || this.#sent.isOvertaken) return false;
    const { key, known } = this.#sent;
    const replaced = new Set(this.#results.get(key)?.replaced);
    if (known !== undefined) replaced.add(known.metadata.resourceVersion);
    this.#results.set(key, { object, uid: (object ?? known)?.metadata.uid ?? '', replaced });
    return true;
  }

  /** Receives an event of the watch. Returns true if its state was already known, or has been replaced. */
  observe(key: string, { type, object: { metadata } }: ResourceEvent): boolean {
    const { uid, resourceVersion: version } = metadata;
    const result = this.#results.get(key);
    if (type === 'put' && result?.replaced.has(version) === true) return true;
    // The delete of an earlier object with the same name.
    if (type === 'delete' && result !== undefined && result.uid !== uid) return true;
    this.#results.delete(key);
    const isKnown =
      result !== undefined &&
      result.object?.metadata.resourceVersion === (type === 'put' ? version : undefined);
    if (!isKnown && this.#sent?.key === key) this.#sent.isOvertaken = true;
    return isKnown;
  }

  /**
   * Must be called after each list of a kind, except the first. Forgets, and returns, the objects that this process has
   * created and the list does not contain: if they were deleted before the list, no event arrives. Keeps objects
   * without a version, which a dry run only printed.
   *
   * @param prefix the prefix of the keys of the kind
   * @param observed the objects of the list, by their key without the prefix
   */
  forgetUnlisted(prefix: string, observed: ReadonlyMap<string, unknown>): readonly string[] {
    const names: string[] = [];
    for (const [key, { object }] of this.#results) {
      const name = key.slice(prefix.length);
      const isCreated = object !== undefined && object.metadata.resourceVersion !== '';
      if (!key.startsWith(prefix) || !isCreated || observed.has(name)) continue;
      this.#results.delete(key);
      names.push(name);
    }
    return names;
  }

  clear(): void {
    this.#results.clear();
    this.#sent = undefined;
  }
}
