import type { ClusterServiceKey } from '../../model/cluster-service.ts';
import type { ServiceExport } from '../../model/service-export.ts';

/** The services exported by other clusters, by `namespace/name` and cluster. */
export class RemoteExports {
  readonly #exports = new Map<string, Map<string, ServiceExport>>();
  readonly #counts = new Map<string, number>();

  /** Sets or deletes the export of a cluster. Returns its `namespace/name`. */
  set({ namespace, name, cluster }: ClusterServiceKey, service: ServiceExport | undefined): string {
    const key = `${namespace}/${name}`;
    const exports = this.#exports.get(key) ?? new Map<string, ServiceExport>();
    const change = Number(service !== undefined) - Number(exports.has(cluster));
    if (service === undefined) exports.delete(cluster);
    else exports.set(cluster, service);
    if (exports.size === 0) this.#exports.delete(key);
    else this.#exports.set(key, exports);
    const count = (this.#counts.get(cluster) ?? 0) + change;
    if (count === 0) this.#counts.delete(cluster);
    else this.#counts.set(cluster, count);
    return key;
  }

  exportsOf(key: string): readonly ServiceExport[] {
    return [...(this.#exports.get(key)?.values() ?? [])];
  }

  has(key: string): boolean {
    return this.#exports.has(key);
  }

  keys(): Iterable<string> {
    return this.#exports.keys();
  }

  /** Returns the number of exports of each cluster, by the name of the cluster, ascending. */
  counts(): readonly (readonly [cluster: string, exports: number])[] {
    return [...this.#counts].sort();
  }

  clear(): void {
    this.#exports.clear();
    this.#counts.clear();
  }
}
