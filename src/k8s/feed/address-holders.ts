import type { IPCache } from '../../ipcache/ipcache.ts';
import { type EndpointAddresses, outranks } from '../endpoint-addresses.ts';

/** What the feed needs of an `IPCache`. */
export type FedIPCache = Pick<IPCache, 'upsert' | 'delete' | 'batch'>;

/** Where the addresses of endpoints go; {@link AddressHolders} is one. */
export type AddressSink = Pick<AddressHolders, 'change'>;

/** Objects that list an address: mostly one. */
type Holders = EndpointAddresses | readonly EndpointAddresses[];

function isContested(holders: Holders | undefined): holders is readonly EndpointAddresses[] {
  return holders !== undefined && !('ips' in holders);
}

/** The holders with `now` in the place of `before`; either may be missing. */
function replaced(
  holders: Holders | undefined,
  before: EndpointAddresses | undefined,
  now: EndpointAddresses | undefined,
): Holders | undefined {
  if (holders === undefined || holders === before) return now; // mostly
  const list = isContested(holders) ? holders : [holders];
  const next = list.filter((holder) => holder !== before);
  if (now !== undefined) next.push(now);
  return next.length === 1 ? next[0] : next;
}

function strongest(holders: Holders | undefined): EndpointAddresses | undefined {
  if (!isContested(holders)) return holders;
  return holders.reduce((best, next) => (outranks(next, best) ? next : best));
}

/**
 * IP → the objects of one source that list it (K 23). One of them has it, whatever came first: its claim is in the
 * IPCache, and when it goes the next one's is written. So the late delete of a pod that has ended never takes the address
 * from the pod that has it now (K 20, 22), and a pod whose address is taken has it again as soon as it is free.
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

  /** Addresses that several objects list. */
  get contested(): number {
    return this.#contested;
  }

  /**
   * What an object lists now instead of what it listed before, which must be what was given then. New addresses are written
   * before old ones go (K 20).
   */
  change(now: EndpointAddresses | undefined, before: EndpointAddresses | undefined): void {
    for (const ip of now?.ips ?? []) this.#replace(ip, before, now);
    for (const ip of before?.ips ?? [])
      if (now?.ips.includes(ip) !== true) this.#replace(ip, before, undefined);
  }

  #replace(ip: string, before: EndpointAddresses | undefined, now: EndpointAddresses | undefined): void {
    const holders = this.#holders.get(ip);
    const next = replaced(holders, before, now);
    if (next === undefined) this.#holders.delete(ip);
    else this.#holders.set(ip, next);
    this.#contested += Number(isContested(next)) - Number(isContested(holders));
    this.#write(ip, strongest(holders), strongest(next));
  }

  #write(ip: string, old: EndpointAddresses | undefined, next: EndpointAddresses | undefined): void {
    if (next === old) return;
    if (next !== undefined) this.#ipcache.upsert(ip, next);
    else if (old !== undefined) {
      const { source, k8s: ifPod } = old;
      this.#ipcache.delete(ip, { source, ifPod });
    }
  }
}
