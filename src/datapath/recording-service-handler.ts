import type { ServiceEvent } from '../servicecache/events.ts';
import type { ServiceHandler } from './datapath.ts';

/** One thing that a service cache has told. */
export type ServiceRecord =
  | { readonly kind: 'event'; readonly event: ServiceEvent }
  | { readonly kind: 'synced' }
  | { readonly kind: 'inputs-complete' };

/** A datapath that does nothing but hand on what it is told, in order, to `record`: a list, a log, a monitor. */
export class RecordingServiceHandler implements ServiceHandler {
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
