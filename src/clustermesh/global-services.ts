/** Which remote clusters share which services (SEMANTICS 6). Holds names only; what they say is the service cache's. */
export class GlobalServices {
  readonly #clusters = new Map<string, Set<string>>();

  /** Services that some remote cluster shares. */
  get size(): number {
    return this.#clusters.size;
  }

  /**
   * The clusters that share a service, by name, ascending; empty when there is none.
   * @param service `<namespace>/<name>`
   */
  clustersOf(service: string): readonly string[] {
    return [...(this.#clusters.get(service) ?? [])].sort();
  }

  /** Every shared service, `<namespace>/<name>`, ascending, with its clusters. */
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
