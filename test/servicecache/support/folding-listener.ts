import type { ServiceEvent, ServiceListener } from '../../../src/servicecache/events.ts';
import { nameOf, text } from './plain.ts';

/**
 * A listener that folds its events, and records every violation of the contract: `old…` that is not the
 * previous value (I1), an event without a change (I3), a delete of an unknown service.
 */
export class FoldingListener implements ServiceListener {
  readonly breaches: string[] = [];
  /** Every event since the last `take`. */
  #events: ServiceEvent[] = [];
  readonly #folded = new Map<string, ServiceEvent>();
  synced = 0;

  onEvents(events: readonly ServiceEvent[]): void {
    const keys = events.map((event) => nameOf(event.id));
    if (new Set(keys).size !== keys.length) this.breaches.push(`a service twice in one call: ${keys.join()}`);
    for (const event of events) this.#fold(event);
  }

  onSynced(): void {
    this.synced++;
  }

  /** Returns the events since the last call. */
  take(): readonly ServiceEvent[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }

  /** Returns its state, in the form of `NaiveServiceCache.view`. */
  view(): ReadonlyMap<string, string> {
    const entries = [...this.#folded].map(([key, { service, endpoints }]): [string, string] => [
      key,
      text({ service, backends: endpoints.backends }),
    ]);
    return new Map(entries.sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  #fold(event: ServiceEvent): void {
    const key = nameOf(event.id);
    const known = this.#folded.get(key);
    this.#events.push(event);
    if (event.oldService !== known?.service || event.oldEndpoints !== known?.endpoints) {
      this.breaches.push(`I1: ${key}: old is not what was told last`);
    }
    if (event.action === 'delete') {
      if (known === undefined) this.breaches.push(`I3: ${key}: delete of a service that was never told`);
      this.#folded.delete(key);
      return;
    }
    if (
      known !== undefined &&
      text([event.service, event.endpoints]) === text([known.service, known.endpoints])
    ) {
      this.breaches.push(`I3: ${key}: update that says nothing new`);
    }
    this.#folded.set(key, event);
  }
}
