import { createRoute, z } from '@hono/zod-openapi';
import { resultOfSteps } from '../../base/turn-gate.ts';
import type { PastFields } from '../../history/document-change.ts';
import type { DocumentMoment } from '../../history/types.ts';
import type { ClusterIdentity } from '../../model/identity-cache.ts';
import { isNumericIdentity } from '../../model/numeric-identity.ts';
import type { Node } from '../../nodemanager/node.ts';
import type { AnnouncedService } from '../../servicecache/announcement.ts';
import { formatServiceID } from '../../servicecache/service-id.ts';
import type { ApiApp, RouteContext } from '../api-context.ts';
import {
  type ExplainedServiceDocument,
  type IdentityDocument,
  identityDocument,
  type NodeDocument,
  nodeDocument,
  nodeExplanationDocument,
  type ServiceDocument,
} from '../documents.ts';
import { historyOf, pastNode, pastService, whenParameter } from '../history-documents.ts';
import { ProblemError } from '../problem.ts';
import { EXPLAINED_NODE, EXPLAINED_SERVICE, IDENTITY, NODE, SERVICE } from '../schemas/engine-schemas.ts';
import { answerJSON, answerPieces } from './answer.ts';
import { IdentityView } from './identity-view.ts';
import { type ListPage, ListPages, pageJSON } from './list-pages.ts';
import {
  AT,
  answers,
  COUNT,
  countItems,
  filterParameter,
  integerParameter,
  labelParameter,
  listName,
  NAME,
  PAGE_PARAMETERS,
  pageOf,
  readPage,
  unknownNameProblem,
} from './route-parts.ts';
import { explainedServiceJSON, pastServiceJSON, serviceDocumentSteps, serviceJSON } from './service-json.ts';
import { SortedView } from './sorted-view.ts';

const SERVICE_FILTERS = {
  namespace: filterParameter('Only services of this namespace'),
  cluster: filterParameter('Only services with a backend in this remote cluster'),
  served: z.enum(['nowhere', 'one-cluster']).optional().openapi({
    description:
      '`nowhere`: only services without backends; `one-cluster`: only global ones that a single cluster serves',
  }),
};

const NODE_FILTERS = { cluster: filterParameter('Only nodes of this cluster') };

const IDENTITY_FILTERS = {
  cluster: filterParameter('Only identities of this cluster'),
  label: filterParameter('Only identities with this label: `app=web`, `k8s:app=web` or `k8s:app`'),
};

const GET_SERVICE = createRoute({
  method: 'get',
  path: '/v1/services/{namespace}/{name}',
  summary: 'Returns a service, its effective backends, and all offered backends',
  request: { params: z.object({ namespace: NAME, name: NAME }), query: AT },
  responses: answers(EXPLAINED_SERVICE, 'The service'),
});

const GET_NODE = createRoute({
  method: 'get',
  path: '/v1/nodes/{cluster}/{name}',
  summary: 'Returns a node and the claims of each source',
  request: { params: z.object({ cluster: NAME, name: NAME }), query: AT },
  responses: answers(EXPLAINED_NODE, 'The node'),
});

const GET_IDENTITY = createRoute({
  method: 'get',
  path: '/v1/identities/{identity}',
  summary: 'Returns the labels of an identity and the number of its prefixes',
  request: { params: z.object({ identity: integerParameter(2 ** 32 - 1) }) },
  responses: answers(IDENTITY, 'The identity'),
});

/** Adds the routes of services, nodes and identities. */
export function addEngineRoutes(app: ApiApp, context: RouteContext): void {
  addServiceRoutes(app, context);
  addNodeRoutes(app, context);
  addIdentityRoutes(app, context);
}

function addServiceRoutes(app: ApiApp, context: RouteContext): void {
  const { model, feed, gate } = context;
  const { services } = model;
  const sorted = new SortedView<AnnouncedService>(gate);

  addList<AnnouncedService, ServiceDocument>(app, context, {
    plural: 'services',
    contents: 'services with their backends, sorted by namespace and name',
    schema: SERVICE,
    filters: SERVICE_FILTERS,
    filterOf: serviceFilter,
    jsonOf: (announced) => serviceJSON(announced, model),
    weightOf: ({ endpoints }) => 1 + endpoints.backends.size,
    items: () => values(services.entries()),
    read: async () => {
      const version = feed.lastOf('service');
      const view = await sorted.of(version, () => services.entries());
      return { version, view, items: values(view) };
    },
  });
  app.openapi(GET_SERVICE, async (c) => {
    const id = c.req.valid('param');
    const name = formatServiceID(id);
    const announced = services.get(id);
    const { at } = c.req.valid('query');
    if (at !== undefined) {
      const current = async (): Promise<PastFields | undefined> =>
        announced && { ...(await resultOfSteps(gate, serviceDocumentSteps(announced, model))) };
      const moment = await momentOf(context, 'service', name, current, at);
      return answerPieces<ExplainedServiceDocument>(c, gate, pastServiceJSON(pastService(moment, name, at)));
    }
    const explaining = services.explainSteps(id);
    if (announced === undefined || explaining === undefined)
      throw await unknownNameProblem(c, gate, 'service', { value: name, known: keys(services.entries()) });
    const pieces = explainedServiceJSON(announced, explaining, model);
    return answerPieces<ExplainedServiceDocument>(c, gate, pieces);
  });
}

function addNodeRoutes(app: ApiApp, context: RouteContext): void {
  const { model, feed, gate } = context;
  const { nodes } = model;
  const sorted = new SortedView<Node>(gate);
  const documentOf = (node: Node): NodeDocument => nodeDocument(node, model);

  addList<Node, NodeDocument>(app, context, {
    plural: 'nodes',
    contents: 'nodes, sorted by cluster and name',
    schema: NODE,
    filters: NODE_FILTERS,
    filterOf: nodeFilter,
    jsonOf: (node) => [JSON.stringify(documentOf(node))],
    items: () => nodes.nodes(),
    read: async () => {
      const version = feed.lastOf('node');
      const view = await sorted.of(version, () => byFullName(nodes.nodes()));
      return { version, view, items: values(view) };
    },
  });
  app.openapi(GET_NODE, async (c) => {
    const { cluster, name } = c.req.valid('param');
    const fullName = `${cluster}/${name}`;
    const node = nodes.get(fullName);
    const { at } = c.req.valid('query');
    if (at !== undefined) {
      const current = (): PastFields | undefined => node && { ...documentOf(node) };
      return answerJSON(c, pastNode(await momentOf(context, 'node', fullName, current, at), fullName, at));
    }
    const explanation = nodes.explain(fullName);
    if (node === undefined || explanation === undefined)
      throw await unknownNameProblem(c, gate, 'node', {
        value: fullName,
        known: keys(byFullName(nodes.nodes())),
      });
    return answerJSON(c, { ...documentOf(node), explain: nodeExplanationDocument(explanation, model) });
  });
}

function addIdentityRoutes(app: ApiApp, context: RouteContext): void {
  const { model, gate } = context;
  const identities = new IdentityView(gate, () => model.identities());
  const documentOf = (identity: ClusterIdentity): IdentityDocument => identityDocument(identity, model);

  addList<ClusterIdentity, IdentityDocument>(app, context, {
    plural: 'identities',
    contents: 'identities with known labels, in no particular order',
    schema: IDENTITY,
    filters: IDENTITY_FILTERS,
    filterOf: identityFilter,
    jsonOf: (identity) => [JSON.stringify(documentOf(identity))],
    items: () => model.identities(),
    read: async () => {
      const { version, known } = await identities.read();
      return { version, view: known, items: known };
    },
  });
  app.openapi(GET_IDENTITY, (c) => {
    const { identity } = c.req.valid('param');
    const labels = isNumericIdentity(identity) ? model.labelsOf(identity) : undefined;
    if (labels === undefined && model.ipcache.countByIdentity(identity) === 0)
      throw new ProblemError('not-found', 'No such identity.', {
        field: 'identity',
        value: String(identity),
      });
    return answerJSON(c, documentOf({ identity, labels: labels ?? [], cluster: model.clusterOf(identity) }));
  });
}

/** The filters in the query of a list. */
type Filters = Readonly<Record<string, string | undefined>>;

/** A list of items `V` of an engine, with the documents `T`. */
interface EngineList<V extends object, T extends object> {
  /** The name of the list in paths and descriptions. */
  readonly plural: string;
  /** The items of a page and their order, for its description. */
  readonly contents: string;
  readonly schema: z.ZodType<T>;
  readonly filters: Readonly<Record<string, z.ZodType<string | undefined>>>;
  readonly filterOf: (filters: Filters) => (item: V) => boolean;
  /** Yields the JSON text of the document of an item in pieces, and `undefined` for steps without one. */
  readonly jsonOf: (item: V) => Iterable<string | undefined>;
  /** Default 1; see `ListPages`. */
  readonly weightOf?: (item: V) => number;
  /** Returns the current items, in any order. */
  readonly items: () => Iterable<V>;
  /** Returns the items in the order of the list, their version, and the view that holds them in memory. */
  readonly read: () => Promise<{
    readonly version: number;
    readonly view: object;
    readonly items: Iterable<V>;
  }>;
}

/** Adds the routes of a list: its pages, and the number of its items. */
function addList<V extends object, T extends object>(
  app: ApiApp,
  context: RouteContext,
  { plural, filters, filterOf, ...list }: EngineList<V, T>,
): void {
  const { feed, instance, gate, clock } = context;
  const pages = new ListPages<V>(clock, feed.endSignal, list.weightOf);
  const getPage = createRoute({
    method: 'get',
    path: `/v1/${plural}`,
    summary: `Returns a page of ${list.contents}`,
    request: { query: z.strictObject({ ...filters, ...PAGE_PARAMETERS }) },
    responses: answers(pageOf(list.schema), `A page of ${plural}`),
  });
  const getCount = createRoute({
    method: 'get',
    path: `/v1/${plural}/count`,
    summary: `Returns the number of ${plural}`,
    request: { query: z.strictObject(filters) },
    responses: answers(COUNT, `The number of ${plural}`),
  });
  app.openapi(getPage, async (c) => {
    const query = c.req.valid('query');
    const { limit: _limit, continue: _token, ...wanted } = query;
    const page = await readPage(pages, gate, query, async () => {
      const { revision } = feed;
      const { version, view, items } = await list.read();
      const name = listName(instance, plural, version, query);
      return { name, revision, view, items: matching(items, filterOf(wanted)) };
    });
    return answerPieces<ListPage<T>>(c, gate, pageJSON(page, list.jsonOf));
  });
  app.openapi(getCount, async (c) => {
    const matches = matching(list.items(), filterOf(c.req.valid('query')));
    return answerJSON(c, await countItems(c, context, matches));
  });
}

/**
 * Returns the state of a service or a node at the moment `at`. `current` returns its document at the time of the call.
 * The moment is computed first, because changes while the document is written are not in it.
 */
async function momentOf(
  { model, clock }: RouteContext,
  kind: 'service' | 'node',
  name: string,
  current: () => PastFields | undefined | Promise<PastFields | undefined>,
  at: string,
): Promise<DocumentMoment> {
  const history = historyOf(model);
  const when = whenParameter(history, 'at', at, clock.wallTime());
  return history.past.documentAt(kind, name, await current(), when);
}

function serviceFilter({ namespace, cluster, served }: Filters): (announced: AnnouncedService) => boolean {
  return ({ service, endpoints: { backends } }) => {
    if (namespace !== undefined && service.id.namespace !== namespace) return false;
    if (cluster !== undefined && !backends.some((backend) => backend.cluster === cluster)) return false;
    if (served === 'nowhere') return backends.size === 0;
    if (served === undefined) return true;
    const first = backends.first();
    const isOfOneCluster =
      first !== undefined && backends.every((backend) => backend.cluster === first.cluster);
    return service.global && isOfOneCluster;
  };
}

function nodeFilter({ cluster }: Filters): (node: Node) => boolean {
  return (node) => cluster === undefined || node.cluster === cluster;
}

function identityFilter({ cluster, label }: Filters): (known: ClusterIdentity) => boolean {
  const matches = label === undefined ? undefined : labelParameter(label);
  return (known) =>
    (cluster === undefined || known.cluster === cluster) && (matches === undefined || matches(known.labels));
}

function* values<V>(keyed: Iterable<readonly [string, V]>): Generator<V, void, void> {
  for (const [, value] of keyed) yield value;
}

function* keys(keyed: Iterable<readonly [string, unknown]>): Generator<string, void, void> {
  for (const [key] of keyed) yield key;
}

/** Yields each value that matches the filter, and `undefined` for each other value. */
function* matching<V>(
  all: Iterable<V>,
  isMatch: (value: V) => boolean,
): Generator<V | undefined, void, void> {
  for (const value of all) yield isMatch(value) ? value : undefined;
}

function* byFullName(nodes: Iterable<Node>): Generator<readonly [string, Node], void, void> {
  for (const node of nodes) yield [node.fullName, node];
}
