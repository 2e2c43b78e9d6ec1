import { checkArgument, OBJECT, objectWith, optional } from '../base/arguments.ts';
import type { ListenerResult } from '../base/subscription.ts';
import { type Backend, type Endpoints, NO_BACKENDS } from './backend.ts';
import { everyDifference } from './offer-difference.ts';
import type { Service } from './service.ts';
import type { ServiceID } from './service-id.ts';

/**
 * The change of one service (SEMANTICS 3.3). Complete, immutable and safe to keep. `old…` is the state that this
 * listener received last.
 *
 * An `update` without backends means that traffic must be rejected; it must not fall through to another route. A
 * `delete` contains the service and the endpoints as last delivered.
 */
export interface ServiceEvent {
  readonly action: 'update' | 'delete';
  readonly id: ServiceID;
  readonly service: Service;
  /** Undefined if the service is new to this listener. The same object as `service` if it is unchanged. */
  readonly oldService: Service | undefined;
  /** The current endpoints, after affinity. */
  readonly endpoints: Endpoints;
  /** Undefined if the service is new to this listener. The same object as `endpoints` if they are unchanged. */
  readonly oldEndpoints: Endpoints | undefined;
}

/** A backend in two versions of a service: without `before` it was added, without `after` removed, else changed. */
export interface BackendChange {
  readonly before: Backend | undefined;
  readonly after: Backend | undefined;
}

const EVENT = objectWith({ endpoints: OBJECT, oldEndpoints: optional(OBJECT) });

/**
 * Returns the backends that an event adds, removes or changes, in any order. A `delete` removes all. The cost is linear
 * in the changes, not in the backends, because both versions share what is unchanged.
 */
export function changedBackends(event: ServiceEvent): readonly BackendChange[] {
  checkArgument('changedBackends: event', event, EVENT);
  const { action, endpoints, oldEndpoints } = event;
  const isDelete = action === 'delete';
  const old = isDelete ? (oldEndpoints ?? endpoints) : oldEndpoints;
  const changes: BackendChange[] = [];
  everyDifference(
    old?.backends ?? NO_BACKENDS,
    isDelete ? NO_BACKENDS : endpoints.backends,
    (before, after) => {
      changes.push({ before, after });
      return true;
    },
  );
  return changes;
}

/**
 * Receives every change of an announced service synchronously and in order, after the state changed, each service at
 * most once in a call. On subscription it receives every announced service as an `update` without `old…`, then
 * `onSynced`, then live events. `onSynced` means that the replay is complete, not that the inputs of the cache are.
 *
 * A listener may read, write, subscribe and unsubscribe, also during its replay. Its writes are applied immediately and
 * delivered to all listeners after the current delivery; a replay is one delivery (SEMANTICS 9). It must be
 * synchronous: a returned promise is not awaited. Errors and rejected promises are counted, reported to
 * `onListenerFault`, and do not affect other listeners (I7).
 */
export interface ServiceListener {
  onEvents(events: readonly ServiceEvent[]): ListenerResult;
  /** Called when the replay is complete. */
  onSynced?(): ListenerResult;
  /** Called if a call of the replay threw. The subscription has ended. */
  onEnded?(): ListenerResult;
  /** Called once when the inputs of the cache are complete (`markSynced`), after the resulting events. */
  onInputsComplete?(): ListenerResult;
}
