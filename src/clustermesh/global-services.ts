/** Maps services to the remote clusters sharing them (SEMANTICS 6). Holds names only; the service cache has the content. */
export class GlobalServices {
  readonly #clusters = new Map<string, Set<string>>();

  /** Number of shared services. */
  get size(): number {
    return this.#clusters.size;
  }

  /**
   * Returns the names of the clusters that share a service, ascending. Empty if there are none.
   * @param service `<namespace>/<name>`
   */
  clustersOf(service: string): readonly string[] {
    return [...(this.#clusters.get(service) ?? [])].sort();
  }

  /** Returns all shared services (`<namespace>/<name>`, ascending) with their clusters. */
  entries(): readonly (readonly [string, readonly string[]])[] {
    return [...this.#clusters.keys()].sort().map((service) => [service, this.clustersOf(service)] as const);
  }

  add(service: string, cluster: string): void {
    const clusters = this.#clusters.get(service);
    if (clusters === undefined) this.#clusters.set(service, new Set([cluster]));
    else clusters.add(cluster);
  }

  delete(service: string, cluster: string): void {
    const clusters = this.#clusters.get(service);
    if (clusters?.delete(cluster) === true && clusters.size === 0) this.#clusters.delete(service);
  }
}
