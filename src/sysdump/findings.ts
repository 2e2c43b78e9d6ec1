import type { DifferenceKind, TableComparisonResult } from '../ciliumdump/compare-table.ts';

const KINDS = [
  'identity',
  'stale',
  'missing',
  'host',
  'duplicate',
  'disagreement',
  'claimed-twice',
  'overlapping-pod-cidrs',
  'unknown-identity',
  'identity-labels',
  'no-backends',
  'service-backends',
  'service-missing',
  'service-stale',
  'node-missing',
  'node-stale',
  'node-address',
  'failed-command',
  'unreadable',
] as const;

/**
 * The kind of a finding. `identity`, `stale`, `missing`, `host`, `duplicate`: see {@link DifferenceKind}.
 * `disagreement`: a prefix of another cluster has different values on different nodes. `claimed-twice`: several
 * objects have the address. `overlapping-pod-cidrs`: pod CIDRs of two nodes overlap. `unknown-identity`: an endpoint
 * has an identity without a CiliumIdentity. `identity-labels`: a node has other labels for the identity than its
 * CiliumIdentity. `no-backends`: a node has none of the backends of a service. `service-backends`: a node has other
 * backends. `service-missing`, `node-missing`: a node lacks the frontend or node. `service-stale`, `node-stale`: no
 * source has it. `node-address`: a node has another address for the node. `failed-command`: the report has the error
 * of a command instead of its output. `unreadable`: a file, or an output of a node, cannot be read.
 */
export type FindingKind = (typeof KINDS)[number];

/** The kinds of findings, worst first. */
export const FINDING_KINDS: readonly FindingKind[] = KINDS;

/** The last write of a map for a prefix. */
export interface LastEvent {
  readonly node: string;
  /** RFC 3339; undefined if the output has no time. */
  readonly at: string | undefined;
  readonly action: string;
  /** The written identity; undefined for a delete. */
  readonly identity: number | undefined;
  /** Error of the write; undefined if it succeeded. */
  readonly error: string | undefined;
}

/** A fault, on one or several nodes. */
export interface Finding {
  readonly kind: FindingKind;
  /** A prefix, an identity, a frontend, a node or a command. */
  readonly subject: string;
  /** The different values, as part of a sentence. */
  readonly text: string;
  /** Names of the nodes, sorted; empty if the finding is about the sources only. */
  readonly nodes: readonly string[];
  /** The tables with the fault. Empty if the finding is not about a table. */
  readonly tables: readonly TableName[];
  /** The last write of the prefix on the first of the nodes with an event. */
  readonly last: LastEvent | undefined;
}

/** `agent`: `ip list`. `map`: `bpf ipcache list`. */
export type TableName = 'agent' | 'map';

/** Counts of one table: entries, differences by kind, and expected differences by kind. */
export interface TableCounts extends TableComparisonResult {
  readonly differences: Readonly<Partial<Record<DifferenceKind, number>>>;
}

/** Maximum number of distinct findings kept of one kind. All are counted. */
const MAX_KEPT = 1000;

interface FindingGroup extends Pick<Finding, 'kind' | 'subject' | 'text'> {
  readonly nodes: Set<string>;
  readonly tables: Set<TableName>;
  last: LastEvent | undefined;
}

/** A finding of one node, or of the sources if `node` is absent. */
export type NodeFinding = Omit<Finding, 'nodes' | 'tables' | 'last'> & {
  readonly node?: string | undefined;
  readonly table?: TableName | undefined;
  readonly last?: LastEvent | undefined;
};

/** Joins equal findings of several nodes. Keeps the first 1,000 different ones of each kind, and counts all. */
export class Findings {
  readonly #groups = new Map<FindingKind, Map<string, FindingGroup>>(
    FINDING_KINDS.map((kind) => [kind, new Map()]),
  );
  readonly #omitted = new Map<FindingKind, Set<string>>();

  add({ kind, subject, text, node, table, last }: NodeFinding): void {
    const groups = this.#groups.get(kind);
    const key = `${subject}\n${text}`;
    const group = groups?.get(key) ?? this.#newGroup(kind, subject, text);
    if (group === undefined) return;
    groups?.set(key, group);
    if (node !== undefined) group.nodes.add(node);
    if (table !== undefined) group.tables.add(table);
    group.last ??= last;
  }

  #newGroup(kind: FindingKind, subject: string, text: string): FindingGroup | undefined {
    if ((this.#groups.get(kind)?.size ?? 0) < MAX_KEPT)
      return { kind, subject, text, nodes: new Set(), tables: new Set(), last: undefined };
    const omitted = this.#omitted.get(kind) ?? new Set();
    this.#omitted.set(kind, omitted.add(subject));
    return undefined;
  }

  /** Returns the findings of a kind: those of the most nodes first, then by subject. */
  of(kind: FindingKind): readonly Finding[] {
    return Array.from(this.#groups.get(kind)?.values() ?? [], ({ nodes, tables, ...rest }) => ({
      ...rest,
      nodes: [...nodes].sort(),
      tables: [...tables].sort(),
    })).sort((a, b) => b.nodes.length - a.nodes.length || (a.subject < b.subject ? -1 : 1));
  }

  /** Number of different findings of a kind, including those not kept. */
  count(kind: FindingKind): number {
    return (this.#groups.get(kind)?.size ?? 0) + (this.#omitted.get(kind)?.size ?? 0);
  }
}
