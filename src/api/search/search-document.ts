/** The kinds of results. Groups with equal matches are in this order. */
export const SEARCH_KINDS = [
  'prefix',
  'service',
  'node',
  'pod',
  'identity',
  'label',
  'namespace',
  'cluster',
] as const;

export type SearchKind = (typeof SEARCH_KINDS)[number];

/**
 * How a result matches, best first. `exact`: it equals the query. `start`: it starts with the query. `part`: it
 * contains the query. `related`: it belongs to another match.
 */
export const SEARCH_MATCHES = ['exact', 'start', 'part', 'related'] as const;

export type SearchMatch = (typeof SEARCH_MATCHES)[number];

export interface SearchResultDocument {
  readonly kind: SearchKind;
  /** A CIDR, `namespace/name` of a service or pod, `cluster/name` of a node, an identity number, a label, or a name. */
  readonly key: string;
  readonly title: string;
  /** One line about the result. */
  readonly detail: string;
  readonly match: SearchMatch;
}

/** The results of one kind, best first. */
export interface SearchGroupDocument {
  readonly kind: SearchKind;
  /**
   * Number of results found. If there are more than the limit, `items` has only the best ones, and some prefixes may be
   * uncounted.
   */
  readonly total: number;
  readonly items: readonly SearchResultDocument[];
}

export interface SearchDocument {
  readonly query: string;
  /** True if not all names were compared. Exact keys, except labels and namespaces, are found nevertheless. */
  readonly truncated: boolean;
  /** The kinds with results. The kind of the best result is the first. */
  readonly groups: readonly SearchGroupDocument[];
}
