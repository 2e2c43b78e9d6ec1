/**
 * The sources of claims, strongest first (SEMANTICS 1). Cilium 1.8 has `local` > `kvstore` > `custom-resource` > `k8s`
 * > `generated` > `unspec`. The order here extends it with the sources of later versions.
 */
export const SOURCES = [
  'kube-apiserver',
  'local',
  'kvstore',
  'custom-resource',
  'k8s',
  'clustermesh',
  'directory',
  'api',
  'generated',
  'restored',
  'unspec',
] as const;

/** A source of claims. {@link SOURCES} has the order. */
export type Source = (typeof SOURCES)[number];

const RANKS: ReadonlyMap<unknown, number> = new Map(
  SOURCES.map((source, index) => [source, SOURCES.length - index]),
);

/** Returns the rank of a source, 1 (`unspec`) to 11 (`kube-apiserver`); 0 for an unknown source. */
export function sourceRank(source: string): number {
  return RANKS.get(source) ?? 0;
}

/** Returns true if `value` is a source. */
export function isSource(value: unknown): value is Source {
  return RANKS.has(value);
}

/** Returns true if a claim of `next` may replace one of `current`: its rank is equal or stronger (SEMANTICS 1). */
export function mayOverwrite(current: Source, next: Source): boolean {
  return sourceRank(next) >= sourceRank(current);
}

/** Compares sources, strongest first; 0 if equal. */
export function compareSources(a: Source, b: Source): number {
  return sourceRank(b) - sourceRank(a);
}

/**
 * Compares writers in the order of claims (I4): the stronger source first, then the owner's name, ascending by UTF-16
 * code unit. An empty owner precedes all others.
 */
export function compareWriters(
  a: { readonly source: Source; readonly owner: string },
  b: { readonly source: Source; readonly owner: string },
): number {
  const bySource = compareSources(a.source, b.source);
  if (bySource !== 0) return bySource;
  if (a.owner === b.owner) return 0;
  return a.owner < b.owner ? -1 : 1;
}

/** Returns the cluster of an owner: the owner is a cluster, or a node (`cluster/name`). Empty if there is no owner. */
export function ownerCluster(owner: string): string {
  const slash = owner.indexOf('/');
  return slash < 0 ? owner : owner.slice(0, slash);
}
