import type { Endpoints } from './backend.ts';
import type { Service } from './service.ts';
import type { ServiceID } from './service-id.ts';

/**
 * How one service changed (SEMANTICS 3.3). Complete and immutable: safe to keep. `old…` is what this listener
 * was last told of the service.
 *
 * `update` with no backends means that traffic is to be refused, not that it may fall through to somewhere
 * else. A `delete` carries the service and the endpoints as they were last told.
 */
export interface ServiceEvent {
  readonly action: 'update' | 'delete';
  readonly id: ServiceID;
  readonly service: Service;
  /** Undefined when the service is new to this listener. The same object as `service` when it has not changed. */
  readonly oldService: Service | undefined;
  /** After affinity: where traffic may go now. */
  readonly endpoints: Endpoints;
  /** Undefined when the service is new to this listener. The same object as `endpoints` when they have not changed. */
  readonly oldEndpoints: Endpoints | undefined;
}

/**
 * Told of every change of an announced service, synchronously, after the state has changed, in order, at most
 * once per service and call. On subscription it is first given every announced service as an `update` without
 * `old…`, then `onSynced`, then live events. `onSynced` means that the replay is complete, not that the cache's
 * inputs are.
 *
 * A listener that throws is counted and harms nobody (I7). It may read, write and unsubscribe; what it writes is
 * applied at once and told after the events that are being told.
 */
export interface ServiceListener {
  onEvents(events: readonly ServiceEvent[]): void;
  onSynced?(): void;
  /** The cache was told that its inputs are complete (`markSynced`); once, after the events of that. */
  onInputsComplete?(): void;
}
