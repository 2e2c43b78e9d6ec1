import { checkArgument, FUNCTION, objectWith, optional, SIGNAL } from '../base/arguments.ts';
import { CoalescingReader } from '../base/coalescing-reader.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { type AnnouncedService, eventBetween } from './announcement.ts';
import type { ServiceEvent, ServiceListener } from './events.ts';
import { equalBackendMaps } from './offer-difference.ts';
import { equalServices } from './service.ts';
import { formatServiceID, type ServiceID } from './service-id.ts';

/** An event of a stream. `old…` is the last state that this consumer received. */
export interface StreamedServiceEvent extends ServiceEvent {
  /** Acknowledges this event, in any order. Idempotent; has no effect after the stream is closed. */
  acknowledge(): void;
}

/** The error of `servicesSynced()` if the stream is closed before it resolves. */
export class ServiceStreamClosedError extends Error {
  override readonly name = 'ServiceStreamClosedError';
  readonly code = 'stream-closed';
  readonly retryable = false;

  constructor() {
    super('the service stream was closed before all events were acknowledged');
  }
}

interface LatestState {
  readonly id: ServiceID;
  /** Undefined if the service is no longer announced. */
  readonly announced: AnnouncedService | undefined;
  /** Number of changes that the stream has received, this one included. */
  readonly sequence: number;
}

/** A delivered event: its acknowledgement covers all changes of the service up to `sequence`. */
interface DeliveredEvent {
  sequence: number;
}

/** The source of a stream's events, such as a `ServiceCache`. */
export interface ServiceSource {
  subscribe(listener: ServiceListener): Unsubscribe;
}

function areEqual(a: AnnouncedService | undefined, b: AnnouncedService | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return equalServices(a.service, b.service) && equalBackendMaps(a.endpoints.backends, b.endpoints.backends);
}

/**
 * The events of a service cache for one slow consumer: an async iterable that coalesces per service. The consumer
 * always receives the latest state of a service, and only if it differs from the last one it received. A service that
 * was added and deleted between two reads is not reported. Services are ordered by their first change. The stream holds
 * one state for each pending service, and one for each delivered service (I11).
 *
 * Leaving the `for await` loop closes the stream. Reading never throws. Only one loop may read a stream at a time.
 */
export class ServiceStream implements AsyncIterable<StreamedServiceEvent>, Disposable {
  readonly #reader: CoalescingReader<LatestState, StreamedServiceEvent>;
  /** The last state of each service that the consumer received. */
  readonly #seen = new Map<string, AnnouncedService>();
  readonly #unacknowledged = new Map<string, DeliveredEvent>();
  /**
   * The sequence up to which each service must be acknowledged before `servicesSynced` resolves. Contains the services
   * that were pending or unacknowledged when the inputs were complete.
   */
  readonly #awaited = new Map<string, number>();
  readonly #waiters: { readonly resolve: () => void; readonly reject: (error: Error) => void }[] = [];
  #unsubscribe: Unsubscribe | undefined;
  #sequence = 0;
  #inputsComplete = false;

  /** Subscribes immediately. The stream closes when `signal` aborts. */
  constructor(source: ServiceSource, signal?: AbortSignal) {
    checkArgument('new ServiceStream: source', source, objectWith({ subscribe: FUNCTION }));
    checkArgument('new ServiceStream: signal', signal, optional(SIGNAL));
    this.#reader = new CoalescingReader({ shift: () => this.#shift(), onEnd: () => this.#end(), signal });
    if (this.#reader.closed) return;
    this.#unsubscribe = source.subscribe({
      onEvents: (events) => {
        for (const event of events) this.#push(event);
        this.#reader.wake();
      },
      onInputsComplete: () => this.#recordAwaited(),
    });
  }

  get pending(): number {
    return this.#reader.waiting.size;
  }

  get unacknowledged(): number {
    return this.#unacknowledged.size;
  }

  /**
   * Resolves when the inputs of the cache are complete (`markSynced`) and this consumer has acknowledged every service
   * that was known then, in that state or a later one. Rejects with {@link ServiceStreamClosedError} if the stream is
   * closed before.
   */
  servicesSynced(): Promise<void> {
    if (this.#isSynced()) return Promise.resolve();
    if (this.#reader.closed) return Promise.reject(new ServiceStreamClosedError());
    return new Promise((resolve, reject) => {
      this.#waiters.push({ resolve, reject });
    });
  }

  [Symbol.asyncIterator](): AsyncIterator<StreamedServiceEvent, undefined> {
    return this.#reader;
  }

  /** Unsubscribes, drops pending events and ends the loop, even while it waits for an event. Idempotent. */
  close(): void {
    this.#reader.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #end(): void {
    this.#unsubscribe?.();
    const error = new ServiceStreamClosedError();
    for (const { reject } of this.#waiters.splice(0)) reject(error);
  }

  #push({ action, id, service, endpoints }: ServiceEvent): void {
    const announced = action === 'delete' ? undefined : { service, endpoints };
    this.#reader.waiting.set(formatServiceID(id), { id, announced, sequence: ++this.#sequence });
  }

  /** Returns the next event that differs from the state that the consumer has. */
  #shift(): StreamedServiceEvent | undefined {
    const { waiting } = this.#reader;
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const [key, latest] = next;
      const event = this.#deliver(key, latest);
      if (event !== undefined) return event;
    }
    return undefined;
  }

  /** Returns the latest state of a service as an event; undefined if it equals the state that the consumer has. */
  #deliver(key: string, { id, announced, sequence }: LatestState): StreamedServiceEvent | undefined {
    const seen = this.#seen.get(key);
    const event = areEqual(seen, announced) ? undefined : eventBetween(id, seen, announced);
    if (event === undefined) {
      // The consumer has the latest state. Its acknowledgement of that state covers this change, too.
      const delivered = this.#unacknowledged.get(key);
      if (delivered === undefined) this.#settle(key, sequence);
      else delivered.sequence = sequence;
      return undefined;
    }
    if (announced === undefined) this.#seen.delete(key);
    else this.#seen.set(key, announced);
    const delivered: DeliveredEvent = { sequence };
    this.#unacknowledged.set(key, delivered);
    return { acknowledge: () => this.#acknowledge(key, delivered), ...event };
  }

  #acknowledge(key: string, delivered: DeliveredEvent): void {
    if (this.#reader.closed) return;
    if (this.#unacknowledged.get(key) === delivered) this.#unacknowledged.delete(key);
    this.#settle(key, delivered.sequence);
  }

  /** Marks a service as acknowledged up to `sequence`. */
  #settle(key: string, sequence: number): void {
    const awaited = this.#awaited.get(key);
    if (awaited === undefined || sequence < awaited) return;
    this.#awaited.delete(key);
    this.#resolveIfSynced();
  }

  /** Called when the inputs are complete. Records the services that must be acknowledged. */
  #recordAwaited(): void {
    this.#inputsComplete = true;
    for (const [key, { sequence }] of this.#unacknowledged) this.#awaited.set(key, sequence);
    for (const [key, { sequence }] of this.#reader.waiting) this.#awaited.set(key, sequence);
    this.#resolveIfSynced();
  }

  #isSynced(): boolean {
    return this.#inputsComplete && this.#awaited.size === 0;
  }

  #resolveIfSynced(): void {
    if (!this.#isSynced()) return;
    for (const { resolve } of this.#waiters.splice(0)) resolve();
  }
}
