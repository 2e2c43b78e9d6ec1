import type { NodeConfiguration } from '../nodemanager/address-claims.ts';
import type { Node } from '../nodemanager/node.ts';
import type { NodeHandler } from '../nodemanager/node-handler.ts';

/** One call of a node handler as plain data. */
export type NodeRecord =
  | { readonly kind: 'add'; readonly node: Node }
  | { readonly kind: 'update'; readonly old: Node; readonly node: Node }
  | { readonly kind: 'delete'; readonly node: Node }
  | { readonly kind: 'validate'; readonly node: Node }
  | { readonly kind: 'configuration'; readonly configuration: NodeConfiguration };

/** A datapath that does nothing but hand on what it is told, in order, to `record`: a list, a log, a monitor. */
export class RecordingNodeHandler implements NodeHandler {
  readonly name: string;
  readonly #record: (record: NodeRecord) => void;

  constructor(record: (record: NodeRecord) => void, name = 'recording') {
    this.name = name;
    this.#record = record;
  }

  nodeAdd(node: Node): void {
    this.#record({ kind: 'add', node });
  }

  nodeUpdate(old: Node, node: Node): void {
    this.#record({ kind: 'update', old, node });
  }

  nodeDelete(node: Node): void {
    this.#record({ kind: 'delete', node });
  }

  nodeValidateImplementation(node: Node): void {
    this.#record({ kind: 'validate', node });
  }

  nodeConfigurationChanged(configuration: NodeConfiguration): void {
    this.#record({ kind: 'configuration', configuration });
  }
}
