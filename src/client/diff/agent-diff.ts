import type { Ask } from '../../api/api-client.ts';
import type { DigestClaim, DigestDocument } from '../../api/digest-documents.ts';
import type { EntryDocument } from '../../api/documents.ts';
import type { StatusDocument } from '../../api/status-document.ts';
import { addSumTexts } from '../../compare/digest-sums.ts';
import { RESERVED_IDENTITIES } from '../../model/numeric-identity.ts';
import { InputError } from '../../process/input-error.ts';
import {
  type ComparedClaim,
  type DifferingClaim,
  type DifferingDocument,
  type DiffReason,
  DiffReasons,
  type Pair,
  readIfAvailable,
  type Side,
  type WithReason,
} from './diff-reasons.ts';
import { type DifferingPart, differingParts, NO_SUM } from './differing-parts.ts';

/** Maximum number of listed differences; further ones are counted. */
const MAX_LISTED = 10_000;

export type ClaimDifference = DifferingClaim & WithReason;

/** A differing service of one cluster, or a differing node. */
export type DocumentDifference = DifferingDocument & WithReason;

/** The differences between two agents. */
export interface AgentDiff {
  /** The clusters of the agents, if they differ. Only the groups of other clusters are compared then. */
  readonly clusters?: Readonly<Record<Side, string>>;
  /** The differing groups of claims, services and nodes. */
  readonly writers: readonly {
    readonly writer: string;
    readonly claimsA: number;
    readonly claimsB: number;
    readonly differ: number;
    /** Numbers of the differences that only one agent has. */
    readonly onlyA: number;
    readonly onlyB: number;
  }[];
  /** Groups with claims restored from the checkpoint of an agent, which no source has confirmed. */
  readonly restored: readonly {
    readonly writer: string;
    readonly claimsA: number;
    readonly claimsB: number;
  }[];
  /** Number of differences by reason. Those that are not listed count as `not-searched`. */
  readonly reasons: Readonly<Partial<Record<DiffReason, number>>>;
  /** The first 10,000 differing claims. */
  readonly differences: readonly ClaimDifference[];
  /** The first 10,000 differing services and nodes. */
  readonly documents: readonly DocumentDifference[];
  /**
   * Numbers of the differences that any two nodes have. `localNode`: the local node of each agent and its addresses.
   * `localSource`: claims of sources of a node; if the agents are in different clusters, also those of their clusters.
   */
  readonly expected: { readonly localNode: number; readonly localSource: number };
  /** Number of differences counted in `writers` but not listed. */
  readonly notListed: number;
  /**
   * Groups whose digests differ although no entry does: the groups changed during the comparison, or the agents compute
   * digests in different ways.
   */
  readonly digestsOnly: readonly string[];
  /**
   * Number of claims, services and nodes that were not compared, because those at one place of the digest exceed the
   * limit of a response.
   */
  readonly notCompared: number;
}

/** Sources whose claims one node makes for itself. */
const LOCAL_SOURCES: ReadonlySet<string> = new Set(['local', 'generated', 'api', 'unspec']);

/**
 * Returns the claims, services and nodes that differ between two agents, with the reasons. Compares sums first, and
 * then only the buckets with different sums, so equal agents exchange a few KiB. Memory: the listed differences, and
 * two answers. Throws `AgentError`, or `InputError` if the agents cannot be compared, or if one of them restarts during
 * the comparison.
 */
export async function diffAgents(askA: Ask, askB: Ask): Promise<AgentDiff> {
  const [a, b] = await Promise.all([readDigest(askA), readDigest(askB)]);
  if (a.version !== b.version)
    throw new InputError(
      `the agents have digests of versions ${a.version} and ${b.version}: run the same release`,
    );
  const clusters = a.cluster === b.cluster ? {} : { clusters: { a: a.cluster, b: b.cluster } };
  const { claims, documents: items, ...counts } = await compareGroups(askA, askB, a, b);
  if (counts.writers.length === 0)
    return { ...clusters, ...counts, reasons: {}, differences: [], documents: [] };
  await checkInstance('a', askA, a);
  await checkInstance('b', askB, b);
  const diffReasons = await DiffReasons.read({ a: askA, b: askB }, { a, b });
  const differences = await diffReasons.explain(claims);
  const documents = items.map((pair): DocumentDifference => {
    const [reason, detail] = diffReasons.reasonOfDocument(pair);
    return { ...pair, reason, detail };
  });
  const reasons: Partial<Record<DiffReason, number>> = {};
  for (const { reason } of [...differences, ...documents]) reasons[reason] = (reasons[reason] ?? 0) + 1;
  if (counts.notListed > 0) reasons['not-searched'] = (reasons['not-searched'] ?? 0) + counts.notListed;
  return { ...clusters, ...counts, reasons, differences, documents };
}

async function readDigest(ask: Ask): Promise<DigestDocument> {
  return (await ask('/v1/digest')) as DigestDocument;
}

/** Throws `InputError` if an agent has restarted since its digest was read. */
async function checkInstance(side: Side, ask: Ask, { instance }: DigestDocument): Promise<void> {
  if ((await readDigest(ask)).instance !== instance)
    throw new InputError(`agent ${side} was restarted during the comparison: repeat it`);
}

/** The first differences of all groups. */
interface ListedDifferences {
  readonly claims: DifferingClaim[];
  readonly documents: DifferingDocument[];
}

/** The differences of all groups without their reasons. */
type ComparedGroups = Omit<AgentDiff, 'clusters' | 'reasons' | 'differences' | 'documents'> &
  ListedDifferences;

/** Sources that may confirm restored claims of the local cluster. The first one with claims in an agent is used. */
const CONFIRMING_SOURCES: readonly string[] = ['kvstore', 'custom-resource', 'k8s'];

/**
 * Returns the groups compared as one, by the name of the confirmed group: the restored claims of a cluster are
 * compared with those of its kvstore, or of Kubernetes if the local cluster has no kvstore. If both groups have a claim
 * on a key, that of the later group is used. The restored group is first, because its claims are older.
 */
function comparedGroups(a: DigestDocument, b: DigestDocument): ReadonlyMap<string, readonly string[]> {
  const writers = new Set([...a.writers, ...b.writers].map(({ writer }) => writer));
  const groups = new Map<string, readonly string[]>();
  for (const writer of [...writers].sort()) {
    const [, cluster = a.cluster] = writer.split(' ');
    const sources = cluster === a.cluster ? CONFIRMING_SOURCES : ['clustermesh'];
    const confirmed = sources.map((source) => writer.replace(/^restored(?= |$)/, source));
    const name = confirmed.find((group) => writers.has(group)) ?? writer;
    groups.set(name, [writer, ...(groups.get(name) ?? [])]);
  }
  return groups;
}

/** Returns the sum and the number of the claims of some groups. */
function totalOf({ writers }: DigestDocument, names: readonly string[]): { sum: string; claims: number } {
  const groups = writers.filter(({ writer }) => names.includes(writer));
  return {
    sum: groups.map(({ sum }) => sum).reduce(addSumTexts, NO_SUM),
    claims: groups.reduce((total, { claims }) => total + claims, 0),
  };
}

/**
 * Returns true if the agents need not have the same claims in a group: those of a source of the node, or of an agent's
 * own cluster if the agents are in different clusters.
 */
function isLocalGroup(writer: string, a: DigestDocument, b: DigestDocument): boolean {
  const [source = '', cluster = a.cluster] = writer.split(' ');
  const isOfAgentCluster = cluster === a.cluster || cluster === b.cluster || source === 'kube-apiserver';
  return LOCAL_SOURCES.has(source) || (isOfAgentCluster && a.cluster !== b.cluster);
}

/** Returns true if each agent follows only the pods of its node, because endpoints have a better source (K 12). */
async function followOwnPods(asks: readonly Ask[]): Promise<boolean> {
  const statuses = await Promise.all(asks.map((ask) => ask('/v1/status')));
  return (statuses as readonly StatusDocument[]).every(({ kubernetes }) => {
    const { kinds = [], handover } = kubernetes ?? {};
    return (
      handover?.ip === 'resting' ||
      kinds.some(({ name, state }) => name.startsWith('ciliumendpoint') && state !== 'missing')
    );
  });
}

/** Compares the groups of claims, services and nodes with different sums. */
async function compareGroups(
  askA: Ask,
  askB: Ask,
  a: DigestDocument,
  b: DigestDocument,
): Promise<ComparedGroups> {
  const listed: ListedDifferences = { claims: [], documents: [] };
  const agents = { a: { ask: askA, node: a.node }, b: { ask: askB, node: b.node } };
  const writers: AgentDiff['writers'][number][] = [];
  const digestsOnly: string[] = [];
  let [localNode, localSource, notCompared] = [0, 0, 0];
  const groups = comparedGroups(a, b);
  for (const [writer, names] of groups) {
    const { sum: sumA, claims: claimsA } = totalOf(a, names);
    const { sum: sumB, claims: claimsB } = totalOf(b, names);
    if (sumA === sumB && claimsA === claimsB) continue;
    const maxClaims = Math.max(claimsA, claimsB);
    if (isLocalGroup(writer, a, b) || (writer === 'k8s' && (await followOwnPods([askA, askB])))) {
      localSource += maxClaims;
      continue;
    }
    const parts = differingParts(askA, askB, names, maxClaims);
    const { differ, onlyA, onlyB, ...skipped } = await addDifferences(listed, writer, parts, agents);
    localNode += skipped.localNode;
    notCompared += skipped.notCompared;
    if (differ > 0) writers.push({ writer, claimsA, claimsB, differ, onlyA, onlyB });
    // With a restored group, unequal sums prove nothing: they add a restored claim and the confirmed one on its key.
    else if (skipped.localNode + skipped.notCompared === 0 && names.length === 1) digestsOnly.push(writer);
  }
  const total = writers.reduce((sum, { differ }) => sum + differ, 0);
  const notListed = total - listed.claims.length - listed.documents.length;
  const expected = { localNode, localSource };
  const restored = [...groups].flatMap(([writer, names]) => {
    const unconfirmed = names.filter((name) => name.startsWith('restored'));
    if (unconfirmed.length === 0) return [];
    return { writer, claimsA: totalOf(a, unconfirmed).claims, claimsB: totalOf(b, unconfirmed).claims };
  });
  return { ...listed, writers, restored, expected, notListed, notCompared, digestsOnly };
}

/** A compared agent, and its node. */
interface AgentOfNode {
  readonly ask: Ask;
  readonly node: string;
}

/** Adds the differences of a group to the lists until they have {@link MAX_LISTED}. Returns the numbers of all. */
async function addDifferences(
  listed: ListedDifferences,
  writer: string,
  parts: AsyncIterable<DifferingPart>,
  agents: Readonly<Record<Side, AgentOfNode>>,
): Promise<Record<'differ' | 'onlyA' | 'onlyB' | 'localNode' | 'notCompared', number>> {
  const counts = { differ: 0, onlyA: 0, onlyB: 0, localNode: 0, notCompared: 0 };
  for await (const part of parts) {
    const claims: DifferingPart['claims'][number][] = [];
    for (const pair of part.claims)
      if (!isLocalNode(pair, agents) && !(await isOwnApiServer(pair, agents))) claims.push(pair);
    const documents = part.documents.filter(({ key }) => key !== agents.a.node && key !== agents.b.node);
    const pairs = [...claims, ...documents];
    counts.differ += pairs.length;
    counts.onlyA += pairs.filter(({ b }) => b === undefined).length;
    counts.onlyB += pairs.filter(({ a }) => a === undefined).length;
    counts.localNode += part.claims.length + part.documents.length - pairs.length;
    counts.notCompared += part.notCompared;
    for (const pair of claims.slice(0, MAX_LISTED - listed.claims.length))
      listed.claims.push({ ...pair, writer });
    for (const pair of documents.slice(0, MAX_LISTED - listed.documents.length))
      listed.documents.push({ ...pair, writer });
  }
  return counts;
}

/**
 * Returns true if only one agent has a claim, and it is on an address of the node of the other agent, which has its own
 * claims on these addresses with source `local`. The owner of a claim on the address of a node is `cluster/name`.
 */
function isLocalNode({ a, b }: Pair<DigestClaim>, agents: Readonly<Record<Side, AgentOfNode>>): boolean {
  if (a === undefined) return b?.owner === agents.a.node;
  return b === undefined && a.owner === agents.b.node;
}

/**
 * Returns true if only one agent claims an address for an API server which runs on the host of the other agent: the
 * identity is `host` there (SEMANTICS 2.5). Asks the other agent.
 */
async function isOwnApiServer(
  { key, a, b }: Pair<ComparedClaim>,
  agents: Readonly<Record<Side, AgentOfNode>>,
): Promise<boolean> {
  if ((a ?? b)?.identity !== RESERVED_IDENTITIES['kube-apiserver'] || (a !== undefined && b !== undefined))
    return false;
  const { ask } = agents[a === undefined ? 'a' : 'b'];
  const path = `/v1/ipcache/lookup/${encodeURIComponent(key)}`;
  const entry = await readIfAvailable<EntryDocument>(ask, path);
  return entry?.identity === RESERVED_IDENTITIES.host;
}
