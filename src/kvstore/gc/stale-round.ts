/** What a round of collection makes of a listing. */
export interface StaleRound {
  /** Keys to delete, each only while it still has this mod revision. */
  readonly remove: ReadonlyMap<string, number>;
  /** What to hand to the next round. */
  readonly stale: ReadonlyMap<string, number>;
}

/**
 * One round of collecting garbage (SEMANTICS 5): what is stale now, **and was already in the round before, at
 * the same mod revision**, is to go; what is stale for the first time gets a round's time to be used again:
 * collectors of one round delete what is in use. Pure.
 *
 * @param before `stale` of the round before; empty at first
 * @param staleNow mod revision by key
 */
export function staleRound(
  before: ReadonlyMap<string, number>,
  staleNow: ReadonlyMap<string, number>,
): StaleRound {
  const remove = new Map<string, number>();
  const stale = new Map<string, number>();
  for (const [key, modRevision] of staleNow) {
    (before.get(key) === modRevision ? remove : stale).set(key, modRevision);
  }
  return { remove, stale };
}
