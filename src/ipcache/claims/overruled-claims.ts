import { PagedMap } from '../../columns/paged-map.ts';
import { compareWriters } from '../../model/source.ts';
import type { CompleteClaim } from '../row-reader.ts';
import type { ClaimWriter, Writer } from '../types.ts';
import { ByWriter, type ClaimPlaces, isOf } from './by-writer.ts';

/** The overruled claims by slot, strongest first (I4). Few keys have any. */
export class OverruledClaims {
  readonly #bySlot = new PagedMap<readonly CompleteClaim[]>();
  readonly #byWriter = new ByWriter<number>(() => new PagedMap());
  #count = 0;

  /** Total number of overruled claims. */
  get count(): number {
    return this.#count;
  }

  /** Yields the slots with overruled claims, unordered. Claims may change during the iteration. */
  slots(): Generator<number, void, void> {
    return this.#bySlot.keys();
  }

  of(slot: number): readonly CompleteClaim[] {
    return this.#bySlot.get(slot) ?? [];
  }

  find(slot: number, writer: Writer): CompleteClaim | undefined {
    return this.of(slot).find((claim) => isOf(claim, writer));
  }

  /** Adds a claim. It replaces an earlier one of the same writer. */
  put(slot: number, claim: CompleteClaim): void {
    const others = this.of(slot).filter((other) => !isOf(other, claim));
    this.set(slot, [...others, claim].sort(compareWriters));
  }

  remove(slot: number, writer: Writer): void {
    this.set(
      slot,
      this.of(slot).filter((claim) => !isOf(claim, writer)),
    );
  }

  /** Replaces the claims of a slot. They must be sorted. */
  set(slot: number, claims: readonly CompleteClaim[]): void {
    const previous = this.of(slot);
    for (const claim of previous) this.#byWriter.delete(claim, slot);
    for (const claim of claims) this.#byWriter.add(claim, slot);
    this.#count += claims.length - previous.length;
    if (claims.length > 0) this.#bySlot.set(slot, claims);
    else this.#bySlot.delete(slot);
  }

  /** Yields the writers with overruled claims, unordered. */
  writers(): Generator<ClaimWriter, void, void> {
    return this.#byWriter.writers();
  }

  slotsOf(writer: Writer): Pick<ClaimPlaces<number>, 'size' | 'keys'> {
    return this.#byWriter.of(writer);
  }
}
