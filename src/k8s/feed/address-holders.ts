import { lowerBound } from '../../base/sorted-map.ts';
import type { IPCache } from '../../ipcache/ipcache.ts';
import { type EndpointClaim, outranks } from '../endpoint-claim.ts';

/** The methods of `IPCache` which the feed calls. */
export type FedIPCache = Pick<IPCache, 'upsert' | 'delete' | 'batch'>;

/** Receives the claims of endpoints; {@link AddressHolders} implements it. */
export type AddressSink = Pick<AddressHolders, 'change'>;

/** The objects that list an address, strongest first. A single object, the usual case, is stored without an array. */
type Holders = EndpointClaim | EndpointClaim[];

/** Returns true if several objects list the address. */
function isContested(holders: Holders | undefined): holders is EndpointClaim[] {
  return holders !== undefined && !('ips' in holders);
}

/** Returns the index of a holder in the sorted list, or the index at which it is inserted. */
function indexFor(list: readonly EndpointClaim[], holder: EndpointClaim): number {
  return lowerBound(list, (other) => outranks(other, holder));
}

/**
 * Returns the holders after `current` has replaced `previous`. Without `previous`, `current` is only added; without
 * `current`, `previous` is only removed. An array is changed in place.
 */
function replaceHolder(
  holders: Holders | undefined,
  previous: EndpointClaim | undefined,
  current: EndpointClaim | undefined,
): Holders | undefined {
  if (holders === undefined || holders === previous) return current;
  const list = isContested(holders) ? holders : [holders];
  if (previous !== undefined) {
    const at = indexFor(list, previous);
    if (list[at] === previous) list.splice(at, 1);
  }
  if (current !== undefined) list.splice(indexFor(list, current), 0, current);
  return list.length === 1 ? list[0] : list;
}

/** Returns the holder whose claim is written. */
function strongest(holders: Holders | undefined): EndpointClaim | undefined {
  return isContested(holders) ? holders[0] : holders;
}

/**
 * Stores for each IP the objects of one source that list it (KUBERNETES 23). The strongest object holds the IP,
 * regardless of the order of events, and its claim is in the IPCache. If the holder is deleted, the claim of the next
 * object is written. A late delete of a former pod therefore never removes the claim of the current pod (KUBERNETES 20,
 * 22), and a pod that lost its address to another pod gets it back when the other pod is deleted.
 *
 *     10.0.0.7 ─► [ pod b, created 12:05 ]   written
 *                 [ pod a, created 12:01 ]   waits
 */
export class AddressHolders {
  readonly #ipcache: FedIPCache;
  readonly #holders = new Map<string, Holders>();
  #contested = 0;

  constructor(ipcache: FedIPCache) {
    this.#ipcache = ipcache;
  }

  /** Number of addresses listed by several objects. */
  get contested(): number {
    return this.#contested;
  }

  /**
   * Replaces the claim of an object. `previous` must be the value of `current` in the last call for this object.
   * New addresses are written before old ones are deleted (KUBERNETES 20).
   */
  change(current: EndpointClaim | undefined, previous: EndpointClaim | undefined): void {
    for (const ip of current?.ips ?? []) this.#replace(ip, previous, current);
    for (const ip of previous?.ips ?? [])
      if (current?.ips.includes(ip) !== true) this.#replace(ip, previous, undefined);
  }

  #replace(ip: string, previous: EndpointClaim | undefined, current: EndpointClaim | undefined): void {
    const holders = this.#holders.get(ip);
    const wasContested = isContested(holders);
    const previousStrongest = strongest(holders);
    const next = replaceHolder(holders, previous, current);
    if (next === undefined) this.#holders.delete(ip);
    else this.#holders.set(ip, next);
    this.#contested += Number(isContested(next)) - Number(wasContested);
    this.#write(ip, previousStrongest, strongest(next));
  }

  #write(ip: string, old: EndpointClaim | undefined, next: EndpointClaim | undefined): void {
    if (next === old) return;
    if (next !== undefined) this.#ipcache.upsert(ip, next);
    else if (old !== undefined) {
      const { source, k8s: ifPod } = old;
      this.#ipcache.delete(ip, { source, ifPod });
    }
  }
}
