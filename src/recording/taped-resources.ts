import {
  COPIED_RESOURCES,
  type CopiedResource,
  type KeyLayout,
  resourcePrefix,
  syncedKey,
} from '../kvstore/codec/keys.ts';

/** The resources of a cluster on a tape: which were followed, and which are complete. */
export class TapedResources {
  readonly #followed = new Set<CopiedResource>();
  readonly #complete = new Set<CopiedResource>();
  #layout: KeyLayout = 'state';

  /** Records that a resource of `cluster` is followed below `prefix`. */
  follow(resource: CopiedResource, cluster: string, prefix: string): void {
    this.#followed.add(resource);
    this.#layout = prefix === resourcePrefix(resource, cluster, 'cache') ? 'cache' : 'state';
  }

  /** Records that the list of a resource is complete. */
  complete(resource: CopiedResource): void {
    this.#complete.add(resource);
  }

  /** Records that the keys of a resource were withdrawn. */
  withdraw(resource: CopiedResource): void {
    this.#complete.delete(resource);
  }

  /**
   * Returns the canary of each resource, except of those that were followed and are not complete. A resource that was
   * not followed has a canary, so that no reader waits for it.
   */
  canaries(cluster: string): readonly string[] {
    return COPIED_RESOURCES.flatMap((resource) =>
      this.#followed.has(resource) && !this.#complete.has(resource)
        ? []
        : syncedKey(cluster, resource, this.#layout),
    );
  }
}
