import { CoalescingReader } from '../base/coalescing-reader.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import type { AnnouncedService } from './announcement.ts';
import type { ServiceEvent, ServiceListener } from './events.ts';
import { equalBackendMaps } from './offer-difference.ts';
import { equalServices } from './service.ts';
import { formatServiceID, type ServiceID } from './service-id.ts';

/** An event of a stream: `old…` is what this consumer was given last, however much has happened since. */
export interface StreamedServiceEvent extends ServiceEvent {
  /**
   * Says that the consumer is done with this event, whenever that is: events may be acknowledged in any order.
   * Idempotent; of no effect once the stream is closed.
   */
  acknowledge(): void;
}

/** How `servicesSynced()` of a stream fails when the stream was closed before. */
export class ServiceStreamClosedError extends Error {
  override readonly name = 'ServiceStreamClosedError';
  readonly code = 'stream-closed';
  readonly retryable = false;

  constructor() {
    super('the service stream was closed before everything was acknowledged');
  }
}

/** The latest state of a service; `sequence` grows with every change that the stream receives. */
interface Latest {
  readonly id: ServiceID;
  /** Undefined when the service is announced no more. */
  readonly announced: AnnouncedService | undefined;
  readonly sequence: number;
}

/** An event that was given: up to which change of its service the consumer knows when it acknowledges it. */
interface Given {
  sequence: number;
}

/** Where a stream gets its events; a `ServiceCache` is one. */
export interface ServiceSource {
  subscribe(listener: ServiceListener): Unsubscribe;
}

function saySame(a: AnnouncedService | undefined, b: AnnouncedService | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return equalServices(a.service, b.service) && equalBackendMaps(a.endpoints.backends, b.endpoints.backends);
}

/** The event that takes a consumer from what it has seen to the latest state. */
function eventBetween(
  id: ServiceID,
  seen: AnnouncedService | undefined,
  latest: AnnouncedService | undefined,
): ServiceEvent | undefined {
  const last = latest ?? seen;
  if (last === undefined || saySame(seen, latest)) return undefined;
  return {
    action: latest === undefined ? 'delete' : 'update',
    id,
    service: last.service,
    oldService: seen?.service,
    endpoints: last.endpoints,
    oldEndpoints: seen?.endpoints,
  };
}

/**
 * The events of a service cache for one consumer that takes its time: an asynchronous iterable that coalesces per
 * service. The consumer always gets the latest state of a service, and never an event that says nothing new: a
 * service that came and went meanwhile is not mentioned. Services come in the order in which they first changed.
 * Holds one state for each service that waits, and one for each that was given (I11).
 *
 * Leaving the `for await` loop closes the stream. It never fails; one loop at a time.
 */
export class ServiceStream implements AsyncIterable<StreamedServiceEvent>, Disposable {
  readonly #reader: CoalescingReader<Latest, StreamedServiceEvent>;
  /** What the consumer was given last, by service. */
  readonly #seen = new Map<string, AnnouncedService>();
  /** The last event of each service, while it is not acknowledged. */
  readonly #unacknowledged = new Map<string, Given>();
  /** Services that were known when the inputs were complete: up to where each must be acknowledged. */
  readonly #awaited = new Map<string, number>();
  readonly #waiters: { readonly resolve: () => void; readonly reject: (error: Error) => void }[] = [];
  #unsubscribe: Unsubscribe | undefined;
  #sequence = 0;
  #inputsComplete = false;

  /** Subscribes at once. The stream closes when `signal` aborts. */
  constructor(source: ServiceSource, signal?: AbortSignal) {
    this.#reader = new CoalescingReader({ take: () => this.#take(), onEnd: () => this.#end(), signal });
    if (this.#reader.closed) return;
    this.#unsubscribe = source.subscribe({
      onEvents: (events) => {
        for (const event of events) this.#push(event);
        this.#reader.wake();
      },
      onInputsComplete: () => this.#awaitAll(),
    });
  }

  /** How many services wait to be given. */
  get pending(): number {
    return this.#reader.waiting.size;
  }

  /** How many services were given an event that is not acknowledged. */
  get unacknowledged(): number {
    return this.#unacknowledged.size;
  }

  /**
   * Resolves once the inputs of the cache are complete (`markSynced`), and this consumer has
   * acknowledged every service that was known then, in the state of then or a later one. Rejects with
   * {@link ServiceStreamClosedError} when the stream is closed before.
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

  /**
   * Unsubscribes, drops what waits, ends the loop. An event that is on its way to the consumer already is still
   * given. Idempotent.
   */
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

  /** The next event that says something new to the consumer. */
  #take(): StreamedServiceEvent | undefined {
    for (const [key, latest] of this.#reader.waiting) {
      this.#reader.waiting.delete(key);
      const event = this.#give(key, latest);
      if (event !== undefined) return event;
    }
    return undefined;
  }

  /** Hands a service's latest state to the consumer, as an event if it is any news. */
  #give(key: string, { id, announced, sequence }: Latest): StreamedServiceEvent | undefined {
    const event = eventBetween(id, this.#seen.get(key), announced);
    if (event === undefined) {
      // The consumer has the latest state already: its acknowledgement of that counts for this change too.
      const given = this.#unacknowledged.get(key);
      if (given === undefined) this.#settle(key, sequence);
      else given.sequence = sequence;
      return undefined;
    }
    if (announced === undefined) this.#seen.delete(key);
    else this.#seen.set(key, announced);
    const given: Given = { sequence };
    this.#unacknowledged.set(key, given);
    return { ...event, acknowledge: () => this.#acknowledge(key, given) };
  }

  #acknowledge(key: string, given: Given): void {
    if (this.#reader.closed) return;
    if (this.#unacknowledged.get(key) === given) this.#unacknowledged.delete(key);
    this.#settle(key, given.sequence);
  }

  /** A service has been dealt with up to `sequence`. */
  #settle(key: string, sequence: number): void {
    const awaited = this.#awaited.get(key);
    if (awaited === undefined || sequence < awaited) return;
    this.#awaited.delete(key);
    this.#resolveIfSynced();
  }

  /** The inputs are complete: from now on wait for what is on its way. */
  #awaitAll(): void {
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
