import type { PortProtocol } from '../net/port.ts';
import type { EntryIndex } from './entry-indexes.ts';
import type { IPCacheEntry } from './types.ts';

/** The ports of each port name in live entries, sorted by port, then protocol. */
export type NamedPortSets = ReadonlyMap<string, readonly PortProtocol[]>;

// A port and its protocol in one number that sorts as (port, protocol). Protocols are below 2^8.
function pack({ port, protocol }: PortProtocol): number {
  return port * 256 + protocol;
}

function unpack(packed: number): PortProtocol {
  return { port: packed >>> 8, protocol: packed & 255 };
}

/** Counts, for each port name and port, the live entries that have it. It is maintained from the first query on. */
export class NamedPortIndex implements EntryIndex {
  readonly #counts = new Map<string, Map<number, number>>();
  /** Ports whose presence differs from that at the last `takeChanged`. */
  readonly #toggled = new Set<string>();

  add(_slot: number, { k8s }: IPCacheEntry): void {
    for (const [name, port] of k8s?.namedPorts ?? []) this.#adjust(name, pack(port), 1);
  }

  remove(_slot: number, { k8s }: IPCacheEntry): void {
    for (const [name, port] of k8s?.namedPorts ?? []) this.#adjust(name, pack(port), -1);
  }

  isSame(old: IPCacheEntry, { k8s }: IPCacheEntry): boolean {
    return old.k8s === k8s;
  }

  /** Returns true if the sets changed since the last call. */
  takeChanged(): boolean {
    const changed = this.#toggled.size > 0;
    this.#toggled.clear();
    return changed;
  }

  sets(): NamedPortSets {
    const sets = new Map<string, readonly PortProtocol[]>();
    for (const [name, ports] of this.#counts) {
      sets.set(name, [...ports.keys()].sort((a, b) => a - b).map(unpack));
    }
    return sets;
  }

  #adjust(name: string, packed: number, by: number): void {
    const ports = this.#counts.get(name) ?? new Map<number, number>();
    const previous = ports.get(packed) ?? 0;
    const after = previous + by;
    if (after > 0) ports.set(packed, after);
    else ports.delete(packed);
    if (ports.size > 0) this.#counts.set(name, ports);
    else this.#counts.delete(name);
    if (previous === 0 || after === 0) this.#toggle(`${packed} ${name}`);
  }

  #toggle(key: string): void {
    if (!this.#toggled.delete(key)) this.#toggled.add(key);
  }
}
