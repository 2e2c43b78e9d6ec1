import type { IPCacheChange, IPCacheListener } from '../../../src/ipcache/types.ts';
import type { NodeConfiguration } from '../../../src/nodemanager/address-claims.ts';
import type { Node } from '../../../src/nodemanager/node.ts';
import type { NodeHandler } from '../../../src/nodemanager/node-handler.ts';
import type { ServiceEvent, ServiceListener } from '../../../src/servicecache/events.ts';

/** A change of an IPCache, or another call of its listener, as plain data. */
export type IPCacheRecord =
  | { readonly kind: 'change'; readonly change: IPCacheChange }
  | { readonly kind: 'synced' };

/**
 * Passes changes and `onSynced` in order to `record`. A call with several changes causes one record for each. Stores
 * nothing.
 */
export class RecordingIPCacheListener implements IPCacheListener {
  readonly #record: (record: IPCacheRecord) => void;

  constructor(record: (record: IPCacheRecord) => void) {
    this.#record = record;
  }

  onChanges(changes: readonly IPCacheChange[]): void {
    for (const change of changes) this.#record({ kind: 'change', change });
  }

  onSynced(): void {
    this.#record({ kind: 'synced' });
  }
}

/** An event of a service cache, or another call of its listener, as plain data. */
export type ServiceRecord =
  | { readonly kind: 'event'; readonly event: ServiceEvent }
  | { readonly kind: 'synced' }
  | { readonly kind: 'inputs-complete' };

/**
 * Passes events, `onSynced` and `onInputsComplete` in order to `record`. A call
 * with several events causes one record for each. Stores nothing.
 */
export class RecordingServiceListener implements ServiceListener {
  readonly #record: (record: ServiceRecord) => void;

  constructor(record: (record: ServiceRecord) => void) {
    this.#record = record;
  }

  onEvents(events: readonly ServiceEvent[]): void {
    for (const event of events) this.#record({ kind: 'event', event });
  }

  onSynced(): void {
    this.#record({ kind: 'synced' });
  }

  onInputsComplete(): void {
    this.#record({ kind: 'inputs-complete' });
  }
}

/** One call of a node handler, as plain data. */
export type NodeRecord =
  | { readonly kind: 'add'; readonly node: Node }
  | { readonly kind: 'update'; readonly old: Node; readonly node: Node }
  | { readonly kind: 'delete'; readonly node: Node }
  | { readonly kind: 'validate'; readonly node: Node }
  | { readonly kind: 'configuration'; readonly configuration: NodeConfiguration }
  | { readonly kind: 'synced' };

/** Passes all calls in order to `record`. Stores nothing. */
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

  onSynced(): void {
    this.#record({ kind: 'synced' });
  }
}
