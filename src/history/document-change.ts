/** A service or a node as JSON fields. Each element of `backends` has an `address`. */
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

/**
 * A service or a node before its last changes. Each call of {@link EarlierDocument.undo} undoes one change; changes
 * must be passed newest first. The first change of backends copies them into a map. The cost of other changes does not
 * depend on their number.
 */
export class EarlierDocument {
  #fields: PastFields | undefined;
  /** The backends by address. Undefined until a change of backends is undone; until then, `#fields` has them. */
  #backends: Map<unknown, unknown> | undefined;

  constructor(current: PastFields | undefined) {
    this.#fields = current;
  }

  undo({ before, after }: DocumentChange): void {
    const current = this.#fields;
    if (before === undefined || after === undefined || current === undefined) {
      this.#fields = before;
      this.#backends = undefined;
      return;
    }
    const fields: Record<string, unknown> = { ...current };
    for (const name of Object.keys(after)) if (!Object.hasOwn(before, name)) delete fields[name];
    this.#fields = Object.assign(fields, before);
    if (!Object.hasOwn(before, 'backends') && !Object.hasOwn(after, 'backends')) return;
    this.#backends ??= new Map(backendsOf(current).map((backend) => [addressOf(backend), backend]));
    for (const backend of backendsOf(after)) this.#backends.delete(addressOf(backend));
    for (const backend of backendsOf(before)) this.#backends.set(addressOf(backend), backend);
  }

  /** The document before the undone changes, its backends sorted by address; undefined if it did not exist. */
  get document(): PastFields | undefined {
    if (this.#backends === undefined) return this.#fields;
    const backends = [...this.#backends.values()];
    backends.sort((a, b) => (String(addressOf(a)) < String(addressOf(b)) ? -1 : 1));
    return { ...this.#fields, backends };
  }
}
