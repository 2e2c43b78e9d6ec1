import { compareSources, mayOverwrite, type Source } from '../model/source.ts';
import type { Node } from './node.ts';

const NONE: readonly Node[] = [];

/**
 * The state of one node: the claims of its sources, and the versions that the IPCache and the handlers have.
 *
 *     claims, strongest first:  effective │ overruled …
 *                                   │
 *                   written ◄───────┴───────► announced
 *             (its claims are in the IPCache)     (the handlers' version; lags if a stronger source holds an address)
 */
export class NodeEntry {
  /** `cluster/name`. */
  readonly fullName: string;
  /** The strongest claim; undefined if there is none. */
  effective: Node | undefined;
  /** The last version delivered to handlers. */
  announced: Node | undefined;
  /** The version whose claims are in the IPCache: the effective one, or during a change the previous one. */
  written: Node | undefined;
  /** Addresses that `written` claims, but another writer or none holds in the IPCache. */
  lost: Set<string> | undefined;
  #overruled: readonly Node[] = NONE;

  constructor(fullName: string) {
    this.fullName = fullName;
  }

  /** All claims except the effective one, strongest first. */
  get overruled(): readonly Node[] {
    return this.#overruled;
  }

  /** All claims, strongest first. */
  get claims(): readonly Node[] {
    return this.effective === undefined ? NONE : [this.effective, ...this.#overruled];
  }

  claimOf(source: Source): Node | undefined {
    if (this.effective?.source === source) return this.effective;
    return this.#overruled.find((claim) => claim.source === source);
  }

  /**
   * Sets a source's claim. If `retain` is false, only the strongest claim is kept: a weaker one is dropped, an equal or
   * stronger one replaces it (SEMANTICS 4).
   */
  put(node: Node, retain: boolean): void {
    const current = this.effective;
    // An update of the same source does not change ranks. Measured: saves 10 % of adding a node, 12 % of an update.
    if (current === undefined || current.source === node.source) this.effective = node;
    else if (retain) this.#rank([...this.#without(node.source), node]);
    else if (mayOverwrite(current.source, node.source)) this.effective = node;
  }

  /** Deletes a source's claim; the next one, if any, becomes effective. Returns true if there was one. */
  remove(source: Source): boolean {
    if (this.claimOf(source) === undefined) return false;
    // The common case without ranking saves 5 % of a delete.
    if (this.#overruled.length === 0) this.effective = undefined;
    else this.#rank(this.#without(source));
    return true;
  }

  /** Deletes all claims. Returns true, as {@link NodeEntry.remove} does when it deletes a claim. */
  removeAll(): boolean {
    this.#rank([]);
    return true;
  }

  #without(source: Source): readonly Node[] {
    return this.claims.filter((claim) => claim.source !== source);
  }

  #rank(claims: readonly Node[]): void {
    const [effective, ...overruled] = claims.toSorted((a, b) => compareSources(a.source, b.source));
    this.effective = effective;
    this.#overruled = overruled;
  }
}
