import { ownerCluster } from '../model/source.ts';
import type { HistoryRecord } from './types.ts';

const MAX_SAMPLES = 3;

const DEFAULT_LIMIT = 100;

/** Changes of a window of time that have a common cause, or one mark. */
export interface CauseGroup {
  /** Wall time of the first change. */
  readonly at: number;
  /** Wall time of the last change. */
  readonly until: number;
  /** The store of the changes; if no store is known, the cluster or the source of the claims; for a mark, its kind. */
  readonly store: string;
  /** First and last revision; each empty if unknown. */
  readonly revisions: readonly [first: string, last: string];
  /** The host IP of all changed claims, if it is the same. */
  readonly host: string | undefined;
  /** Full name of the node with this host IP, if it is known. */
  readonly node: string | undefined;
  /** Numbers of changes. A mark counts in none of them. */
  readonly added: number;
  readonly changed: number;
  readonly deleted: number;
  readonly kinds: Readonly<Partial<Record<HistoryRecord['kind'], number>>>;
  /** Services that lost their last backend. */
  readonly emptied: readonly string[];
  /** The first changed keys. */
  readonly samples: readonly string[];
  readonly mark: { readonly subject: string; readonly detail: string } | undefined;
  /** True if the changes withdraw the state of the store. */
  readonly withdrawal: boolean;
}

/** Returns the full name of the node that has this host address. */
export type NodeOfHost = (host: string) => string | undefined;

/** Options of {@link History.around}. */
export interface AroundOptions {
  /** Milliseconds before and after the moment. */
  readonly windowMs: number;
  /** Maximum number of groups; default 100. */
  readonly limit?: number | undefined;
  /** Names the node of a host address. */
  readonly nodeOf?: NodeOfHost | undefined;
  /** Returns true if a service that changed in the window has no backends at its end, but had some before. */
  readonly isEmptied?: ((service: string) => boolean) | undefined;
}

type MutableGroup = { -readonly [K in keyof CauseGroup]: CauseGroup[K] } & {
  revisions: [string, string];
  kinds: Partial<Record<HistoryRecord['kind'], number>>;
  samples: string[];
};

/**
 * Groups records by their cause. Changes of claims belong together if they have one store and one host, because a
 * failed node deletes its pods at many revisions. Other changes belong together if they have one store. The withdrawal
 * of a store is one group. A mark is its own group.
 */
export class CauseGroups {
  readonly #groups = new Map<string, MutableGroup>();
  /** The services of each group that lost their last backend. A service may have several records. */
  readonly #emptied = new Map<MutableGroup, Set<string>>();
  readonly #nodeOf: NodeOfHost;
  readonly #isEmptied: (service: string) => boolean;

  constructor(nodeOf: NodeOfHost, isEmptied: (service: string) => boolean = () => false) {
    this.#nodeOf = nodeOf;
    this.#isEmptied = isEmptied;
  }

  /** Adds a record that is newer than all added before. */
  add(record: HistoryRecord): void {
    const { store, host, revision, withdrawal } = originOf(record);
    const node = withdrawal ? undefined : this.#nodeOfRecord(record, host);
    const group = groupOf(this.#groups, record, { store, host, node, withdrawal });
    countRecord(group, record, revision);
    if (record.kind !== 'service' || !this.#isEmptied(record.key)) return;
    const emptied = this.#emptied.get(group) ?? new Set<string>();
    this.#emptied.set(group, emptied.add(record.key));
  }

  #nodeOfRecord(record: HistoryRecord, host: string | undefined): string | undefined {
    if (record.kind === 'node') return record.key;
    return host === undefined ? undefined : this.#nodeOf(host);
  }

  /** Returns the groups, largest first. */
  sorted(): readonly CauseGroup[] {
    for (const [group, emptied] of this.#emptied) group.emptied = [...emptied];
    return [...this.#groups.values()].sort((a, b) => sizeOf(b) - sizeOf(a) || a.at - b.at);
  }
}

/** Returns the groups of `records`, which must be oldest first. The largest group is first. */
export function causeGroups(
  records: readonly HistoryRecord[],
  { limit = DEFAULT_LIMIT, nodeOf = () => undefined, isEmptied }: AroundOptions,
): readonly CauseGroup[] {
  const groups = new CauseGroups(nodeOf, isEmptied);
  for (const record of records) groups.add(record);
  return groups.sorted().slice(0, limit);
}

function sizeOf({ added, changed, deleted }: CauseGroup): number {
  return added + changed + deleted;
}

function originOf(record: HistoryRecord): {
  readonly store: string;
  readonly host: string | undefined;
  readonly revision: string;
  readonly withdrawal: boolean;
} {
  const none = { host: undefined, revision: '', withdrawal: false };
  if (record.kind === 'mark') return { ...none, store: record.mark };
  const { cause } = record;
  if (cause?.withdrawal === true) return { ...none, store: cause.store, withdrawal: true };
  const revision = cause?.revision ?? '';
  if (record.kind !== 'prefix') return { ...none, store: cause?.store ?? record.writer, revision };
  const { source, owner } = record.writer;
  const cluster = ownerCluster(owner);
  const host = record.before?.hostIP ?? record.after?.hostIP;
  return { ...none, store: cause?.store ?? (cluster || source), host, revision };
}

function groupOf(
  groups: Map<string, MutableGroup>,
  record: HistoryRecord,
  { store, host, node, withdrawal }: Pick<CauseGroup, 'store' | 'host' | 'node' | 'withdrawal'>,
): MutableGroup {
  const key = JSON.stringify(
    record.kind === 'mark'
      ? ['mark', record.sequence]
      : [store, withdrawal ? 'withdrawal' : (node ?? host ?? record.kind)],
  );
  const known = groups.get(key);
  if (known !== undefined) {
    known.until = record.at;
    if (record.kind === 'prefix' && known.host !== host) known.host = undefined;
    return known;
  }
  const group: MutableGroup = {
    at: record.at,
    until: record.at,
    store,
    host,
    node,
    withdrawal,
    added: 0,
    changed: 0,
    deleted: 0,
    revisions: ['', ''],
    kinds: {},
    samples: [],
    emptied: [],
    mark: record.kind === 'mark' ? { subject: record.subject, detail: record.detail } : undefined,
  };
  groups.set(key, group);
  return group;
}

function countRecord(group: MutableGroup, record: HistoryRecord, revision: string): void {
  group.kinds[record.kind] = (group.kinds[record.kind] ?? 0) + 1;
  if (revision !== '') group.revisions = [group.revisions[0] || revision, revision];
  if (record.kind === 'mark') return;
  if (record.before === undefined) group.added++;
  else if (record.after === undefined) group.deleted++;
  else group.changed++;
  if (group.samples.length < MAX_SAMPLES) group.samples.push(record.key);
}
