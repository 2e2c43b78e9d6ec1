/**
 * Maps services to the remote clusters that share them (SEMANTICS 6). Holds names only; the service cache has the
 * content.
 */
export class GlobalServices {
  /** By service, then by cluster: the names of the shared slices; `''` in the format `services/v1`, without slices. */
  readonly #clusters = new Map<string, Map<string, Set<string>>>();

  /** Number of shared services. */
  get size(): number {
    return this.#clusters.size;
  }

  /**
   * Returns the names of the clusters that share a service, ascending. Empty if there are none.
   * @param service `<namespace>/<name>`
   */
  clustersOf(service: string): readonly string[] {
    return [...(this.#clusters.get(service)?.keys() ?? [])].sort();
  }

  /** Returns all shared services (`<namespace>/<name>`, ascending) with their clusters. */
  entries(): readonly (readonly [string, readonly string[]])[] {
    return [...this.#clusters.keys()].sort().map((service) => [service, this.clustersOf(service)] as const);
  }

  /** Records that a cluster shares a service, or one slice of it. */
  add(service: string, cluster: string, slice: string = ''): void {
    const clusters = this.#clusters.get(service) ?? new Map<string, Set<string>>();
    this.#clusters.set(service, clusters);
    const slices = clusters.get(cluster);
    if (slices === undefined) clusters.set(cluster, new Set([slice]));
    else slices.add(slice);
  }

  /**
   * Deletes the record of a service or slice. The cluster shares the service as long as another record of it exists.
   */
  delete(service: string, cluster: string, slice: string = ''): void {
    const clusters = this.#clusters.get(service);
    const slices = clusters?.get(cluster);
    if (slices?.delete(slice) === true && slices.size === 0) clusters?.delete(cluster);
    if (clusters?.size === 0) this.#clusters.delete(service);
  }
}
