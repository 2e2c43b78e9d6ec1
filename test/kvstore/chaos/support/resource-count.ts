/** What keeps the process alive, by kind, and how many of each. */
export function resourceCount(): ReadonlyMap<string, number> {
  const count = new Map<string, number>();
  for (const kind of process.getActiveResourcesInfo()) count.set(kind, (count.get(kind) ?? 0) + 1);
  return count;
}

/** Kinds of which there are more than before, as `kind: before → now`. */
export function leakedSince(before: ReadonlyMap<string, number>): readonly string[] {
  return [...resourceCount()]
    .filter(([kind, now]) => now > (before.get(kind) ?? 0))
    .map(([kind, now]) => `${kind}: ${before.get(kind) ?? 0} → ${now}`);
}
