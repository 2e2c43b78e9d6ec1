/** A label of an endpoint: where it is from (`k8s`, `reserved`, …), its key and its value. */
export interface Label {
  readonly source: string;
  readonly key: string;
  readonly value: string;
}

/** Labels by key: unique, sorted by key in UTF-16 order. */
export type Labels = readonly Label[];

/** Sorts by key and drops all but the last label of a key. Returns a new array. */
export function sortLabels(labels: Iterable<Label>): Labels {
  const byKey = new Map<string, Label>();
  for (const label of labels) byKey.set(label.key, label);
  return [...byKey.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
}

/**
 * The kvstore key form of labels: `source:key=value;` for each, sorted by key, the last `;` included
 * (WIRE, "Identities").
 */
export function formatLabels(labels: Labels): string {
  return sortLabels(labels)
    .map(({ source, key, value }) => `${source}:${key}=${value};`)
    .join('');
}

function parseLabel(text: string): Label | undefined {
  const colon = text.indexOf(':');
  const equals = text.indexOf('=');
  const end = equals < 0 ? text.length : equals;
  const key = text.slice(colon + 1, end);
  if (colon < 1 || key === '') return undefined; // no key either when the first `=` stands before the first `:`
  return { source: text.slice(0, colon), key, value: text.slice(end + 1) };
}

/**
 * Reads the key form back. Every label must end in `;`, name a source before its first `:` and have a key
 * before its first `=`; a value may be empty and may hold `:`, `=` and `/`, not `;`. `undefined` when any
 * label is not so.
 */
export function parseLabels(text: string): Labels | undefined {
  if (!text.endsWith(';')) return undefined;
  const labels: Label[] = [];
  for (const part of text.slice(0, -1).split(';')) {
    const label = parseLabel(part);
    if (label === undefined) return undefined;
    labels.push(label);
  }
  return sortLabels(labels);
}
