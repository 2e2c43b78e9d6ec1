type Path = readonly string[];

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function kept(value: unknown, paths: readonly Path[]): unknown {
  if (paths.some((path) => path.length === 0)) return value;
  if (Array.isArray(value)) return value.map((one) => (isRecord(one) ? kept(one, paths) : one));
  if (!isRecord(value)) return value;
  const fields = Object.entries(value).flatMap(([name, field]) => {
    // A name that JSON escapes is not compared.
    const isPlain = JSON.stringify(name) === `"${name}"`;
    const below = paths.filter(([first]) => first === name).map(([, ...rest]) => rest);
    if (below.length === 0 && isPlain) return [];
    return [[name, isPlain ? kept(field, below) : field]];
  });
  return Object.fromEntries(fields);
}

/** Returns only these fields of a decoded value, in the obvious way. */
export function askedFields(value: unknown, fields: readonly string[]): unknown {
  return kept(
    value,
    fields.map((field) => field.split('.')),
  );
}

/** Returns true if everything in `part` is in `whole` at the same place. */
export function isPartOf(part: unknown, whole: unknown): boolean {
  if (Array.isArray(part) && Array.isArray(whole))
    return part.length === whole.length && part.every((one, index) => isPartOf(one, whole[index]));
  if (isRecord(part) && isRecord(whole))
    return Object.entries(part).every(
      ([name, field]) => Object.hasOwn(whole, name) && isPartOf(field, whole[name]),
    );
  return Object.is(part, whole);
}
