import { lowerBound } from '../../base/sorted-map.ts';
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
  /** At most one for each slice. The first one is used. */
  entries: readonly SliceEntry[];
  written: EndpointClaim | undefined;
}

const NO_ENTRIES: readonly SliceEntry[] = [];

/** Returns true if `a` is used instead of `b`. */
function comesBefore(a: SliceEntry, b: SliceEntry): boolean {
  if (a.eventNumber !== b.eventNumber) return a.eventNumber > b.eventNumber;
  if (a.slice.createdAt !== b.slice.createdAt) return a.slice.createdAt > b.slice.createdAt;
  return a.slice.name > b.slice.name;
}

/** Returns the index of an entry in the sorted list, or the index at which it is inserted. */
function indexFor(entries: readonly SliceEntry[], entry: SliceEntry): number {
  return lowerBound(entries, (other) => comesBefore(other, entry));
}

/** Returns true if two claims are equal except for their `EndpointRank`, which is that of the slice. */
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
  /** By the name of a slice: its entries by endpoint. */
  readonly #slices = new Map<string, Map<string, SliceEntry>>();
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
    const name = (current ?? previous)?.name ?? '';
    const ofSlice = this.#slices.get(name) ?? new Map<string, SliceEntry>();
    if (current === undefined) this.#slices.delete(name);
    else this.#slices.set(name, ofSlice);
    if (current !== undefined) this.#putEntries(current, ofSlice);
    for (const [id, entry] of ofSlice) {
      if (current?.endpoints.has(id) === true) continue;
      ofSlice.delete(id);
      this.#replace(id, entry, undefined);
    }
  }

  /** Adds and replaces the entries of a slice. An unchanged entry keeps its event. */
  #putEntries(slice: ParsedCiliumEndpointSlice, ofSlice: Map<string, SliceEntry>): void {
    for (const [id, claim] of slice.endpoints) {
      const known = ofSlice.get(id);
      const isSame = known !== undefined && sameEndpoint(known.claim, claim);
      const entry = { slice, claim, eventNumber: isSame ? known.eventNumber : this.#eventNumber };
      ofSlice.set(id, entry);
      this.#replace(id, known, entry);
    }
  }

  /** Replaces the entry of an endpoint in one slice. Undefined means none. */
  #replace(id: string, previous: SliceEntry | undefined, current: SliceEntry | undefined): void {
    const endpoint = this.#endpoints.get(id) ?? { entries: NO_ENTRIES, written: undefined };
    if (previous !== undefined) {
      const at = indexFor(endpoint.entries, previous);
      endpoint.entries = endpoint.entries.toSpliced(at, 1);
    }
    if (current !== undefined) {
      const at = indexFor(endpoint.entries, current);
      endpoint.entries = endpoint.entries.toSpliced(at, 0, current);
    }
    if (endpoint.entries.length === 0) this.#endpoints.delete(id);
    else this.#endpoints.set(id, endpoint);
    this.#write(endpoint);
  }

  #write(endpoint: SlicedEndpoint): void {
    const { entries, written } = endpoint;
    const claim = entries[0]?.claim;
    if (claim === written) return;
    if (claim !== undefined && written !== undefined && sameEndpointClaim(claim, written)) return;
    endpoint.written = claim;
    this.#engine.holders.change(claim, written);
  }
}
