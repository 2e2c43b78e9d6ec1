import { ApiError, type Ask } from '../api/api-client.ts';
import type { ExplanationDocument } from '../api/documents.ts';
import type {
  DigestClaim,
  DigestDocument,
  DigestItem,
  GroupDigestDocument,
} from '../api/routes/digest-routes.ts';
import type { StatusDocument } from '../api/status-document.ts';
import { counted } from '../base/show-value.ts';
import { PLACES } from '../compare/digest-sums.ts';
import { identityScope, RESERVED_IDENTITIES } from '../model/numeric-identity.ts';
import { InputError } from '../process/input-error.ts';
import { alignColumns, printable } from '../process/terminal.ts';

/** Ranges of places of one request. */
const RANGES_PER_REQUEST = 128;

/** Buckets of one request: a quarter of all, so that an answer has at most 16,384 sums. */
const BUCKETS_PER_REQUEST = 64;

/** Claims that one request asks for, if they are spread evenly; an answer has at most 10,000. */
const CLAIMS_PER_REQUEST = 8_000;

/** Differences that are listed; further ones are counted. */
const LISTED = 10_000;

/** Keys for which a reason is searched; it takes a few requests each. */
const EXPLAINED = 100;

/** Lines of the text. `-o json` has all differences. */
const SHOWN = 50;

/** Items of a list in the text. */
const SHOWN_ITEMS = 3;

/** Changes that are younger may not have reached the other agent. */
const RECENT_MS = 5_000;

/** Why two agents differ in a key. They are searched in this order. */
export type DiffReason =
  | 'setting'
  | 'incomplete'
  | 'revision-behind'
  | 'rejected'
  | 'other-source'
  | 'recent'
  | 'none-found'
  | 'not-searched';

/** A claim that differs. */
export interface ClaimDifference {
  /** The group of writers. */
  readonly writer: string;
  readonly key: string;
  readonly a: DigestClaim | undefined;
  readonly b: DigestClaim | undefined;
  readonly reason: DiffReason;
  /** One sentence about the reason; empty if none was found. */
  readonly why: string;
}

/** A service of one cluster or a node that differs. */
export interface DocumentDifference {
  /** `services` for those of the local cluster, `services baltic`, `nodes baltic`. */
  readonly writer: string;
  readonly key: string;
  readonly a: DigestItem['fields'] | undefined;
  readonly b: DigestItem['fields'] | undefined;
  readonly reason: DiffReason;
  /** One sentence about the reason; empty if none was found. */
  readonly why: string;
}

/** The differences between two agents. */
export interface AgentDiff {
  /** The clusters of the agents, if they differ. Only the groups of other clusters are compared then. */
  readonly clusters?: Readonly<Record<Side, string>>;
  /** The groups of claims, services and nodes that differ. */
  readonly writers: readonly {
    readonly writer: string;
    readonly claimsA: number;
    readonly claimsB: number;
    readonly differ: number;
  }[];
  /** The first 10,000 claims that differ. */
  readonly differences: readonly ClaimDifference[];
  /** The first 10,000 services and nodes that differ. */
  readonly documents: readonly DocumentDifference[];
  /** Differences between any two nodes: the local node of each with its addresses, and claims of sources of one node. */
  readonly expected: { readonly ownNode: number; readonly localSource: number };
  /** Differences that are counted in `writers` and not listed. */
  readonly notListed: number;
  /** Claims that were not compared, because more than 10,000 of them have the same place in the digest. */
  readonly notCompared: number;
}

/** Sources whose claims one node makes for itself. */
const LOCAL_SOURCES: ReadonlySet<string> = new Set(['local', 'generated', 'api', 'unspec']);

type Side = 'a' | 'b';

/**
 * Returns the claims, services and nodes in which two agents differ, with the reasons. It compares sums, then the buckets that
 * differ, so equal agents exchange a few KiB. Memory: the listed differences, and two answers. Throws `ApiError`, or
 * `InputError` if the agents cannot be compared, or if one of them restarts during the comparison.
 */
export async function diffAgents(askA: Ask, askB: Ask): Promise<AgentDiff> {
  const [a, b] = (await Promise.all([askA('/v1/digest'), askB('/v1/digest')])) as [
    DigestDocument,
    DigestDocument,
  ];
  if (a.version !== b.version)
    throw new InputError(
      `the agents have digests of versions ${a.version} and ${b.version}: run the same release`,
    );
  const isOneCluster = a.cluster === b.cluster;
  const clusters = isOneCluster ? {} : { clusters: { a: a.cluster, b: b.cluster } };
  const expected = { ownNode: 0, localSource: 0 };
  const pairs: Pair[] = [];
  const items: ItemPair[] = [];
  const writers: AgentDiff['writers'][number][] = [];
  let [all, notCompared] = [0, 0];
  const names = [...new Set([...a.writers, ...b.writers].map(({ writer }) => writer))].sort();
  for (const writer of names) {
    const [inA, inB] = [a, b].map(({ writers: groups }) => groups.find((one) => one.writer === writer));
    if (inA?.sum === inB?.sum && inA?.claims === inB?.claims) continue;
    const [claimsA, claimsB] = [inA?.claims ?? 0, inB?.claims ?? 0];
    const [source = '', cluster = a.cluster] = writer.split(' ');
    const isOwn = !isOneCluster && (cluster === a.cluster || cluster === b.cluster);
    if (isOwn || LOCAL_SOURCES.has(source)) {
      expected.localSource += Math.max(claimsA, claimsB);
      continue;
    }
    let differ = 0;
    for await (const part of differingPlaces(askA, askB, writer, Math.max(claimsA, claimsB))) {
      notCompared += part.notCompared;
      for (const pair of part.claims) {
        if (isOwnNode(pair, a.node, b.node)) expected.ownNode++;
        else if (++differ && pairs.length < LISTED) pairs.push(pair);
      }
      for (const pair of part.items) {
        if (pair.key === a.node || pair.key === b.node) expected.ownNode++;
        else if (++differ && items.length < LISTED) items.push(pair);
      }
    }
    all += differ;
    if (differ > 0) writers.push({ writer, claimsA, claimsB, differ });
  }
  const notListed = all - pairs.length - items.length;
  if (all === 0)
    return { ...clusters, writers, differences: [], documents: [], expected, notListed, notCompared };
  for (const [side, ask, { instance }] of [
    ['a', askA, a],
    ['b', askB, b],
  ] as const)
    if (((await ask('/v1/digest')) as DigestDocument).instance !== instance)
      throw new InputError(`agent ${side} was restarted during the comparison: repeat it`);
  const reasons = await Reasons.read({ a: askA, b: askB }, { a, b });
  const differences = await withReasons(pairs, (pair) => reasons.of(pair));
  const documents = await withReasons(items, async (pair) => reasons.ofItem(pair));
  return { ...clusters, writers, differences, documents, expected, notListed, notCompared };
}

interface Pair {
  readonly writer: string;
  readonly key: string;
  readonly a: DigestClaim | undefined;
  readonly b: DigestClaim | undefined;
}

type ItemPair = Pick<DocumentDifference, 'writer' | 'key' | 'a' | 'b'>;

/**
 * Returns true for an address of a node on which one of the agents runs: its identity is `host` there only, or it has no claim there,
 * because an agent takes its own node from Kubernetes in another way than the others.
 */
function isOwnNode({ a, b }: Pair, nodeA: string, nodeB: string): boolean {
  if (a === undefined) return b?.owner === nodeA;
  if (b === undefined) return a.owner === nodeB;
  if (a.owner?.includes('/') !== true) return false;
  const { host, 'remote-node': remote } = RESERVED_IDENTITIES;
  const isPair = (x: number, y: number): boolean => x === host && y === remote;
  if (!isPair(a.identity, b.identity) && !isPair(b.identity, a.identity)) return false;
  return a.hostIP === b.hostIP && a.encryptKey === b.encryptKey;
}

/** The differences at some places of a group. */
interface DifferingPart {
  readonly claims: readonly Pair[];
  readonly items: readonly ItemPair[];
  /** Claims at a place with too many of them for an answer. */
  readonly notCompared: number;
}

/** Yields the differences of a group of about `claims` claims, one request of each agent after the other. */
async function* differingPlaces(
  askA: Ask,
  askB: Ask,
  writer: string,
  claims: number,
): AsyncGenerator<DifferingPart, void, void> {
  const path = `/v1/digest/${encodeURIComponent(writer)}`;
  const both = async (query: string): Promise<[GroupDigestDocument, GroupDigestDocument]> =>
    Promise.all([groupOf(askA, writer, path + query), groupOf(askB, writer, path + query)]);
  const [a, b] = await both('');
  const buckets = unequal(a.buckets ?? [], b.buckets ?? []);
  const places: number[] = [];
  for (let from = 0; from < buckets.length; from += BUCKETS_PER_REQUEST) {
    const part = buckets.slice(from, from + BUCKETS_PER_REQUEST);
    const [inA, inB] = await both(`?bucket=${part.join(',')}`);
    const all = new Set([...Object.keys(inA.places ?? {}), ...Object.keys(inB.places ?? {})]);
    for (const place of all) if (inA.places?.[place] !== inB.places?.[place]) places.push(Number(place));
  }
  places.sort((x, y) => x - y);
  const perRequest = Math.max(1, Math.floor((CLAIMS_PER_REQUEST * PLACES) / Math.max(claims, 1)));
  for (let at = 0; at < places.length; ) {
    const { ranges, end } = rangesOf(places, at, perRequest);
    const [inA, inB] = await both(`?place=${ranges.join(',')}`);
    // Only places that both have answered are compared.
    const next = Math.min(inA.next ?? PLACES, inB.next ?? PLACES);
    const skipped = [inA, inB].flatMap(({ tooMany }) => tooMany ?? []);
    const isCompared = ({ place }: { readonly place: number }): boolean =>
      place < next && skipped.every((other) => other.place !== place);
    yield {
      claims: pairsOf(writer, inA.claims, inB.claims, isCompared, nameOf, sameClaim),
      items: pairsOf(writer, inA.documents, inB.documents, isCompared, ({ key }) => key, sameItem).map(
        ({ key, a: itemA, b: itemB }) => ({ writer, key, a: itemA?.fields, b: itemB?.fields }),
      ),
      notCompared: Math.max(0, ...skipped.map((one) => one.claims)),
    };
    const first = places[at] ?? 0;
    while (at < end && (places[at] ?? 0) < Math.max(next, first + 1)) at++;
  }
}

/**
 * Returns places from an index on as ranges of at most `count` places in total, and the index of the next place.
 * Small gaps are covered, too, so that the number of requests does not depend on the number of places.
 */
function rangesOf(
  places: readonly number[],
  at: number,
  count: number,
): { readonly ranges: readonly string[]; readonly end: number } {
  const gap = Math.max(1, Math.floor(count / RANGES_PER_REQUEST));
  const ranges: string[] = [];
  let end = at;
  for (let covered = 0; end < places.length && covered < count && ranges.length < RANGES_PER_REQUEST; ) {
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

/** Returns the items of one agent only, and the unequal ones. */
function pairsOf<T extends { readonly key: string; readonly place: number }>(
  writer: string,
  inA: readonly T[] = [],
  inB: readonly T[] = [],
  isCompared: (item: T) => boolean,
  named: (item: T) => string,
  isSame: (a: T, b: T) => boolean,
): readonly { writer: string; key: string; a: T | undefined; b: T | undefined }[] {
  const pairs: { writer: string; key: string; a: T | undefined; b: T | undefined }[] = [];
  const rest = new Map(inB.filter(isCompared).map((item) => [named(item), item]));
  for (const a of inA.filter(isCompared)) {
    const b = rest.get(named(a));
    rest.delete(named(a));
    if (b === undefined || !isSame(a, b)) pairs.push({ writer, key: a.key, a, b });
  }
  for (const b of rest.values()) pairs.push({ writer, key: b.key, a: undefined, b });
  return pairs;
}

/** Returns a part of a group; an empty one if the agent has no such group. */
async function groupOf(ask: Ask, writer: string, path: string): Promise<GroupDigestDocument> {
  try {
    return (await ask(path)) as GroupDigestDocument; // the version of both was compared
  } catch (error) {
    if (error instanceof ApiError && error.problem?.status === 404)
      return { writer, buckets: [], places: {}, claims: [], documents: [] };
    throw error;
  }
}

/** Returns the indexes at which sums differ. A missing sum is that of no claims. */
function unequal(a: readonly string[], b: readonly string[]): readonly number[] {
  const none = '0'.repeat(16);
  const length = Math.max(a.length, b.length);
  return Array.from({ length }, (_, at) => at).filter((at) => (a[at] ?? none) !== (b[at] ?? none));
}

function nameOf({ key, owner }: DigestClaim): string {
  return `${key} ${owner ?? ''}`;
}

function sameClaim(a: DigestClaim, b: DigestClaim): boolean {
  const isLocal = identityScope(a.identity) !== 0 && identityScope(b.identity) !== 0;
  return (
    (isLocal ? a.labels === b.labels : a.identity === b.identity) &&
    a.hostIP === b.hostIP &&
    a.encryptKey === b.encryptKey &&
    (a.namespace ?? '') === (b.namespace ?? '') &&
    (a.podName ?? '') === (b.podName ?? '')
  );
}

function sameItem(a: DigestItem, b: DigestItem): boolean {
  return JSON.stringify(a.fields) === JSON.stringify(b.fields);
}

async function withReasons<T>(
  pairs: readonly T[],
  reasonOf: (pair: T) => Promise<readonly [DiffReason, string]>,
): Promise<readonly (T & { readonly reason: DiffReason; readonly why: string })[]> {
  const found: (T & { readonly reason: DiffReason; readonly why: string })[] = [];
  for (const [at, pair] of pairs.entries()) {
    const [reason, why] = at < EXPLAINED ? await reasonOf(pair) : (['not-searched', ''] as const);
    found.push({ ...pair, reason, why });
  }
  return found;
}

interface RejectionsDocument {
  readonly recent: readonly { readonly message: string }[];
}

/** Finds the reasons of differences. The status and the rejections of each agent are read once. */
class Reasons {
  readonly #asks: Readonly<Record<Side, Ask>>;
  readonly #digests: Readonly<Record<Side, DigestDocument>>;
  readonly #statuses: Readonly<Record<Side, StatusDocument>>;
  readonly #rejections: Readonly<Record<Side, RejectionsDocument>>;

  private constructor(
    asks: Readonly<Record<Side, Ask>>,
    digests: Readonly<Record<Side, DigestDocument>>,
    statuses: Readonly<Record<Side, StatusDocument>>,
    rejections: Readonly<Record<Side, RejectionsDocument>>,
  ) {
    this.#asks = asks;
    this.#digests = digests;
    this.#statuses = statuses;
    this.#rejections = rejections;
  }

  static async read(
    asks: Readonly<Record<Side, Ask>>,
    digests: Readonly<Record<Side, DigestDocument>>,
  ): Promise<Reasons> {
    const read = async <T>(path: string): Promise<Readonly<Record<Side, T>>> => {
      const [a, b] = await Promise.all([asks.a(path), asks.b(path)]);
      return { a: a as T, b: b as T }; // the same version wrote them
    };
    const statuses = await read<StatusDocument>('/v1/status');
    return new Reasons(asks, digests, statuses, await read<RejectionsDocument>('/v1/rejections'));
  }

  async of(pair: Pair): Promise<readonly [DiffReason, string]> {
    const setting = this.#setting(pair);
    if (setting !== undefined) return ['setting', setting];
    for (const side of ['a', 'b'] as const) {
      const incomplete = incompleteText(this.#statuses[side], pair);
      if (incomplete !== undefined) return ['incomplete', `${side}: ${incomplete}`];
    }
    const [a, b] = await Promise.all([this.#explain('a', pair.key), this.#explain('b', pair.key)]);
    const behind = behindText(pair, a, b);
    if (behind !== undefined) return ['revision-behind', behind];
    for (const side of ['a', 'b'] as const) {
      const rejected = this.#rejections[side].recent.find(({ message }) => names(message, pair.key));
      if (rejected !== undefined) return ['rejected', `${side} rejected ${rejected.message}`];
    }
    const other = otherSource(pair, a, b);
    if (other !== undefined) return ['other-source', other];
    for (const side of ['a', 'b'] as const)
      if (await this.#isRecent(side, pair.key))
        return ['recent', `${side} changed it less than ${RECENT_MS / 1000} s ago`];
    return ['none-found', ''];
  }

  /** Returns the reason of a difference of a service or node. */
  ofItem({ writer }: ItemPair): readonly [DiffReason, string] {
    const [what = '', cluster = this.#statuses.a.cluster] = writer.split(' ');
    for (const side of ['a', 'b'] as const) {
      const incomplete = incompleteItem(
        this.#statuses[side],
        what === 'nodes' ? NODE_KINDS : SERVICE_KINDS,
        cluster,
      );
      if (incomplete !== undefined) return ['incomplete', `${side}: ${incomplete}`];
    }
    return ['none-found', ''];
  }

  /** Returns the settings that differ, if the claim is of a node. */
  #setting({ a, b }: Pair): string | undefined {
    if ((a ?? b)?.owner?.includes('/') !== true) return undefined;
    const [mine, theirs] = [this.#digests.a.settings, this.#digests.b.settings];
    const texts = Object.entries(mine).flatMap(([name, value]) => {
      const other: unknown = Reflect.get(theirs, name);
      return value === other ? [] : `${name} is ${value} at a, ${other} at b`;
    });
    return texts.length === 0 ? undefined : texts.join('; ');
  }

  async #explain(side: Side, key: string): Promise<ExplanationDocument | undefined> {
    return this.#find<ExplanationDocument>(side, `/v1/ipcache/explain/${key}`);
  }

  async #isRecent(side: Side, key: string): Promise<boolean> {
    const query = new URLSearchParams({ key, from: `-${RECENT_MS / 1000}s`, limit: '1' });
    const history = await this.#find<{ readonly items: readonly unknown[] }>(side, `/v1/history?${query}`);
    return (history?.items.length ?? 0) > 0;
  }

  /** Returns a document; undefined if the agent has none, for example because it records no history. */
  async #find<T>(side: Side, path: string): Promise<T | undefined> {
    try {
      return (await this.#asks[side](path)) as T;
    } catch (error) {
      if (error instanceof ApiError && error.problem !== undefined) return undefined;
      throw error;
    }
  }
}

/** Returns true if a text names exactly this key, not a longer one that begins with it. */
function names(text: string, key: string): boolean {
  const address = key.split(/[/@]/, 1)[0] ?? key;
  return new RegExp(`(^|[^0-9a-f.:])${address.replaceAll('.', '\\.')}([^0-9a-f.:]|[.:](?![0-9a-f:])|$)`).test(
    text,
  );
}

/** Kinds that make claims of the API server's addresses only, or none. */
const SERVICE_KINDS: ReadonlySet<string> = new Set(['services', 'endpointslices', 'endpoints']);

/** Kinds that make claims of nodes only. */
const NODE_KINDS: ReadonlySet<string> = new Set(['ciliumnodes', 'nodes']);

/** Returns the incomplete parts of the source of a claim. */
function incompleteText(status: StatusDocument, { writer, a, b }: Pair): string | undefined {
  const [source = '', owner] = writer.split(' ');
  if (source === 'k8s' || source === 'custom-resource') {
    const claim = a ?? b;
    const isNode = claim?.owner?.includes('/') === true;
    return incompleteKind(
      status,
      (name) => NODE_KINDS.has(name) === isNode && !(claim?.podName !== undefined && SERVICE_KINDS.has(name)),
    );
  }
  if (source === 'restored') return 'the claims are restored and not confirmed';
  if (source === 'clustermesh') return incompleteCluster(status, owner ?? '');
  const own = status.clusters.find(({ name }) => name === status.cluster);
  return own && incompleteCluster(status, own.name);
}

/** Returns the incomplete parts of the source of a service or a node of a cluster. */
function incompleteItem(
  status: StatusDocument,
  kinds: ReadonlySet<string>,
  cluster: string,
): string | undefined {
  const kind = cluster === status.cluster ? incompleteKind(status, (name) => kinds.has(name)) : undefined;
  return kind ?? incompleteCluster(status, cluster);
}

function incompleteKind(status: StatusDocument, isWanted: (name: string) => boolean): string | undefined {
  const kind = status.kubernetes?.kinds.find(
    ({ name, state, complete, behindMs }) =>
      isWanted(name) &&
      (state === 'forbidden' || (state !== 'resting' && (!complete || behindMs !== undefined))),
  );
  return kind && `kind ${kind.name} is ${kind.state}${kind.complete ? '' : ', incomplete'}`;
}

function incompleteCluster(status: StatusDocument, name: string): string | undefined {
  const cluster = status.clusters.find((one) => one.name === name);
  if (cluster === undefined) return name === status.cluster ? undefined : `cluster ${name} is not followed`;
  if (cluster.ready) return undefined;
  const since = cluster.knownAt === undefined ? '' : ` since ${cluster.knownAt}`;
  const missing = cluster.missing.length === 0 ? '' : `, incomplete: ${cluster.missing.join(', ')}`;
  return `cluster ${cluster.name} is ${cluster.state}${since}${missing}`;
}

/** Returns the revisions of the claim if one agent has an older one. */
function behindText(
  { writer, key, ...pair }: Pair,
  a: ExplanationDocument | undefined,
  b: ExplanationDocument | undefined,
): string | undefined {
  const [source = ''] = writer.split(' ');
  const owner = (pair.a ?? pair.b)?.owner;
  const revisionOf = (explanation: ExplanationDocument | undefined): number | undefined =>
    explanation?.claims.find(
      // An explanation has the claims of larger prefixes too.
      (claim) => claim.key === key && claim.source === source && claim.owner === owner,
    )?.origin?.revision;
  const [revisionA, revisionB] = [revisionOf(a), revisionOf(b)];
  if (revisionA === undefined || revisionB === undefined || revisionA === revisionB) return undefined;
  const side = revisionA < revisionB ? 'a' : 'b';
  return `${side} is behind: revision ${Math.min(revisionA, revisionB)} of ${Math.max(revisionA, revisionB)}`;
}

/** Returns another source from which the agent without this claim has a claim on the key. */
function otherSource(
  pair: Pair,
  a: ExplanationDocument | undefined,
  b: ExplanationDocument | undefined,
): string | undefined {
  if (pair.a !== undefined && pair.b !== undefined) return undefined;
  const [side, claims] = pair.a === undefined ? (['a', a?.claims] as const) : (['b', b?.claims] as const);
  const [source = ''] = pair.writer.split(' ');
  const other = claims?.find((claim) => claim.key === pair.key && claim.source !== source);
  return other && `${side} has it from ${other.source}${other.owner === undefined ? '' : ` ${other.owner}`}`;
}

function claimText(claim: DigestClaim | undefined): string {
  if (claim === undefined) return 'none';
  const { identity, hostIP, namespace, podName, encryptKey } = claim;
  const pod = podName === undefined ? '' : ` ${namespace ?? ''}/${podName}`;
  const key = encryptKey === 0 ? '' : ` key ${encryptKey}`;
  return `${identity}${pod}${hostIP === undefined ? '' : ` at ${hostIP}`}${key}`;
}

/** Returns the differences of two versions of a service or node, by field. Of lists, returns the items of one agent only. */
function fieldDifferences({ a, b }: Pick<DocumentDifference, 'a' | 'b'>): readonly string[] {
  if (a === undefined || b === undefined) return [a === undefined ? 'a: none' : 'b: none'];
  const names = [...new Set([...Object.keys(a), ...Object.keys(b)])];
  return names.flatMap((name) => {
    const [x = '', y = ''] = [a[name], b[name]];
    if (typeof x === 'string' && typeof y === 'string')
      return x === y ? [] : [`${name}: ${x || 'none'} at a, ${y || 'none'} at b`];
    const [inA, inB] = [listOf(x), listOf(y)];
    const [onlyA, onlyB] = [onlyIn(inA, inB), onlyIn(inB, inA)];
    return [
      ...(onlyA.length === 0 ? [] : [`${name}: only at a: ${firstOf(onlyA)}`]),
      ...(onlyB.length === 0 ? [] : [`${name}: only at b: ${firstOf(onlyB)}`]),
    ];
  });
}

function onlyIn(texts: readonly string[], others: readonly string[]): readonly string[] {
  const known = new Set(others);
  return texts.filter((text) => !known.has(text));
}

function listOf(value: string | readonly string[]): readonly string[] {
  return typeof value === 'string' ? [value].filter((text) => text !== '') : value;
}

function firstOf(texts: readonly string[]): string {
  const more = texts.length > SHOWN_ITEMS ? ` and ${texts.length - SHOWN_ITEMS} more` : '';
  return texts.slice(0, SHOWN_ITEMS).join(', ') + more;
}

/** Returns the differences as text: groups, claims, services and nodes with reasons, and the expected ones in the last line. */
export function diffLines(diff: AgentDiff): readonly string[] {
  const { clusters, writers, differences, documents, expected, notListed, notCompared } = diff;
  const heads = writers.map(({ writer, differ, claimsA, claimsB }) => {
    const what = writer.startsWith('services') || writer.startsWith('nodes') ? '' : ' claims';
    return `${writer}: ${differ} of ${Math.max(claimsA, claimsB)}${what} ${differ === 1 ? 'differs' : 'differ'}`;
  });
  const whyText = ({ reason, why }: Pick<ClaimDifference, 'reason' | 'why'>): string =>
    reason === 'none-found' ? 'no reason found' : why;
  const rows = differences
    .slice(0, SHOWN)
    .map((one) => [`  ${one.key}`, `a: ${claimText(one.a)}`, `b: ${claimText(one.b)}`, whyText(one)]);
  const items = documents
    .slice(0, SHOWN)
    .map((one) => [`  ${one.writer} ${one.key}`, fieldDifferences(one).join('; '), whyText(one)]);
  const more = Math.max(0, differences.length - SHOWN) + Math.max(0, documents.length - SHOWN) + notListed;
  const { ownNode, localSource } = expected;
  return [
    ...(clusters === undefined
      ? []
      : [
          printable(
            `The agents are of clusters ${clusters.a} and ${clusters.b}: only other clusters are compared.`,
          ),
        ]),
    ...(heads.length === 0 ? ['No differences.'] : heads.map(printable)),
    ...alignColumns(rows.map((row) => row.map(printable))),
    ...alignColumns(items.map((row) => row.map(printable))),
    ...(more > 0 ? [`  and ${more} more`] : []),
    ...(notListed > 0 ? [`Truncated: -o json lists all except ${counted(notListed, 'difference')}.`] : []),
    ...(notCompared > 0
      ? [`${counted(notCompared, 'claim')} not compared: too many of them have the same place in the digest.`]
      : []),
    `Expected differences: ${ownNode + localSource} (local nodes and their addresses: ${ownNode}, sources of one node: ${localSource})`,
  ];
}
