import { createRoute, z } from '@hono/zod-openapi';
import type { IPCacheSnapshot } from '../ipcache/snapshot.ts';
import type { KeyedEntry } from '../ipcache/types.ts';
import { addressBits } from '../net/address-words.ts';
import { Prefix } from '../net/prefix.ts';
import { answerJSON } from './answer.ts';
import type { ApiApp, ApiContext } from './api-context.ts';
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
  PAGE_PARAMETERS,
  pageOf,
  prefixParameter,
  readPage,
} from './route-parts.ts';
import { ENTRY, EXPLANATION } from './schemas.ts';

/** Most IPs of one look-up. */
const LOOKED_UP = 10_000;

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
export function addIPRoutes(app: ApiApp, { model, feed, clock }: ApiContext): void {
  const { ipcache } = model;
  const pages = new ListPages<EntryDocument>(clock, feed.end);
  app.openapi(LIST, (c) => {
    const query = c.req.valid('query');
    const page = readPage(pages, query, () => ({
      revision: feed.revision,
      items: listing(model, ipcache.snapshot(), parseFilters(query)),
    }));
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
  app.openapi(LOOKUP_MANY, (c) => {
    const entries = c.req.valid('json').ips.map((ip) => {
      const entry = ipcache.lookup(ip);
      return entry === undefined ? null : entryDocument(entry, model);
    });
    return c.json({ revision: feed.revision, entries }, 200);
  });
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
  readonly matches: (entry: KeyedEntry) => boolean;
}

function parseFilters({ prefix, within, identity, source, cluster, pod, node }: Filters): Query {
  const around = within === undefined ? undefined : prefixParameter('within', within);
  const host = node === undefined ? undefined : addressParameter('node', node);
  const [namespace, podName] = pod === undefined ? [] : podParameter(pod);
  return {
    exact: prefix === undefined ? undefined : prefixParameter('prefix', prefix),
    within: around,
    identity,
    matches: (entry) =>
      (identity === undefined || entry.identity === identity) &&
      (source === undefined || entry.source === source) &&
      (cluster === undefined || entry.owner === cluster) &&
      (host === undefined || entry.hostIP === host) &&
      (podName === undefined || (entry.k8s?.podName === podName && entry.k8s.namespace === namespace)) &&
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
  for (const entry of candidates(snapshot, query))
    yield query.matches(entry) ? entryDocument(entry, model) : undefined;
}

/** By the index that leaves the fewest to look at. */
function* candidates(
  snapshot: IPCacheSnapshot,
  { exact, within, identity }: Query,
): Generator<KeyedEntry, void, void> {
  if (exact !== undefined) {
    const entry = snapshot.lookupByPrefix(exact.toString());
    if (entry !== undefined) yield entry;
  } else if (within !== undefined && addressBits(within.family) - within.length <= FEW_HOST_BITS) {
    yield* snapshot.within(within.toString());
  } else if (identity !== undefined) {
    for (const key of snapshot.lookupByIdentity(identity)) {
      const entry = snapshot.get(key);
      if (entry?.shadowed === false) yield entry;
    }
  } else {
    yield* snapshot.entries();
  }
}
