/** Returns the number of resources that keep the process alive, by kind. */
export function resourceCount(): ReadonlyMap<string, number> {
  const count = new Map<string, number>();
  for (const kind of process.getActiveResourcesInfo()) count.set(kind, (count.get(kind) ?? 0) + 1);
  return count;
}

/** Returns the kinds with more resources than before, as `kind: before → now`. */
export function leakedSince(before: ReadonlyMap<string, number>): readonly string[] {
  return [...resourceCount()]
    .filter(([kind, now]) => now > (before.get(kind) ?? 0))
    .map(([kind, now]) => `${kind}: ${before.get(kind) ?? 0} → ${now}`);
}
