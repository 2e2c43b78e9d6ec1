import { counted } from '../base/show-value.ts';
import { ascending } from '../base/sorted-map.ts';
import type { KeyedEntry } from '../ipcache/types.ts';
import { labelName } from '../model/label-name.ts';
import { type Label, type Labels, labelText, parseLabelQuery } from '../model/labels.ts';
import { isNumericIdentity, reservedIdentityName } from '../model/numeric-identity.ts';
import { Prefix, prefixOfKey } from '../net/prefix.ts';
import type { AnnouncedService } from '../servicecache/announcement.ts';
import { parseServiceKey } from '../servicecache/service-id.ts';
import { addressRoles, podCIDRRoles } from './address-roles.ts';
import type { ReadModel } from './read-model.ts';

/** The kinds of results. Groups that match equally well are in this order. */
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
   * Number of results that were found; larger than the length of `items` if the limit was exceeded. Prefixes may not be
   * counted to the end then.
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

/**
 * Maximum number of items of a kind that one search compares. At the maximum, pods take about 20 ms and identities 6
 * ms.
 */
export const MAX_COMPARED = { service: 50_000, node: 50_000, pod: 60_000, identity: 4_000 } as const;

/** Number of names that are compared in one step: less than a millisecond. Identities have about ten labels each. */
const NAMES_PER_STEP = 2_048;
const IDENTITIES_PER_STEP = 256;

/** Largest octet. An incomplete octet stands for several: `1` for 1, 10 to 19 and 100 to 199. */
const MAX_OCTET = 255;

/** An incomplete IPv4 address: `10.`, `10.0.1`. */
const PARTIAL_ADDRESS = /^\d{1,3}(\.\d{1,3}){0,2}\.\d{0,3}$/;

type SearchModel = Pick<
  ReadModel,
  'ipcache' | 'services' | 'nodes' | 'labelsOf' | 'clusterOf' | 'identities' | 'status'
>;

/** Returns how a name matches a query; `undefined` if it does not. */
function matchOf(name: string, query: string): SearchMatch | undefined {
  const at = name.indexOf(query);
  if (at < 0) return undefined;
  if (at > 0) return 'part';
  return name.length === query.length ? 'exact' : 'start';
}

function rank({ match }: Pick<SearchResultDocument, 'match'>): number {
  return SEARCH_MATCHES.indexOf(match);
}

/** A key that matches. The title and the detail are formatted only for the results that are shown. */
interface FoundKey {
  readonly key: string;
  readonly match: SearchMatch;
}

function compareFound(a: FoundKey, b: FoundKey): number {
  return rank(a) - rank(b) || a.key.length - b.key.length || ascending(a.key, b.key);
}

/** Kinds whose keys a search may find repeatedly, such as a label of many identities. Each key counts once. */
const REPEATED_KINDS: ReadonlySet<SearchKind> = new Set<SearchKind>([
  'identity',
  'label',
  'namespace',
  'prefix',
]);

/** The best results of one kind, each key once. */
class BestOf {
  readonly #limit: number;
  readonly #isRepeated: boolean;
  /** Best first; at most the limit. */
  readonly #best: FoundKey[] = [];
  readonly #keys = new Set<string>();
  total = 0;

  constructor(kind: SearchKind, limit: number) {
    this.#isRepeated = REPEATED_KINDS.has(kind);
    this.#limit = limit;
  }

  add(key: string, match: SearchMatch | undefined): void {
    if (match === undefined || this.#keys.has(key)) return;
    this.total++;
    if (this.#isRepeated) this.#keys.add(key);
    const found = { key, match };
    const last = this.#best.at(-1);
    if (this.#best.length >= this.#limit && last !== undefined && compareFound(found, last) >= 0) return;
    let at = this.#best.length;
    while (at > 0 && compareFound(found, this.#best[at - 1] as FoundKey) < 0) at--; // exists, because `at` is above 0
    this.#best.splice(at, 0, found);
    this.#keys.add(key);
    if (this.#best.length <= this.#limit) return;
    const dropped = this.#best.pop();
    if (dropped !== undefined && !this.#isRepeated) this.#keys.delete(dropped.key);
  }

  get results(): readonly FoundKey[] {
    return this.#best;
  }
}

/** One search, and the results found so far. */
class Search {
  readonly #model: SearchModel;
  readonly #query: string;
  readonly #limit: number;
  readonly #best = new Map<SearchKind, BestOf>();
  truncated = false;

  constructor(model: SearchModel, query: string, limit: number) {
    this.#model = model;
    this.#query = query;
    this.#limit = limit;
  }

  /** Compares everything with the query, in steps. Exact keys first, then all names. */
  *steps(): Generator<void, void, void> {
    this.#addExact();
    yield;
    const name = this.#query.toLowerCase();
    // A query with `=` matches only labels, and an address matches no pods by name and no labels.
    const isLabel = name.includes('=');
    const isAddress = PARTIAL_ADDRESS.test(name) || Prefix.parseAnnotated(name) !== undefined;
    if (!isLabel) yield* this.#compareNames(name);
    if (!isLabel && !isAddress) yield* this.#comparePods(name);
    if (!isAddress) yield* this.#compareLabels(name);
  }

  #add(kind: SearchKind, key: string, match: SearchMatch | undefined): void {
    if (match === undefined) return;
    const best = this.#best.get(kind) ?? new BestOf(kind, this.#limit);
    this.#best.set(kind, best);
    best.add(key, match);
  }

  /** Calls `add` for at most {@link MAX_COMPARED} items of a kind, in steps. Each kind has its own limit. */
  *#compareSome<T>(
    items: Iterable<T>,
    kind: keyof typeof MAX_COMPARED,
    add: (item: T) => void,
  ): Generator<void, void, void> {
    const perStep = kind === 'identity' ? IDENTITIES_PER_STEP : NAMES_PER_STEP;
    let compared = 0;
    for (const item of items) {
      if (compared === MAX_COMPARED[kind]) {
        this.truncated = true;
        return;
      }
      add(item);
      if (++compared % perStep === 0) yield;
    }
  }

  #addExact(): void {
    const { ipcache, services, nodes } = this.#model;
    const query = this.#query;
    const name = query.toLowerCase();
    if (name.includes('/') && services.get(parseServiceKey(name))) this.#add('service', name, 'exact');
    if (nodes.get(name)) this.#add('node', name, 'exact');
    const prefix = Prefix.parseAnnotated(query);
    if (prefix !== undefined) this.#addAddress(query, prefix);
    else this.#addPartialAddress(query);
    const identity = /^\d{1,10}$/.test(query) ? Number(query) : Number.NaN;
    if (!isNumericIdentity(identity)) return;
    if (this.#model.labelsOf(identity) === undefined && ipcache.countByIdentity(identity) === 0) return;
    this.#add('identity', query, 'exact');
  }

  #addAddress(query: string, prefix: Prefix): void {
    const { ipcache } = this.#model;
    if (query.includes('/')) {
      if (ipcache.lookupByPrefix(query) !== undefined) this.#add('prefix', prefix.toString(), 'exact');
      this.#addWithin(prefix.toString(), 'part');
      return;
    }
    const entry = ipcache.lookup(query);
    if (entry !== undefined) {
      const key = prefixOfKey(entry.key);
      this.#add('prefix', key, key === prefix.toString() ? 'exact' : 'related');
      const { k8s } = entry;
      if (k8s?.podName) this.#add('pod', `${k8s.namespace}/${k8s.podName}`, 'related');
    }
    for (const { kind, name } of addressRoles(this.#model, query)) this.#add(kind, name, 'exact');
    for (const { name } of podCIDRRoles(this.#model, query)) this.#add('node', name, 'related');
  }

  /** Adds the prefixes whose text starts with an incomplete IPv4 address. */
  #addPartialAddress(query: string): void {
    if (!PARTIAL_ADDRESS.test(query)) return;
    const octets = query.split('.');
    const last = octets.pop() ?? '';
    const base = octets.map(Number);
    if (base.some((octet) => octet > MAX_OCTET)) return;
    const cidrOf = (parts: readonly number[]): string =>
      `${[...parts, 0, 0, 0, 0].slice(0, 4).join('.')}/${parts.length * 8}`;
    if (last === '') {
      this.#addWithin(cidrOf(base), 'start');
      return;
    }
    for (let octet = 0; octet <= MAX_OCTET; octet++)
      if (String(octet).startsWith(last)) this.#addWithin(cidrOf([...base, octet]), 'start');
  }

  #addWithin(cidr: string, match: SearchMatch): void {
    for (const { key } of this.#model.ipcache.within(cidr, this.#limit + 1))
      this.#add('prefix', prefixOfKey(key), match);
  }

  *#compareNames(name: string): Generator<void, void, void> {
    const { services, nodes, ipcache } = this.#model;
    for (const { name: cluster } of this.#model.status().clusters)
      this.#add('cluster', cluster, matchOf(cluster, name));
    for (const namespace of ipcache.namespaces()) this.#add('namespace', namespace, matchOf(namespace, name));
    yield;
    yield* this.#compareSome(services.snapshot(), 'service', ([key, { service }]) => {
      this.#add('service', key, matchOf(service.id.name, name) ?? matchOf(key, name));
      this.#add('namespace', service.id.namespace, matchOf(service.id.namespace, name));
    });
    yield* this.#compareSome(nodes.nodes(), 'node', (node) =>
      this.#add('node', node.fullName, matchOf(node.name, name) ?? matchOf(node.fullName, name)),
    );
  }

  /**
   * Compares the names of pods. A query with a slash starts with the namespace. Exact names are found in all
   * namespaces.
   */
  *#comparePods(name: string): Generator<void, void, void> {
    const { ipcache } = this.#model;
    const slash = name.indexOf('/');
    const requested = slash < 0 ? undefined : name.slice(0, slash);
    const pod = name.slice(slash + 1);
    const namespaces = requested === undefined ? [...ipcache.namespaces()] : [requested];
    for (const namespace of namespaces)
      if (pod !== '' && ipcache.lookupByPod(namespace, pod).length > 0)
        this.#add('pod', `${namespace}/${pod}`, 'exact');
    const pods = function* (): Generator<readonly [namespace: string, pod: string], void, void> {
      for (const namespace of namespaces)
        for (const name of ipcache.podsOf(namespace, MAX_COMPARED.pod + 1)) yield [namespace, name];
    };
    yield* this.#compareSome(pods(), 'pod', ([namespace, other]) => {
      const match = other === pod ? undefined : matchOf(other, pod); // exact names were added above
      if (match !== undefined && other !== '') this.#add('pod', `${namespace}/${other}`, match);
    });
  }

  /** Compares the labels of identities. `key=value` is exact; other texts are searched in keys and values. */
  *#compareLabels(name: string): Generator<void, void, void> {
    const wanted = this.#query.includes('=') ? parseLabelQuery(this.#query) : undefined;
    yield* this.#compareSome(this.#model.identities(), 'identity', ({ identity, labels }) => {
      for (const label of labels) {
        const match = wanted === undefined ? labelMatch(label, name) : wanted([label]) ? 'exact' : undefined;
        if (match === undefined) continue;
        this.#add('label', labelText(label), match);
        this.#add('identity', String(identity), 'related');
      }
    });
  }

  /** Returns the groups, the one with the best result first. */
  groups(): readonly SearchGroupDocument[] {
    const groups: SearchGroupDocument[] = [];
    for (const kind of SEARCH_KINDS) {
      const best = this.#best.get(kind);
      if (best === undefined) continue;
      const items = best.results.map(({ key, match }) => ({ kind, key, match, ...this.#text(kind, key) }));
      groups.push({ kind, total: best.total, items });
    }
    const rankOf = ({ items: [first] }: SearchGroupDocument): number =>
      first === undefined ? SEARCH_MATCHES.length : rank(first);
    return groups.sort((a, b) => rankOf(a) - rankOf(b));
  }

  #text(kind: SearchKind, key: string): Pick<SearchResultDocument, 'title' | 'detail'> {
    switch (kind) {
      case 'prefix':
        return { title: key, detail: this.#prefixText(key) };
      case 'pod':
        return { title: key, detail: this.#podText(key) };
      case 'service':
        return { title: key, detail: serviceText(this.#model.services.get(parseServiceKey(key))) };
      case 'node':
        return { title: key, detail: this.#nodeText(key) };
      case 'identity':
        return { title: key, detail: this.#identityText(Number(key)) };
      case 'label':
        return { title: key, detail: 'label of identities' };
      case 'namespace':
        return { title: key, detail: 'namespace' };
      case 'cluster':
        return { title: key, detail: this.#clusterText(key) };
    }
  }

  #nameOf(identity: number): string {
    const name = reservedIdentityName(identity) ?? labelName(this.#model.labelsOf(identity) ?? []);
    return name === undefined ? `identity ${identity}` : `identity ${identity} (${name})`;
  }

  #prefixText(key: string): string {
    const entry = this.#model.ipcache.lookupByPrefix(key);
    return entry === undefined ? 'removed' : this.#entryParts(entry).join(', ');
  }

  #entryParts({ identity, hostIP, k8s, source, owner }: KeyedEntry): readonly string[] {
    return [
      ...(k8s?.podName ? [`pod ${k8s.namespace}/${k8s.podName}`] : []),
      this.#nameOf(identity),
      ...(hostIP === undefined ? [] : [`on ${hostIP}`]),
      owner === '' ? `by ${source}` : `by ${source} (${owner})`,
    ];
  }

  #podText(key: string): string {
    const { namespace, name } = parseServiceKey(key);
    const { ipcache } = this.#model;
    const entries = ipcache.lookupByPod(namespace, name).flatMap((at) => ipcache.get(at) ?? []);
    const [first] = entries;
    if (first === undefined) return 'removed';
    return [...entries.map(({ key: at }) => at), ...this.#entryParts(first).slice(1)].join(', ');
  }

  #nodeText(key: string): string {
    const node = this.#model.nodes.get(key);
    return node?.fields.addresses.map(({ ip }) => ip).join(', ') ?? 'removed';
  }

  #identityText(identity: number): string {
    const labels: Labels = this.#model.labelsOf(identity) ?? [];
    const name = reservedIdentityName(identity) ?? labelName(labels);
    const cluster = this.#model.clusterOf(identity);
    const prefixes = counted(this.#model.ipcache.countByIdentity(identity), 'prefix', 'prefixes');
    return [...(name === undefined ? [] : [name]), ...(cluster === '' ? [] : [cluster]), prefixes].join(', ');
  }

  #clusterText(name: string): string {
    const cluster = this.#model.status().clusters.find((other) => other.name === name);
    if (cluster === undefined) return 'removed';
    const keys = Object.values(cluster.keys).reduce((sum, count) => sum + count, 0);
    return `${cluster.state}, ${counted(keys, 'key')}`;
  }
}

function labelMatch({ key, value }: Label, text: string): SearchMatch | undefined {
  const match = matchOf(value, text) ?? matchOf(key, text);
  return match === 'exact' ? 'start' : match;
}

function serviceText(announced: AnnouncedService | undefined): string {
  if (announced === undefined) return 'removed';
  const { service, endpoints } = announced;
  const backends = counted(endpoints.backends.size, 'backend');
  return [...service.clusterIPs, backends, ...(service.global ? ['global'] : [])].join(', ');
}

/**
 * Searches all objects for a text: an IP, a CIDR or the start of an IPv4 address, the number or a label of an identity,
 * and a part of the name of a cluster, namespace, service, node or pod, in any case of letters. Exact keys, except
 * labels and namespaces, are always found. Names are compared up to {@link MAX_COMPARED}. `limit` is the maximum number
 * of results of each kind. `run` runs the steps of the search; each takes less than a millisecond.
 */
export async function search(
  model: SearchModel,
  run: (steps: Iterable<unknown>) => Promise<unknown>,
  query: string,
  limit: number,
): Promise<SearchDocument> {
  const comparison = new Search(model, query, limit);
  await run(comparison.steps());
  return { query, truncated: comparison.truncated, groups: comparison.groups() };
}
