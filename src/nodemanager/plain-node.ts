import type { NodeFields } from './node.ts';

/** A node as plain data that survives JSON. */
export interface PlainNode extends Omit<NodeFields, 'labels' | 'annotations'> {
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

export function plainNode(fields: NodeFields): PlainNode {
  // Own properties, whatever the names: `fromEntries` defines them and sets no prototype.
  return {
    ...fields,
    labels: Object.fromEntries(fields.labels),
    annotations: Object.fromEntries(fields.annotations),
  };
}
