import type { Clock, Timer } from '../../base/clock.ts';
import type { Labels } from '../../model/labels.ts';
import { Prefix } from '../../net/prefix.ts';
import type { EndpointSlice } from '../../servicecache/backend.ts';
import type { PrefixMetadata } from './prefix-metadata.ts';

/**
 * Time for which the addresses of a deleted slice are kept, because the API server usually creates it again soon
 * (KUBERNETES 43).
 */
const GRACE_MS = 30_000;

const LABELS: Labels = [{ source: 'reserved', key: 'kube-apiserver', value: '' }];

interface LabelledSlice {
  readonly cidrs: ReadonlySet<string>;
  /** Runs after the slice was deleted. */
  readonly withdrawal: Timer | undefined;
}

/**
 * Labels the addresses in the slices of `default/kubernetes` with `reserved:kube-apiserver`, with source
 * `kube-apiserver` (KUBERNETES 43). Each slice has its own resource name. If a slice is deleted, only the labels that
 * it has set are removed.
 */
export class ApiServerAddresses {
  readonly #metadata: PrefixMetadata;
  readonly #clock: Clock;
  readonly #slices = new Map<string, LabelledSlice>();

  constructor(metadata: PrefixMetadata, clock: Clock) {
    this.#metadata = metadata;
    this.#clock = clock;
  }

  /** Receives a slice of any service. Ignores slices of other services than `default/kubernetes`. */
  change(current: EndpointSlice | undefined, previous: EndpointSlice | undefined): void {
    const listed = isOfApiServer(current) ? current : undefined;
    if (listed !== undefined) this.#put(listed);
    else if (isOfApiServer(previous)) this.#deleteLater(previous.name);
  }

  /** Cancels pending withdrawals; the addresses stay. */
  stop(): void {
    for (const { withdrawal } of this.#slices.values()) withdrawal?.cancel();
  }

  #put({ name, backends }: EndpointSlice): void {
    const previous = this.#slices.get(name);
    previous?.withdrawal?.cancel();
    const cidrs = new Set([...backends.keys()].flatMap((ip) => Prefix.parse(ip)?.toString() ?? []));
    this.#slices.set(name, { cidrs, withdrawal: undefined });
    const resource = resourceOf(name);
    for (const cidr of cidrs)
      if (previous?.cidrs.has(cidr) !== true)
        this.#metadata.upsertMetadata(cidr, 'kube-apiserver', resource, LABELS);
    for (const cidr of previous?.cidrs ?? [])
      if (!cidrs.has(cidr)) this.#metadata.removeMetadata(cidr, resource);
  }

  #deleteLater(name: string): void {
    const known = this.#slices.get(name);
    if (known === undefined || known.withdrawal !== undefined) return;
    const withdrawal = this.#clock.after(GRACE_MS, () => {
      this.#slices.delete(name);
      for (const cidr of known.cidrs) this.#metadata.removeMetadata(cidr, resourceOf(name));
    });
    this.#slices.set(name, { ...known, withdrawal });
  }
}

function isOfApiServer(slice: EndpointSlice | undefined): slice is EndpointSlice {
  return slice?.service.namespace === 'default' && slice.service.name === 'kubernetes';
}

function resourceOf(slice: string): string {
  return `endpointslice/default/${slice}`;
}
