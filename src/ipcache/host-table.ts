import { formatAddress } from '../net/format-address.ts';
import { type PrefixRegister, parsePrefix, prefixRegister } from '../net/prefix.ts';
import type { PrefixTable } from '../net/prefix-table.ts';

/** A small number that stands for a host IP while any entry refers to it; {@link NO_HOST} for none. */
export type HostID = number;
export const NO_HOST: HostID = 0;

/**
 * Interns host IPs: a million endpoints live on a few thousand hosts, so each address is kept once, in
 * canonical text, and entries hold a number. Numbers are used again when nothing refers to them.
 */
export class HostTable {
  readonly #table: PrefixTable;
  readonly #register: PrefixRegister = prefixRegister();
  readonly #texts: string[] = [];
  readonly #references: number[] = [];

  /** `table` must be empty and of this host table's own. */
  constructor(table: PrefixTable) {
    this.#table = table;
  }

  /** Counts one more reference to a host; -1 when `text` is not an address. */
  acquire(text: string | undefined): HostID {
    if (text === undefined) return NO_HOST;
    const register = this.#register;
    if (typeof text !== 'string' || !parsePrefix(text, register) || register.form !== 'endpoint') return -1;
    const found = this.#table.find(register);
    const slot = found >= 0 ? found : this.#add(register);
    this.#references[slot] = (this.#references[slot] ?? 0) + 1;
    return slot + 1;
  }

  /** Counts one reference less; with the last one the number is free. */
  release(host: HostID): void {
    if (host === NO_HOST) return;
    const slot = host - 1;
    const left = (this.#references[slot] ?? 0) - 1;
    this.#references[slot] = left;
    if (left === 0) this.#table.remove(slot);
  }

  /** Canonical text of a host in use. */
  text(host: HostID): string | undefined {
    return host === NO_HOST ? undefined : this.#texts[host - 1];
  }

  #add(register: PrefixRegister): number {
    const slot = this.#table.insert(register);
    this.#texts[slot] = formatAddress(register);
    this.#references[slot] = 0;
    return slot;
  }
}
