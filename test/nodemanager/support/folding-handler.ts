import type { Node } from '../../../src/nodemanager/node.ts';
import type { NodeHandler } from '../../../src/nodemanager/node-handler.ts';

/** A handler that folds its calls, and records violations of the contract. */
export class FoldingHandler implements NodeHandler {
  readonly view: Map<string, Node> = new Map();
  readonly complaints: string[] = [];
  /** Nodes of all calls since the last `takeTold`. */
  #told: string[] = [];

  nodeAdd(node: Node): void {
    this.#told.push(node.fullName);
    if (this.view.has(node.fullName)) this.complaints.push(`${node.fullName}: added twice`);
    this.view.set(node.fullName, node);
  }

  /** With `retries`, `old` may be the argument of a failed call. */
  nodeUpdate(old: Node, node: Node, retries?: unknown): void {
    this.#told.push(node.fullName);
    const known = this.view.get(node.fullName);
    if (known === undefined) this.complaints.push(`${node.fullName}: update before add`);
    else if (retries !== 'retries' && !known.equals(old))
      this.complaints.push(`${node.fullName}: old is not what was told before`);
    if (old.equals(node)) this.complaints.push(`${node.fullName}: told of no change`);
    this.view.set(node.fullName, node);
  }

  /** With `retries`, a failed `nodeAdd` may be undone. */
  nodeDelete(node: Node, retries?: unknown): void {
    this.#told.push(node.fullName);
    const known = this.view.get(node.fullName);
    if (known === undefined && retries === 'retries') return;
    if (known === undefined) this.complaints.push(`${node.fullName}: delete without add`);
    else if (!known.equals(node))
      this.complaints.push(`${node.fullName}: deleted another node than was told`);
    this.view.delete(node.fullName);
  }

  takeTold(): readonly string[] {
    const told = this.#told;
    this.#told = [];
    return told;
  }
}
