import type { IPCache } from '../../ipcache/ipcache.ts';
import type { IPCacheSnapshot } from '../../ipcache/snapshot.ts';
import type { KeyedEntry } from '../../ipcache/types.ts';
import type { Labels } from '../../model/labels.ts';
import type { Source } from '../../model/source.ts';
import { addressBits } from '../../net/address-words.ts';
import { Prefix } from '../../net/prefix.ts';
import { invalidParameter } from '../problem.ts';
import type { ReadModel } from '../read-model.ts';
import { addressParameter, labelParameter, prefixParameter } from './route-parts.ts';

/** The prefixes within a CIDR of at most this number of host bits are looked up. A larger CIDR is only a filter. */
const MAX_HOST_BITS = 12;

/** The checked parameters that select prefixes. */
export type FilterValues = {
  readonly prefix?: string | undefined;
  readonly within?: string | undefined;
  readonly identity?: number | undefined;
  readonly source?: Source | undefined;
  readonly label?: string | undefined;
  readonly cluster?: string | undefined;
  readonly pod?: string | undefined;
  readonly node?: string | undefined;
};

/** Parsed filters of prefixes. */
export interface IPFilters {
  readonly exact: Prefix | undefined;
  readonly within: Prefix | undefined;
  readonly identity: number | undefined;
  /** Returns true if an identity has the requested label; undefined if no label is requested. */
  readonly hasLabel: ((identity: number) => boolean) | undefined;
  readonly pod: readonly [namespace: string, name: string] | undefined;
  readonly host: string | undefined;
  readonly matches: (entry: KeyedEntry) => boolean;
}

/** Returns the filters of a request. Throws `ProblemError` if one is invalid. */
export function parseFilters(filters: FilterValues, { labelsOf }: Pick<ReadModel, 'labelsOf'>): IPFilters {
  const { prefix, within, identity, label, source, cluster, pod, node } = filters;
  const hasLabel = label === undefined ? undefined : labelFilter(labelParameter(label), labelsOf);
  const cidr = within === undefined ? undefined : prefixParameter('within', within);
  const host = node === undefined ? undefined : addressParameter('node', node);
  const podID = pod === undefined ? undefined : podParameter(pod);
  return {
    exact: prefix === undefined ? undefined : prefixParameter('prefix', prefix),
    within: cidr,
    identity,
    hasLabel,
    host,
    pod: podID,
    matches: (entry) =>
      (identity === undefined || entry.identity === identity) &&
      (hasLabel === undefined || hasLabel(entry.identity)) &&
      (source === undefined || entry.source === source) &&
      (cluster === undefined || entry.owner === cluster) &&
      (host === undefined || entry.hostIP === host) &&
      (podID === undefined || (entry.k8s?.namespace === podID[0] && entry.k8s.podName === podID[1])) &&
      (cidr === undefined || contains(cidr, entry.key)),
  };
}

/**
 * Returns a filter by label. It looks up the labels of each identity once, so that all pages of a list use the same
 * labels.
 */
function labelFilter(
  matches: (labels: Labels) => boolean,
  labelsOf: ReadModel['labelsOf'],
): (identity: number) => boolean {
  const known = new Map<number, boolean>();
  return (identity) => {
    const previous = known.get(identity);
    if (previous !== undefined) return previous;
    const labels = labelsOf(identity);
    const isMatch = labels !== undefined && matches(labels);
    known.set(identity, isMatch);
    return isMatch;
  };
}

function contains(cidr: Prefix, key: string): boolean {
  const prefix = Prefix.parseAnnotated(key);
  return prefix !== undefined && cidr.contains(prefix);
}

function podParameter(pod: string): readonly [namespace: string, name: string] {
  const [namespace, name, ...rest] = pod.split('/');
  if (namespace !== undefined && name !== undefined && rest.length === 0) return [namespace, name];
  throw invalidParameter('pod', pod, 'is not namespace/name', 'namespace/name');
}

/** Yields the entries that match, and `undefined` for each other entry read, so that the reader can pause there. */
export function* matching(
  { ipcache }: ReadModel,
  snapshot: IPCacheSnapshot,
  filters: IPFilters,
): Generator<KeyedEntry | undefined, void, void> {
  for (const entry of candidates(ipcache, snapshot, filters))
    yield entry !== undefined && filters.matches(entry) ? entry : undefined;
}

/**
 * Yields the visible entries to filter, read from the most selective index, and `undefined` for each identity without
 * the requested label.
 */
function candidates(
  ipcache: IPCache,
  snapshot: IPCacheSnapshot,
  filters: IPFilters,
): Iterable<KeyedEntry | undefined> {
  const { exact, within, identity, hasLabel, pod, host } = filters;
  if (exact !== undefined)
    return [snapshot.lookupByPrefix(exact.toString())].filter((entry) => entry !== undefined);
  if (within !== undefined && addressBits(within.family) - within.length <= MAX_HOST_BITS)
    return snapshot.within(within.toString());
  if (pod !== undefined) return visible(snapshot, ipcache.lookupByPod(...pod));
  if (identity !== undefined) return snapshot.entriesOf(identity);
  if (host !== undefined) return visible(snapshot, ipcache.lookupByHost(host));
  if (hasLabel !== undefined) return labelled(snapshot, hasLabel);
  return snapshot.entries();
}

function* labelled(
  snapshot: IPCacheSnapshot,
  hasLabel: (identity: number) => boolean,
): Generator<KeyedEntry | undefined, void, void> {
  for (const identity of snapshot.identities()) {
    if (hasLabel(identity)) yield* snapshot.entriesOf(identity);
    else yield undefined;
  }
}

function* visible(snapshot: IPCacheSnapshot, keys: Iterable<string>): Generator<KeyedEntry, void, void> {
  for (const key of keys) {
    const entry = snapshot.get(key);
    if (entry?.shadowed === false) yield entry;
  }
}
