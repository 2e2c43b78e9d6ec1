/** Maximum number of prefixes compared between nodes. The others are only counted. */
const MAX_PREFIXES = 500_000;

/** A prefix with different values on different nodes. */
export interface Disagreement {
  readonly prefix: string;
  /**
   * The nodes with each value. The value of the most nodes is first. Value `undefined`: the nodes without the prefix.
   */
  readonly values: readonly { readonly value: string | undefined; readonly nodes: readonly string[] }[];
}

/**
 * Compares the tables of nodes with each other, for the prefixes of other clusters, because a sysdump does not contain
 * the objects of these clusters. Nodes must be added one after the other. Memory: about 8 bytes for each prefix and
 * node.
 */
export class Disagreements {
  /** By prefix and value: the indexes of the nodes in `#nodes`, ascending. */
  readonly #prefixes = new Map<string, Map<string, number[]>>();
  readonly #nodes: string[] = [];
  /** Number of entries not compared, because there are too many prefixes. */
  omitted = 0;

  beginNode(node: string): void {
    this.#nodes.push(node);
  }

  /** Removes the current node, because its table could not be read. It must have no entries. */
  cancelNode(): void {
    this.#nodes.pop();
  }

  /** Adds an entry of the current node. */
  add(prefix: string, value: string): void {
    const values = this.#prefixes.get(prefix);
    const index = this.#nodes.length - 1;
    if (values === undefined) {
      if (this.#prefixes.size < MAX_PREFIXES) this.#prefixes.set(prefix, new Map([[value, [index]]]));
      else this.omitted++;
      return;
    }
    const nodes = values.get(value);
    if (nodes === undefined) values.set(value, [index]);
    else if (nodes.at(-1) !== index) nodes.push(index);
  }

  /** Yields the prefixes with different values on different nodes. */
  *all(): Generator<Disagreement, void, void> {
    for (const [prefix, values] of this.#prefixes) {
      const present = new Set<number>();
      for (const nodes of values.values()) for (const node of nodes) present.add(node);
      if (values.size === 1 && present.size === this.#nodes.length) continue;
      const parts: { readonly value: string | undefined; readonly nodes: readonly string[] }[] = Array.from(
        values,
        ([value, nodes]) => ({ value, nodes: nodes.map((index) => this.#nodes[index] ?? '') }),
      );
      const lacking = this.#nodes.filter((_, index) => !present.has(index));
      if (lacking.length > 0) parts.push({ value: undefined, nodes: lacking });
      parts.sort((a, b) => b.nodes.length - a.nodes.length || ((a.value ?? '~') < (b.value ?? '~') ? -1 : 1));
      yield { prefix, values: parts };
    }
  }
}
