import { AgentError, type Ask } from '../../api/api-client.ts';
import type { DigestClaim, DigestItem, GroupDigestDocument } from '../../api/digest-documents.ts';
import { addSumTexts, PLACES } from '../../compare/digest-sums.ts';
import { identityScope } from '../../model/numeric-identity.ts';
import type { ComparedClaim, Pair } from './diff-reasons.ts';

/**
 * Maximum number of ranges of places in a request: the limit of the agent. A place is the hash of a key; see
 * `GroupDigestDocument`.
 */
const MAX_RANGES = 256;

/** Number of buckets in a request: a quarter of all, so that an answer has at most 16,384 sums. */
const BUCKETS_PER_REQUEST = 64;

/** Expected number of claims in an answer, if claims are spread evenly over places. An answer has at most 10,000. */
const CLAIMS_PER_REQUEST = 8_000;

/** The sum of no claims. */
export const NO_SUM: string = '0'.repeat(16);

/** The differences at some places of a group. */
export interface DifferingPart {
  readonly claims: readonly Pair<ComparedClaim>[];
  readonly documents: readonly Pair<DigestItem['fields']>[];
  /** Number of claims, services or nodes that were not compared, because an agent did not return them. */
  readonly notCompared: number;
}

/**
 * A part of the digest of groups that are compared as one group: a confirmed group, and the restored group of the same
 * claims.
 */
interface ComparedGroup extends Omit<GroupDigestDocument, 'writer' | 'claims'> {
  readonly claims?: readonly ComparedClaim[];
}

/** The same part of the digests of both agents. */
type BothParts = readonly [a: ComparedGroup, b: ComparedGroup];

/**
 * Yields the differences of `groups`, which are compared as one group. An agent has about `claims` claims in them.
 * Sends one request to each agent at a time.
 */
export async function* differingParts(
  askA: Ask,
  askB: Ask,
  groups: readonly string[],
  claims: number,
): AsyncGenerator<DifferingPart, void, void> {
  const readBoth = async (query: string): Promise<BothParts> =>
    Promise.all([groupOf(askA, groups, query), groupOf(askB, groups, query)]);
  const places = await unequalPlaces(readBoth);
  const perRequest = Math.max(1, Math.floor((CLAIMS_PER_REQUEST * PLACES) / Math.max(claims, 1)));
  for (let at = 0; at < places.length; ) {
    const { ranges, end } = rangesOf(places, at, perRequest);
    const both = await readBoth(`?place=${ranges.join(',')}`);
    const next = Math.min(...both.map((part) => part.next ?? PLACES));
    yield differencesBefore(next, both);
    at++; // an answer has at least the first place, or names it in `tooMany`
    while (at < end && (places[at] ?? 0) < next) at++;
  }
}

/** Returns the places with unequal sums, in order. Reads the sums of all buckets, then those of unequal buckets. */
async function unequalPlaces(readBoth: (query: string) => Promise<BothParts>): Promise<readonly number[]> {
  const [a, b] = await readBoth('');
  const buckets = unequalIndexes(a.buckets ?? [], b.buckets ?? []);
  const places: number[] = [];
  for (let from = 0; from < buckets.length; from += BUCKETS_PER_REQUEST) {
    const part = buckets.slice(from, from + BUCKETS_PER_REQUEST);
    const [{ places: inA = {} }, { places: inB = {} }] = await readBoth(`?bucket=${part.join(',')}`);
    const all = new Set([...Object.keys(inA), ...Object.keys(inB)]);
    for (const place of all) if (inA[place] !== inB[place]) places.push(Number(place));
  }
  return places.sort((x, y) => x - y);
}

/** Compares the places before `next`, which both answers contain, except those with too many claims for an answer. */
function differencesBefore(next: number, [a, b]: BothParts): DifferingPart {
  const skipped = [a, b].flatMap(({ tooMany }) => tooMany ?? []);
  const isCompared = ({ place }: { readonly place: number }): boolean =>
    place < next && skipped.every((other) => other.place !== place);
  const [claimsA, claimsB] = [a, b].map(({ claims = [] }) => claims.filter(isCompared));
  const [documentsA, documentsB] = [a, b].map((part) => part.documents?.filter(isCompared));
  const documents = pairsOf(documentsA, documentsB, ({ key }) => key, isSameDocument);
  return {
    claims: pairsOf(claimsA, claimsB, ({ key, owner }) => `${key} ${owner ?? ''}`, isSameClaim),
    documents: documents.map((pair) => ({ key: pair.key, a: pair.a?.fields, b: pair.b?.fields })),
    notCompared: Math.max(0, ...skipped.map(({ claims }) => claims)),
  };
}

/**
 * Returns places from an index on as ranges of at most `count` places in total, and the index of the next place. A
 * range may include small gaps, which limits the number of ranges and requests.
 */
function rangesOf(
  places: readonly number[],
  at: number,
  count: number,
): { readonly ranges: readonly string[]; readonly end: number } {
  const gap = Math.max(1, Math.floor(count / MAX_RANGES));
  const ranges: string[] = [];
  let end = at;
  for (let covered = 0; end < places.length && covered < count && ranges.length < MAX_RANGES; ) {
    const first = places[end] ?? 0;
    let last = first;
    for (end++; end < places.length; end++) {
      const place = places[end] ?? PLACES;
      if (place - last > gap || place - first + covered >= count) break;
      last = place;
    }
    covered += last - first + 1;
    ranges.push(first === last ? `${first}` : `${first}-${last}`);
  }
  return { ranges, end };
}

/**
 * Returns the items that only one agent has, and the pairs of unequal items. If an agent has several items with one
 * name, the last is used.
 */
function pairsOf<T extends { readonly key: string }>(
  inA: readonly T[] = [],
  inB: readonly T[] = [],
  nameOf: (item: T) => string,
  isSame: (a: T, b: T) => boolean,
): readonly Pair<T>[] {
  const pairs: Pair<T>[] = [];
  const byName = (items: readonly T[]): Map<string, T> => new Map(items.map((item) => [nameOf(item), item]));
  const rest = byName(inB);
  for (const [name, a] of byName(inA)) {
    const b = rest.get(name);
    rest.delete(name);
    if (b === undefined || !isSame(a, b)) pairs.push({ key: a.key, a, b });
  }
  for (const b of rest.values()) pairs.push({ key: b.key, a: undefined, b });
  return pairs;
}

/** Returns a part of the digest of some groups; an empty one if the agent has none of them. */
async function groupOf(ask: Ask, groups: readonly string[], query: string): Promise<ComparedGroup> {
  let all: ComparedGroup = { buckets: [], places: {}, claims: [], documents: [] };
  for (const group of groups)
    try {
      const answer = await ask(`/v1/digest/${encodeURIComponent(group)}${query}`);
      all = joined(all, answer as GroupDigestDocument, group.startsWith('restored'));
    } catch (error) {
      if (!(error instanceof AgentError) || error.problem?.status !== 404) throw error;
    }
  return all;
}

/** Returns the digest of two groups as one. The claims of `added` are last, and marked if it is a restored group. */
function joined(first: ComparedGroup, added: GroupDigestDocument, isRestored: boolean): ComparedGroup {
  const { buckets = [], places = {}, documents = [], next = PLACES, tooMany } = added;
  const claims = added.claims?.map((claim) => (isRestored ? { ...claim, restored: true } : claim)) ?? [];
  const sums = { ...first.places };
  for (const [place, sum] of Object.entries(places)) sums[place] = addSumTexts(sums[place] ?? NO_SUM, sum);
  return {
    buckets: buckets.map((sum, at) => addSumTexts(first.buckets?.[at] ?? NO_SUM, sum)),
    places: sums,
    claims: [...(first.claims ?? []), ...claims],
    documents: [...(first.documents ?? []), ...documents],
    next: Math.min(first.next ?? PLACES, next),
    tooMany: first.tooMany ?? tooMany,
  };
}

/** Returns the indexes at which sums differ. A missing sum equals the sum of no claims. */
function unequalIndexes(a: readonly string[], b: readonly string[]): readonly number[] {
  const length = Math.max(a.length, b.length);
  return Array.from({ length }, (_, at) => at).filter((at) => (a[at] ?? NO_SUM) !== (b[at] ?? NO_SUM));
}

/**
 * Returns true if the attributes of two claims are equal. Node-local identities are compared by their labels, because
 * each agent numbers them itself.
 */
function isSameClaim(a: DigestClaim, b: DigestClaim): boolean {
  const areNodeLocal = identityScope(a.identity) !== 0 && identityScope(b.identity) !== 0;
  return (
    (areNodeLocal ? a.labels === b.labels : a.identity === b.identity) &&
    a.hostIP === b.hostIP &&
    a.encryptKey === b.encryptKey &&
    (a.namespace ?? '') === (b.namespace ?? '') &&
    (a.podName ?? '') === (b.podName ?? '') &&
    a.serviceAccount === b.serviceAccount &&
    JSON.stringify(a.namedPorts) === JSON.stringify(b.namedPorts)
  );
}

function isSameDocument(a: DigestItem, b: DigestItem): boolean {
  return JSON.stringify(a.fields) === JSON.stringify(b.fields);
}
