/** A service or a node as JSON fields. `backends` of a service, if there are any, each have an `address`. */
export type PastFields = Readonly<Record<string, unknown>>;

/** The change of a service or node: the fields and backends that differ, before and after. */
export interface DocumentChange {
  /** Undefined if the document is new. */
  readonly before: PastFields | undefined;
  /** Undefined if the document was deleted. */
  readonly after: PastFields | undefined;
}

function backendsOf(fields: PastFields): readonly unknown[] {
  const { backends } = fields as { readonly backends?: unknown };
  return Array.isArray(backends) ? backends : [];
}

function addressOf(backend: unknown): unknown {
  return (backend as { readonly address?: unknown } | null)?.address;
}

export function undoChange(
  current: PastFields | undefined,
  { before, after }: DocumentChange,
): PastFields | undefined {
  if (before === undefined || after === undefined || current === undefined) return before;
  const fields: Record<string, unknown> = { ...current };
  for (const name of Object.keys(after)) if (!Object.hasOwn(before, name)) delete fields[name];
  Object.assign(fields, before);
  if (!Object.hasOwn(before, 'backends') && !Object.hasOwn(after, 'backends')) return fields;
  const changed = new Set([...backendsOf(before), ...backendsOf(after)].map(addressOf));
  const unchanged = backendsOf(current).filter((backend) => !changed.has(addressOf(backend)));
  const all = [...unchanged, ...backendsOf(before)];
  fields['backends'] = all.sort((a, b) => (String(addressOf(a)) < String(addressOf(b)) ? -1 : 1));
  return fields;
}
