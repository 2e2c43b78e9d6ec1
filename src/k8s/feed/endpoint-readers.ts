import { ciliumEndpointScanner } from '../cilium-endpoint-scanner.ts';
import { type EndpointClaim, SharedParts, sameEndpointClaim } from '../endpoint-claim.ts';
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
export function ciliumEndpointReader({ ipcache, holders }: EndpointEngine): KindReader<EndpointClaim> {
  const shared = new SharedParts();
  return {
    kind: 'CiliumEndpoint',
    fields: CILIUM_ENDPOINT_FIELDS,
    scanner: ciliumEndpointScanner(shared),
    read: (fields) => readCiliumEndpoint(fields, shared),
    same: sameEndpointClaim,
    change: (current, previous) => holders.change(current, previous),
    batch: (changes) => ipcache.batch(changes),
  };
}

/** The entry of an endpoint in one slice, and the event in which the entry appeared or changed. */
interface SliceEntry {
  readonly slice: ParsedCiliumEndpointSlice;
  readonly claim: EndpointClaim | undefined;
  /** Number of the event; a later event has a higher number. All slices of one list have the same number. */
  readonly eventNumber: number;
}

/** An endpoint in one or several slices, and its claim in the IPCache. */
interface SlicedEndpoint {
  entries: readonly SliceEntry[];
  written: EndpointClaim | undefined;
}

/** Returns true if `a` is used instead of `b`. */
function comesBefore(a: SliceEntry, b: SliceEntry): boolean {
  if (a.eventNumber !== b.eventNumber) return a.eventNumber > b.eventNumber;
  if (a.slice.createdAt !== b.slice.createdAt) return a.slice.createdAt > b.slice.createdAt;
  return a.slice.name > b.slice.name;
}

/** Returns true if two claims describe the same endpoint. The rank is ignored, because it belongs to the slice. */
function sameEndpoint(a: EndpointClaim | undefined, b: EndpointClaim | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  const { deleting, createdAt, uid } = a;
  return sameEndpointClaim(a, { ...b, deleting, createdAt, uid });
}

/**
 * Writes CiliumEndpointSlices to the IPCache (KUBERNETES 35). While an endpoint moves between slices, it is in two
 * slices. The slice in which it appeared or changed last is used; within one list, the slice created last,
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
      for (const [id, claim] of current.endpoints) this.#addEntry(id, current, claim);
    if (previous === undefined) return;
    for (const id of previous.endpoints.keys())
      if (current?.endpoints.has(id) !== true) this.#removeEntry(id, previous.name);
  }

  #addEntry(id: string, slice: ParsedCiliumEndpointSlice, claim: EndpointClaim | undefined): void {
    const endpoint = this.#endpoints.get(id) ?? { entries: [], written: undefined };
    const known = endpoint.entries.find((entry) => entry.slice.name === slice.name);
    const isSame = known !== undefined && sameEndpoint(known.claim, claim);
    const entry = { slice, claim, eventNumber: isSame ? known.eventNumber : this.#eventNumber };
    endpoint.entries = [...endpoint.entries.filter((other) => other !== known), entry];
    this.#endpoints.set(id, endpoint);
    this.#write(endpoint);
  }

  #removeEntry(id: string, slice: string): void {
    const endpoint = this.#endpoints.get(id);
    if (endpoint === undefined) return;
    endpoint.entries = endpoint.entries.filter((entry) => entry.slice.name !== slice);
    if (endpoint.entries.length === 0) this.#endpoints.delete(id);
    this.#write(endpoint);
  }

  #write(endpoint: SlicedEndpoint): void {
    const { entries, written } = endpoint;
    let first: SliceEntry | undefined;
    for (const entry of entries) if (first === undefined || comesBefore(entry, first)) first = entry;
    const claim = first?.claim;
    if (claim === written) return;
    if (claim !== undefined && written !== undefined && sameEndpointClaim(claim, written)) return;
    endpoint.written = claim;
    this.#engine.holders.change(claim, written);
  }
}
