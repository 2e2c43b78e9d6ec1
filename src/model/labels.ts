import { type Check, checkArgument, isObjectOrList, listOf, objectWith, TEXT } from '../base/arguments.ts';

/** A label of an endpoint: its source (`k8s`, `reserved`, …), key and value. */
export interface Label {
  readonly source: string;
  readonly key: string;
  readonly value: string;
}

/** Labels with unique keys, sorted by key in UTF-16 order. */
export type Labels = readonly Label[];

const LABEL: Check = objectWith({ source: TEXT, key: TEXT, value: TEXT });

/** Accepts {@link Labels}. The first test of each label is fast; the second returns the wrong field. */
export const LABELS: Check = listOf((label) =>
  isObjectOrList(label) &&
  typeof label['source'] === 'string' &&
  typeof label['key'] === 'string' &&
  typeof label['value'] === 'string'
    ? undefined
    : LABEL(label),
);

/** Returns a new array that is sorted by key and contains the last label of each key. */
export function sortLabels(labels: Iterable<Label>): Labels {
  const byKey = new Map<string, Label>();
  for (const label of labels) byKey.set(label.key, label);
  return [...byKey.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
}

/** Returns a label as text: `k8s:app=checkout`, or `k8s:app` if its value is empty. */
export function labelText({ source, key, value }: Label): string {
  return value === '' ? `${source}:${key}` : `${source}:${key}=${value}`;
}

/**
 * Returns the kvstore key form of labels: `source:key=value;` for each, sorted by key, with the last `;` (WIRE,
 * "Identities").
 */
export function formatLabels(labels: Labels): string {
  checkArgument('formatLabels: labels', labels, LABELS);
  return sortLabels(labels)
    .map(({ source, key, value }) => `${source}:${key}=${value};`)
    .join('');
}

/**
 * Parses a query for a label, `source:key=value`, and returns a function that tests labels. If the source or
 * the value is missing, any source or value matches. Returns `undefined` if the key is missing, or the source before
 * the colon. A colon after the first `=` belongs to the value.
 */
export function parseLabelQuery(text: string): ((labels: Labels) => boolean) | undefined {
  const equals = text.indexOf('=');
  const name = equals < 0 ? text : text.slice(0, equals);
  const value = equals < 0 ? undefined : text.slice(equals + 1);
  const colon = name.indexOf(':');
  const source = colon < 0 ? undefined : name.slice(0, colon);
  const key = name.slice(colon + 1);
  if (key === '' || source === '') return undefined;
  return (labels) =>
    labels.some(
      (label) =>
        label.key === key &&
        (source === undefined || label.source === source) &&
        (value === undefined || label.value === value),
    );
}

function parseLabel(text: string): Label | undefined {
  const colon = text.indexOf(':');
  const equals = text.indexOf('=');
  const end = equals < 0 ? text.length : equals;
  const key = text.slice(colon + 1, end);
  if (colon < 1 || key === '') return undefined; // also if the first `=` precedes the first `:`
  return { source: text.slice(0, colon), key, value: text.slice(end + 1) };
}

/**
 * Parses the key form. Every label must end in `;`, have a source before its first `:` and a key before its first `=`.
 * A value may be empty and may contain `:`, `=` and `/`, but not `;`. Returns `undefined` if a label is invalid.
 */
export function parseLabels(text: string): Labels | undefined {
  checkArgument('parseLabels: text', text, TEXT);
  if (!text.endsWith(';')) return undefined;
  const labels: Label[] = [];
  for (const part of text.slice(0, -1).split(';')) {
    const label = parseLabel(part);
    if (label === undefined) return undefined;
    labels.push(label);
  }
  return sortLabels(labels);
}
