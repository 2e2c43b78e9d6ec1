import fc from 'fast-check';

/** One defect of a value: its kind, its place, and the replacement. */
interface Spoiling {
  readonly how: 'remove' | 'duplicate' | 'replace' | 'wrap' | 'rename' | 'move';
  readonly at: number;
  readonly with: unknown;
}

/** Replacements for a field: another type, a number outside its range, another kind of text. */
const REPLACEMENTS: readonly unknown[] = [
  ...[null, true, false, {}, [], [[]], [null], { a: 1 }, '', ' ', 'a', '0', '-1', '\0', '\ud800', '💥'],
  ...[0, -1, 1, 1.5, 255, 256, 511, 512, 65_535, 65_536, 2 ** 32 - 1, 2 ** 32, 2 ** 53, -(2 ** 31), 1e308],
  ...['10.0.0.1', '10.0.0.256', '10.0.0.1/24', '::ffff:10.0.0.1', 'fd00::1', 'FD00::1', 'fd00::1%eth0'],
  ...['//8AAA==', '////', '/w==', 'TCP', 'tcp', 'ANY', '__proto__', 'constructor', '127.0.0.1', 'None'],
];

/** Returns a value at a depth. */
const DEPTHS: readonly number[] = [1, 2, 10, 5_000];

/** Literal JSON, because `JSON.stringify` cannot write duplicate names and deep nesting. */
class Raw {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

function write(value: unknown): string {
  if (value instanceof Raw) return value.text;
  if (Array.isArray(value)) return `[${value.map(write).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  return `{${Object.entries(value).map(writeEntry).join(',')}}`;
}

function writeEntry([name, value]: readonly [string, unknown]): string {
  return `${JSON.stringify(name)}:${write(value)}`;
}

type Container = Record<string, unknown> | unknown[];

/** Returns every place in a value: a container and a name in it. */
function places(value: unknown): readonly (readonly [Container, string])[] {
  if (typeof value !== 'object' || value === null || value instanceof Raw) return [];
  const container = value as Container;
  return Object.entries(container).flatMap(([name, inner]) => [[container, name] as const, ...places(inner)]);
}

function nested(text: string, depth: number, isList: boolean): Raw {
  return new Raw(`${(isList ? '[' : '{"a":').repeat(depth)}${text}${(isList ? ']' : '}').repeat(depth)}`);
}

function spoilOnce(root: unknown, { how, at, with: other }: Spoiling): void {
  const all = places(root);
  const [container, name] = all[at % Math.max(all.length, 1)] ?? [];
  if (container === undefined || name === undefined) return;
  const fields = container as Record<string, unknown>;
  const value = fields[name];
  switch (how) {
    case 'remove':
      if (Array.isArray(container)) container.splice(Number(name), 1);
      else delete fields[name];
      return;
    case 'duplicate':
      if (Array.isArray(container)) container.push(value);
      else fields[name] = new Raw(`${write(value)},${writeEntry([name, other])}`);
      return;
    case 'replace':
      fields[name] = structuredClone(other); // inserted into itself, the shared one would be infinite
      return;
    case 'wrap':
      fields[name] = nested(write(value), DEPTHS[at % DEPTHS.length] ?? 1, at % 2 === 0);
      return;
    case 'rename':
      if (Array.isArray(container)) container.reverse();
      else {
        delete fields[name];
        Object.defineProperty(fields, String(other), {
          value,
          enumerable: true,
          configurable: true,
          writable: true,
        });
      }
      return;
    case 'move': {
      const [to, toName] = all[(at * 7 + 1) % all.length] ?? [];
      if (to !== undefined && toName !== undefined)
        (to as Record<string, unknown>)[toName] = structuredCopy(value);
    }
  }
}

/** Returns a deep copy, because a value moved into itself would be infinite. */
function structuredCopy(value: unknown): unknown {
  return value instanceof Raw ? value : new Raw(write(value));
}

const spoiling: fc.Arbitrary<Spoiling> = fc.record({
  how: fc.constantFrom('remove', 'duplicate', 'replace', 'wrap', 'rename', 'move'),
  at: fc.nat(10_000),
  with: fc.constantFrom(...REPLACEMENTS),
});

/** Damaged bytes. A failure prints their beginning, because they may be long. */
export class SpoiltBytes {
  readonly bytes: Uint8Array;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }

  toString(): string {
    return `${this.bytes.length} bytes: ${JSON.stringify(Buffer.from(this.bytes).toString('utf8', 0, 2000))}`;
  }
}

/** JSON with some fields removed, duplicated, retyped, renamed, moved, or nested deeply. */
export function spoiltJson(texts: readonly string[]): fc.Arbitrary<SpoiltBytes> {
  return fc
    .tuple(fc.constantFrom(...texts), fc.array(spoiling, { minLength: 1, maxLength: 4 }))
    .map(([text, spoilings]) => {
      const root = { value: JSON.parse(text) as unknown };
      for (const each of spoilings) spoilOnce(root, each);
      return new SpoiltBytes(Buffer.from(root.value === undefined ? '' : write(root.value)));
    });
}

interface Damage {
  readonly at: number;
  readonly remove: number;
  readonly insert: Uint8Array;
}

const damage: fc.Arbitrary<Damage> = fc.record({
  at: fc.nat(100_000),
  remove: fc.constantFrom(0, 1, 1, 2, 50),
  insert: fc.oneof(
    fc.uint8Array({ maxLength: 2 }),
    fc.constantFrom(...'{}[]",:\\;=/-0 9.eE\n').map((char) => Buffer.from(char)),
  ),
});

/** Bytes with some changed, removed or inserted. */
export function spoiltBytes(texts: readonly string[]): fc.Arbitrary<SpoiltBytes> {
  return fc
    .tuple(fc.constantFrom(...texts), fc.array(damage, { minLength: 1, maxLength: 3 }))
    .map(([text, damages]) => {
      let bytes = Buffer.from(text);
      for (const { at, remove, insert } of damages) {
        const from = at % (bytes.length + 1);
        bytes = Buffer.concat([bytes.subarray(0, from), insert, bytes.subarray(from + remove)]);
      }
      return new SpoiltBytes(bytes);
    });
}
