import type { Random } from '../../base/clock.ts';
import type { KubernetesObject } from '../../k8s/resource.ts';
import { isObject } from '../../net/fields.ts';
import { field, items } from '../collect/field.ts';
import { SetMap } from '../set-map.ts';

/** The part of an endpoint in a slice: Cilium's `CoreCiliumEndpoint`. */
export interface CoreEndpoint {
  readonly name: string;
  readonly id: number;
  readonly [field: string]: unknown;
}

/** How endpoints are grouped (OPERATOR 34): by identity, or first come, first served. */
export type SliceMode = 'identity' | 'fcfs';

/** The desired content of one slice. */
export interface PlannedSlice {
  readonly name: string;
  readonly namespace: string;
  /** The endpoints by name. If there are none, the slice is to be deleted. */
  readonly endpoints: ReadonlyMap<string, CoreEndpoint>;
  /** Slices that must be written before this one, because an endpoint of this one has moved to them. */
  readonly waitsFor: ReadonlySet<string>;
}

interface MutableSlice extends PlannedSlice {
  readonly endpoints: Map<string, CoreEndpoint>;
  readonly waitsFor: Set<string>;
  /** The group of the slice in `#withRoom`; `undefined` if the slice is full or empty. */
  group: string | undefined;
}

/** `ces-max-ciliumendpoints-per-ces`. */
const MAX_ENDPOINTS = 100;
/** Fields that the CRD of an older Cilium does not have. */
const NEWER_FIELDS = ['pod-uid', 'service-account'];
/** `sliceNameLetters` of Cilium: no vowels, and no similar letters. */
const LETTERS = 'bcdfghjklmnpqrstvwxyz2456789';

/**
 * Returns the slice entry of an endpoint, or `undefined` if it lacks networking or identity. API servers drop the
 * fields that their CRD does not have: the service account before 1.19, and the uid of the pod before 1.21
 * (`ConvertCEPToCoreCEP` of Cilium, pkg/k8s/factory_functions.go).
 */
export function coreEndpoint(endpoint: KubernetesObject): CoreEndpoint | undefined {
  const id = field(endpoint, 'status', 'identity', 'id');
  const networking = field(endpoint, 'status', 'networking');
  if (typeof id !== 'number' || !isObject(networking)) return undefined;
  const owners = items(endpoint, 'metadata', 'ownerReferences');
  const pod = owners.find((owner) => field(owner, 'kind') === 'Pod');
  const optional = {
    'pod-uid': field(pod, 'uid'),
    'named-ports': field(endpoint, 'status', 'named-ports'),
    'service-account': field(endpoint, 'status', 'service-account'),
  };
  const present = Object.entries(optional).filter(([, value]) => value !== undefined && value !== '');
  const encryption = field(endpoint, 'status', 'encryption') ?? {};
  return { name: endpoint.metadata.name, id, networking, encryption, ...Object.fromEntries(present) };
}

/** Returns the endpoints of a slice of the API server, by name. */
export function endpointsOf(slice: KubernetesObject): ReadonlyMap<string, CoreEndpoint> {
  const found = new Map<string, CoreEndpoint>();
  for (const item of items(slice, 'endpoints')) {
    const [name, id] = [field(item, 'name'), field(item, 'id')];
    if (isObject(item) && typeof name === 'string' && typeof id === 'number')
      found.set(name, { ...item, name, id });
  }
  return found;
}

function equalContent(a: unknown, b: unknown): boolean {
  if (Array.isArray(a) && Array.isArray(b))
    return a.length === b.length && a.every((item, index) => equalContent(item, b[index]));
  if (!isObject(a) || !isObject(b)) return a === b;
  const names = new Set([...Object.keys(a), ...Object.keys(b)]);
  return [...names].every((name) => equalContent(a[name], b[name]));
}

/**
 * Returns true if a slice on the server has the desired endpoints. A newer field that none of its endpoints has is not
 * compared, because the API server may drop the field: each start would then write all slices.
 */
function hasDesired(
  onServer: ReadonlyMap<string, CoreEndpoint>,
  desired: ReadonlyMap<string, CoreEndpoint>,
): boolean {
  const found = [...onServer.values()];
  const absent = NEWER_FIELDS.filter((name) => found.every((core) => core[name] === undefined));
  const ignored = Object.fromEntries(absent.map((name) => [name, undefined]));
  return (
    found.length === desired.size &&
    found.every((core) => equalContent(core, { ...desired.get(core.name), ...ignored }))
  );
}

/**
 * Assigns endpoints to slices. Each endpoint is in one slice, and stays there unless slices are grouped by identity and
 * its identity changes. The endpoint then moves: its new slice is written before its old slice, so that readers always
 * see the endpoint. Pure, except for the names of new slices.
 */
export class CiliumSlices {
  readonly #mode: SliceMode;
  readonly #maxEndpoints: number;
  readonly #random: Random;
  readonly #slices = new Map<string, MutableSlice>();
  /** Slices with room, by group. */
  readonly #withRoom = new SetMap<MutableSlice>();
  /** `namespace/name` → slice. */
  readonly #sliceOf = new Map<string, string>();
  /** By the name of a slice: the slices with this name in `waitsFor`. */
  readonly #waitersOf = new SetMap<MutableSlice>();
  readonly #dirty = new Set<string>();

  constructor({ mode = 'identity', maxEndpoints = MAX_ENDPOINTS, random }: CiliumSlicesOptions) {
    this.#mode = mode;
    this.#maxEndpoints = maxEndpoints;
    this.#random = random;
  }

  get size(): number {
    return this.#slices.size;
  }

  /** Names of the slices to write, oldest change first. */
  get dirty(): ReadonlySet<string> {
    return this.#dirty;
  }

  get(name: string): PlannedSlice | undefined {
    return this.#slices.get(name);
  }

  /**
   * Adopts a slice of the server. Endpoints that are also in another slice, or do not exist, are removed from the
   * adopted slice.
   *
   * @param wanted returns the desired slice entry of an endpoint, by `namespace/name`
   */
  adopt(object: KubernetesObject, wanted: (key: string) => CoreEndpoint | undefined): void {
    const { name } = object.metadata;
    const namespace = String(field(object, 'namespace') ?? '');
    const slice = this.#slices.get(name) ?? this.#make(name, namespace);
    const isInNamespace = slice.namespace === namespace; // false if another client has changed it
    const onServer = endpointsOf(object);
    const desired: CoreEndpoint[] = [];
    for (const [endpoint, core] of isInNamespace ? onServer : []) {
      const key = `${namespace}/${endpoint}`;
      const wantedCore = wanted(key);
      if (wantedCore === undefined || this.#sliceOf.has(key)) continue;
      this.#enter(slice, key, core);
      desired.push(wantedCore);
    }
    // May move an endpoint whose identity has changed to another slice.
    for (const core of desired) this.put(namespace, core);
    if (!isInNamespace || !hasDesired(onServer, slice.endpoints) || slice.endpoints.size === 0) {
      this.#dirty.add(name);
      return;
    }
    // The slice is written, perhaps by a request whose response was lost.
    this.#endWaits(name);
    this.#dirty.delete(name);
  }

  /** Must be called when a slice was deleted on the server. */
  recordDelete(name: string): void {
    const slice = this.#slices.get(name);
    if (slice === undefined) return;
    if (slice.endpoints.size > 0) this.#dirty.add(name);
    else this.#forget(name);
  }

  put(namespace: string, core: CoreEndpoint): void {
    const key = `${namespace}/${core.name}`;
    const from = this.#slices.get(this.#sliceOf.get(key) ?? '');
    const previous = from?.endpoints.get(core.name);
    if (from !== undefined && (this.#mode === 'fcfs' || previous?.id === core.id)) {
      if (equalContent(previous, core)) return;
      from.endpoints.set(core.name, core);
      this.#dirty.add(from.name);
      return;
    }
    const to = this.#roomFor(namespace, core, from);
    this.#enter(to, key, core);
    this.#dirty.add(to.name);
    if (from === undefined) return;
    this.#leave(from, core.name);
    from.waitsFor.add(to.name);
    this.#waitersOf.add(to.name, from);
  }

  /** Removes an endpoint, because it was deleted or may not be in a slice. */
  remove(namespace: string, name: string): void {
    const key = `${namespace}/${name}`;
    const slice = this.#slices.get(this.#sliceOf.get(key) ?? '');
    if (slice === undefined) return;
    this.#sliceOf.delete(key);
    this.#leave(slice, name);
  }

  /** Must be called when a slice was written with the planned content `written`. */
  recordWrite(name: string, written: ReadonlyMap<string, CoreEndpoint>): void {
    const slice = this.#slices.get(name);
    if (slice === undefined) return;
    // Endpoints that have moved to this slice since are not written yet, so other slices still wait for them.
    if (!equalContent(Object.fromEntries(written), Object.fromEntries(slice.endpoints))) return;
    this.#endWaits(name);
    this.#dirty.delete(name);
    if (slice.endpoints.size === 0) this.#forget(name);
  }

  /** Ends the wait of all slices for the slice `name`. */
  #endWaits(name: string): void {
    for (const { waitsFor } of this.#waitersOf.take(name)) waitsFor.delete(name);
  }

  #enter(slice: MutableSlice, key: string, core: CoreEndpoint): void {
    slice.endpoints.set(core.name, core);
    this.#sliceOf.set(key, slice.name);
    this.#regroup(slice);
  }

  #leave(slice: MutableSlice, name: string): void {
    slice.endpoints.delete(name);
    this.#dirty.add(slice.name);
    this.#regroup(slice);
  }

  /** Updates the group of a slice after its content has changed. */
  #regroup(slice: MutableSlice): void {
    const [first] = slice.endpoints.values();
    const hasRoom = first !== undefined && slice.endpoints.size < this.#maxEndpoints;
    const group = hasRoom ? this.#groupOf(slice.namespace, first) : undefined;
    if (group === slice.group) return;
    if (slice.group !== undefined) this.#withRoom.delete(slice.group, slice);
    slice.group = group;
    if (group !== undefined) this.#withRoom.add(group, slice);
  }

  #groupOf(namespace: string, { id }: CoreEndpoint): string {
    return this.#mode === 'fcfs' ? namespace : `${namespace}/${id}`;
  }

  #forget(name: string): void {
    const slice = this.#slices.get(name);
    if (slice === undefined) return;
    for (const other of slice.waitsFor) this.#waitersOf.delete(other, slice);
    this.#slices.delete(name);
    this.#dirty.delete(name);
    this.#endWaits(name);
  }

  #make(name: string, namespace: string): MutableSlice {
    const slice: MutableSlice = {
      name,
      namespace,
      endpoints: new Map(),
      waitsFor: new Set(),
      group: undefined,
    };
    this.#slices.set(name, slice);
    return slice;
  }

  /**
   * Returns the fullest slice with room, or a new slice; never `excluded`. Waiting slices are
   * skipped, because otherwise two slices could wait for each other.
   */
  #roomFor(namespace: string, core: CoreEndpoint, excluded: MutableSlice | undefined): MutableSlice {
    let best: MutableSlice | undefined;
    for (const slice of this.#withRoom.get(this.#groupOf(namespace, core))) {
      if (slice === excluded || slice.waitsFor.size > 0) continue;
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

export interface CiliumSlicesOptions {
  /** Default `identity`. */
  readonly mode?: SliceMode | undefined;
  /** Maximum number of endpoints in a slice. Default 100. */
  readonly maxEndpoints?: number | undefined;
  readonly random: Random;
}
