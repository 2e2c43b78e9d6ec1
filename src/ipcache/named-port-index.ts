import type { PortProtocol } from '../net/port.ts';
import type { EntryIndex } from './entry-indexes.ts';
import type { IPCacheEntry } from './types.ts';

/** The ports that entries have under each port name, sorted by port, then protocol. */
export type NamedPortSets = ReadonlyMap<string, readonly PortProtocol[]>;

/** Width of a protocol number. */
const PROTOCOL_BITS = 8;

/** Returns a port and its protocol as one number, which sorts as (port, protocol). */
function pack({ port, protocol }: PortProtocol): number {
  return (port << PROTOCOL_BITS) | protocol;
}

function unpack(packed: number): PortProtocol {
  return { port: packed >>> PROTOCOL_BITS, protocol: packed & ((1 << PROTOCOL_BITS) - 1) };
}

/** Counts the entries that have a port, for each name of a port and each port. */
export class NamedPortIndex implements EntryIndex {
  readonly #counts = new Map<string, Map<number, number>>();
  /** Names and ports that appeared or disappeared since the last `takeChanged`. */
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
