import { ApiError, type Ask } from '../api/api-client.ts';
import type { ExplanationDocument } from '../api/documents.ts';
import type { DigestClaim, DigestDocument, GroupDigestDocument } from '../api/routes/digest-routes.ts';
import type { StatusDocument } from '../api/status-document.ts';
import { counted } from '../base/show-value.ts';
import { identityScope, RESERVED_IDENTITIES } from '../model/numeric-identity.ts';
import { InputError } from '../process/input-error.ts';
import { alignColumns, printable } from '../process/terminal.ts';

/** Buckets and places of one request. */
const PER_REQUEST = 128;

/** Keys for which a reason is searched; it takes a few requests each. */
const EXPLAINED = 100;

/** Lines of the text. `-o json` has all differences. */
const SHOWN = 50;

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

/** The differences between two agents. */
export interface AgentDiff {
  readonly writers: readonly {
    readonly writer: string;
    readonly claimsA: number;
    readonly claimsB: number;
    readonly differ: number;
  }[];
  readonly differences: readonly ClaimDifference[];
  /** Differences between any two nodes: their own addresses, and claims of sources of one node. */
  readonly expected: { readonly ownNode: number; readonly localSource: number };
  /** Claims that were not compared, because a group differs in too many. */
  readonly omitted: number;
}

/** Sources whose claims one node makes for itself. */
const LOCAL_SOURCES: ReadonlySet<string> = new Set(['local', 'generated', 'api', 'unspec']);

type Side = 'a' | 'b';

/**
 * Returns the claims in which two agents differ, with the reasons. It compares sums, then the buckets that differ, so equal agents
 * exchange a few KiB. Throws `ApiError` or `InputError`.
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
  const expected = { ownNode: 0, localSource: 0 };
  const found: Pair[] = [];
  const writers: AgentDiff['writers'][number][] = [];
  let omitted = 0;
  const names = [...new Set([...a.writers, ...b.writers].map(({ writer }) => writer))].sort();
  for (const writer of names) {
    const [inA, inB] = [a, b].map(({ writers: all }) => all.find((one) => one.writer === writer));
    if (inA?.sum === inB?.sum && inA?.claims === inB?.claims) continue;
    if (LOCAL_SOURCES.has(writer.split(' ')[0] ?? '')) {
      expected.localSource += Math.max(inA?.claims ?? 0, inB?.claims ?? 0);
      continue;
    }
    const group = await differingClaims(askA, askB, writer);
    omitted += group.omitted;
    const kept = group.pairs.filter((pair) => !isOwnNode(pair, a.node, b.node));
    expected.ownNode += group.pairs.length - kept.length;
    if (kept.length === 0) continue;
    for (const pair of kept) found.push(pair);
    writers.push({ writer, claimsA: inA?.claims ?? 0, claimsB: inB?.claims ?? 0, differ: kept.length });
  }
  if (found.length === 0) return { writers, differences: [], expected, omitted };
  const reasons = await Reasons.read({ a: askA, b: askB }, { a, b });
  const differences = await withReasons(found, reasons);
  return { writers, differences, expected, omitted };
}

interface Pair {
  readonly writer: string;
  readonly key: string;
  readonly a: DigestClaim | undefined;
  readonly b: DigestClaim | undefined;
}

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

/** Returns the claims of a group in which the agents differ. */
async function differingClaims(
  askA: Ask,
  askB: Ask,
  writer: string,
): Promise<{ readonly pairs: readonly Pair[]; readonly omitted: number }> {
  const path = `/v1/digest/${encodeURIComponent(writer)}`;
  const both = async (query: string): Promise<[GroupDigestDocument, GroupDigestDocument]> =>
    Promise.all([groupOf(askA, writer, path + query), groupOf(askB, writer, path + query)]);
  const [a, b] = await both('');
  const buckets = unequal(a.buckets ?? [], b.buckets ?? []);
  const places: number[] = [];
  for (const part of chunks(buckets)) {
    const [inA, inB] = await both(`?bucket=${part.join(',')}`);
    const all = new Set([...Object.keys(inA.places ?? {}), ...Object.keys(inB.places ?? {})]);
    for (const place of all) if (inA.places?.[place] !== inB.places?.[place]) places.push(Number(place));
  }
  const pairs: Pair[] = [];
  let omitted = 0;
  for (const part of chunks(places)) {
    const [inA, inB] = await both(`?place=${part.join(',')}`);
    omitted += (inA.omitted ?? 0) + (inB.omitted ?? 0);
    const claimsB = new Map((inB.claims ?? []).map((claim) => [nameOf(claim), claim]));
    for (const claim of inA.claims ?? []) {
      const other = claimsB.get(nameOf(claim));
      claimsB.delete(nameOf(claim));
      if (other === undefined || !sameClaim(claim, other))
        pairs.push({ writer, key: claim.key, a: claim, b: other });
    }
    for (const claim of claimsB.values()) pairs.push({ writer, key: claim.key, a: undefined, b: claim });
  }
  return { pairs, omitted };
}

/** Returns a part of a group; an empty one if the agent has no such group. */
async function groupOf(ask: Ask, writer: string, path: string): Promise<GroupDigestDocument> {
  try {
    return (await ask(path)) as GroupDigestDocument; // the version of both was compared
  } catch (error) {
    if (error instanceof ApiError && error.problem?.status === 404)
      return { writer, buckets: [], places: {}, claims: [] };
    throw error;
  }
}

/** Returns the indexes at which sums differ. A missing sum is that of no claims. */
function unequal(a: readonly string[], b: readonly string[]): readonly number[] {
  const none = '0'.repeat(16);
  const length = Math.max(a.length, b.length);
  return Array.from({ length }, (_, at) => at).filter((at) => (a[at] ?? none) !== (b[at] ?? none));
}

function* chunks(numbers: readonly number[]): Generator<readonly number[], void, void> {
  for (let from = 0; from < numbers.length; from += PER_REQUEST)
    yield numbers.slice(from, from + PER_REQUEST);
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

async function withReasons(pairs: readonly Pair[], reasons: Reasons): Promise<readonly ClaimDifference[]> {
  const found: ClaimDifference[] = [];
  for (const [at, pair] of pairs.entries()) {
    const [reason, why] = at < EXPLAINED ? await reasons.of(pair) : (['not-searched', ''] as const);
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
  return new RegExp(`(^|[^0-9a-f.:])${address.replaceAll('.', '\\.')}([^0-9a-f.:]|$)`).test(text);
}

/** Kinds that make claims of the API server's addresses only, or none. */
const SERVICE_KINDS: ReadonlySet<string> = new Set(['services', 'endpointslices', 'endpoints']);

/** Kinds that make claims of nodes only. */
const NODE_KINDS: ReadonlySet<string> = new Set(['ciliumnodes', 'nodes']);

/** Returns what is incomplete of the source of a claim. */
function incompleteText(status: StatusDocument, { writer, a, b }: Pair): string | undefined {
  const [source = '', owner] = writer.split(' ');
  if (source === 'k8s' || source === 'custom-resource') {
    const claim = a ?? b;
    const isNode = claim?.owner?.includes('/') === true;
    const kind = status.kubernetes?.kinds.find(
      ({ name, state, complete, behindMs }) =>
        NODE_KINDS.has(name) === isNode &&
        !(claim?.podName !== undefined && SERVICE_KINDS.has(name)) &&
        (state === 'forbidden' || (state !== 'resting' && (!complete || behindMs !== undefined))),
    );
    return kind && `kind ${kind.name} is ${kind.state}${kind.complete ? '' : ', incomplete'}`;
  }
  if (source === 'restored') return 'the claims are restored and not confirmed';
  const name = source === 'clustermesh' ? owner : status.cluster;
  const cluster = status.clusters.find((one) => one.name === name);
  if (cluster === undefined) return source === 'clustermesh' ? `cluster ${name} is not followed` : undefined;
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

/** Returns the other source of which the agent without the claim has one. */
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

/** Returns the differences as text: groups, claims with reasons, and the expected ones in the last line. */
export function diffLines({ writers, differences, expected, omitted }: AgentDiff): readonly string[] {
  const heads = writers.map(
    ({ writer, differ, claimsA, claimsB }) =>
      `${writer}: ${differ} of ${Math.max(claimsA, claimsB)} claims ${differ === 1 ? 'differs' : 'differ'}`,
  );
  const rows = differences
    .slice(0, SHOWN)
    .map(({ key, a, b, reason, why }) => [
      `  ${key}`,
      `a: ${claimText(a)}`,
      `b: ${claimText(b)}`,
      reason === 'none-found' ? 'no reason found' : why,
    ]);
  const more = differences.length > SHOWN ? [`  and ${differences.length - SHOWN} more`] : [];
  const left =
    omitted > 0 ? [`${counted(omitted, 'claim')} not compared: the agents differ in too many.`] : [];
  const { ownNode, localSource } = expected;
  return [
    ...(heads.length === 0 ? ['No differences.'] : heads.map(printable)),
    ...alignColumns(rows.map((row) => row.map(printable))),
    ...more,
    ...left,
    `Expected differences: ${ownNode + localSource} (addresses of the own node: ${ownNode}, sources of one node: ${localSource})`,
  ];
}
