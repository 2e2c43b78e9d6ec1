import { canonicalAddress } from '../net/prefix.ts';
import { SlotLinks } from './slot-links.ts';
import type { IPCacheEntry } from './types.ts';

/** An index of the effective entries, shadowed ones included, by slot. */
export interface EntryIndex {
  add(slot: number, entry: IPCacheEntry): void;
  /** `entry`: the one passed to `add` with this slot, not the present entry of the slot. */
  remove(slot: number, entry: IPCacheEntry): void;
  /** Returns true if both entries have the same index keys, so that no update is needed. */
  isSame(old: IPCacheEntry, entry: IPCacheEntry): boolean;
}

export class HostIndex implements EntryIndex {
  /** The list of each host in `#slots`: its first slot + 1. */
  readonly #hosts = new Map<string, number>();
  readonly #slots = new SlotLinks();

  /** Returns the slots of a host IP in any spelling, unordered. */
  of(hostIP: string): Iterable<number> {
    return this.#slots.of(this.#hosts.get(canonicalAddress(hostIP) ?? '') ?? 0);
  }

  add(slot: number, { hostIP }: IPCacheEntry): void {
    if (hostIP === undefined) return;
    this.#slots.addFirst(slot, this.#hosts.get(hostIP) ?? 0);
    this.#hosts.set(hostIP, slot + 1);
  }

  remove(slot: number, { hostIP }: IPCacheEntry): void {
    if (hostIP === undefined) return;
    const isFirst = this.#slots.isFirst(slot);
    const rest = this.#slots.remove(slot);
    if (!isFirst) return;
    if (rest === 0) this.#hosts.delete(hostIP);
    else this.#hosts.set(hostIP, rest);
  }

  isSame(old: IPCacheEntry, { hostIP }: IPCacheEntry): boolean {
    return old.hostIP === hostIP;
  }
}
