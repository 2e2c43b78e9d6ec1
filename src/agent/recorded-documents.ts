import { isDeepStrictEqual } from 'node:util';
import { backendDocument, nodeDocument, serviceDocument } from '../api/documents.ts';
import { checkArgument, FUNCTION, objectWith, oneOf, TEXT } from '../base/arguments.ts';
import { ascending } from '../base/sorted-map.ts';
import { type Unsubscribe, unsubscribeOnce } from '../base/subscription.ts';
import type { DocumentChange, PastFields } from '../history/document-change.ts';
import type { History } from '../history/history.ts';
import type { Node } from '../nodemanager/node.ts';
import type { NodeManager } from '../nodemanager/node-manager.ts';
import { type Backend, NO_ENDPOINTS } from '../servicecache/backend.ts';
import { changedBackends, type ServiceEvent } from '../servicecache/events.ts';
import type { ServiceCache } from '../servicecache/service-cache.ts';
import { formatServiceID, parseServiceKey } from '../servicecache/service-id.ts';

/** Minimum length of a backend in JSON, with its comma. */
const MIN_BACKEND_LENGTH = '{"address":"::","ports":{},"state":"active"},'.length;

/** Omits the ages of restored state, because an age is no change. */
const NO_AGE = { restoredOf: (): undefined => undefined };

/** The engines whose services and nodes a history records. */
export interface RecordedEngines {
  readonly services: ServiceCache;
  readonly nodes: NodeManager;
}

/**
 * Records the changes of services and nodes in a history, from this call and the start of the history on. A change of a
 * service contains only the fields and the backends which differ, so its size does not depend on the number of
 * backends. Costs a replay of all services and nodes, so call it while the engines are empty.
 */
export function recordDocuments(history: History, engines: RecordedEngines): Unsubscribe {
  checkArgument('recordDocuments: history', history, objectWith({ recordDocument: FUNCTION }));
  checkArgument('recordDocuments: engines', engines, ENGINES);
  const { services, nodes } = engines;
  // The replay of the current state is no change.
  let isReplay = true;
  const isRecorded = (): boolean => !isReplay && history.newestSequence !== undefined;
  const nodeChanged = (old: Node | undefined, node: Node | undefined): void => {
    const name = (node ?? old)?.fullName;
    if (!isRecorded() || name === undefined) return;
    const change = { before: old && nodeFields(old), after: node && nodeFields(node) };
    const source = (node ?? old)?.fields.source ?? '';
    if (!confirmsRestored(change)) history.recordDocument('node', name, source, change);
  };
  const subscriptions = [
    services.subscribe({
      onEvents: (events) => {
        if (isRecorded()) for (const event of events) recordService(history, services, event);
      },
    }),
    nodes.subscribe({
      name: 'history',
      nodeAdd: (node) => nodeChanged(undefined, node),
      nodeUpdate: (old, node) => nodeChanged(old, node),
      nodeDelete: (node) => nodeChanged(node, undefined),
    }),
  ];
  isReplay = false;
  return unsubscribeOnce(() => {
    for (const unsubscribe of subscriptions) unsubscribe();
  });
}

/**
 * Returns the current document of a service (`namespace/name`) or a node (`cluster/name`) as {@link recordDocuments}
 * records it, for `documentAt`. Returns undefined if it does not exist.
 */
export function currentDocument(
  engines: RecordedEngines,
  kind: 'service' | 'node',
  key: string,
): PastFields | undefined {
  checkArgument('currentDocument: engines', engines, ENGINES);
  checkArgument('currentDocument: kind', kind, KIND);
  checkArgument('currentDocument: key', key, TEXT);
  const { services, nodes } = engines;
  if (kind === 'node') {
    const node = nodes.get(key);
    return node && nodeFields(node);
  }
  const announced = services.get(parseServiceKey(key));
  return announced && { ...serviceDocument(announced, { services, ...NO_AGE }) };
}

function nodeFields(node: Node): PastFields {
  return { ...nodeDocument(node, NO_AGE) };
}

/** Returns true if a node differs from the restored one that it replaces only by its source. */
function confirmsRestored({ before, after }: DocumentChange): boolean {
  return (
    before?.['source'] === 'restored' && isDeepStrictEqual({ ...before, source: after?.['source'] }, after)
  );
}

function recordService(history: History, services: ServiceCache, event: ServiceEvent): void {
  const { action, id, service, oldService } = event;
  const key = formatServiceID(id);
  const isTooLarge = (backends: number): boolean =>
    history.loseIfTooLarge(key, backends * MIN_BACKEND_LENGTH);
  // Checked first, because 100,000 added or removed backends would take 300 ms.
  if (isTooLarge(differenceInSize(event))) return;
  const view = { services, ...NO_AGE };
  const fieldsOf = (value: ServiceEvent['service']): PastFields => {
    const {
      backends: _,
      restored: _age,
      ...rest
    } = serviceDocument({ service: value, endpoints: NO_ENDPOINTS }, view);
    return rest;
  };
  const changes = changedBackends(event);
  const removed = changes.flatMap(({ before }) => before ?? []);
  const added = changes.flatMap(({ after }) => after ?? []);
  if (isTooLarge(removed.length + added.length)) return;
  const isDelete = action === 'delete';
  const isNew = oldService === undefined && !isDelete;
  const fieldsChanged = isDelete || isNew || oldService !== service;
  const changedFields = (value: ServiceEvent['service'], backends: readonly Backend[]): PastFields => ({
    ...(fieldsChanged && fieldsOf(value)),
    ...((backends.length > 0 || isDelete || isNew) && {
      backends: backends.toSorted((a, b) => ascending(a.address, b.address)).map(backendDocument),
    }),
  });
  history.recordDocument('service', key, clustersOf([...removed, ...added]), {
    before: isNew ? undefined : changedFields(oldService ?? service, removed),
    after: isDelete ? undefined : changedFields(service, added),
  });
}

/** Returns the difference between the numbers of backends before and after an event: at least so many change. */
function differenceInSize({ action, endpoints, oldEndpoints }: ServiceEvent): number {
  if (action === 'delete') return (oldEndpoints ?? endpoints).backends.size;
  return Math.abs(endpoints.backends.size - (oldEndpoints?.backends.size ?? 0));
}

/** Returns the writer of a change, as records name it: the sorted clusters of changed backends, with spaces between. */
function clustersOf(backends: readonly Backend[]): string {
  return [...new Set(backends.map(({ cluster }) => cluster || 'local'))].sort().join(' ') || 'local';
}

const KIND = oneOf('service', 'node');
const ENGINES = objectWith({
  services: objectWith({ subscribe: FUNCTION }),
  nodes: objectWith({ subscribe: FUNCTION, get: FUNCTION }),
});
