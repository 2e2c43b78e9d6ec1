import type { KubernetesObject, ResourceEvent, ResourceSink } from '../../../src/k8s/resource.ts';

function nameOf({ metadata: { namespace = '', name } }: KubernetesObject): string {
  return `${namespace}/${name}`;
}

/** Folds its events, and records events that a sink must never receive. */
export class RecordingSink implements ResourceSink {
  readonly objects: Map<string, KubernetesObject> = new Map();
  readonly breaches: string[] = [];
  readonly log: string[] = [];
  listings = 0;

  apply(events: readonly ResourceEvent[]): void {
    if (events.length === 0) this.breaches.push('an empty batch');
    for (const event of events) this.#apply(event);
  }

  onListed(): void {
    this.listings++;
    if (this.listings > 1) this.breaches.push('listed twice');
  }

  #apply({ type, object }: ResourceEvent): void {
    const name = nameOf(object);
    const known = this.objects.get(name);
    this.log.push(`${type} ${name}`);
    if (type === 'delete') {
      if (known === undefined) this.breaches.push(`${name} deleted, and was not there`);
      else if (known.metadata.uid !== object.metadata.uid)
        this.breaches.push(`${name} deleted in another life`);
      this.objects.delete(name);
      return;
    }
    if (known !== undefined && known.metadata.uid !== object.metadata.uid)
      this.breaches.push(`${name} put over another life`);
    if (known?.metadata.resourceVersion === object.metadata.resourceVersion)
      this.breaches.push(`${name} put, and was known`);
    this.objects.set(name, object);
  }

  /** Name → version, from all events. */
  get versions(): ReadonlyMap<string, string> {
    return new Map([...this.objects].map(([name, { metadata }]) => [name, metadata.resourceVersion]));
  }
}
