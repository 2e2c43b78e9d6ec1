/**
 * Who may say what is where, strongest first (SEMANTICS 1). 1.8 knows `local` > `kvstore` > `custom-resource`
 * > `k8s` > `generated` > `unspec`; the order here is the same with today's sources in their places.
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

/** A source of claims; see {@link SOURCES} for the order. */
export type Source = (typeof SOURCES)[number];

const RANKS: ReadonlyMap<unknown, number> = new Map(
  SOURCES.map((source, index) => [source, SOURCES.length - index]),
);

/** The rank of a source, 1 (`unspec`) to 11 (`kube-apiserver`); 0 when there is no such source. */
export function sourceRank(source: string): number {
  return RANKS.get(source) ?? 0;
}

/** Whether `value` names a source. */
export function isSource(value: unknown): value is Source {
  return RANKS.has(value);
}

/** Whether a claim of `next` may replace one of `current`: iff its rank is not weaker (SEMANTICS 1). */
export function mayOverwrite(current: Source, next: Source): boolean {
  return sourceRank(next) >= sourceRank(current);
}

/** Orders sources strongest first; 0 for equal ones. */
export function compareSources(a: Source, b: Source): number {
  return sourceRank(b) - sourceRank(a);
}

/**
 * Orders writers as claims are ordered (I4): the stronger source first, then the owner's name ascending by
 * UTF-16 code unit. A claim without owner (`''`) comes before those with one.
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
