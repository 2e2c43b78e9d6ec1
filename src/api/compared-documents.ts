import { ascending } from '../base/sorted-map.ts';
import type { ComparedDocument, ListedDocument } from '../compare/document-digest.ts';
import type { NodeFields } from '../nodemanager/node-spec.ts';
import { type Backend, NO_ENDPOINTS } from '../servicecache/backend.ts';
import type { ServiceState } from '../servicecache/service-state.ts';
import { backendDocument, serviceDocument } from './documents.ts';
import type { ReadModel } from './read-model.ts';

type ComparedFields = ComparedDocument['fields'];

/**
 * Yields the documents for the comparison of two agents. For each service: its definition with the backends of the
 * local cluster (writer `services`), and the offer of each remote cluster (`services baltic`). For each cluster: its
 * nodes (`nodes baltic`). Sources are omitted, because they may differ. Services and nodes may change during the
 * iteration.
 */
export function* comparedDocuments(
  model: Pick<ReadModel, 'services' | 'nodes' | 'restoredOf'>,
): Generator<ListedDocument, void, void> {
  for (const node of model.nodes.nodes())
    yield { writer: `nodes ${node.cluster}`, key: node.fullName, readFields: () => nodeFields(node.fields) };
  for (const state of model.services.states()) yield* serviceDocuments(state, model);
}

/** Returns true if a writer of a digest is the name of a group of services or nodes. */
export function isDocumentGroup(writer: string): boolean {
  return /^(services|nodes)( |$)/.test(writer);
}

/** Yields the definition of a service with its local backends, and the offer of each remote cluster. */
function* serviceDocuments(
  state: ServiceState,
  model: Pick<ReadModel, 'services' | 'restoredOf'>,
): Generator<ListedDocument, void, void> {
  const { key, service, slices } = state;
  if (service !== undefined || slices.some(({ backends, notReady }) => backends.size + notReady.size > 0))
    yield { writer: 'services', key, readFields: () => localFields(state, model) };
  for (const [cluster, { whole = [], slices: offered }] of state.remotes) {
    const readFields = (): ComparedFields =>
      backendField([...whole, ...[...offered.values()].flatMap((slice) => [...slice.backends.values()])]);
    yield { writer: `services ${cluster}`, key, readFields };
  }
}

function localFields(
  { service, slices }: ServiceState,
  model: Pick<ReadModel, 'services' | 'restoredOf'>,
): ComparedFields {
  const listed = [...slices.values()].flatMap(({ backends, notReady }) => [
    ...backends.values(),
    ...notReady.values(),
  ]);
  if (service === undefined) return backendField(listed);
  const document = serviceDocument({ service, endpoints: NO_ENDPOINTS }, model);
  const { backends: _, restored: __, ...definition } = document;
  return { ...fieldsOf(definition), ...backendField(listed) };
}

/**
 * Returns the backends as texts, each once, because several slices may offer the same one. Omits the cluster, which is
 * in the name of the group.
 */
function backendField(backends: readonly Backend[]): ComparedFields {
  const texts = backends.map((backend) => {
    const { address, cluster: _, ports, state, ...others } = backendDocument(backend);
    const extra = Object.entries(others).map(([name, value]) => `${name} ${value}`);
    const named = Object.entries(ports).map(([name, port]) => (name === '' ? port : `${name} ${port}`));
    return [address, ...named, state, ...extra].join(' ');
  });
  return { backends: [...new Set(texts)].sort(ascending) };
}

function nodeFields({ name: _, cluster: __, source: ___, ...fields }: NodeFields): ComparedFields {
  return fieldsOf(fields);
}

/** Returns the values as texts. Maps and records become sorted lists; empty values are absent. */
function fieldsOf(values: Readonly<Record<string, unknown>>): ComparedFields {
  const fields: Record<string, string | readonly string[]> = {};
  for (const [name, value] of Object.entries(values)) {
    const text = textOf(value);
    if (text.length > 0) fields[name] = text;
  }
  return fields;
}

function textOf(value: unknown): string | readonly string[] {
  if (value === undefined || value === '' || value === 0) return '';
  if (typeof value !== 'object' || value === null) return String(value);
  if (Array.isArray(value)) return value.map(itemText).sort(ascending);
  const entries = value instanceof Map ? [...value] : Object.entries(value);
  return entries.map(([name, item]) => `${name}=${item}`).sort(ascending);
}

function itemText(item: unknown): string {
  return typeof item === 'object' && item !== null ? Object.values(item).join(' ') : String(item);
}
