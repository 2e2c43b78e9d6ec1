import { PAGE_ROWS } from '../../../src/columns/int32-rows.ts';
import type { PrefixTable } from '../../../src/lpm/prefix-table.ts';
import { type Family, maskWords } from '../../../src/net/address-words.ts';
import { containsWords, type KeyForm, type PrefixRegister } from '../../../src/net/prefix.ts';

function keyText(key: Readonly<PrefixRegister>): string {
  return `${key.family}|${key.w0},${key.w1},${key.w2},${key.w3}/${key.length}${key.form}@${key.clusterID}`;
}

/** A naive {@link PrefixTable} over a `Map` of texts: the oracle of the fast one. */
export class MapPrefixTable implements PrefixTable {
  readonly #slotByKey = new Map<string, number>();
  readonly #keys: (PrefixRegister | undefined)[] = [];
  readonly #free: number[] = [];

  get size(): number {
    return this.#slotByKey.size;
  }

  get slotLimit(): number {
    return this.#keys.length;
  }

  /** Unknown for a `Map`. */
  get bytes(): number {
    return 0;
  }

  find(key: Readonly<PrefixRegister>): number {
    return this.#slotByKey.get(keyText(key)) ?? -1;
  }

  prefetch(): void {}

  insert(key: Readonly<PrefixRegister>): number {
    const slot = this.#free.pop() ?? this.#keys.length;
    this.#keys[slot] = { ...key };
    this.#slotByKey.set(keyText(key), slot);
    return slot;
  }

  remove(slot: number, key: Readonly<PrefixRegister>): void {
    this.#slotByKey.delete(keyText(key));
    this.#keys[slot] = undefined;
    this.#free.push(slot);
  }

  keyOf(slot: number, out: PrefixRegister): void {
    Object.assign(out, this.#keys[slot]);
  }

  longestMatch(key: PrefixRegister): number {
    const endpoint = this.find(key);
    if (endpoint >= 0) return endpoint;
    key.form = 'cidr';
    for (; key.length >= 0; key.length--) {
      maskWords(key, key.length);
      const slot = this.find(key);
      if (slot >= 0) return slot;
    }
    return -1;
  }

  *slots(isPageWanted: (firstSlot: number) => boolean = () => true): Generator<number, void, void> {
    for (let slot = 0; slot < this.#keys.length; slot++) {
      if (this.#keys[slot] !== undefined && isPageWanted(slot - (slot % PAGE_ROWS))) yield slot;
    }
  }

  fork(): MapPrefixTable {
    const fork = new MapPrefixTable();
    for (const [key, slot] of this.#slotByKey) fork.#slotByKey.set(key, slot);
    fork.#keys.push(...this.#keys.map((key) => key && { ...key }));
    fork.#free.push(...this.#free);
    return fork;
  }

  *covered(prefix: Readonly<PrefixRegister>): Generator<number, void, void> {
    for (const slot of this.slots()) {
      const key = this.#keys[slot];
      if (key === undefined || key.length < prefix.length || key.clusterID !== prefix.clusterID) continue;
      if (containsWords(prefix, prefix.length, key)) yield slot;
    }
  }

  countOf(family: Family, length: number, form: KeyForm): number {
    const same = (key: PrefixRegister | undefined): boolean =>
      key?.family === family && key.length === length && key.form === form;
    return this.#keys.filter(same).length;
  }
}
