import { Int32Rows } from '../base/int32-rows.ts';
import { ObjectColumn } from '../base/object-column.ts';
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
  /** Canonical text of each host in use, at its number less one. */
  readonly texts: ObjectColumn<string> = new ObjectColumn();
  readonly #references = new Int32Rows(1);
  /** The host that was resolved last and was new then, plus one: forgotten unless it has been retained. */
  #unclaimed: HostID = NO_HOST;
  /** The text that was resolved last and its host, while that is in use: claims come in runs of one host. */
  #lastText = '';
  #last: HostID = NO_HOST;

  /** `table` must be empty and of this host table's own. */
  constructor(table: PrefixTable) {
    this.#table = table;
  }

  /**
   * The number of a host; -1 when `text` is not an address. A host that is not retained before the next one is
   * resolved is forgotten.
   */
  resolve(text: string | undefined): HostID {
    if (text === undefined) return NO_HOST;
    if (this.#last !== NO_HOST && text === this.#lastText) return this.#last;
    const register = this.#register;
    if (this.#unclaimed !== NO_HOST) this.#forgetUnclaimed();
    if (typeof text !== 'string' || !parsePrefix(text, register) || register.form !== 'endpoint') return -1;
    const found = this.#table.find(register);
    this.#lastText = text;
    this.#last = (found >= 0 ? found : this.#add(register)) + 1;
    return this.#last;
  }

  /** Counts one more reference to a host. */
  retain(host: HostID): void {
    if (host !== NO_HOST) this.#references.set(host - 1, 0, this.#references.get(host - 1, 0) + 1);
  }

  /** Counts one reference less; with the last one the number is free. */
  release(host: HostID): void {
    if (host === NO_HOST) return;
    const left = this.#references.get(host - 1, 0) - 1;
    this.#references.set(host - 1, 0, left);
    if (left === 0) this.#remove(host);
  }

  /** Canonical text of a host in use. */
  text(host: HostID): string | undefined {
    return host === NO_HOST ? undefined : this.texts.get(host - 1);
  }

  #add(register: PrefixRegister): number {
    const slot = this.#table.insert(register);
    this.texts.set(slot, formatAddress(register));
    this.#references.reserve(slot);
    this.#unclaimed = slot + 1;
    return slot;
  }

  #forgetUnclaimed(): void {
    if (this.#references.get(this.#unclaimed - 1, 0) === 0) this.#remove(this.#unclaimed);
    this.#unclaimed = NO_HOST;
  }

  #remove(host: HostID): void {
    if (host === this.#unclaimed) this.#unclaimed = NO_HOST;
    if (host === this.#last) this.#last = NO_HOST;
    this.#table.keyOf(host - 1, this.#register);
    this.#table.remove(host - 1, this.#register);
  }
}
