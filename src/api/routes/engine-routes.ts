import { createRoute, z } from '@hono/zod-openapi';
import { forEachInSteps, type TurnGate } from '../../base/turn-gate.ts';
import type { PastFields } from '../../history/document-change.ts';
import type { DocumentMoment } from '../../history/types.ts';
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
  serviceDocument,
} from '../documents.ts';
import { historyOf, pastNode, pastService, whenParameter } from '../history-documents.ts';
import { ProblemError } from '../problem.ts';
import type { KnownIdentity } from '../read-model.ts';
import { EXPLAINED_NODE, EXPLAINED_SERVICE, IDENTITY, NODE, SERVICE } from '../schemas/engine-schemas.ts';
import { answerJSON, answerPieces } from './answer.ts';
import { explainedServiceJSON } from './explained-service-json.ts';
import { ListPages } from './list-pages.ts';
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

const LIST_SERVICES = createRoute({
  method: 'get',
  path: '/v1/services',
  summary: 'Returns a page of services with their backends, sorted by namespace and name',
  request: {
    query: z.strictObject({ ...SERVICE_FILTERS, ...PAGE_PARAMETERS }),
  },
  responses: answers(pageOf(SERVICE), 'A page of services'),
});

const COUNT_SERVICES = createRoute({
  method: 'get',
  path: '/v1/services/count',
  summary: 'Returns the number of services',
  request: { query: z.strictObject(SERVICE_FILTERS) },
  responses: answers(COUNT, 'The number of services'),
});

const GET_SERVICE = createRoute({
  method: 'get',
  path: '/v1/services/{namespace}/{name}',
  summary: 'Returns a service, its effective backends, and all offered backends',
  request: { params: z.object({ namespace: NAME, name: NAME }), query: AT },
  responses: answers(EXPLAINED_SERVICE, 'The service'),
});

const LIST_NODES = createRoute({
  method: 'get',
  path: '/v1/nodes',
  summary: 'Returns a page of nodes, sorted by cluster and name',
  request: {
    query: z.strictObject({ ...NODE_FILTERS, ...PAGE_PARAMETERS }),
  },
  responses: answers(pageOf(NODE), 'A page of nodes'),
});

const COUNT_NODES = createRoute({
  method: 'get',
  path: '/v1/nodes/count',
  summary: 'Returns the number of nodes',
  request: { query: z.strictObject(NODE_FILTERS) },
  responses: answers(COUNT, 'The number of nodes'),
});

const GET_NODE = createRoute({
  method: 'get',
  path: '/v1/nodes/{cluster}/{name}',
  summary: 'Returns a node and the claims of each source',
  request: { params: z.object({ cluster: NAME, name: NAME }), query: AT },
  responses: answers(EXPLAINED_NODE, 'The node'),
});

const LIST_IDENTITIES = createRoute({
  method: 'get',
  path: '/v1/identities',
  summary: 'Returns a page of identities with known labels, in no particular order',
  request: {
    query: z.strictObject({ ...IDENTITY_FILTERS, ...PAGE_PARAMETERS }),
  },
  responses: answers(pageOf(IDENTITY), 'A page of identities'),
});

const COUNT_IDENTITIES = createRoute({
  method: 'get',
  path: '/v1/identities/count',
  summary: 'Returns the number of identities',
  request: { query: z.strictObject(IDENTITY_FILTERS) },
  responses: answers(COUNT, 'The number of identities'),
});

const GET_IDENTITY = createRoute({
  method: 'get',
  path: '/v1/identities/{identity}',
  summary: 'Returns the labels of an identity and the number of its prefixes',
  request: {
    params: z.object({
      identity: integerParameter(2 ** 32 - 1),
    }),
  },
  responses: answers(IDENTITY, 'The identity'),
});

/** Adds the routes of services, nodes and identities. */
export function addEngineRoutes(app: ApiApp, context: RouteContext): void {
  addServiceRoutes(app, context);
  addNodeRoutes(app, context);
  addIdentityRoutes(app, context);
}

function addServiceRoutes(app: ApiApp, context: RouteContext): void {
  const { model, feed, clock, instance, gate } = context;
  const { services } = model;
  const pages = new ListPages<ServiceDocument>(clock, feed.endSignal, ({ backends }) => 1 + backends.length);
  const sorted = new SortedView<AnnouncedService>(gate);
  const documentOf = (announced: AnnouncedService): ServiceDocument => serviceDocument(announced, model);

  app.openapi(LIST_SERVICES, async (c) => {
    const query = c.req.valid('query');
    const page = await readPage(pages, gate, query, async () => {
      const { revision } = feed;
      const name = listName(instance, 'services', feed.lastOf('service'), query);
      const snapshot = services.snapshot();
      const view = await sorted.of(snapshot, () => snapshot);
      const matches = matching(values(view), serviceFilter(query));
      return { name, revision, view, items: documents(matches, documentOf) };
    });
    return answerJSON(c, page);
  });
  app.openapi(COUNT_SERVICES, async (c) => {
    const matches = matching(values(services.snapshot()), serviceFilter(c.req.valid('query')));
    return answerJSON(c, await countItems(c, context, matches));
  });
  app.openapi(GET_SERVICE, async (c) => {
    const id = c.req.valid('param');
    const name = formatServiceID(id);
    const announced = services.get(id);
    const { at } = c.req.valid('query');
    if (at !== undefined) {
      await gate.pass(gate.slice); // the document of 100,000 backends takes 0.1 s
      const current = announced && { ...documentOf(announced) };
      return answerJSON(c, pastService(await momentOf(context, 'service', name, current, at), name, at));
    }
    const explaining = services.explainSteps(id);
    if (announced === undefined || explaining === undefined)
      throw await unknownNameProblem(c, gate, 'service', { value: name, known: services.snapshot().keys() });
    const pieces = explainedServiceJSON(announced, explaining, model);
    return answerPieces<ExplainedServiceDocument>(c, gate, pieces);
  });
}

function addNodeRoutes(app: ApiApp, context: RouteContext): void {
  const { model, feed, clock, instance, gate } = context;
  const { nodes } = model;
  const pages = new ListPages<NodeDocument>(clock, feed.endSignal);
  const sorted = new SortedView<Node>(gate);
  const documentOf = (node: Node): NodeDocument => nodeDocument(node, model);

  app.openapi(LIST_NODES, async (c) => {
    const query = c.req.valid('query');
    const page = await readPage(pages, gate, query, async () => {
      const { revision } = feed;
      const version = feed.lastOf('node');
      const name = listName(instance, 'nodes', version, query);
      const view = await sorted.of(version, () =>
        Array.from(nodes.nodes(), (node) => [node.fullName, node] as const),
      );
      const matches = matching(values(view), nodeFilter(query));
      return { name, revision, view, items: documents(matches, documentOf) };
    });
    return answerJSON(c, page);
  });
  app.openapi(COUNT_NODES, async (c) => {
    const matches = matching(nodes.nodes(), nodeFilter(c.req.valid('query')));
    return answerJSON(c, await countItems(c, context, matches));
  });
  app.openapi(GET_NODE, async (c) => {
    const { cluster, name } = c.req.valid('param');
    const fullName = `${cluster}/${name}`;
    const node = nodes.get(fullName);
    const { at } = c.req.valid('query');
    if (at !== undefined) {
      const current = node && { ...documentOf(node) };
      return answerJSON(c, pastNode(await momentOf(context, 'node', fullName, current, at), fullName, at));
    }
    const explanation = nodes.explain(fullName);
    if (node === undefined || explanation === undefined)
      throw await unknownNameProblem(c, gate, 'node', { value: fullName, known: namesOf(nodes.nodes()) });
    return answerJSON(c, { ...documentOf(node), explain: nodeExplanationDocument(explanation, model) });
  });
}

function addIdentityRoutes(app: ApiApp, context: RouteContext): void {
  const { model, feed, clock, instance, gate } = context;
  const pages = new ListPages<IdentityDocument>(clock, feed.endSignal);
  const identities = new IdentityView(gate, () => model.identities());
  const documentOf = (identity: KnownIdentity): IdentityDocument => identityDocument(identity, model);

  app.openapi(LIST_IDENTITIES, async (c) => {
    const query = c.req.valid('query');
    const page = await readPage(pages, gate, query, async () => {
      const { revision } = feed;
      const { version, known } = await identities.read();
      const name = listName(instance, 'identities', version, query);
      const matches = matching(known, identityFilter(query));
      return { name, revision, view: known, items: documents(matches, documentOf) };
    });
    return answerJSON(c, page);
  });
  app.openapi(COUNT_IDENTITIES, async (c) => {
    const matches = matching(model.identities(), identityFilter(c.req.valid('query')));
    return answerJSON(c, await countItems(c, context, matches));
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

/** Returns the state of a service or a node at the moment `at`. `current`: its current document. */
function momentOf(
  { model, clock }: RouteContext,
  kind: 'service' | 'node',
  name: string,
  current: PastFields | undefined,
  at: string,
): Promise<DocumentMoment> {
  const history = historyOf(model);
  return history.past.documentAt(kind, name, current, whenParameter(history, 'at', at, clock.wallTime()));
}

/** Number of identities read and compared in one step. */
const IDENTITIES_PER_STEP = 2_048;

interface IdentityList {
  /** Changes only if the list changes. */
  readonly version: number;
  readonly known: readonly KnownIdentity[];
}

/**
 * Reads the list of all identities in turns of the event loop. Reads one list after the other; requests that wait for
 * the same read share its list, because each list of 1,000,000 identities takes 55 MB.
 */
class IdentityView {
  readonly #gate: TurnGate;
  readonly #identities: () => Iterable<KnownIdentity>;
  #last: IdentityList = { version: 0, known: [] };
  #reading: Promise<unknown> = Promise.resolve();
  /** The next read, before it begins. */
  #next: Promise<IdentityList> | undefined;

  constructor(gate: TurnGate, identities: () => Iterable<KnownIdentity>) {
    this.#gate = gate;
    this.#identities = identities;
  }

  /** Resolves to a list whose read begins after the call. */
  read(): Promise<IdentityList> {
    const begin = (): Promise<IdentityList> => {
      this.#next = undefined;
      return this.#read();
    };
    this.#next ??= this.#reading.then(begin, begin);
    this.#reading = this.#next;
    return this.#next;
  }

  async #read(): Promise<IdentityList> {
    const { version, known: previous } = this.#last;
    const known: KnownIdentity[] = [];
    let isSame = true;
    const add = (item: KnownIdentity): void => {
      isSame &&= isSameIdentity(item, previous[known.length]);
      known.push(item);
    };
    await this.#gate.runSteps(forEachInSteps(this.#identities(), IDENTITIES_PER_STEP, add));
    if (!isSame || known.length !== previous.length) this.#last = { version: version + 1, known };
    return this.#last;
  }
}

function isSameIdentity(
  { identity, labels, cluster }: KnownIdentity,
  earlier: KnownIdentity | undefined,
): boolean {
  return identity === earlier?.identity && labels === earlier.labels && cluster === earlier.cluster;
}

type Filters<F> = { readonly [Name in keyof F]?: string | undefined };

function serviceFilter({
  namespace,
  cluster,
  served,
}: Filters<typeof SERVICE_FILTERS>): (announced: AnnouncedService) => boolean {
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

function nodeFilter({ cluster }: Filters<typeof NODE_FILTERS>): (node: Node) => boolean {
  return (node) => cluster === undefined || node.cluster === cluster;
}

function identityFilter({
  cluster,
  label,
}: Filters<typeof IDENTITY_FILTERS>): (known: KnownIdentity) => boolean {
  const matches = label === undefined ? undefined : labelParameter(label);
  return (known) =>
    (cluster === undefined || known.cluster === cluster) && (matches === undefined || matches(known.labels));
}

function* values<V>(keyed: Iterable<readonly [string, V]>): Generator<V, void, void> {
  for (const [, value] of keyed) yield value;
}

/** Yields each value that matches the filter, and `undefined` for each other value. */
function* matching<V>(
  all: Iterable<V>,
  isMatch: (value: V) => boolean,
): Generator<V | undefined, void, void> {
  for (const value of all) yield isMatch(value) ? value : undefined;
}

function* documents<V extends object, T>(
  matches: Iterable<V | undefined>,
  documentOf: (value: V) => T,
): Generator<T | undefined, void, void> {
  for (const value of matches) yield value && documentOf(value);
}

function* namesOf(nodes: Iterable<Node>): Generator<string, void, void> {
  for (const { fullName } of nodes) yield fullName;
}
