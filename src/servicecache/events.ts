import type { ListenerResult } from '../base/subscription.ts';
import type { Endpoints } from './backend.ts';
import type { Service } from './service.ts';
import type { ServiceID } from './service-id.ts';

/**
 * How one service changed (SEMANTICS 3.3). Complete and immutable: safe to keep. `old…` is what this listener
 * was last given of the service.
 *
 * `update` with no backends means that traffic is to be rejected, not that it may fall through to somewhere
 * else. A `delete` carries the service and the endpoints as they were last delivered.
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
 * Receives every change of an announced service, synchronously, after the state has changed, in order, each service at
 * most once in a call. On subscription it receives every announced service as an `update` without `old…`, then
 * `onSynced`, then live events. `onSynced` means that the replay is complete, not that the cache's inputs are.
 *
 * It may read, write, subscribe and unsubscribe, also in its replay. What it writes applies at once, and is delivered to
 * everybody after the delivery under way; a replay is one delivery (SEMANTICS 9). It may not be asynchronous: a promise
 * that it returns is not awaited. What it throws, and the rejection of such a promise, is counted, reported to
 * `onListenerFault` and reaches no other listener (I7).
 */
export interface ServiceListener {
  onEvents(events: readonly ServiceEvent[]): ListenerResult;
  /** The replay is complete. */
  onSynced?(): ListenerResult;
  /** The replay was not completed, because a call of it threw: the subscription has ended. */
  onEnded?(): ListenerResult;
  /** The inputs of the cache are complete (`markSynced`); once, after the events of that. */
  onInputsComplete?(): ListenerResult;
}
