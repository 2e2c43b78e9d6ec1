import { createRoute, z } from '@hono/zod-openapi';
import type { TurnGate } from '../base/turn-gate.ts';
import { isNumericIdentity } from '../identity/numeric-identity.ts';
import type { Node } from '../nodemanager/node.ts';
import type { AnnouncedService } from '../servicecache/announcement.ts';
import { answerJSON } from './answer.ts';
import type { ApiApp, RouteContext } from './api-context.ts';
import {
  type IdentityDocument,
  identityDocument,
  labelTexts,
  type NodeDocument,
  nodeDocument,
  nodeExplanationDocument,
  type ServiceDocument,
  serviceDocument,
  serviceExplanationDocument,
} from './documents.ts';
import { ListPages } from './list-pages.ts';
import { ProblemError } from './problem.ts';
import type { KnownIdentity } from './read-model.ts';
import { answers, filterParameter, listName, PAGE_PARAMETERS, pageOf, readPage } from './route-parts.ts';
import { EXPLAINED_NODE, EXPLAINED_SERVICE, IDENTITY, NODE, SERVICE } from './schemas.ts';
import { SortedView } from './sorted-view.ts';

const NAME = z.string().min(1).max(253);

const LIST_SERVICES = createRoute({
  method: 'get',
  path: '/v1/services',
  summary: 'Services and their backends, by namespace and name, a page at a time',
  request: {
    query: z.strictObject({
      namespace: filterParameter('Only services of this namespace'),
      cluster: filterParameter('Only services with a backend in this remote cluster'),
      ...PAGE_PARAMETERS,
    }),
  },
  responses: answers(pageOf(SERVICE), 'A page of services'),
});

const GET_SERVICE = createRoute({
  method: 'get',
  path: '/v1/services/{namespace}/{name}',
  summary: 'A service, its backends, and who offers what to it',
  request: { params: z.object({ namespace: NAME, name: NAME }) },
  responses: answers(EXPLAINED_SERVICE, 'The service'),
});

const LIST_NODES = createRoute({
  method: 'get',
  path: '/v1/nodes',
  summary: 'Nodes, by cluster and name, a page at a time',
  request: {
    query: z.strictObject({ cluster: filterParameter('Only nodes of this cluster'), ...PAGE_PARAMETERS }),
  },
  responses: answers(pageOf(NODE), 'A page of nodes'),
});

const GET_NODE = createRoute({
  method: 'get',
  path: '/v1/nodes/{cluster}/{name}',
  summary: 'A node, and what each source says of it',
  request: { params: z.object({ cluster: NAME, name: NAME }) },
  responses: answers(EXPLAINED_NODE, 'The node'),
});

const LIST_IDENTITIES = createRoute({
  method: 'get',
  path: '/v1/identities',
  summary: 'Identities whose labels are known, a page at a time, in no order that is promised',
  request: {
    query: z.strictObject({
      cluster: filterParameter('Only identities of this cluster'),
      label: filterParameter('Only identities with this label, as in `k8s:app=checkout`'),
      ...PAGE_PARAMETERS,
    }),
  },
  responses: answers(pageOf(IDENTITY), 'A page of identities'),
});

const GET_IDENTITY = createRoute({
  method: 'get',
  path: '/v1/identities/{identity}',
  summary: 'The labels of an identity, and how many prefixes have it',
  request: {
    params: z.object({
      identity: z.coerce
        .number()
        .int()
        .min(0)
        .max(2 ** 32 - 1),
    }),
  },
  responses: answers(IDENTITY, 'The identity'),
});

/** Adds what is asked of services, nodes and identities. */
export function addEngineRoutes(app: ApiApp, { model, feed, clock, instance, gate }: RouteContext): void {
  const { services, nodes, ipcache } = model;
  const servicePages = new ListPages<ServiceDocument>(clock, feed.end, ({ backends }) => 1 + backends.length);
  const nodePages = new ListPages<NodeDocument>(clock, feed.end);
  const identityPages = new ListPages<IdentityDocument>(clock, feed.end);

  const sortedServices = new SortedView<AnnouncedService>(gate);
  const sortedNodes = new SortedView<Node>(gate);
  const identities = new IdentityView(gate);

  app.openapi(LIST_SERVICES, async (c) => {
    const query = c.req.valid('query');
    const { namespace, cluster } = query;
    const documentOf = ({ service, endpoints }: AnnouncedService): ServiceDocument | undefined => {
      const wanted =
        (namespace === undefined || service.id.namespace === namespace) &&
        (cluster === undefined || endpoints.backends.some((backend) => backend.cluster === cluster));
      return wanted ? serviceDocument({ service, endpoints }, model) : undefined;
    };
    const page = await readPage(servicePages, gate, query, async () => {
      const revision = feed.revision;
      const name = listName(instance, 'services', feed.lastOf('service'), query);
      const view = services.snapshot();
      const held = await sortedServices.of(view, () => view);
      return { name, revision, items: filtered(held, ([, announced]) => documentOf(announced)) };
    });
    return answerJSON(c, page);
  });

  app.openapi(GET_SERVICE, (c) => {
    const id = c.req.valid('param');
    const announced = services.get(id);
    const explanation = services.explain(id);
    if (announced === undefined || explanation === undefined)
      throw new ProblemError('not-found', 'No service of this name is announced.', {
        field: 'name',
        value: `${id.namespace}/${id.name}`,
      });
    return answerJSON(c, {
      ...serviceDocument(announced, model),
      explain: serviceExplanationDocument(explanation),
    });
  });

  app.openapi(LIST_NODES, async (c) => {
    const query = c.req.valid('query');
    const { cluster } = query;
    const documentOf = (node: Node): NodeDocument | undefined =>
      cluster === undefined || node.cluster === cluster ? nodeDocument(node, model) : undefined;
    const page = await readPage(nodePages, gate, query, async () => {
      const revision = feed.revision;
      const version = feed.lastOf('node');
      const name = listName(instance, 'nodes', version, query);
      const held = await sortedNodes.of(version, () =>
        Array.from(nodes.nodes(), (node) => [node.fullName, node] as const),
      );
      return { name, revision, items: filtered(held, ([, node]) => documentOf(node)) };
    });
    return answerJSON(c, page);
  });

  app.openapi(GET_NODE, (c) => {
    const { cluster, name } = c.req.valid('param');
    const fullName = `${cluster}/${name}`;
    const node = nodes.get(fullName);
    const explanation = nodes.explain(fullName);
    if (node === undefined || explanation === undefined)
      throw new ProblemError('not-found', 'There is no node of this name.', {
        field: 'name',
        value: fullName,
      });
    return answerJSON(c, {
      ...nodeDocument(node, model),
      explain: nodeExplanationDocument(explanation, model),
    });
  });

  app.openapi(LIST_IDENTITIES, async (c) => {
    const query = c.req.valid('query');
    const { cluster, label } = query;
    const documentOf = (known: KnownIdentity): IdentityDocument | undefined => {
      if (cluster !== undefined && known.cluster !== cluster) return undefined;
      if (label !== undefined && !labelTexts(known.labels).includes(label)) return undefined;
      return identityDocument(known, model);
    };
    const page = await readPage(identityPages, gate, query, async () => {
      const revision = feed.revision;
      const { version, known } = await identities.of(model.identities());
      const name = listName(instance, 'identities', version, query);
      return { name, revision, items: filtered(known, documentOf) };
    });
    return answerJSON(c, page);
  });

  app.openapi(GET_IDENTITY, (c) => {
    const { identity } = c.req.valid('param');
    const labels = isNumericIdentity(identity) ? model.labelsOf(identity) : undefined;
    const prefixes = ipcache.countByIdentity(identity);
    if (labels === undefined && prefixes === 0)
      throw new ProblemError('not-found', 'No cluster has allocated this identity.', {
        field: 'identity',
        value: String(identity),
      });
    return answerJSON(c, identityDocument({ identity, labels: labels ?? [], cluster: '' }, model));
  });
}

/** All identities, gathered in turns of the event loop; a number says which of them are the same as before. */
class IdentityView {
  readonly #gate: TurnGate;
  #last: { readonly version: number; readonly known: readonly KnownIdentity[] } = { version: 0, known: [] };

  constructor(gate: TurnGate) {
    this.#gate = gate;
  }

  async of(identities: Iterable<KnownIdentity>): Promise<{
    readonly version: number;
    readonly known: readonly KnownIdentity[];
  }> {
    const known: KnownIdentity[] = [];
    await this.#gate.runSteps(gather(identities, known));
    const { version, known: before } = this.#last;
    const isSame =
      known.length === before.length &&
      known.every(({ identity, labels, cluster }, at) => {
        const was = before[at];
        return identity === was?.identity && labels === was.labels && cluster === was.cluster;
      });
    if (!isSame) this.#last = { version: version + 1, known };
    return this.#last;
  }
}

/** Adds what there is to a list, some of it a step. */
function* gather<T>(from: Iterable<T>, list: T[]): Generator<void, void, void> {
  for (const item of from) {
    list.push(item);
    if (list.length % 2_048 === 0) yield;
  }
}

function* filtered<V, T>(
  values: Iterable<V>,
  documentOf: (value: V) => T | undefined,
): Generator<T | undefined, void, void> {
  for (const value of values) yield documentOf(value);
}
