import { ciliumEndpointScanner } from '../cilium-endpoint-scanner.ts';
import { type EndpointAddresses, SharedParts, sameEndpointAddresses } from '../endpoint-addresses.ts';
import {
  CILIUM_ENDPOINT_FIELDS,
  CILIUM_ENDPOINT_SLICE_FIELDS,
  type ParsedCiliumEndpointSlice,
  readCiliumEndpoint,
  readCiliumEndpointSlice,
} from '../parse-cilium-endpoint.ts';
import type { AddressSink, FedIPCache } from './address-holders.ts';
import type { KindReader } from './object-feed.ts';

/** The IPCache, and the table through which endpoints are written to it. */
export interface EndpointEngine {
  readonly ipcache: FedIPCache;
  readonly holders: AddressSink;
}

/**
 * Returns a reader that writes CiliumEndpoints to the IPCache (KUBERNETES 30 to 33), including those of the local node.
 */
export function ciliumEndpointReader({ ipcache, holders }: EndpointEngine): KindReader<EndpointAddresses> {
  const shared = new SharedParts();
  return {
    kind: 'CiliumEndpoint',
    fields: CILIUM_ENDPOINT_FIELDS,
    scanner: ciliumEndpointScanner(shared),
    read: (fields) => readCiliumEndpoint(fields, shared),
    same: sameEndpointAddresses,
    change: (current, previous) => holders.change(current, previous),
    batch: (changes) => ipcache.batch(changes),
  };
}

/** An endpoint in one slice, and the event in which it appeared or changed there. */
interface Listing {
  readonly slice: ParsedCiliumEndpointSlice;
  readonly addresses: EndpointAddresses | undefined;
  /** Number of the event; a later event has a higher number. All slices of one list have the same number. */
  readonly eventNumber: number;
}

interface SlicedEndpoint {
  listings: readonly Listing[];
  /** The addresses that were written. */
  written: EndpointAddresses | undefined;
}

/** Returns true if `a` is used instead of `b`. */
function comesBefore(a: Listing, b: Listing): boolean {
  if (a.eventNumber !== b.eventNumber) return a.eventNumber > b.eventNumber;
  if (a.slice.createdAt !== b.slice.createdAt) return a.slice.createdAt > b.slice.createdAt;
  return a.slice.name > b.slice.name;
}

/** Returns true if two claims describe the same endpoint. The rank is ignored, because it belongs to the slice. */
function sameEndpoint(a: EndpointAddresses | undefined, b: EndpointAddresses | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  const { deleting, createdAt, uid } = a;
  return sameEndpointAddresses(a, { ...b, deleting, createdAt, uid });
}

/**
 * Writes CiliumEndpointSlices to the IPCache (KUBERNETES 35). While an endpoint moves between slices, it is in two
 * slices. The slice in which it appeared or changed last is used; within one list, the slice that was created last,
 * then the slice with the greater name. If the endpoint is removed from the used slice, another slice is used. If it is
 * removed from its last slice, it is deleted. The additions of an event are applied before its removals, so that an
 * endpoint is not deleted while it moves.
 */
export class SlicedEndpointReader implements KindReader<ParsedCiliumEndpointSlice> {
  readonly kind = 'CiliumEndpointSlice';
  readonly fields: readonly string[] = CILIUM_ENDPOINT_SLICE_FIELDS;
  readonly #engine: EndpointEngine;
  readonly #shared = new SharedParts();
  readonly #endpoints = new Map<string, SlicedEndpoint>();
  /** True while a list arrives. */
  #isListing = false;
  #eventNumber = 0;

  constructor(engine: EndpointEngine) {
    this.#engine = engine;
  }

  read(fields: Parameters<typeof readCiliumEndpointSlice>[0]): ParsedCiliumEndpointSlice | undefined {
    return readCiliumEndpointSlice(fields, this.#shared);
  }

  batch(changes: () => void): void {
    this.#engine.ipcache.batch(changes);
  }

  start(): void {
    this.#isListing = true;
    this.#eventNumber++;
  }

  listed(): void {
    this.#isListing = false;
  }

  change(
    current: ParsedCiliumEndpointSlice | undefined,
    previous: ParsedCiliumEndpointSlice | undefined,
  ): void {
    if (!this.#isListing) this.#eventNumber++;
    if (current !== undefined)
      for (const [id, addresses] of current.endpoints) this.#addListing(id, current, addresses);
    if (previous === undefined) return;
    for (const id of previous.endpoints.keys())
      if (current?.endpoints.has(id) !== true) this.#removeListing(id, previous.name);
  }

  #addListing(id: string, slice: ParsedCiliumEndpointSlice, addresses: EndpointAddresses | undefined): void {
    const endpoint = this.#endpoints.get(id) ?? { listings: [], written: undefined };
    const known = endpoint.listings.find((listing) => listing.slice.name === slice.name);
    const isSame = known !== undefined && sameEndpoint(known.addresses, addresses);
    const listing = { slice, addresses, eventNumber: isSame ? known.eventNumber : this.#eventNumber };
    endpoint.listings = [...endpoint.listings.filter((other) => other !== known), listing];
    this.#endpoints.set(id, endpoint);
    this.#write(endpoint);
  }

  #removeListing(id: string, slice: string): void {
    const endpoint = this.#endpoints.get(id);
    if (endpoint === undefined) return;
    endpoint.listings = endpoint.listings.filter((listing) => listing.slice.name !== slice);
    if (endpoint.listings.length === 0) this.#endpoints.delete(id);
    this.#write(endpoint);
  }

  #write(endpoint: SlicedEndpoint): void {
    const { listings, written } = endpoint;
    const first = listings.reduce<Listing | undefined>(
      (best, next) => (best === undefined || comesBefore(next, best) ? next : best),
      undefined,
    );
    const addresses = first?.addresses;
    if (addresses === written || (addresses && written && sameEndpointAddresses(addresses, written))) return;
    endpoint.written = addresses;
    this.#engine.holders.change(addresses, written);
  }
}
