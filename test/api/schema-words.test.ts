import { expect, it } from 'vitest';
import type { DatapathPartDocument, DatapathTableDocument } from '../../src/api/datapath-document.ts';
import type { HistoryRecordDocument } from '../../src/api/history-documents.ts';
import type { KindDocument, KubernetesDocument, StepDocument } from '../../src/api/status-document.ts';
import type { BackendVerdict } from '../../src/servicecache/explain.ts';
import { testApp } from './support/test-app.ts';

type Words<W extends string> = Readonly<Record<W, true>>;

// The compiler requires each word of a union.
const VERDICTS: Words<BackendVerdict> = {
  effective: true,
  merged: true,
  overruled: true,
  'not-global': true,
  'not-ready': true,
  affinity: true,
  maintenance: true,
};
const KIND_STATES: Words<KindDocument['state']> = {
  listing: true,
  watching: true,
  waiting: true,
  missing: true,
  forbidden: true,
  stopped: true,
  resting: true,
};
const TABLE_STATES: Words<DatapathTableDocument['state']> = {
  unread: true,
  adopting: true,
  'in-sync': true,
  degraded: true,
};

const STEP_STATES: Words<StepDocument['state']> = {
  pending: true,
  running: true,
  done: true,
  overdue: true,
  failed: true,
  stopping: true,
  stopped: true,
  hanging: true,
};
const HANDOVER_STATES: Words<KubernetesDocument['handover']['nodes']> = {
  following: true,
  withdrawing: true,
  resting: true,
};
const PART_STATES: Words<DatapathPartDocument['state']> = { running: true, off: true, unavailable: true };
const RECORD_KINDS: Words<HistoryRecordDocument['kind']> = {
  prefix: true,
  service: true,
  node: true,
  mark: true,
};

/** Returns all sets of words in a JSON Schema. */
function enumsIn(schema: unknown): readonly (readonly string[])[] {
  if (typeof schema !== 'object' || schema === null) return [];
  return Object.entries(schema).flatMap(([name, value]) =>
    name === 'enum' ? [(value as readonly string[]).toSorted()] : enumsIn(value),
  );
}

it.each([
  ['ServiceExplanation', VERDICTS],
  ['Kubernetes', KIND_STATES],
  ['Datapath', TABLE_STATES],
  ['Datapath', PART_STATES],
  ['Step', STEP_STATES],
  ['Kubernetes', HANDOVER_STATES],
  ['HistoryRecord', RECORD_KINDS],
])('the schema %s has each word of its type', async (name, words) => {
  const answer = await testApp().app.request('/openapi.json');
  const { components } = (await answer.json()) as {
    readonly components: { readonly schemas: Readonly<Record<string, unknown>> };
  };
  expect(enumsIn(components.schemas[name])).toContainEqual(Object.keys(words).toSorted());
});
