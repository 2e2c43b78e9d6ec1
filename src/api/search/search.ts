import { ascending } from '../../base/sorted-map.ts';
import { forEachInSteps } from '../../base/turn-gate.ts';
import { type Label, labelText, parseLabelQuery } from '../../model/labels.ts';
import { isNumericIdentity } from '../../model/numeric-identity.ts';
import { Prefix, prefixOfKey } from '../../net/prefix.ts';
import { parseServiceKey } from '../../servicecache/service-id.ts';
import { type AddressRoleDocument, addressRoles } from '../address-roles.ts';
import { DETAILS, type SearchModel } from './result-detail.ts';
import {
  SEARCH_KINDS,
  SEARCH_MATCHES,
  type SearchDocument,
  type SearchGroupDocument,
  type SearchKind,
  type SearchMatch,
  type SearchResultDocument,
} from './search-document.ts';

/** Maximum number of items of a kind that one search compares. They take about 20 ms (pods) and 6 ms (identities). */
export const MAX_COMPARED = {
  namespace: 50_000,
  service: 50_000,
  node: 50_000,
  pod: 60_000,
  identity: 4_000,
} as const;

/** Number of items compared in one step: less than a millisecond. An identity has about ten labels. */
const NAMES_PER_STEP = 2_048;
const IDENTITIES_PER_STEP = 256;

/** Largest octet of an IPv4 address. */
const MAX_OCTET = 255;

/** An incomplete IPv4 address: `10.`, `10.0.1`. */
const PARTIAL_ADDRESS = /^\d{1,3}(\.\d{1,3}){0,2}\.\d{0,3}$/;

/** An IP with a port or in brackets, as in logs and URLs: `10.0.0.1:80`, `[fd00::1]:80`. */
const IP_WITH_PORT = /^(?:\[([\da-f:.]+)\](?::\d+)?|(\d+(?:\.\d+){3}):\d+)$/i;

/** The DNS name of a service: `checkout.shop.svc`, `checkout.shop.svc.cluster.local:80`. */
const SERVICE_DNS_NAME = /^([^./]+)\.([^./]+)\.svc(?:[.:].*)?$/i;

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

/** A key that matches. The title and the detail are formatted only for shown results. */
interface FoundKey {
  readonly key: string;
  readonly match: SearchMatch;
}

function compareFound(a: FoundKey, b: FoundKey): number {
  return rank(a) - rank(b) || a.key.length - b.key.length || ascending(a.key, b.key);
}

/** Kinds whose keys a search may find many times, such as a label of many identities. */
const REPEATED_KINDS: ReadonlySet<SearchKind> = new Set<SearchKind>([
  'identity',
  'label',
  'namespace',
  'prefix',
]);

/** The best results of one kind, and the number of all results. Each key counts once. */
class BestOf {
  readonly #limit: number;
  readonly #isRepeated: boolean;
  /** Best first; at most the limit. */
  readonly #best: FoundKey[] = [];
  /**
   * All found keys of a repeated kind. Of another kind, only those in `#best`: only exact keys are found twice, and
   * they sort first.
   */
  readonly #keys = new Set<string>();
  total = 0;

  constructor(kind: SearchKind, limit: number) {
    this.#isRepeated = REPEATED_KINDS.has(kind);
    this.#limit = limit;
  }

  add(key: string, match: SearchMatch): void {
    if (this.#keys.has(key)) return;
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
  /** The query in lower case, as all names are. */
  readonly #lower: string;
  readonly #limit: number;
  readonly #best = new Map<SearchKind, BestOf>();
  truncated = false;

  constructor(model: SearchModel, query: string, limit: number) {
    this.#model = model;
    this.#query = query;
    this.#lower = query.toLowerCase();
    this.#limit = limit;
  }

  /** Compares the query with the keys that it may name, and then with all names, in steps. */
  *steps(): Generator<void, void, void> {
    this.#addNamed();
    yield;
    // A query with `=` matches only labels. An address matches neither labels nor names of pods.
    const isLabel = this.#query.includes('=');
    const prefix = Prefix.parseAnnotated(this.#query);
    const isAddress = PARTIAL_ADDRESS.test(this.#query) || prefix !== undefined;
    if (prefix !== undefined && !this.#query.includes('/')) yield* this.#addRoles();
    if (!isLabel) yield* this.#compareNames();
    if (!isLabel && !isAddress) yield* this.#comparePods();
    if (!isAddress) yield* this.#compareLabels();
  }

  /** Adds a result, unless its match is undefined. */
  #add(kind: SearchKind, key: string, match: SearchMatch | undefined): void {
    if (match === undefined) return;
    const best = this.#best.get(kind) ?? new BestOf(kind, this.#limit);
    this.#best.set(kind, best);
    best.add(key, match);
  }

  /** Calls `compare` for at most {@link MAX_COMPARED} items of a kind, in steps. */
  *#compareSome<T>(
    items: Iterable<T>,
    kind: keyof typeof MAX_COMPARED,
    compare: (item: T) => void,
  ): Generator<void, void, void> {
    const perStep = kind === 'identity' ? IDENTITIES_PER_STEP : NAMES_PER_STEP;
    let compared = 0;
    for (const item of items) {
      if (compared === MAX_COMPARED[kind]) {
        this.truncated = true;
        return;
      }
      compare(item);
      if (++compared % perStep === 0) yield;
    }
  }

  /** Adds the service, node, identity or prefixes that the query names, and the entry of an address. */
  #addNamed(): void {
    const { ipcache, services, nodes, labelsOf } = this.#model;
    const name = this.#lower;
    const serviceKey = name.replace(SERVICE_DNS_NAME, '$2/$1');
    if (serviceKey.includes('/') && services.get(parseServiceKey(serviceKey)))
      this.#add('service', serviceKey, 'exact');
    if (nodes.get(name)) this.#add('node', name, 'exact');
    const prefix = Prefix.parseAnnotated(this.#query);
    if (prefix === undefined) this.#addPartialAddress();
    else if (this.#query.includes('/')) this.#addCIDR(prefix.toString());
    else this.#addAddress(prefix.toString());
    if (!/^\d{1,10}$/.test(this.#query)) return;
    const identity = Number(this.#query);
    if (!isNumericIdentity(identity)) return;
    const isKnown = labelsOf(identity) !== undefined || ipcache.countByIdentity(identity) > 0;
    if (isKnown) this.#add('identity', String(identity), 'exact');
  }

  #addCIDR(cidr: string): void {
    if (this.#model.ipcache.lookupByPrefix(cidr) !== undefined) this.#add('prefix', cidr, 'exact');
    this.#addWithin(cidr, 'part');
  }

  /** Adds the prefix and the pod of the address in the query. `fullLength`: its full-length CIDR. */
  #addAddress(fullLength: string): void {
    const entry = this.#model.ipcache.lookup(this.#query);
    if (entry !== undefined) {
      const prefix = prefixOfKey(entry.key);
      this.#add('prefix', prefix, prefix === fullLength ? 'exact' : 'related');
      const { k8s } = entry;
      if (k8s?.podName) this.#add('pod', `${k8s.namespace}/${k8s.podName}`, 'related');
    }
  }

  /** Adds the services and nodes of the address in the query, in steps. */
  *#addRoles(): Generator<void, void, void> {
    const roles: AddressRoleDocument[] = [];
    yield* addressRoles(this.#model, this.#query, roles);
    for (const { kind, name, as } of roles) this.#add(kind, name, as === 'pod-cidr' ? 'related' : 'exact');
  }

  /** Adds the prefixes whose text starts with the query, if it is an incomplete IPv4 address. */
  #addPartialAddress(): void {
    if (!PARTIAL_ADDRESS.test(this.#query)) return;
    const octets = this.#query.split('.');
    const last = octets.pop() ?? '';
    const complete = octets.map(Number);
    if (complete.some((octet) => octet > MAX_OCTET)) return;
    const cidrOf = (parts: readonly number[]): string =>
      `${[...parts, 0, 0, 0, 0].slice(0, 4).join('.')}/${parts.length * 8}`;
    if (last === '') {
      this.#addWithin(cidrOf(complete), 'start');
      return;
    }
    // An incomplete octet stands for several: `1` for 1, 10 to 19 and 100 to 199.
    for (let octet = 0; octet <= MAX_OCTET; octet++)
      if (String(octet).startsWith(last)) this.#addWithin(cidrOf([...complete, octet]), 'start');
  }

  /** Adds prefixes in a CIDR: one more than the limit, so that `total` shows that there are more. */
  #addWithin(cidr: string, match: SearchMatch): void {
    for (const { key } of this.#model.ipcache.within(cidr, this.#limit + 1))
      this.#add('prefix', prefixOfKey(key), match);
  }

  /** Compares the names of clusters, namespaces, services and nodes. */
  *#compareNames(): Generator<void, void, void> {
    const { services, nodes, ipcache } = this.#model;
    const name = this.#lower;
    for (const cluster of this.#model.clusterNames()) this.#add('cluster', cluster, matchOf(cluster, name));
    for (const _ of ipcache.podsOf(name, 1)) this.#add('namespace', name, 'exact');
    yield* this.#compareSome(ipcache.namespaces(), 'namespace', (namespace) =>
      this.#add('namespace', namespace, matchOf(namespace, name)),
    );
    yield* this.#compareSome(services.entries(), 'service', ([key, { service }]) => {
      this.#add('service', key, matchOf(service.id.name, name) ?? matchOf(key, name));
      this.#add('namespace', service.id.namespace, matchOf(service.id.namespace, name));
    });
    yield* this.#compareSome(nodes.nodes(), 'node', (node) =>
      this.#add('node', node.fullName, matchOf(node.name, name) ?? matchOf(node.fullName, name)),
    );
  }

  /** Compares the names of pods. A query with a slash is a namespace and a name. */
  *#comparePods(): Generator<void, void, void> {
    const { ipcache } = this.#model;
    const [first = '', ...others] = this.#lower.split('/');
    const namespaces = (): Iterable<string> => (others.length === 0 ? ipcache.namespaces() : [first]);
    const wanted = others.length === 0 ? first : others.join('/');
    yield* forEachInSteps(namespaces(), NAMES_PER_STEP, (namespace) => {
      if (wanted !== '' && ipcache.lookupByPod(namespace, wanted).length > 0)
        this.#add('pod', `${namespace}/${wanted}`, 'exact');
    });
    const pods = function* (): Generator<readonly [namespace: string, pod: string], void, void> {
      // Twice the maximum, so that `truncated` is set even if some of the pods are deleted during the search.
      for (const namespace of namespaces())
        for (const pod of ipcache.podsOf(namespace, 2 * MAX_COMPARED.pod)) yield [namespace, pod];
    };
    yield* this.#compareSome(pods(), 'pod', ([namespace, pod]) => {
      const isAdded = pod === wanted; // above
      const match = isAdded || pod === '' ? undefined : matchOf(pod, wanted);
      if (match !== undefined) this.#add('pod', `${namespace}/${pod}`, match);
    });
  }

  /** Compares the labels of identities. `key=value` is exact; other texts are searched in keys and values. */
  *#compareLabels(): Generator<void, void, void> {
    const isWanted = this.#query.includes('=') ? parseLabelQuery(this.#query) : undefined;
    const matchLabel = (label: Label): SearchMatch | undefined => {
      if (isWanted === undefined) return partialLabelMatch(label, this.#lower);
      return isWanted([label]) ? 'exact' : undefined;
    };
    yield* this.#compareSome(this.#model.identities(), 'identity', ({ identity, labels }) => {
      for (const label of labels) {
        const match = matchLabel(label);
        if (match === undefined) continue;
        this.#add('label', labelText(label), match);
        this.#add('identity', String(identity), 'related');
      }
    });
  }

  /** Returns the groups, the one with the best result first. */
  groups(): readonly SearchGroupDocument[] {
    const groups = SEARCH_MATCHES.map((): SearchGroupDocument[] => []);
    for (const kind of SEARCH_KINDS) {
      const { total, results } = this.#best.get(kind) ?? { total: 0, results: [] };
      const [best] = results;
      if (best === undefined) continue;
      const items = results.map(({ key, match }) => {
        const detail = DETAILS[kind](this.#model, key);
        return { kind, key, match, title: key, detail };
      });
      groups[rank(best)]?.push({ kind, total, items });
    }
    return groups.flat();
  }
}

/** Returns how the key or the value of a label matches a text: never `exact`, because a label has both. */
function partialLabelMatch({ key, value }: Label, text: string): SearchMatch | undefined {
  const match = matchOf(value, text) ?? matchOf(key, text);
  return match === 'exact' ? 'start' : match;
}

/**
 * Searches all objects for a text: an IP, also with a port, a CIDR or the start of an IPv4 address, the number or a
 * label of an identity, the DNS name of a service, and a part of the name of a cluster, namespace, service, node or
 * pod, in any case of letters. Exact keys, except labels and namespaces without pods, are always found. Names are
 * compared up to {@link MAX_COMPARED}. `limit` is the maximum number of results of each kind. `run` runs the steps of
 * the search; each takes less than a millisecond.
 */
export async function search(
  model: SearchModel,
  run: (steps: Iterable<unknown>) => Promise<unknown>,
  query: string,
  limit: number,
): Promise<SearchDocument> {
  const started = new Search(model, query.replace(IP_WITH_PORT, '$1$2'), limit);
  await run(started.steps());
  return { query, truncated: started.truncated, groups: started.groups() };
}
