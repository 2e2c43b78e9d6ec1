import { lowerBound } from '../../base/sorted-map.ts';
import { compareWriters } from '../../model/source.ts';
import type { ClaimWriter, Writer } from '../types.ts';

/**
 * The claims on a key, one of each writer, the strongest first (I4). They are divided into blocks. A block is never
 * changed, because the images of a batch share it. A change copies one block, so it is cheap even in a list of 65,000
 * claims. No block is empty.
 */
export type SortedClaims<C extends ClaimWriter> = readonly (readonly C[])[];

/** Claims per block after a split. A block has at most twice as many. */
const BLOCK = 128;

/** Returns all claims as one list. */
export function listOf<C extends ClaimWriter>(claims: SortedClaims<C>): readonly C[] {
  const [first = [], second] = claims;
  return second === undefined ? first : claims.flat();
}

/** Returns this writer's claim; undefined if there is none. */
export function claimOf<C extends ClaimWriter>(claims: SortedClaims<C>, writer: Writer): C | undefined {
  const [block, position] = placeOf(claims, writer);
  const claim = claims[block]?.[position];
  return isOf(claim, writer) ? claim : undefined;
}

/** Returns the claims and `claim`, which replaces the earlier claim of its writer. */
export function withClaim<C extends ClaimWriter>(claims: SortedClaims<C>, claim: C): SortedClaims<C> {
  const [block, position] = placeOf(claims, claim);
  const replacedCount = isOf(claims[block]?.[position], claim) ? 1 : 0;
  const changed = (claims[block] ?? []).toSpliced(position, replacedCount, claim);
  if (changed.length <= 2 * BLOCK) return claims.toSpliced(block, 1, changed);
  return claims.toSpliced(block, 1, changed.slice(0, BLOCK), changed.slice(BLOCK));
}

/** Returns the claims without the claim of this writer, which is one of them. */
export function withoutClaim<C extends ClaimWriter>(
  claims: SortedClaims<C>,
  writer: Writer,
): SortedClaims<C> {
  const [block, position] = placeOf(claims, writer);
  const changed = (claims[block] ?? []).toSpliced(position, 1);
  return changed.length === 0 ? claims.toSpliced(block, 1) : claims.toSpliced(block, 1, changed);
}

/** Returns true if a claim is one of this writer. */
function isOf(claim: ClaimWriter | undefined, { source, owner = '' }: Writer): boolean {
  return claim !== undefined && claim.source === source && claim.owner === owner;
}

/** Returns the block and the index in it at which this writer's claim is, or is inserted. */
function placeOf(claims: SortedClaims<ClaimWriter>, { source, owner = '' }: Writer): [number, number] {
  const writer = { source, owner };
  const order = (claim: ClaimWriter | undefined): number =>
    claim === undefined ? 0 : compareWriters(claim, writer);
  const block = Math.max(0, lowerBound(claims, ([first]) => order(first) <= 0) - 1);
  return [block, lowerBound(claims[block] ?? [], (claim) => order(claim) < 0)];
}
