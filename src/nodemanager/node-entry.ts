import { compareSources, mayOverwrite, type Source } from '../identity/source.ts';
import type { Node } from './node.ts';

const NONE: readonly Node[] = [];

/**
 * Everything the manager knows of one node: the claims of its sources, what the IPCache and the handlers have.
 *
 *     claims, strongest first:  effective │ overruled …
 *                                   │
 *                   written ◄───────┴───────► announced
 *             (its claims are in the IPCache)     (what handlers know; lags while a stronger source has an address)
 */
export class NodeEntry {
  /** `cluster/name`. */
  readonly fullName: string;
  /** The strongest claim; undefined once the last one is gone. */
  effective: Node | undefined;
  /** What handlers received last, or are receiving. */
  announced: Node | undefined;
  /** The node whose claims are in the IPCache: the effective one, but while that is being changed. */
  written: Node | undefined;
  /** Addresses of `written` that another writer holds in the IPCache. */
  lost: Set<string> | undefined;
  #overruled: readonly Node[] = NONE;

  constructor(fullName: string) {
    this.fullName = fullName;
  }

  /** The claims behind the effective one, strongest first. */
  get overruled(): readonly Node[] {
    return this.#overruled;
  }

  claimOf(source: Source): Node | undefined {
    if (this.effective?.source === source) return this.effective;
    return this.#overruled.find((claim) => claim.source === source);
  }

  /**
   * Takes in a claim instead of that source's earlier one. With `retain` false only the strongest is kept: a
   * weaker claim is forgotten, an equal or stronger one replaces what is there (SEMANTICS 4).
   */
  put(node: Node, retain: boolean): void {
    const current = this.effective;
    // Its source only says something else, which changes no rank. Measured: 10 % of adding a node, 12 % of an update.
    if (current === undefined || current.source === node.source) this.effective = node;
    else if (retain) this.#rank([...this.#without(node.source), node]);
    else if (mayOverwrite(current.source, node.source)) this.effective = node;
  }

  /** Withdraws a source's claim; the next one, if there is one, becomes effective. Whether there was one. */
  remove(source: Source): boolean {
    if (this.claimOf(source) === undefined) return false;
    // Mostly there is nothing to be ranked: 5 % of a delete.
    if (this.#overruled.length === 0) this.effective = undefined;
    else this.#rank(this.#without(source));
    return true;
  }

  /** Withdraws every claim. */
  removeAll(): boolean {
    this.#rank([]);
    return true;
  }

  #claims(): readonly Node[] {
    return this.effective === undefined ? [] : [this.effective, ...this.#overruled];
  }

  #without(source: Source): readonly Node[] {
    return this.#claims().filter((claim) => claim.source !== source);
  }

  #rank(claims: readonly Node[]): void {
    const [effective, ...overruled] = claims.toSorted((a, b) => compareSources(a.source, b.source));
    this.effective = effective;
    this.#overruled = overruled;
  }
}
