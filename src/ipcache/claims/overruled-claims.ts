import { PagedMap } from '../../columns/paged-map.ts';
import type { CompleteClaim } from '../row-reader.ts';
import type { ClaimWriter, Writer } from '../types.ts';
import { ByWriter, type ClaimPlaces, claimOf, withClaim, withoutClaim } from './by-writer.ts';

/** The overruled claims by slot, strongest first (I4). Few keys have any. */
export class OverruledClaims {
  readonly #bySlot = new PagedMap<readonly CompleteClaim[]>();
  readonly #byWriter = new ByWriter<number>(() => new PagedMap());
  #count = 0;

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
    return claimOf(this.of(slot), writer);
  }

  /** Adds a claim. It replaces an earlier one of the same writer. */
  put(slot: number, claim: CompleteClaim): void {
    const claims = this.of(slot);
    const next = withClaim(claims, claim);
    this.#bySlot.set(slot, next);
    if (next.length === claims.length) return;
    this.#byWriter.add(claim, slot);
    this.#count++;
  }

  remove(slot: number, writer: Writer): void {
    if (this.find(slot, writer) === undefined) return;
    const claims = this.of(slot);
    if (claims.length === 1) this.#bySlot.delete(slot);
    else this.#bySlot.set(slot, withoutClaim(claims, writer));
    this.#byWriter.delete(writer, slot);
    this.#count--;
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
