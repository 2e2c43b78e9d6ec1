import { join } from 'node:path';
import { disposeOnError } from '../../../base/dispose-on-error.ts';
import { messageOf } from '../../../base/failure.ts';
import type { Family } from '../../../net/address-words.ts';
import type { Bpf } from '../bpf/bpf.ts';
import { BpfMap, ForeignMapError, unpinMap } from '../bpf/bpf-map.ts';
import type { MapShape } from '../bpf/info.ts';
import { movePin, pin, STAGING_SUFFIX, unpin } from '../bpf/pin.ts';
import {
  FAMILIES,
  SERVICE_MAPS,
  type ServiceCapacity,
  type ServiceMapName,
  serviceCapacity,
  serviceMapShapes,
} from './service-layout.ts';
import { type ServiceMapSet, ServiceMaps } from './service-maps.ts';

type OpenMaps = Readonly<Record<ServiceMapName, BpfMap>>;

/** A map that must be resized, because its size is not the configured one. */
interface MapToResize {
  readonly family: Family;
  readonly name: ServiceMapName;
}

/**
 * Maps written by programs. They are copied again after the switch, because programs write to the old maps until then.
 */
const WRITTEN_BY_PROGRAMS: readonly ServiceMapName[] = ['clients', 'peers', 'datagrams'];

export interface ServicePinsOptions {
  /** On a bpf file system. */
  readonly folder: string;
  readonly capacity: ServiceCapacity;
  /** If false, new maps end with this process and no map is replaced. Default true. */
  readonly isPinned?: boolean | undefined;
}

/**
 * Opens the pinned maps of services and replaces them without an outage. If the size has changed, the entries are
 * copied into new maps, and the programs are switched before this process writes an entry. If the layout has changed,
 * entries cannot be copied: new maps are filled while the old programs continue to use the old maps.
 *
 *     same size and layout ─► use the pinned maps
 *     other size ─► copy the entries ─► switch the programs ─► move the pins
 *     other layout ─► fill new maps ─► switch the programs ─► replace the pins
 */
export class ServicePins implements Disposable {
  readonly #bpf: Bpf;
  readonly #options: ServicePinsOptions;
  readonly #maps: Record<Family, OpenMaps>;
  /** Families whose pinned maps have another layout. */
  #otherLayouts: readonly Family[];
  /** Why the last resize failed. */
  #problem: string | undefined;

  /** Opens or creates the maps. Throws `ForeignMapError` if a map of another program is pinned, and `SyscallError`. */
  constructor(bpf: Bpf, options: ServicePinsOptions) {
    this.#bpf = bpf;
    this.#options = options;
    const ipv4 = this.#open(4);
    const ipv6 = disposeOnError(Object.values(ipv4.maps), () => this.#open(6));
    this.#maps = { 4: ipv4.maps, 6: ipv6.maps };
    this.#otherLayouts = FAMILIES.filter((family) => (family === 4 ? ipv4 : ipv6).hasOtherLayout);
  }

  get maps(): ServiceMapSet {
    return { 4: new ServiceMaps(4, this.#maps[4]), 6: new ServiceMaps(6, this.#maps[6]) };
  }

  /** Descriptors of the maps, as the programs name them. */
  get descriptors(): ReadonlyMap<string, number> {
    return new Map(
      FAMILIES.flatMap((family) =>
        SERVICE_MAPS.map((name) => [`${name}${family}`, this.#maps[family][name].fd] as const),
      ),
    );
  }

  /**
   * True if the pinned maps have another layout, until `replacePins`. The new maps are filled beside them; programs
   * must read the new maps only when these are complete.
   */
  get hasOtherLayout(): boolean {
    return this.#otherLayouts.length > 0;
  }

  /** True if a map has another size than the configured one. */
  get needsResize(): boolean {
    return this.#mapsToResize().length > 0;
  }

  /** Returns the reason why maps are not replaced yet; empty if there is none. */
  problems(): readonly string[] {
    if (this.#problem !== undefined) return [this.#problem];
    return this.hasOtherLayout
      ? ['the service maps have another layout: new maps are being filled and will replace them']
      : [];
  }

  /**
   * Replaces maps of another size, in steps: copies the entries, pins the new maps beside the old ones, calls `attach`
   * to switch the programs, and moves the pins. If a step up to the switch fails, the old maps remain, `problems`
   * returns the reason, and the next call tries again.
   */
  *resize(attach: () => void): Generator<undefined, void, void> {
    const { capacity } = this.#options;
    const before = { ...this.#maps };
    const copies: (MapToResize & { readonly copy: BpfMap })[] = [];
    const staged: string[] = [];
    try {
      for (const { family, name } of this.#mapsToResize()) {
        const copy = BpfMap.create(this.#bpf, serviceMapShapes(family, capacity)[name], `${name}${family}`);
        copies.push({ family, name, copy });
        yield* copyEntries(before[family][name], copy, 'none');
      }
      if (copies.length === 0) return;
      for (const { family, name, copy } of copies) {
        const path = this.#pathOf(family, name);
        this.#stage(copy, path);
        staged.push(path);
        this.#maps[family] = { ...this.#maps[family], [name]: copy };
      }
      attach();
    } catch (error) {
      Object.assign(this.#maps, before);
      for (const { copy } of copies) copy[Symbol.dispose]();
      for (const path of staged) unpin(path + STAGING_SUFFIX);
      this.#problem = `cannot resize the service maps: ${messageOf(error)}: change --datapath-service-capacity, or restart the agent to try again`;
      return;
    }
    this.#problem = undefined;
    for (const path of staged) moveStaged(path);
    for (const { family, name, copy } of copies) {
      using old = before[family][name];
      if (WRITTEN_BY_PROGRAMS.includes(name))
        yield* copyEntries(old, copy, name === 'clients' ? 'last-used' : 'existing');
    }
  }

  /** Pins the new maps in place of those of another layout. Must be called after the programs were switched. */
  replacePins(): void {
    for (const family of this.#otherLayouts)
      for (const name of SERVICE_MAPS) {
        const path = this.#pathOf(family, name);
        this.#stage(this.#maps[family][name], path);
        moveStaged(path);
      }
    this.#otherLayouts = [];
  }

  [Symbol.dispose](): void {
    for (const family of FAMILIES) for (const map of Object.values(this.#maps[family])) map[Symbol.dispose]();
  }

  #pathOf(family: Family, name: ServiceMapName): string {
    return join(this.#options.folder, `${name}${family}`);
  }

  /** Pins a new map beside the pin to replace. */
  #stage(map: BpfMap, path: string): void {
    unpinMap(this.#bpf, path + STAGING_SUFFIX, map.shape);
    pin(this.#bpf, map.fd, path + STAGING_SUFFIX);
  }

  #mapsToResize(): readonly MapToResize[] {
    const { capacity, isPinned = true } = this.#options;
    if (!isPinned) return [];
    return FAMILIES.flatMap((family) => {
      const shapes = serviceMapShapes(family, capacity);
      const isOther = (name: ServiceMapName): boolean =>
        this.#maps[family][name].shape.maxEntries !== shapes[name].maxEntries;
      return SERVICE_MAPS.filter(isOther).map((name) => ({ family, name }));
    });
  }

  #open(family: Family): { readonly maps: OpenMaps; readonly hasOtherLayout: boolean } {
    const { folder, capacity, isPinned = true } = this.#options;
    const shapes = serviceMapShapes(family, capacity);
    const openAll = (open: (shape: MapShape, name: string) => BpfMap): OpenMaps => {
      const opened: BpfMap[] = [];
      const openOne = (name: ServiceMapName): BpfMap => {
        const map = open(shapes[name], `${name}${family}`);
        opened.push(map);
        return map;
      };
      return disposeOnError(opened, () => ({
        services: openOne('services'),
        backends: openOne('backends'),
        members: openOne('members'),
        clients: openOne('clients'),
        peers: openOne('peers'),
        datagrams: openOne('datagrams'),
      }));
    };
    try {
      const maps = openAll((shape, name) =>
        BpfMap.openOrCreate(this.#bpf, shape, join(folder, name), name, { isPinned, capacity: 'any' }),
      );
      return { maps, hasOtherLayout: false };
    } catch (error) {
      if (!(error instanceof ForeignMapError && error.isOtherLayout)) throw error;
      return { maps: openAll((shape, name) => BpfMap.create(this.#bpf, shape, name)), hasOtherLayout: true };
    }
  }
}

function moveStaged(path: string): void {
  movePin(path + STAGING_SUFFIX, path);
}

/**
 * The entry that stays if both maps have its key. `none`: no key is in both, because the new map is empty.
 * `existing`: that of the new map, because programs have written it since the switch. `last-used`: that which was used
 * last; its value begins with the time of its last use.
 */
type KeptEntry = 'none' | 'existing' | 'last-used';

/** Copies entries to a new map, one batch per step. Throws `SyscallError` if an entry does not fit. */
function* copyEntries(from: BpfMap, to: BpfMap, kept: KeptEntry): Generator<undefined, void, void> {
  const { keySize, valueSize } = from.shape;
  for (const count of from.batches()) {
    // All entries are looked up before the buffers of `to` are filled, because a lookup overwrites their first entry.
    const copied = Array.from({ length: count }, (_, at) => at).filter(
      (at) => kept === 'none' || mustCopy(from, at, to, kept),
    );
    for (const [place, at] of copied.entries()) {
      to.keys.bytes.set(keyAt(from, at), place * keySize);
      to.values.bytes.set(
        from.values.bytes.subarray(at * valueSize, (at + 1) * valueSize),
        place * valueSize,
      );
    }
    const error = to.update(copied.length).find((each) => each !== undefined);
    if (error !== undefined) throw error;
    yield;
  }
}

/** Returns true if `to` lacks the key of entry `at` of the batch in `from`, or has an entry that this one replaces. */
function mustCopy(from: BpfMap, at: number, to: BpfMap, kept: KeptEntry): boolean {
  to.keys.bytes.set(keyAt(from, at));
  if (!to.lookup()) return true;
  return kept === 'last-used' && usedAt(from, at) > usedAt(to, 0);
}

function keyAt({ keys, shape: { keySize } }: BpfMap, at: number): Uint8Array {
  return keys.bytes.subarray(at * keySize, (at + 1) * keySize);
}

function usedAt({ values, shape: { valueSize } }: BpfMap, at: number): bigint {
  return values.view.getBigUint64(at * valueSize, true);
}

/** Removes the pins of our maps, also of unfinished new ones. Call it after the programs were detached. */
export function unpinServiceMaps(bpf: Bpf, folder: string): void {
  for (const family of FAMILIES) {
    const shapes = serviceMapShapes(family, serviceCapacity()); // with any capacity: `unpinMap` ignores it
    for (const name of SERVICE_MAPS) {
      const path = join(folder, `${name}${family}`);
      for (const each of [path, path + STAGING_SUFFIX]) unpinMap(bpf, each, shapes[name]);
    }
  }
}
