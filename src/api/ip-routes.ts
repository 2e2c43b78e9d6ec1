import { createRoute, z } from '@hono/zod-openapi';
import type { Clock } from '../base/clock.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import type { IPCacheSnapshot } from '../ipcache/snapshot.ts';
import type { KeyedEntry } from '../ipcache/types.ts';
import { addressBits } from '../net/address-words.ts';
import { Prefix } from '../net/prefix.ts';
import { answerJSON } from './answer.ts';
import type { ApiApp, RouteContext } from './api-context.ts';
import type { ChangeFeed } from './change-feed.ts';
import {
  type EntryDocument,
  type ExplanationDocument,
  entryDocument,
  explanationDocument,
} from './documents.ts';
import { ListPages } from './list-pages.ts';
import { ProblemError } from './problem.ts';
import type { ReadModel } from './read-model.ts';
import {
  addressParameter,
  answers,
  filterParameter,
  listName,
  PAGE_PARAMETERS,
  pageOf,
  prefixParameter,
  readPage,
} from './route-parts.ts';
import { ENTRY, EXPLANATION } from './schemas.ts';

/** Most IPs of one look-up. */
const LOOKED_UP = 10_000;

/** So many of them at once, in less than a millisecond. */
const AT_ONCE = 512;

/** CIDRs with fewer host bits than this are looked up, not searched for. */
const FEW_HOST_BITS = 12;

const FILTERS = z
  .strictObject({
    prefix: filterParameter('Exactly this IP or CIDR'),
    within: filterParameter('Only prefixes that lie in this CIDR'),
    identity: z.coerce
      .number()
      .int()
      .min(0)
      .max(2 ** 32 - 1)
      .optional()
      .openapi({ description: 'Only prefixes with this identity' }),
    source: filterParameter('Only prefixes whose effective claim is of this source'),
    cluster: filterParameter('Only prefixes whose effective claim is of this remote cluster'),
    pod: filterParameter('Only prefixes of this pod: `namespace/name`'),
    node: filterParameter('Only prefixes behind this host, by its IP'),
    ...PAGE_PARAMETERS,
  })
  .openapi('IPFilters');

type Filters = Omit<z.output<typeof FILTERS>, 'limit' | 'continue'>;

const LIST = createRoute({
  method: 'get',
  path: '/v1/ipcache',
  summary: 'Prefixes and what stands behind them, a page at a time, in no order that is promised',
  request: { query: FILTERS },
  responses: answers(
    pageOf(ENTRY),
    'A page of prefixes: it may be short, also empty, while there is a `continue`',
  ),
});

const IP_PARAMETER = z.object({ ip: z.string().max(64).openapi({ example: '10.10.0.12' }) });

const CIDR_PARAMETERS = z.object({
  ip: z.string().max(64).openapi({ example: '10.10.0.0' }),
  length: z.string().max(3).openapi({ example: '16' }),
});

const LOOKUP = createRoute({
  method: 'get',
  path: '/v1/ipcache/lookup/{ip}',
  summary: 'What an IP belongs to: the longest prefix that contains it',
  request: { params: IP_PARAMETER },
  responses: answers(ENTRY, 'What stands behind the longest prefix'),
});

const EXPLAIN_IP = createRoute({
  method: 'get',
  path: '/v1/ipcache/explain/{ip}',
  summary: 'Who claims the prefix that an IP belongs to, strongest first, and why the first one won',
  request: { params: IP_PARAMETER },
  responses: answers(EXPLANATION, 'Every claim'),
});

const EXPLAIN_CIDR = createRoute({
  method: 'get',
  path: '/v1/ipcache/explain/{ip}/{length}',
  summary: 'Who claims exactly this CIDR, strongest first, and why the first one won',
  request: { params: CIDR_PARAMETERS },
  responses: answers(EXPLANATION, 'Every claim'),
});

const LOOKUP_MANY = createRoute({
  method: 'post',
  path: '/v1/lookup',
  summary: 'What many IPs belong to, in one request',
  request: {
    body: {
      required: true,
      content: {
        'application/json': {
          schema: z.strictObject({ ips: z.array(z.string().max(64)).max(LOOKED_UP) }),
        },
      },
    },
  },
  responses: answers(
    z.object({ revision: z.int(), entries: z.array(ENTRY.nullable()) }),
    'For each IP in order what it belongs to, or null: nothing is known of it, or it is no IP',
  ),
});

/** Adds what is asked of the IPCache. */
export function addIPRoutes(app: ApiApp, { model, feed, clock, instance, gate }: RouteContext): void {
  const { ipcache } = model;
  const pages = new ListPages<EntryDocument>(clock, feed.end);
  const views = new SnapshotViews(model, feed, clock);
  // Indices and lists are kept from the first call on, which walks all entries: there are none yet.
  ipcache.countByIdentity(0);
  ipcache.lookupByPod('', '');
  ipcache.lookupByHost('');
  app.openapi(LIST, async (c) => {
    const query = c.req.valid('query');
    const page = await readPage(pages, gate, query, () => {
      const filters = parseFilters(query);
      // Indices are of now, and so must be what is read by them.
      const isOfNow = filters.pod !== undefined || filters.host !== undefined;
      const view = views.take(pages.isFull && !isOfNow);
      const { snapshot, revision } = view;
      const name = listName(instance, 'ipcache', snapshot.revision, query);
      return { name, revision, view, items: listing(model, snapshot, filters) };
    });
    return answerJSON(c, page);
  });
  app.openapi(LOOKUP, (c) => {
    const { ip } = c.req.valid('param');
    const entry = ipcache.lookup(addressParameter('ip', ip));
    if (entry === undefined) throw unknown('ip', ip);
    return answerJSON(c, entryDocument(entry, model));
  });
  app.openapi(EXPLAIN_IP, (c) => {
    const { ip } = c.req.valid('param');
    return answerJSON(c, explained(model, ip, ipcache.lookup(addressParameter('ip', ip))));
  });
  app.openapi(EXPLAIN_CIDR, (c) => {
    const { ip, length } = c.req.valid('param');
    const cidr = prefixParameter('ip', `${ip}/${length}`).toString();
    return answerJSON(c, explained(model, cidr, ipcache.lookupByPrefix(cidr)));
  });
  app.openapi(LOOKUP_MANY, async (c) => {
    const { ips } = c.req.valid('json');
    const revision = feed.revision;
    const entries: (EntryDocument | null)[] = [];
    await gate.runSteps(lookUp(model, ips.length > AT_ONCE ? ipcache.snapshot() : ipcache, ips, entries));
    return c.json({ revision, entries }, 200);
  });
}

/** Looks up IPs, some of them a step. */
function* lookUp(
  model: ReadModel,
  view: Pick<IPCacheSnapshot, 'lookup'>,
  ips: readonly string[],
  entries: (EntryDocument | null)[],
): Generator<void, void, void> {
  for (const ip of ips) {
    const entry = view.lookup(ip);
    entries.push(entry === undefined ? null : entryDocument(entry, model));
    if (entries.length % AT_ONCE === 0) yield;
  }
}

/** A snapshot, and the revision of the change feed that it shows. */
interface SnapshotView {
  readonly snapshot: IPCacheSnapshot;
  readonly revision: number;
}

/** While many snapshots are held a younger one than this is shared by all that ask. */
const SHARED_MS = 10_000;

/** What lists of the IPCache are made of. Those of one revision share a snapshot as long as one of them is held. */
class SnapshotViews {
  readonly #model: ReadModel;
  readonly #feed: ChangeFeed;
  readonly #clock: Clock;
  #last: WeakRef<SnapshotView> | undefined;
  #takenAt = 0;

  constructor(model: ReadModel, feed: ChangeFeed, clock: Clock) {
    this.#model = model;
    this.#feed = feed;
    this.#clock = clock;
  }

  /** What there is now; while there are many views what there was some seconds ago. */
  take(many: boolean): SnapshotView {
    const { ipcache } = this.#model;
    const { revision } = this.#feed;
    const last = this.#last?.deref();
    const isNow = last?.revision === revision && last.snapshot.revision === ipcache.revision;
    const isShared = many && this.#clock.now() - this.#takenAt < SHARED_MS;
    if (last !== undefined && (isNow || isShared)) return last;
    const view = { snapshot: ipcache.snapshot(), revision };
    this.#last = new WeakRef(view);
    this.#takenAt = this.#clock.now();
    return view;
  }
}

/** The problem of an IP or CIDR of which nothing is known. */
function unknown(field: string, value: string): ProblemError {
  return new ProblemError('not-found', `Nothing is known of ${value}.`, { field, value });
}

function explained(model: ReadModel, asked: string, entry: KeyedEntry | undefined): ExplanationDocument {
  const explanation = entry && model.ipcache.explain(entry.key);
  const document = explanation && explanationDocument(explanation, model);
  if (document === undefined) throw unknown('ip', asked);
  return document;
}

/** The filters, parsed. */
interface Query {
  readonly exact: Prefix | undefined;
  readonly within: Prefix | undefined;
  readonly identity: number | undefined;
  readonly pod: readonly [namespace: string, name: string] | undefined;
  readonly host: string | undefined;
  readonly matches: (entry: KeyedEntry) => boolean;
}

function parseFilters({ prefix, within, identity, source, cluster, pod, node }: Filters): Query {
  const around = within === undefined ? undefined : prefixParameter('within', within);
  const host = node === undefined ? undefined : addressParameter('node', node);
  const named = pod === undefined ? undefined : podParameter(pod);
  return {
    exact: prefix === undefined ? undefined : prefixParameter('prefix', prefix),
    within: around,
    identity,
    pod: named,
    host,
    matches: (entry) =>
      (identity === undefined || entry.identity === identity) &&
      (source === undefined || entry.source === source) &&
      (cluster === undefined || entry.owner === cluster) &&
      (host === undefined || entry.hostIP === host) &&
      (named === undefined || (entry.k8s?.namespace === named[0] && entry.k8s.podName === named[1])) &&
      (around === undefined || contains(around, entry.key)),
  };
}

function contains(around: Prefix, key: string): boolean {
  const prefix = Prefix.parse(key);
  return prefix !== undefined && around.contains(prefix);
}

function podParameter(pod: string): readonly [namespace: string, name: string] {
  const [namespace, name, ...rest] = pod.split('/');
  if (namespace !== undefined && name !== undefined && rest.length === 0) return [namespace, name];
  throw new ProblemError('invalid-parameter', 'pod is not a namespace and a name.', {
    field: 'pod',
    value: pod.slice(0, 120),
    allowed: 'namespace/name',
  });
}

/** Documents of what is in the list; `undefined` for what was looked at in vain. */
function* listing(
  model: ReadModel,
  snapshot: IPCacheSnapshot,
  query: Query,
): Generator<EntryDocument | undefined, void, void> {
  for (const entry of candidates(model.ipcache, snapshot, query))
    yield query.matches(entry) ? entryDocument(entry, model) : undefined;
}

/** By the index that leaves the fewest to look at. */
function candidates(ipcache: IPCache, snapshot: IPCacheSnapshot, query: Query): Iterable<KeyedEntry> {
  const { exact, within, identity, pod, host } = query;
  if (exact !== undefined)
    return [snapshot.lookupByPrefix(exact.toString())].filter((entry) => entry !== undefined);
  if (within !== undefined && addressBits(within.family) - within.length <= FEW_HOST_BITS)
    return snapshot.within(within.toString());
  if (pod !== undefined) return visible(snapshot, ipcache.lookupByPod(...pod));
  if (identity !== undefined) return visible(snapshot, snapshot.lookupByIdentity(identity));
  if (host !== undefined) return visible(snapshot, ipcache.lookupByHost(host));
  return snapshot.entries();
}

function* visible(snapshot: IPCacheSnapshot, keys: Iterable<string>): Generator<KeyedEntry, void, void> {
  for (const key of keys) {
    const entry = snapshot.get(key);
    if (entry?.shadowed === false) yield entry;
  }
}
