import { AgentError, type Ask } from '../../api/api-client.ts';
import type { DigestClaim, DigestDocument, DigestItem } from '../../api/digest-documents.ts';
import type { ClaimDocument, ExplanationDocument, OriginDocument } from '../../api/documents.ts';
import type { SettingsDocument } from '../../api/routes/settings-routes.ts';
import type { StatusDocument } from '../../api/status-document.ts';
import { withQuery } from '../list.ts';

/** Maximum number of differences whose reason is searched. Each search takes a few requests. */
const MAX_SEARCHED = 100;

/** Maximum age of a change that may not have reached the other agent yet. */
const RECENT_MS = 5_000;

/** Why two agents differ in a key. The reasons are searched in this order. */
export type DiffReason =
  | 'setting'
  | 'incomplete'
  | 'other-store'
  | 'revision-behind'
  | 'rejected'
  | 'other-source'
  | 'recent'
  | 'none-found'
  | 'not-searched';

/** A reason and one sentence about it, which is empty if no reason was found. */
export interface WithReason {
  readonly reason: DiffReason;
  readonly detail: string;
}

/** The two agents. */
const SIDES = ['a', 'b'] as const;

/** One of the two agents. */
export type Side = (typeof SIDES)[number];

export interface ComparedClaim extends DigestClaim {
  /** True if the claim was restored from a checkpoint, and no source has confirmed it. */
  readonly restored?: boolean;
}

/** A claim, service or node in both agents. */
export interface Pair<T> {
  readonly key: string;
  readonly a: T | undefined;
  readonly b: T | undefined;
}

export interface DifferingClaim extends Pair<ComparedClaim> {
  /** The name of the group: `kvstore`, `clustermesh baltic`. */
  readonly writer: string;
}

export interface DifferingDocument extends Pair<DigestItem['fields']> {
  /** The name of the group: `services` for those of the local cluster, `services baltic`, `nodes baltic`. */
  readonly writer: string;
}

interface RejectionsDocument {
  readonly recent: readonly { readonly message: string }[];
}

/** An agent, and its answers, which are read once. */
interface ComparedAgent {
  readonly ask: Ask;
  readonly digest: DigestDocument;
  readonly status: StatusDocument;
  readonly rejections: RejectionsDocument;
  readonly settings: SettingsDocument['settings'];
}

/** A reason and its text. */
type Reason = readonly [DiffReason, string];

/** Returns a document; undefined if the agent has none, for example because it records no history. */
export async function readIfAvailable<T>(ask: Ask, path: string): Promise<T | undefined> {
  try {
    return (await ask(path)) as T;
  } catch (error) {
    if (error instanceof AgentError && error.problem !== undefined) return undefined;
    throw error;
  }
}

/** Finds the reasons of differences. The status, rejections and settings of each agent are read once. */
export class DiffReasons {
  readonly #agents: Readonly<Record<Side, ComparedAgent>>;

  private constructor(agents: Readonly<Record<Side, ComparedAgent>>) {
    this.#agents = agents;
  }

  /** Reads the status, rejections and settings of both agents. */
  static async read(
    asks: Readonly<Record<Side, Ask>>,
    digests: Readonly<Record<Side, DigestDocument>>,
  ): Promise<DiffReasons> {
    const read = async (side: Side): Promise<ComparedAgent> => {
      const ask = asks[side];
      const status = (await ask('/v1/status')) as StatusDocument;
      const rejections = (await ask('/v1/rejections')) as RejectionsDocument;
      const { settings = {} } = (await readIfAvailable<SettingsDocument>(ask, '/v1/settings')) ?? {};
      return { ask, digest: digests[side], status, rejections, settings };
    };
    const [a, b] = await Promise.all([read('a'), read('b')]);
    return new DiffReasons({ a, b });
  }

  /** Returns the differences with their reasons, which are searched for at most {@link MAX_SEARCHED}. */
  async explain<T extends DifferingClaim>(pairs: readonly T[]): Promise<readonly (T & WithReason)[]> {
    const explained: (T & WithReason)[] = [];
    let searches = 0;
    for (const pair of pairs) {
      let found = this.#knownReason(pair);
      if (found === undefined && searches < MAX_SEARCHED) {
        searches++;
        found = (await this.#search(pair)) ?? ['none-found', ''];
      }
      const [reason, detail] = found ?? this.#fileReason(pair.writer) ?? (['not-searched', ''] as const);
      explained.push({ ...pair, reason, detail });
    }
    return explained;
  }

  /** Returns the reason of a difference if the status or the settings of the agents show it. Sends no request. */
  #knownReason(pair: DifferingClaim): Reason | undefined {
    const setting = this.#differentSettings(pair);
    if (setting !== undefined) return ['setting', setting];
    for (const side of SIDES)
      if (pair[side]?.restored === true)
        return ['incomplete', `${side}: the claim is restored and not confirmed`];
    for (const side of SIDES) {
      const incomplete = incompleteText(this.#agents[side].status, pair);
      if (incomplete !== undefined) return ['incomplete', `${side}: ${incomplete}`];
    }
    return undefined;
  }

  /** Returns the reason of a difference that the explanations, rejections and histories of the agents show. */
  async #search(pair: DifferingClaim): Promise<Reason | undefined> {
    const [a, b] = await Promise.all([
      this.#explanationOf('a', pair.key),
      this.#explanationOf('b', pair.key),
    ]);
    const [claimA, claimB] = [explainedClaim(pair, a), explainedClaim(pair, b)];
    const [originA, originB] = [claimA?.origin, claimB?.origin];
    const stores = differentStores(originA, originB);
    if (stores !== undefined) return ['other-store', stores];
    const files = originA?.store === 'memory' ? this.#fileReason(pair.writer) : undefined;
    if (files !== undefined) return files;
    const behind = behindText(originA?.revision, originB?.revision);
    if (behind !== undefined) return ['revision-behind', behind];
    const rejected = this.#rejected((message) => containsKey(message, pair.key));
    if (rejected !== undefined) return rejected;
    const other = otherSource(pair, a, b);
    if (other !== undefined) return ['other-source', other];
    for (const side of SIDES)
      if (await this.#isRecent(side, pair.key))
        return ['recent', `${side} changed it less than ${RECENT_MS / 1000} s ago`];
    return this.#fileReason(pair.writer) ?? this.#clusterBehind(pair.writer);
  }

  #rejected(isOfKey: (message: string) => boolean): Reason | undefined {
    for (const side of SIDES) {
      const rejected = this.#agents[side].rejections.recent.find(({ message }) => isOfKey(message));
      if (rejected !== undefined) return ['rejected', `${side} rejected ${rejected.message}`];
    }
    return undefined;
  }

  /** Returns the revisions up to which the agents have read the kvstore of the cluster of a group, if they differ. */
  #clusterBehind(writer: string): Reason | undefined {
    const { a, b } = this.#agents;
    const [source = '', name = a.status.cluster] = writer.split(' ');
    if (writer === 'services' || source === 'k8s' || source === 'custom-resource') return undefined;
    const [atA, atB] = [a, b].map(
      ({ status }) => status.clusters.find((cluster) => cluster.name === name)?.revision,
    );
    if (atA === undefined || atB === undefined || atA === atB) return undefined;
    return ['revision-behind', `a has read the kvstore of ${name} up to revision ${atA}, b up to ${atB}`];
  }

  /** Returns the files that the agents read instead of a store. Each agent has read its own copy at its start. */
  #fileReason(writer: string): Reason | undefined {
    const texts: string[] = [];
    let differ = false;
    for (const name of fileSettings(writer)) {
      const [atA, atB] = [pathsOf(this.#agents.a, name), pathsOf(this.#agents.b, name)];
      if (atA === 'none' && atB === 'none') continue;
      differ ||= atA !== atB;
      texts.push(
        atA === atB ? `each agent reads its own ${name} ${atA}` : `${name} is ${atA} at a, ${atB} at b`,
      );
    }
    return texts.length === 0 ? undefined : [differ ? 'setting' : 'other-store', texts.join('; ')];
  }

  /** Returns the reason of a difference of a service or node, and its text. */
  reasonOfDocument({ writer, key }: DifferingDocument): Reason {
    const [type = '', cluster = this.#agents.a.status.cluster] = writer.split(' ');
    const kinds = type === 'nodes' ? NODE_KINDS : SERVICE_KINDS;
    for (const side of SIDES) {
      const incomplete = incompleteItem(this.#agents[side].status, kinds, cluster);
      if (incomplete !== undefined) return ['incomplete', `${side}: ${incomplete}`];
    }
    const rejected = this.#rejected((message) => containsName(message, key));
    return rejected ?? this.#fileReason(writer) ?? this.#clusterBehind(writer) ?? ['none-found', ''];
  }

  /** Returns the settings that differ, if the claim is of a node. */
  #differentSettings({ a, b }: DifferingClaim): string | undefined {
    if ((a ?? b)?.owner?.includes('/') !== true) return undefined;
    const { a: agentA, b: agentB } = this.#agents;
    const texts = Object.entries(agentA.digest.settings).flatMap(([name, value]) => {
      const other: unknown = Reflect.get(agentB.digest.settings, name);
      return value === other ? [] : `${name} is ${value} at a, ${other} at b`;
    });
    return texts.length === 0 ? undefined : texts.join('; ');
  }

  async #explanationOf(side: Side, key: string): Promise<ExplanationDocument | undefined> {
    return readIfAvailable<ExplanationDocument>(this.#agents[side].ask, `/v1/ipcache/explain/${key}`);
  }

  async #isRecent(side: Side, key: string): Promise<boolean> {
    const path = withQuery('/v1/history', { key, from: `-${RECENT_MS / 1000}s`, limit: 1 });
    const { ask } = this.#agents[side];
    const history = await readIfAvailable<{ readonly items: readonly unknown[] }>(ask, path);
    return (history?.items.length ?? 0) > 0;
  }
}

/** Returns true if a text contains exactly this key, not a longer one that begins with it. */
function containsKey(text: string, key: string): boolean {
  const address = key.split(/[/@]/, 1)[0] ?? key;
  return new RegExp(`(^|[^0-9a-f.:])${address.replaceAll('.', '\\.')}([^0-9a-f.:]|[.:](?![0-9a-f:])|$)`).test(
    text,
  );
}

/** Returns true if a text contains exactly this name of a service or node, not a longer one. */
function containsName(text: string, name: string): boolean {
  return text.split(/[^\w./-]+/).some((word) => word === name || word.endsWith(`/${name}`));
}

/** Kinds of Kubernetes objects of services. Their only claims are on addresses of the API server. */
const SERVICE_KINDS: ReadonlySet<string> = new Set(['services', 'endpointslices', 'endpoints']);

/** Kinds of Kubernetes objects whose claims are only on addresses of nodes. */
const NODE_KINDS: ReadonlySet<string> = new Set(['ciliumnodes', 'nodes']);

/** Returns the incomplete part of the source of a claim. */
function incompleteText(status: StatusDocument, { writer, a, b }: DifferingClaim): string | undefined {
  const [source = '', owner] = writer.split(' ');
  if (source === 'k8s' || source === 'custom-resource') {
    const claim = a ?? b;
    const isNode = claim?.owner?.includes('/') === true;
    const isPod = claim?.podName !== undefined;
    return incompleteKind(
      status,
      (name) => NODE_KINDS.has(name) === isNode && !(isPod && SERVICE_KINDS.has(name)),
    );
  }
  if (source === 'clustermesh') return incompleteCluster(status, owner ?? '');
  const local = status.clusters.find(({ name }) => name === status.cluster);
  return local && incompleteCluster(status, local.name);
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

/** Returns the claim of a group on a key in an explanation, which also has the claims of larger prefixes. */
function explainedClaim(
  { writer, key, a, b }: DifferingClaim,
  explanation: Pick<ExplanationDocument, 'claims'> | undefined,
): ClaimDocument | undefined {
  const [source] = writer.split(' ');
  const owner = (a ?? b)?.owner;
  return explanation?.claims.find(
    (claim) => claim.key === key && claim.source === source && claim.owner === owner,
  );
}

/** Returns the stores of a claim if the agents read it from different ones, whose revisions are unrelated. */
function differentStores(a: OriginDocument | undefined, b: OriginDocument | undefined): string | undefined {
  if (a === undefined || b === undefined) return undefined;
  const isOtherKey = a.revision !== undefined && b.revision !== undefined && a.key !== b.key;
  return a.store !== b.store || isOtherKey ? `a reads ${a.text}; b reads ${b.text}` : undefined;
}

/** Returns two revisions of one store if one is older. */
function behindText(a: number | undefined, b: number | undefined): string | undefined {
  if (a === undefined || b === undefined || a === b) return undefined;
  return `${a < b ? 'a' : 'b'} is behind: revision ${Math.min(a, b)} of ${Math.max(a, b)}`;
}

/** If one agent lacks the claim, returns a claim on the same key that only this agent has. */
function otherSource(
  pair: DifferingClaim,
  a: ExplanationDocument | undefined,
  b: ExplanationDocument | undefined,
): string | undefined {
  if (pair.a !== undefined && pair.b !== undefined) return undefined;
  const [side, claims = [], others = []] =
    pair.a === undefined ? (['a', a?.claims, b?.claims] as const) : (['b', b?.claims, a?.claims] as const);
  const own = explainedClaim(pair, { claims });
  const isKnown = ({ key, source, owner }: ClaimDocument): boolean =>
    others.some((known) => known.key === key && known.source === source && known.owner === owner);
  const other = claims.find((claim) => claim.key === pair.key && claim !== own && !isKnown(claim));
  return other && `${side} has it from ${other.source}${other.owner === undefined ? '' : ` ${other.owner}`}`;
}

/** Returns the names of settings. If they are set, the agent reads a group from their files, not from a store. */
function fileSettings(writer: string): readonly string[] {
  if (writer === 'services') return ['manifests', 'k8s-load'];
  const [source] = writer.split(' ');
  return source === 'k8s' || source === 'custom-resource' ? ['k8s-load'] : ['load'];
}

function pathsOf({ settings }: ComparedAgent, name: string): string {
  const paths = settings[name]?.value;
  return Array.isArray(paths) && paths.length > 0 ? paths.join(', ') : 'none';
}
