import { ascending } from '../../base/sorted-map.ts';
import { sortInSteps } from '../../base/turn-gate.ts';
import type { AnnouncedService } from '../../servicecache/announcement.ts';
import { NO_ENDPOINTS } from '../../servicecache/backend.ts';
import type { ServiceExplanation } from '../../servicecache/explain.ts';
import {
  backendDocument,
  explainedBackendDocument,
  serviceDocument,
  serviceExplanationDocument,
} from '../documents.ts';
import type { ReadModel } from '../read-model.ts';

/** Number of backends sorted or written in one step: 1 to 2 ms. */
const BACKENDS_PER_STEP = 512;

/**
 * Yields the pieces of the JSON text of an `ExplainedServiceDocument`, and `undefined` between steps without one.
 * Its 100,000 backends would take 0.2 s in one step.
 */
export function* explainedServiceJSON(
  { service, endpoints }: AnnouncedService,
  explaining: Generator<undefined, ServiceExplanation, void>,
  model: Pick<ReadModel, 'services' | 'restoredOf'>,
): Generator<string | undefined, void, void> {
  const fields = serviceDocument({ service, endpoints: NO_ENDPOINTS }, model);
  const explanation = yield* explaining;
  const explained = serviceExplanationDocument({ ...explanation, backends: [] });
  const effective = yield* sortInSteps(endpoints.backends.values(), BACKENDS_PER_STEP, (a, b) =>
    ascending(a.address, b.address),
  );
  yield jsonUntilBackends(fields);
  yield* jsonItems(effective, backendDocument);
  yield `],"explain":${jsonUntilBackends(explained)}`;
  yield* jsonItems(explanation.backends, explainedBackendDocument);
  yield ']}}';
}

/** Returns the JSON text of a document up to the first of its `backends`, which are the last field. */
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
