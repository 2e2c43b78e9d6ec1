import type { NodeName } from '../model/cluster-node.ts';
import type { NodeEntry } from './node-entry.ts';

/** The nodes by cluster and name, in two levels, so that no lookup builds a key, and each cluster is iterable. */
export class NodeTable {
  readonly #clusters = new Map<string, Map<string, NodeEntry>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get({ cluster, name }: NodeName): NodeEntry | undefined {
    return this.#clusters.get(cluster)?.get(name);
  }

  /** Returns a node by full name. A cluster name contains no `/`. */
  find(fullName: string): NodeEntry | undefined {
    const slash = fullName.indexOf('/');
    return this.#clusters.get(fullName.slice(0, slash))?.get(fullName.slice(slash + 1));
  }

  add({ cluster, name }: NodeName, entry: NodeEntry): void {
    let nodes = this.#clusters.get(cluster);
    if (nodes === undefined) {
      nodes = new Map();
      this.#clusters.set(cluster, nodes);
    }
    nodes.set(name, entry);
    this.#size++;
  }

  remove({ cluster, name }: NodeName): void {
    const nodes = this.#clusters.get(cluster);
    if (nodes?.delete(name) !== true) return;
    this.#size--;
    if (nodes.size === 0) this.#clusters.delete(cluster);
  }

  /**
   * Yields the nodes of one cluster, or all. Nodes may change during the iteration; a node that stays is yielded once.
   */
  *entries(cluster?: string): Generator<NodeEntry, void, void> {
    if (cluster !== undefined) {
      yield* this.#clusters.get(cluster)?.values() ?? [];
      return;
    }
    for (const nodes of this.#clusters.values()) yield* nodes.values();
  }
}
