import { Int32Rows } from '../columns/int32-rows.ts';
import { ObjectColumn } from '../columns/object-column.ts';
import type { PrefixTable } from '../lpm/prefix-table.ts';
import { formatAddress } from '../net/format-address.ts';
import { type PrefixRegister, parsePrefix, prefixRegister } from '../net/prefix.ts';

/** The number of a host IP, valid while an entry refers to it. {@link NO_HOST} means no host IP. */
export type HostID = number;
export const NO_HOST: HostID = 0;

/**
 * Interns host IPs. A million endpoints run on a few thousand hosts, so each address is stored once as canonical text, and
 * entries store a number. Numbers without references are reused.
 */
export class HostTable {
  readonly #table: PrefixTable;
  readonly #register: PrefixRegister = prefixRegister();
  /** Canonical text of each host in use, at the index number − 1. */
  readonly texts: ObjectColumn<string> = new ObjectColumn();
  readonly #references = new Int32Rows(1);
  /** The host that the last `resolve` added and that nothing has retained yet. The next `resolve` removes it. */
  #unclaimed: HostID = NO_HOST;
  /** The last resolved text and its host, if still in use. Claims often arrive in runs of one host. */
  #lastText = '';
  #last: HostID = NO_HOST;

  /** `table` must be empty and is owned by this host table. */
  constructor(table: PrefixTable) {
    this.#table = table;
  }

  /** Returns the number of a host; -1 if `text` is not an address. A new host is removed unless it is retained before the next call. */
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

  /** Adds a reference to a host. */
  retain(host: HostID): void {
    if (host !== NO_HOST) this.#references.set(host - 1, 0, this.#references.get(host - 1, 0) + 1);
  }

  /** Removes a reference to a host. After the last one its number is free. */
  release(host: HostID): void {
    if (host === NO_HOST) return;
    const remaining = this.#references.get(host - 1, 0) - 1;
    this.#references.set(host - 1, 0, remaining);
    if (remaining === 0) this.#remove(host);
  }

  /** Returns the canonical text of a host in use. */
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
