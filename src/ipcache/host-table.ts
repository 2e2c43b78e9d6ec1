import { Int32Rows } from '../columns/int32-rows.ts';
import { ObjectColumn } from '../columns/object-column.ts';
import type { PrefixTable } from '../lpm/prefix-table.ts';
import { formatAddress } from '../net/format-address.ts';
import { type PrefixRegister, parsePrefix, prefixRegister } from '../net/prefix.ts';

/** The number of a host IP, valid while an entry refers to it. {@link NO_HOST} means no host IP. */
export type HostID = number;
export const NO_HOST: HostID = 0;

/**
 * Interns host IPs. A million endpoints run on a few thousand hosts, so each address is stored once as canonical text,
 * and entries store a number. Numbers without references are reused.
 */
export class HostTable {
  readonly #table: PrefixTable;
  readonly #register: PrefixRegister = prefixRegister();
  /** Canonical text of each host in use. The index of a host is its number − 1. */
  readonly texts: ObjectColumn<string> = new ObjectColumn();
  /** The number of references to each host, by the same index. */
  readonly #references = new Int32Rows(1);
  /** The host that the last `resolve` added. If nothing refers to it, the next `resolve` removes it. */
  #lastAdded: HostID = NO_HOST;
  /** The last resolved text and its host, if it is still in use. Claims often arrive in runs of one host. */
  #lastText = '';
  #lastHost: HostID = NO_HOST;

  /** `table` must be empty and is owned by this host table. */
  constructor(table: PrefixTable) {
    this.#table = table;
  }

  /** Returns the number of a host; -1 if `text` is no address. Call `retain` before the next call of `resolve`. */
  resolve(text: string | undefined): HostID {
    if (text === undefined) return NO_HOST;
    if (this.#lastHost !== NO_HOST && text === this.#lastText) return this.#lastHost;
    const register = this.#register;
    if (this.#lastAdded !== NO_HOST) this.#removeUnreferenced();
    if (typeof text !== 'string' || !parsePrefix(text, register) || register.form !== 'endpoint') return -1;
    const found = this.#table.find(register);
    this.#lastText = text;
    this.#lastHost = (found >= 0 ? found : this.#add(register)) + 1;
    return this.#lastHost;
  }

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

  /** Adds a host and returns its slot, which is its number − 1. */
  #add(register: PrefixRegister): number {
    const slot = this.#table.insert(register);
    this.texts.set(slot, formatAddress(register));
    this.#references.reserve(slot);
    this.#lastAdded = slot + 1;
    return slot;
  }

  #removeUnreferenced(): void {
    if (this.#references.get(this.#lastAdded - 1, 0) === 0) this.#remove(this.#lastAdded);
    this.#lastAdded = NO_HOST;
  }

  #remove(host: HostID): void {
    if (host === this.#lastAdded) this.#lastAdded = NO_HOST;
    if (host === this.#lastHost) this.#lastHost = NO_HOST;
    this.#table.keyOf(host - 1, this.#register);
    this.#table.remove(host - 1, this.#register);
  }
}
