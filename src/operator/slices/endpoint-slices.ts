import type { Random } from '../../base/clock.ts';
import type { KubernetesObject } from '../../k8s/resource.ts';
import { isObject } from '../../net/fields.ts';
import { field, items } from '../collect/field.ts';

/** What a slice has of an endpoint: the original's `CoreCiliumEndpoint`. */
export interface CoreEndpoint {
  readonly name: string;
  readonly id: number;
  readonly [field: string]: unknown;
}

/** How endpoints come together (OPERATOR 34): those of one identity, or first come, first served. */
export type SliceMode = 'identity' | 'fcfs';

/** One slice as it is to be. */
export interface PlannedSlice {
  readonly name: string;
  readonly namespace: string;
  /** By name; empty: it is to be deleted. */
  readonly endpoints: ReadonlyMap<string, CoreEndpoint>;
  /** Slices to be written before this one, for an endpoint has moved there. */
  readonly after: ReadonlySet<string>;
}

interface Slice extends PlannedSlice {
  readonly endpoints: Map<string, CoreEndpoint>;
  readonly after: Set<string>;
  /** Of those that have room, with which it is; `undefined`: it has none, or is empty. */
  group: string | undefined;
}

/** `ces-max-ciliumendpoints-per-ces`. */
const MOST_ENDPOINTS = 100;
/** `sliceNameLetters` of upstream: no vowels, and nothing that looks like another. */
const LETTERS = 'bcdfghjklmnpqrstvwxyz2456789';

/** What a slice is to have of an endpoint; `undefined`: nothing, for it lacks networking or identity. */
export function coreEndpoint(endpoint: KubernetesObject): CoreEndpoint | undefined {
  const id = field(endpoint, 'status', 'identity', 'id');
  const networking = field(endpoint, 'status', 'networking');
  if (typeof id !== 'number' || !isObject(networking)) return undefined;
  const encryption = field(endpoint, 'status', 'encryption') ?? {};
  const ports = field(endpoint, 'status', 'named-ports');
  const named = ports === undefined ? {} : { 'named-ports': ports };
  return { name: endpoint.metadata.name, id, networking, encryption, ...named };
}

/** The endpoints of a slice that an API server has, by name. */
export function endpointsOf(slice: KubernetesObject): ReadonlyMap<string, CoreEndpoint> {
  const found = new Map<string, CoreEndpoint>();
  for (const item of items(slice, 'endpoints')) {
    const [name, id] = [field(item, 'name'), field(item, 'id')];
    if (isObject(item) && typeof name === 'string' && typeof id === 'number')
      found.set(name, { ...item, name, id });
  }
  return found;
}

function same(a: unknown, b: unknown): boolean {
  if (Array.isArray(a) && Array.isArray(b))
    return a.length === b.length && a.every((item, index) => same(item, b[index]));
  if (!isObject(a) || !isObject(b)) return a === b;
  const names = new Set([...Object.keys(a), ...Object.keys(b)]);
  return [...names].every((name) => same(a[name], b[name]));
}

/**
 * Which endpoint is in which slice. An endpoint is in one slice; it stays where it is, unless its identity changes where those
 * of one identity are together: then the slice that it leaves is written after the one that it enters, so that no reader
 * lacks it in between. Pure, but for the names of new slices.
 */
export class EndpointSlices {
  readonly #mode: SliceMode;
  readonly #most: number;
  readonly #random: Random;
  readonly #slices = new Map<string, Slice>();
  /** Slices that have room, by what else may enter them. */
  readonly #open = new Map<string, Set<Slice>>();
  /** `namespace/name` → slice. */
  readonly #where = new Map<string, string>();
  /** Slices that are not as they are to be, in the order in which they became so. */
  readonly #dirty = new Set<string>();

  constructor({ mode = 'identity', most = MOST_ENDPOINTS, random }: EndpointSlicesOptions) {
    this.#mode = mode;
    this.#most = most;
    this.#random = random;
  }

  get size(): number {
    return this.#slices.size;
  }

  get dirty(): ReadonlySet<string> {
    return this.#dirty;
  }

  get(name: string): PlannedSlice | undefined {
    return this.#slices.get(name);
  }

  /**
   * Takes over a slice that the server has. What it has of endpoints that are elsewhere, or are no more, goes.
   *
   * @param wanted what is to be in a slice of an endpoint, by `namespace/name`
   */
  adopt(object: KubernetesObject, wanted: (key: string) => CoreEndpoint | undefined): void {
    const { name } = object.metadata;
    const namespace = String(field(object, 'namespace') ?? '');
    const slice = this.#slices.get(name) ?? this.#make(name, namespace);
    const has = endpointsOf(object);
    const taken: CoreEndpoint[] = [];
    for (const [endpoint, core] of has) {
      const key = `${namespace}/${endpoint}`;
      const now = wanted(key);
      if (now === undefined || this.#where.has(key)) continue;
      this.#enter(slice, key, core);
      taken.push(now);
    }
    for (const core of taken) this.put(namespace, core); // as it is now, which may be another place
    if (!same(Object.fromEntries(has), Object.fromEntries(slice.endpoints))) this.#dirty.add(name);
    else this.#dirty.delete(name);
    if (slice.endpoints.size === 0) this.#dirty.add(name);
  }

  /** The server has lost a slice. */
  lost(name: string): void {
    const slice = this.#slices.get(name);
    if (slice === undefined) return;
    if (slice.endpoints.size > 0) this.#dirty.add(name);
    else this.#forget(name);
  }

  /** An endpoint is to be in a slice, as it is now. */
  put(namespace: string, core: CoreEndpoint): void {
    const key = `${namespace}/${core.name}`;
    const from = this.#slices.get(this.#where.get(key) ?? '');
    const before = from?.endpoints.get(core.name);
    if (from !== undefined && (this.#mode === 'fcfs' || before?.id === core.id)) {
      if (same(before, core)) return;
      from.endpoints.set(core.name, core);
      this.#dirty.add(from.name);
      return;
    }
    const to = this.#roomFor(namespace, core, from);
    this.#enter(to, key, core);
    this.#dirty.add(to.name);
    if (from === undefined) return;
    this.#leave(from, core.name);
    from.after.add(to.name);
  }

  /** An endpoint is no more, or is not to be in a slice any more. */
  remove(namespace: string, name: string): void {
    const key = `${namespace}/${name}`;
    const slice = this.#slices.get(this.#where.get(key) ?? '');
    if (slice === undefined) return;
    this.#where.delete(key);
    this.#leave(slice, name);
  }

  /** A slice is on the server as it was planned when `written` was taken from it. */
  wrote(name: string, written: ReadonlyMap<string, CoreEndpoint>): void {
    const slice = this.#slices.get(name);
    if (slice === undefined) return;
    // What has moved there meanwhile is not written yet: who waits for it goes on waiting.
    if (!same(Object.fromEntries(written), Object.fromEntries(slice.endpoints))) return;
    for (const { after } of this.#slices.values()) after.delete(name);
    this.#dirty.delete(name);
    if (slice.endpoints.size === 0) this.#forget(name);
  }

  #enter(slice: Slice, key: string, core: CoreEndpoint): void {
    slice.endpoints.set(core.name, core);
    this.#where.set(key, slice.name);
    this.#regroup(slice);
  }

  #leave(slice: Slice, name: string): void {
    slice.endpoints.delete(name);
    this.#dirty.add(slice.name);
    this.#regroup(slice);
  }

  /** What is in a slice has changed: whether it has room, and for whom. */
  #regroup(slice: Slice): void {
    const [first] = slice.endpoints.values();
    const hasRoom = first !== undefined && slice.endpoints.size < this.#most;
    const group = hasRoom ? this.#groupOf(slice.namespace, first) : undefined;
    if (group === slice.group) return;
    const before = this.#open.get(slice.group ?? '');
    before?.delete(slice);
    if (before?.size === 0) this.#open.delete(slice.group ?? '');
    slice.group = group;
    if (group === undefined) return;
    const those = this.#open.get(group) ?? new Set();
    this.#open.set(group, those.add(slice));
  }

  #groupOf(namespace: string, { id }: CoreEndpoint): string {
    return this.#mode === 'fcfs' ? namespace : `${namespace}/${id}`;
  }

  #forget(name: string): void {
    this.#slices.delete(name);
    this.#dirty.delete(name);
    for (const { after } of this.#slices.values()) after.delete(name);
  }

  #make(name: string, namespace: string): Slice {
    const slice: Slice = { name, namespace, endpoints: new Map(), after: new Set(), group: undefined };
    this.#slices.set(name, slice);
    return slice;
  }

  /** The fullest slice that has room, or a new one. One that waits for another is not entered: the two might wait in a ring. */
  #roomFor(namespace: string, core: CoreEndpoint, not: Slice | undefined): Slice {
    let best: Slice | undefined;
    for (const slice of this.#open.get(this.#groupOf(namespace, core)) ?? []) {
      if (slice === not || slice.after.size > 0) continue;
      if (slice.endpoints.size > (best?.endpoints.size ?? 0)) best = slice;
    }
    return best ?? this.#make(this.#newName(), namespace);
  }

  #newName(): string {
    const letters = (count: number): string =>
      Array.from({ length: count }, () => LETTERS[Math.floor(this.#random() * LETTERS.length)]).join('');
    for (;;) {
      const name = `ces-${letters(9)}-${letters(5)}`;
      if (!this.#slices.has(name)) return name;
    }
  }
}

/** Options of {@link EndpointSlices}. */
export interface EndpointSlicesOptions {
  /** Default `identity`. */
  readonly mode?: SliceMode | undefined;
  /** Endpoints in a slice. Default 100. */
  readonly most?: number | undefined;
  readonly random: Random;
}
