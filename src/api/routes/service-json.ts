import { forEachInSteps } from '../../base/turn-gate.ts';
import type { AnnouncedService } from '../../servicecache/announcement.ts';
import { NO_ENDPOINTS } from '../../servicecache/backend.ts';
import type { ServiceExplanation } from '../../servicecache/explain.ts';
import {
  BACKENDS_PER_STEP,
  type BackendDocument,
  backendDocument,
  type ExplainedServiceDocument,
  explainedBackendDocument,
  type ServiceDocument,
  serviceDocument,
  serviceExplanationDocument,
  sortedBackends,
} from '../documents.ts';
import type { PastDocument } from '../past-document.ts';
import type { ReadModel } from '../read-model.ts';

type ServiceModel = Pick<ReadModel, 'services' | 'restoredOf'>;

/** Returns the document of a service, as {@link serviceDocument}, in steps. */
export function* serviceDocumentSteps(
  { service, endpoints }: AnnouncedService,
  model: ServiceModel,
): Generator<undefined, ServiceDocument, void> {
  const fields = serviceDocument({ service, endpoints: NO_ENDPOINTS }, model);
  const backends: BackendDocument[] = [];
  yield* forEachInSteps(yield* sortedBackends(endpoints), BACKENDS_PER_STEP, (backend) =>
    backends.push(backendDocument(backend)),
  );
  return { ...fields, backends };
}

/**
 * Yields the pieces of the JSON text of a `ServiceDocument`, and `undefined` between steps without one. Its 100,000
 * backends would take 0.15 s in one step.
 */
export function* serviceJSON(
  announced: AnnouncedService,
  model: ServiceModel,
): Generator<string | undefined, void, void> {
  yield* serviceJSONWithoutEnd(announced, model);
  yield '}';
}

/** Like {@link serviceJSON}, for an `ExplainedServiceDocument`. */
export function* explainedServiceJSON(
  announced: AnnouncedService,
  explaining: Generator<undefined, ServiceExplanation, void>,
  model: ServiceModel,
): Generator<string | undefined, void, void> {
  const explanation = yield* explaining;
  yield* serviceJSONWithoutEnd(announced, model);
  yield `,"explain":${jsonUntilBackends(serviceExplanationDocument({ ...explanation, backends: [] }))}`;
  yield* jsonItems(explanation.backends, explainedBackendDocument);
  yield ']}}';
}

/**
 * Like {@link explainedServiceJSON}, for a service of an earlier moment. Its explanation has the effective backends
 * only, because others are not recorded.
 */
export function* pastServiceJSON(
  document: ServiceDocument & { readonly past: PastDocument },
): Generator<string, void, void> {
  const { backends } = document;
  const clusters = new Map<string, number>();
  for (const { cluster = '' } of backends) clusters.set(cluster, (clusters.get(cluster) ?? 0) + 1);
  const origins = Array.from(clusters, ([cluster, count]) => ({ cluster, slice: '', backends: count }));
  const explain: ExplainedServiceDocument['explain'] = {
    ready: true,
    announced: true,
    origins,
    backends: [],
  };
  yield jsonUntilBackends(document);
  yield* jsonItems(backends, (backend) => backend);
  yield `],"explain":${jsonUntilBackends(explain)}`;
  yield* jsonItems(backends, (backend) => ({ ...backend, slice: '', verdict: 'effective' }));
  yield ']}}';
}

function* serviceJSONWithoutEnd(
  { service, endpoints }: AnnouncedService,
  model: ServiceModel,
): Generator<string | undefined, void, void> {
  const fields = serviceDocument({ service, endpoints: NO_ENDPOINTS }, model);
  const backends = yield* sortedBackends(endpoints);
  yield jsonUntilBackends(fields);
  yield* jsonItems(backends, backendDocument);
  yield ']';
}

/** Returns the JSON text of a document up to the first of its `backends`, which become the last field. */
function jsonUntilBackends({ backends: _, ...fields }: { readonly backends: readonly unknown[] }): string {
  return `${JSON.stringify(fields).slice(0, -1)},"backends":[`;
}

/** Yields the JSON text of the items of a list, without brackets, in pieces. */
function* jsonItems<T>(items: readonly T[], documentOf: (item: T) => object): Generator<string, void, void> {
  for (let at = 0; at < items.length; at += BACKENDS_PER_STEP) {
    const piece = JSON.stringify(items.slice(at, at + BACKENDS_PER_STEP).map(documentOf)).slice(1, -1);
    yield at === 0 ? piece : `,${piece}`;
  }
}
