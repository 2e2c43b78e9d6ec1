import { createRoute, z } from '@hono/zod-openapi';
import type { Clock } from '../../base/clock.ts';
import type { ChangedSince } from '../../history/past-reader.ts';
import type { Moment } from '../../history/types.ts';
import type { IPCache } from '../../ipcache/ipcache.ts';
import type { IPCacheSnapshot } from '../../ipcache/snapshot.ts';
import type { KeyedEntry } from '../../ipcache/types.ts';
import type { Labels } from '../../model/labels.ts';
import { SOURCES } from '../../model/source.ts';
import { addressBits } from '../../net/address-words.ts';
import { canonicalEndpoint, Prefix, prefixOfKey } from '../../net/prefix.ts';
import { addressRoles } from '../address-roles.ts';
import type { ApiApp, RouteContext } from '../api-context.ts';
import type { ChangeFeed } from '../change-feed.ts';
import {
  type EntryDocument,
  type ExplanationDocument,
  entryDocument,
  explanationDocument,
} from '../documents.ts';
import {
  historyOf,
  notFoundAt,
  notHeld,
  notListed,
  pastDocument,
  pastExplanation,
  whenParameter,
} from '../history-documents.ts';
import type { PastDocument } from '../past-document.ts';
import { ProblemError } from '../problem.ts';
import type { ReadModel } from '../read-model.ts';
import { ENTRY, EXPLANATION, PAST_FIELD } from '../schemas.ts';
import { answerJSON } from './answer.ts';
import { MOST_SORTED, ORDERS, selectSorted } from './ip-order.ts';
import { type Listing, ListPages } from './list-pages.ts';
import {
  AT,
  addressParameter,
  answers,
  COUNT,
  countItems,
  endpointParameter,
  filterParameter,
  labelParameter,
  listName,
  PAGE_PARAMETERS,
  pageOf,
  prefixParameter,
  readPage,
} from './route-parts.ts';

/** Maximum number of prefixes that changed since the moment of a list. Limits its memory: about 300 bytes each. */
const CHANGED = 200_000;

/** Maximum number of IPs of one lookup request. */
const LOOKED_UP = 10_000;

/** Number of IPs looked up per step: less than a millisecond. */
const ADDRESSES_PER_SLICE = 512;

/** Maximum number of host bits for a lookup of a CIDR. For larger CIDRs, the list is filtered. */
const FEW_HOST_BITS = 12;

/** Maximum `offset`: more prefixes than fit into memory. */
const MOST_OFFSET = 100_000_000;

const FILTER_FIELDS = {
  prefix: filterParameter('Exactly this IP or CIDR'),
  within: filterParameter('Only prefixes in this CIDR'),
  identity: z.coerce
    .number()
    .int()
    .min(0)
    .max(2 ** 32 - 1)
    .optional()
    .describe('Only prefixes with this identity'),
  source: z
    .enum(SOURCES, { error: `must be one of ${SOURCES.join(', ')}` })
    .optional()
    .describe('Only prefixes whose effective claim is from this source'),
  label: filterParameter(
    'Only prefixes whose identity has this label: `app=web`, `k8s:app=web` or `k8s:app`',
  ),
  cluster: filterParameter('Only prefixes whose effective claim is from this remote cluster'),
  pod: filterParameter('Only prefixes of this pod: `namespace/name`'),
  node: filterParameter('Only prefixes on the node with this IP'),
};

const FILTERS = z.strictObject(FILTER_FIELDS);

type Filters = z.output<typeof FILTERS>;

const LIST = createRoute({
  method: 'get',
  path: '/v1/ipcache',
  summary:
    'Returns a page of prefixes with their entries: without `sort` in no particular order, which stays the same while nothing changes',
  request: {
    query: z
      .strictObject({
        ...FILTER_FIELDS,
        at: filterParameter(
          'The prefixes of this moment, each with `past`: RFC 3339, `-10m` or `#SEQUENCE`. The moment must be one of the running process',
        ),
        sort: z
          .enum(ORDERS, { error: `must be one of ${ORDERS.join(', ')}` })
          .optional()
          .openapi({
            description: `Order by a field, \`-\` descending; the list then has the first ${MOST_SORTED} prefixes. Prefixes without the field are the last`,
          }),
        after: filterParameter('Only with `sort=prefix` or `-prefix`: the prefixes that follow this one'),
        offset: z.coerce.number().int().min(0).max(MOST_OFFSET).optional().openapi({
          description:
            'Only without filters and `sort`: one page that begins with this prefix of the list, counted from 0',
        }),
        ...PAGE_PARAMETERS,
      })
      .openapi('IPFilters'),
  },
  responses: answers(
    z.intersection(pageOf(ENTRY), z.object(PAST_FIELD)),
    'A page of prefixes; if `continue` is present, the page may be short or empty',
  ),
});

const COUNT_PREFIXES = createRoute({
  method: 'get',
  path: '/v1/ipcache/count',
  summary: 'Returns the number of prefixes',
  request: { query: FILTERS },
  responses: answers(COUNT, 'The number of prefixes'),
});

const IP_PARAMETER = z.object({ ip: z.string().max(64).openapi({ example: '10.10.0.12' }) });

const CIDR_PARAMETERS = z.object({
  ip: z.string().max(64).openapi({ example: '10.10.0.0' }),
  length: z.string().max(8).openapi({ example: '16' }),
});

const LOOKUP = createRoute({
  method: 'get',
  path: '/v1/ipcache/lookup/{ip}',
  summary: 'Returns the entry of the longest prefix that contains an IP',
  request: { params: IP_PARAMETER, query: AT },
  responses: answers(ENTRY, 'The entry of the prefix'),
});

const EXPLAIN_IP = createRoute({
  method: 'get',
  path: '/v1/ipcache/explain/{ip}',
  summary:
    'Returns the claims on the longest prefix that contains an IP, strongest first, and why the first one is effective',
  request: { params: IP_PARAMETER, query: AT },
  responses: answers(EXPLANATION, 'All claims'),
});

const EXPLAIN_CIDR = createRoute({
  method: 'get',
  path: '/v1/ipcache/explain/{ip}/{length}',
  summary: 'Returns the claims on exactly this CIDR, strongest first, and why the first one is effective',
  request: { params: CIDR_PARAMETERS, query: AT },
  responses: answers(EXPLANATION, 'All claims'),
});

const LOOKUP_MANY = createRoute({
  method: 'post',
  path: '/v1/lookup',
  summary: 'Returns the entries of many IPs',
  request: {
    body: {
      required: true,
      content: {
        'application/json': {
          schema: z.strictObject({
            ips: z
              .array(
                z.union([
                  z.string().max(64),
                  z.strictObject({ address: z.string().max(64), at: z.string().max(64) }),
                ]),
              )
              .max(LOOKED_UP)
              .describe('IPs; with `at`: the entry of that moment'),
          }),
        },
      },
    },
  },
  responses: answers(
    z.object({
      revision: z.int(),
      entries: z.array(ENTRY.nullable()),
      errors: z
        .array(z.object({ index: z.int(), ip: z.string(), detail: z.string() }))
        .describe('Invalid items; their entries are null'),
    }),
    'The entry of each IP, in order; null if the IP is unknown or invalid',
  ),
});

/** Adds the routes of the IPCache. */
export function addIPRoutes(app: ApiApp, { model, feed, clock, instance, gate }: RouteContext): void {
  const { ipcache } = model;
  const pages = new ListPages<EntryDocument>(clock, feed.end);
  const views = new SnapshotViews(model, feed, clock);
  let pastLists = 0;
  // The first call of each scans all entries to build its index. Call them now, because the cache is still empty.
  ipcache.countByIdentity(0);
  ipcache.lookupByPod('', '');
  ipcache.lookupByHost('');
  const pastOf = (key: string, at: string): Promise<Moment | undefined> => {
    const { past } = historyOf(model);
    const when = whenParameter('at', at, clock.wallTime());
    return key.includes('/') ? past.at(key, when) : past.lookup(key, when);
  };
  /** Moments in memory are answered immediately, because a request may have many. */
  const entryOf = (key: string, at: string): PastAnswer => {
    const history = historyOf(model);
    const when = whenParameter('at', at, clock.wallTime());
    const moment = history.lookup(key, when);
    return moment?.reason === 'before-held' ? () => history.past.lookup(key, when) : moment;
  };
  const pastListing = async (at: string, query: Filters): Promise<Listing<EntryDocument>> => {
    const { past: reader } = historyOf(model);
    const filters = parseFilters(query, model);
    const when = whenParameter('at', at, clock.wallTime());
    // Together, so that the changes are those since the snapshot.
    const { snapshot, revision } = views.snapshot(false);
    const changed = await reader.changedSince(when, CHANGED);
    if (changed === 'earlier') throw notListed(reader.held);
    if (changed === 'too-many')
      throw new ProblemError('invalid-parameter', `More than ${CHANGED} prefixes have changed since then.`, {
        field: 'at',
        value: at.slice(0, 120),
      });
    // No two of these lists are shared, because the agent does not compare them.
    const name = listName(instance, `ipcache ${++pastLists}`, snapshot.revision, { limit: 0, ...query });
    const past = pastDocument({ ...changed, effectiveSince: undefined, effectiveUntil: undefined });
    const items = pastEntries(model, { snapshot, changed, filters, past });
    return { name, revision, view: snapshot, past, items };
  };
  app.openapi(LIST, async (c) => {
    const query = c.req.valid('query');
    const { at, sort, after, offset, ...rest } = query;
    checkOrder(query);
    if (offset !== undefined) {
      const { snapshot, revision } = views.snapshot(pages.isFull);
      const items: EntryDocument[] = [];
      await gate.run(query.limit, () => {
        for (const entry of snapshot.entries({ skip: offset })) {
          if (items.push(entryDocument(entry, model)) === query.limit) break;
        }
      });
      return answerJSON(c, { items, revision });
    }
    const page = await readPage(pages, gate, query, async () => {
      if (at !== undefined) return pastListing(at, rest);
      const filters = parseFilters(query, model);
      // The indexes by pod and host show the current cache, so the snapshot must be current, too.
      const isOfNow = filters.pod !== undefined || filters.host !== undefined;
      const view = views.snapshot(pages.isFull && !isOfNow);
      const { snapshot, revision } = view;
      const name = listName(instance, 'ipcache', snapshot.revision, query);
      const list = (items: Iterable<KeyedEntry | undefined>): Listing<EntryDocument> => ({
        ...{ name, revision, view, items: documents(model, items) },
      });
      if (sort === undefined) return list(matching(model, snapshot, filters));
      const sorted: KeyedEntry[] = [];
      const first = after === undefined ? undefined : prefixParameter('after', after);
      await gate.runSteps(selectSorted(matching(model, snapshot, filters), sort, first, sorted));
      return list(sorted);
    });
    return answerJSON(c, page);
  });
  app.openapi(COUNT_PREFIXES, async (c) => {
    const query = c.req.valid('query');
    if (Object.keys(query).length === 0) {
      const { entries, shadowed } = ipcache.status();
      return answerJSON(c, { count: entries - shadowed, revision: feed.revision });
    }
    const { snapshot, revision } = views.snapshot(false);
    const items = matching(model, snapshot, parseFilters(query, model));
    return answerJSON(c, { count: await countItems(gate, items), revision });
  });
  app.openapi(LOOKUP, async (c) => {
    const { ip } = c.req.valid('param');
    const { at } = c.req.valid('query');
    if (at !== undefined)
      return answerJSON(c, pastEntry(model, ip, await pastOf(endpointParameter('ip', ip), at)));
    const entry = ipcache.lookup(endpointParameter('ip', ip));
    if (entry === undefined) throw unknown('ip', ip);
    return answerJSON(c, entryDocument(entry, model));
  });
  app.openapi(EXPLAIN_IP, async (c) => {
    const { ip } = c.req.valid('param');
    const { at } = c.req.valid('query');
    if (at !== undefined)
      return answerJSON(c, pastExplained(model, ip, await pastOf(endpointParameter('ip', ip), at)));
    return answerJSON(c, explainedIP(model, ip, endpointParameter('ip', ip)));
  });
  app.openapi(EXPLAIN_CIDR, async (c) => {
    const { ip, length } = c.req.valid('param');
    const cidr = prefixParameter('ip', `${ip}/${length}`).toString();
    const { at } = c.req.valid('query');
    if (at !== undefined) return answerJSON(c, pastExplained(model, cidr, await pastOf(cidr, at)));
    return answerJSON(c, explained(model, cidr, ipcache.lookupByPrefix(cidr)));
  });
  app.openapi(LOOKUP_MANY, async (c) => {
    const { ips } = c.req.valid('json');
    const revision = feed.revision;
    const entries: (EntryDocument | null)[] = [];
    const errors: LookupError[] = [];
    const view = ips.length > ADDRESSES_PER_SLICE ? ipcache.snapshot() : ipcache;
    const stored: StoredLookup[] = [];
    await gate.runSteps(lookUp(model, view, ips, { entries, errors, stored, entryOf }));
    for (const { index, ip, moment } of stored)
      addPast(model, { index, ip }, await moment(), { entries, errors });
    errors.sort((a, b) => a.index - b.index);
    return c.json({ revision, entries, errors }, 200);
  });
}

/** Returns the moment, if it is held and has claims. */
function heldMoment(asked: string, moment: Moment | undefined): Moment {
  if (moment?.reason === 'before-held') throw notHeld(moment.held);
  if (moment === undefined) throw unknown('ip', asked);
  if (moment.effective === undefined) throw notFoundAt('ip', asked, moment);
  return moment;
}

function pastExplained(model: ReadModel, asked: string, moment: Moment | undefined): ExplanationDocument {
  const document = pastExplanation(heldMoment(asked, moment), model);
  if (document === undefined) throw unknown('ip', asked);
  return document;
}

function pastEntry(model: ReadModel, asked: string, moment: Moment | undefined): EntryDocument {
  const past = heldMoment(asked, moment);
  const { effective } = past;
  if (effective === undefined) throw unknown('ip', asked);
  return { ...entryDocument({ ...effective, shadowed: false }, model), past: pastDocument(past) };
}

/** An item of a lookup request that is not an IP address. */
interface LookupError {
  readonly index: number;
  readonly ip: string;
  readonly detail: string;
}

/** The answer of a lookup of an earlier moment, or a function that reads it from the disk. */
type PastAnswer = Moment | undefined | (() => Promise<Moment | undefined>);

/** An item that is answered from the disk. */
interface StoredLookup {
  readonly index: number;
  readonly ip: string;
  readonly moment: () => Promise<Moment | undefined>;
}

interface LookupAnswers {
  readonly entries: (EntryDocument | null)[];
  readonly errors: LookupError[];
}

/** Calls `answer`. If it throws a problem, adds it to the errors, unless the IP was certainly unknown. */
function inSlot({ index, ip }: Omit<LookupError, 'detail'>, errors: LookupError[], answer: () => void): void {
  try {
    answer();
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    const { status, reason } = error.document;
    if (status !== 404 || reason !== undefined) errors.push({ index, ip, detail: error.document.detail });
  }
}

/** Sets the entry of an earlier moment. */
function addPast(
  model: ReadModel,
  item: Omit<LookupError, 'detail'>,
  moment: Moment | undefined,
  { entries, errors }: LookupAnswers,
): void {
  inSlot(item, errors, () => {
    entries[item.index] = pastEntry(model, item.ip, moment);
  });
}

/** Looks up IPs, {@link ADDRESSES_PER_SLICE} per step. Adds an entry or null for each IP, and an error if it is not an IP. */
function* lookUp(
  model: ReadModel,
  view: Pick<IPCacheSnapshot, 'lookup'>,
  ips: readonly (string | { readonly address: string; readonly at: string })[],
  {
    entries,
    errors,
    stored,
    entryOf,
  }: LookupAnswers & {
    readonly stored: StoredLookup[];
    readonly entryOf: (key: string, at: string) => PastAnswer;
  },
): Generator<void, void, void> {
  for (const [index, item] of ips.entries()) {
    const ip = typeof item === 'string' ? item : item.address;
    const address = canonicalEndpoint(ip);
    if (address === undefined) errors.push({ index, ip, detail: 'not a valid IP address' });
    if (typeof item === 'string') {
      const entry = view.lookup(ip);
      entries.push(entry === undefined ? null : entryDocument(entry, model));
    } else {
      entries.push(null);
      if (address !== undefined)
        inSlot({ index, ip }, errors, () => {
          const moment = entryOf(address, item.at);
          if (typeof moment === 'function') stored.push({ index, ip, moment });
          else addPast(model, { index, ip }, moment, { entries, errors });
        });
    }
    if (entries.length % ADDRESSES_PER_SLICE === 0) yield;
  }
}

/** A snapshot and its revision of the change feed. */
interface SnapshotView {
  readonly snapshot: IPCacheSnapshot;
  readonly revision: number;
}

/** While many snapshots are held, new lists share the last one if it is younger than this. */
const SHARED_MS = 10_000;

/** Takes the snapshots of lists. Lists of the same revision share a snapshot while one of them is held. */
class SnapshotViews {
  readonly #model: ReadModel;
  readonly #feed: ChangeFeed;
  readonly #clock: Clock;
  #last: WeakRef<SnapshotView> | undefined;
  #createdAt = 0;

  constructor(model: ReadModel, feed: ChangeFeed, clock: Clock) {
    this.#model = model;
    this.#feed = feed;
    this.#clock = clock;
  }

  /** Returns a current view; if `many`, it may be up to {@link SHARED_MS} old. */
  snapshot(many: boolean): SnapshotView {
    const { ipcache } = this.#model;
    const { revision } = this.#feed;
    const last = this.#last?.deref();
    const isNow = last?.revision === revision && last.snapshot.revision === ipcache.revision;
    const isShared = many && this.#clock.now() - this.#createdAt < SHARED_MS;
    if (last !== undefined && (isNow || isShared)) return last;
    const view = { snapshot: ipcache.snapshot(), revision };
    this.#last = new WeakRef(view);
    this.#createdAt = this.#clock.now();
    return view;
  }
}

/** Returns the problem of an unknown IP or CIDR. */
function unknown(field: string, value: string): ProblemError {
  return new ProblemError('not-found', `No entry for ${value}.`, { field, value });
}

/** Returns the claims on the prefix of an IP, and its roles. An IP of a service may have no prefix. */
function explainedIP(model: ReadModel, asked: string, ip: string): ExplanationDocument {
  const roles = addressRoles(model, ip);
  const entry = model.ipcache.lookup(ip);
  if (entry === undefined && roles.length > 0)
    return { prefix: Prefix.parse(ip)?.toString() ?? ip, claims: [], roles };
  return { ...explained(model, asked, entry), roles };
}

function explained(model: ReadModel, asked: string, entry: KeyedEntry | undefined): ExplanationDocument {
  const explanation = entry && model.ipcache.explain(entry.key);
  const document = explanation && explanationDocument(explanation, model);
  if (document === undefined) throw unknown('ip', asked);
  const kernel = model.datapath?.kernelEntry(document.prefix);
  return kernel === undefined ? document : { ...document, kernel };
}

/** Parsed filters. */
interface Query {
  readonly exact: Prefix | undefined;
  readonly within: Prefix | undefined;
  readonly identity: number | undefined;
  /** True for identities with the requested label. */
  readonly hasLabel: ((identity: number) => boolean) | undefined;
  readonly pod: readonly [namespace: string, name: string] | undefined;
  readonly host: string | undefined;
  readonly matches: (entry: KeyedEntry) => boolean;
}

function parseFilters(filters: Filters, { labelsOf }: Pick<ReadModel, 'labelsOf'>): Query {
  const { prefix, within, identity, label, source, cluster, pod, node } = filters;
  const hasLabel = label === undefined ? undefined : labelFilter(labelParameter(label), labelsOf);
  const around = within === undefined ? undefined : prefixParameter('within', within);
  const host = node === undefined ? undefined : addressParameter('node', node);
  const named = pod === undefined ? undefined : podParameter(pod);
  return {
    exact: prefix === undefined ? undefined : prefixParameter('prefix', prefix),
    within: around,
    identity,
    hasLabel,
    host,
    pod: named,
    matches: (entry) =>
      (identity === undefined || entry.identity === identity) &&
      (hasLabel === undefined || hasLabel(entry.identity)) &&
      (source === undefined || entry.source === source) &&
      (cluster === undefined || entry.owner === cluster) &&
      (host === undefined || entry.hostIP === host) &&
      (named === undefined || (entry.k8s?.namespace === named[0] && entry.k8s.podName === named[1])) &&
      (around === undefined || contains(around, entry.key)),
  };
}

/** Returns a filter that looks up the labels of an identity once, so that all pages of a list agree. */
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

function contains(around: Prefix, key: string): boolean {
  const prefix = Prefix.parseAnnotated(key);
  return prefix !== undefined && around.contains(prefix);
}

function podParameter(pod: string): readonly [namespace: string, name: string] {
  const [namespace, name, ...rest] = pod.split('/');
  if (namespace !== undefined && name !== undefined && rest.length === 0) return [namespace, name];
  throw new ProblemError('invalid-parameter', 'pod is not namespace/name.', {
    field: 'pod',
    value: pod.slice(0, 120),
    allowed: 'namespace/name',
  });
}

/** Throws `ProblemError` if the parameters of the order or the position contradict others. */
function checkOrder(query: Readonly<Record<string, string | number | undefined>>): void {
  const { at, sort, after, offset, limit: _, ...filters } = query; // `continue` is refused with all of them
  const refuse = (field: string, why: string): never => {
    throw new ProblemError('invalid-parameter', `${field} ${why}.`, {
      field,
      value: String(query[field]).slice(0, 120),
    });
  };
  if (sort !== undefined && at !== undefined) refuse('sort', 'cannot be combined with at');
  if (after !== undefined && sort !== 'prefix' && sort !== '-prefix')
    refuse('after', 'requires sort=prefix or sort=-prefix');
  const isFiltered = Object.values({ at, sort, ...filters }).some((value) => value !== undefined);
  if (offset !== undefined && isFiltered) refuse('offset', 'cannot be combined with filters, sort and at');
}

/** Yields the documents of a list, and `undefined` for each other entry that was read. */
function* documents(
  model: ReadModel,
  entries: Iterable<KeyedEntry | undefined>,
): Generator<EntryDocument | undefined, void, void> {
  for (const entry of entries) yield entry && entryDocument(entry, model);
}

/** A list of an earlier moment. */
interface PastList {
  readonly snapshot: IPCacheSnapshot;
  readonly changed: ChangedSince;
  readonly filters: Query;
  readonly past: PastDocument;
}

/** Yields the entries of an earlier moment that match, and `undefined` for others. */
function* pastEntries(
  model: ReadModel,
  { snapshot, changed, filters: { exact, matches }, past }: PastList,
): Generator<EntryDocument | undefined, void, void> {
  const asked = exact?.toString();
  const isMatch = (entry: KeyedEntry): boolean =>
    (asked === undefined || prefixOfKey(entry.key) === asked) && matches(entry);
  for (const entry of snapshot.entries()) {
    const isSame = !changed.prefixes.has(prefixOfKey(entry.key));
    yield isSame && isMatch(entry) ? { ...entryDocument(entry, model), past } : undefined;
  }
  for (const claim of changed.prefixes.values()) {
    const entry = claim && { ...claim, shadowed: false };
    yield entry !== undefined && isMatch(entry) ? { ...entryDocument(entry, model), past } : undefined;
  }
}

/** Yields the entries of a list, and `undefined` for each other entry that was read. */
function* matching(
  { ipcache }: ReadModel,
  snapshot: IPCacheSnapshot,
  query: Query,
): Generator<KeyedEntry | undefined, void, void> {
  for (const entry of candidates(ipcache, snapshot, query))
    yield entry !== undefined && query.matches(entry) ? entry : undefined;
}

/** Returns the entries to filter, from the most selective index, and `undefined` for other items of the index. */
function candidates(
  ipcache: IPCache,
  snapshot: IPCacheSnapshot,
  query: Query,
): Iterable<KeyedEntry | undefined> {
  const { exact, within, identity, hasLabel, pod, host } = query;
  if (exact !== undefined)
    return [snapshot.lookupByPrefix(exact.toString())].filter((entry) => entry !== undefined);
  if (within !== undefined && addressBits(within.family) - within.length <= FEW_HOST_BITS)
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
