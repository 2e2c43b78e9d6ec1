import type { ClusterConfig } from '../kvstore/codec/cluster-config.ts';
import type { CopiedResource } from '../kvstore/codec/keys.ts';
import type { WatchEvent } from '../kvstore/session/backend.ts';
import type { StoreObserver } from '../kvstore/stores/watch-store.ts';
import type { OnReaderState } from './resource-stores.ts';

/**
 * Receives the input that one store applies, in order. After the calls for the keys of an engine batch, `onApplied` is
 * called once.
 */
export interface StoreTap {
  /** Called with each event before its value is decoded. */
  onEvent(name: string, event: WatchEvent): void;
  /** Called before the value of the last event is applied; not called if it was rejected. */
  onUpdate(name: string): void;
  /** Called before a key is removed: because of the last event, or because a complete list does not contain it. */
  onDelete(name: string): void;
  onApplied(): void;
}

/**
 * @internal Receives the input of the engines of a mesh, so that it can be recorded. Its methods are synchronous and
 * must not throw.
 */
export interface MeshTap {
  /** Returns the tap of a resource of a cluster. Called once for each store. */
  storeTap(cluster: string, resource: CopiedResource): StoreTap;
  /** Called after the configuration from a handshake was applied. */
  onConfigured(cluster: string, config: ClusterConfig | undefined): void;
  /**
   * Called when a resource is followed. If `keepsKeys`, no key is removed, even if it is deleted or its value is
   * rejected.
   */
  onFollow(cluster: string, resource: CopiedResource, prefix: string, keepsKeys: boolean): void;
  onReaderState(
    cluster: string,
    reader: Parameters<OnReaderState>[0],
    state: Parameters<OnReaderState>[1],
  ): void;
  /** Called when a resource is complete and keys that no longer exist were deleted. */
  onListed(cluster: string, resource: CopiedResource): void;
  /** Called when a resource is no longer followed. */
  onFollowEnd(cluster: string, resource: CopiedResource): void;
  /** Called after the state of a cluster, or all its services, were withdrawn. */
  onWithdrawn(cluster: string, scope: 'services' | 'everything'): void;
}

/** Returns the calls of an observer for its keys. Each is passed to the tap first. */
export function tapped<T>(
  observer: StoreObserver<T>,
  tap: StoreTap,
): Pick<StoreObserver<T>, 'onUpdate' | 'onDelete'> {
  return {
    onUpdate: (name, value) => {
      tap.onUpdate(name);
      observer.onUpdate(name, value);
    },
    onDelete: (name) => {
      tap.onDelete(name);
      observer.onDelete(name);
    },
  };
}
