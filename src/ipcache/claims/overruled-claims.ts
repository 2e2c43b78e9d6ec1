import { PagedMap } from '../../columns/paged-map.ts';
import type { CompleteClaim } from '../row-reader.ts';
import type { ClaimWriter, Writer } from '../types.ts';
import { ByWriter, type ClaimPlaces } from './by-writer.ts';
import { claimOf, listOf, type SortedClaims, withClaim, withoutClaim } from './sorted-claims.ts';

/** The overruled claims by slot, strongest first (I4). Few keys have any. */
export class OverruledClaims {
  readonly #bySlot = new PagedMap<SortedClaims<CompleteClaim>>();
  readonly #byWriter = new ByWriter<number>(() => new PagedMap());
  #count = 0;

  get count(): number {
    return this.#count;
  }

  /** Yields the slots with overruled claims, unordered. Claims may change during the iteration. */
  slots(): Generator<number, void, void> {
    return this.#bySlot.keys();
  }

  /** Returns the claims of a slot, which later changes do not affect. */
  of(slot: number): SortedClaims<CompleteClaim> {
    return this.#bySlot.get(slot) ?? [];
  }

  /** Returns the claims of a slot as one list. */
  list(slot: number): readonly CompleteClaim[] {
    return listOf(this.of(slot));
  }

  strongest(slot: number): CompleteClaim | undefined {
    return this.of(slot)[0]?.[0];
  }

  find(slot: number, writer: Writer): CompleteClaim | undefined {
    return claimOf(this.of(slot), writer);
  }

  /** Adds a claim. It replaces an earlier one of the same writer. */
  put(slot: number, claim: CompleteClaim): void {
    const claims = this.of(slot);
    this.#bySlot.set(slot, withClaim(claims, claim));
    if (claimOf(claims, claim) !== undefined) return;
    this.#byWriter.add(claim, slot);
    this.#count++;
  }

  remove(slot: number, writer: Writer): void {
    const claims = this.of(slot);
    if (claimOf(claims, writer) === undefined) return;
    this.#store(slot, withoutClaim(claims, writer));
    this.#byWriter.delete(writer, slot);
    this.#count--;
  }

  /** Replaces the claims of a slot. */
  set(slot: number, claims: SortedClaims<CompleteClaim>): void {
    const [removed, added] = [this.list(slot), listOf(claims)];
    for (const claim of removed) this.#byWriter.delete(claim, slot);
    for (const claim of added) this.#byWriter.add(claim, slot);
    this.#count += added.length - removed.length;
    this.#store(slot, claims);
  }

  #store(slot: number, claims: SortedClaims<CompleteClaim>): void {
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
