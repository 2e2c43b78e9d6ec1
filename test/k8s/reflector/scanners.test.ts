import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FieldTree } from '../../../src/k8s/reflector/field-tree.ts';
import { LineScanner } from '../../../src/k8s/reflector/line-scanner.ts';
import { ListScanner } from '../../../src/k8s/reflector/list-scanner.ts';
import { growthPerItem } from '../../base/support/cpu-time.ts';
import { bytesInUse } from '../../base/support/garbage.ts';
import { askedFields, isPartOf } from '../support/asked-fields.ts';

/** Cuts bytes at these positions. */
function pieces(text: string, cuts: readonly number[]): readonly Uint8Array[] {
  const bytes = new TextEncoder().encode(text);
  const at = [...new Set([0, ...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length])].sort(
    (a, b) => a - b,
  );
  return at.slice(1).map((end, i) => bytes.subarray(at[i], end));
}

const cuts = fc.array(fc.nat(5000), { maxLength: 30 });
const item = fc.dictionary(
  fc.oneof(fc.string(), fc.constantFrom('items', 'metadata', '"items":[', ']}')),
  fc.jsonValue(),
);

describe('a list that arrives in pieces', () => {
  it('is split into the items that JSON.parse finds in it, wherever the pieces end', () => {
    fc.assert(
      fc.property(fc.array(item), item, fc.boolean(), cuts, (items, metadata, pretty, places) => {
        const list = { kind: 'PodList', metadata, more: [[{}]], items, after: [1] };
        const scanner = new ListScanner(1_000_000);
        const found = pieces(JSON.stringify(list, null, pretty ? 2 : 0), places).flatMap((bytes) =>
          scanner.feed(bytes),
        );
        const parsed: unknown[] = found.map((text) => JSON.parse(text));
        expect(parsed).toEqual(JSON.parse(JSON.stringify(items)));
        expect(JSON.parse(scanner.shell)).toEqual(JSON.parse(JSON.stringify({ ...list, items: [] })));
      }),
    );
  });

  it('may have any white space between its items (regression: a pretty-printed list of 10,000 was rejected)', () => {
    const scanner = new ListScanner(100);
    const spaced = (text: string): Uint8Array =>
      new TextEncoder().encode(`${text}${' \n\t\r'.repeat(10_000)}`);
    const found = ['{"items":[', '{"a":1}', ',', '{"a":2}', '],"b":3}'].flatMap((text) =>
      scanner.feed(spaced(text)),
    );
    expect(found).toEqual(['{"a":1}', '{"a":2}']);
    expect(JSON.parse(scanner.shell)).toEqual({ items: [], b: 3 });
  });

  it('loses only items that are too large, and counts them', () => {
    const items = [{ a: 1 }, { a: 'x'.repeat(500) }, { a: 2 }];
    const scanner = new ListScanner(100);
    const found = pieces(JSON.stringify({ items }), [5, 50, 200, 300]).flatMap((bytes) =>
      scanner.feed(bytes),
    );
    expect(found).toEqual(['{"a":1}', '{"a":2}']);
    expect(scanner.tooLarge).toBe(1);
  });

  it('without items, or with null, has none', () => {
    for (const text of [
      '{"metadata":{"resourceVersion":"1"},"items":null}',
      '{"metadata":{"resourceVersion":"1"}}',
    ]) {
      const scanner = new ListScanner(100);
      expect(scanner.feed(new TextEncoder().encode(text))).toEqual([]);
      expect(scanner.shell).toBe(text);
    }
  });

  it('with thousands of other lists costs the same for each of them (regression: all text before it was searched)', async () => {
    const growth = await growthPerItem(560, (lists) => {
      new ListScanner(100).feed(Buffer.from(`{${'"a":[],'.repeat(lists)}"items":[]}`));
    });
    expect(growth).toBeLessThan(6);
  });

  it('is rejected if it is not a list and very long, such as a page of HTML', () => {
    const scanner = new ListScanner(100);
    const page = new TextEncoder().encode('<p>log in</p>'.repeat(1000));
    expect(() => {
      for (let i = 0; i < 10; i++) scanner.feed(page);
    }).toThrow(/not a list/);
  });
});

const name = fc.constantFrom('a', 'b', 'ab', 'ba', 'é', 'a"b', 'items', 'type');
const scalar = fc.constantFrom<unknown>('x', '\\', '"a":1,', '{', ']', 7, true, null);
const holding = (inner: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> =>
  fc.oneof(scalar, fc.dictionary(name, inner, { maxKeys: 4 }), fc.array(inner, { maxLength: 3 }));
const nested = holding(holding(holding(scalar)));
const object = fc.dictionary(name, nested, { maxKeys: 5 });
const path = fc.array(name, { minLength: 1, maxLength: 3 }).map((names) => names.join('.'));
const SCANNERS = { list: ListScanner, lines: LineScanner } as const;
const shapes = {
  list: (items: readonly unknown[], space: number) =>
    JSON.stringify({ a: { b: [1] }, items, b: 1 }, null, space),
  lines: (items: readonly unknown[]) => items.map((one) => `${JSON.stringify(one)}\n`).join(''),
};

describe.each(['list', 'lines'] as const)('a scanner of a %s that is asked for some fields', (shape) => {
  it('omits the other fields; a part of a field may remain', () => {
    fc.assert(
      fc.property(
        fc.array(object, { maxLength: 4 }),
        fc.array(path, { maxLength: 4 }),
        fc.constantFrom(0, 2),
        cuts,
        (items, fields, space, places) => {
          const text = shapes[shape](items, space);
          const said: readonly unknown[] = items.map((one) => JSON.parse(JSON.stringify(one)));
          const asked = said.map((one) => askedFields(one, fields));
          const scan = (pieces: readonly Uint8Array[]): readonly unknown[] => {
            const scanner = new SCANNERS[shape](1_000_000, FieldTree.of(fields));
            return pieces.flatMap((bytes) => scanner.feed(bytes)).map((one) => JSON.parse(one));
          };
          expect(scan([new TextEncoder().encode(text)])).toEqual(asked);
          const found = scan(pieces(text, places));
          expect(found.map((one) => askedFields(one, fields))).toEqual(asked);
          expect(isPartOf(found, said)).toBe(true);
        },
      ),
    );
  });
});

it('a field is kept completely if it is requested, whatever part of it is requested, too', () => {
  const text = '{"items":[{"a":{"b":1,"c":{"d":2,"e":3}},"f":0}]}';
  for (const fields of [
    ['a', 'a.b'],
    ['a.c.e', 'a'],
  ]) {
    const scanner = new ListScanner(100, FieldTree.of(fields));
    expect(scanner.feed(new TextEncoder().encode(text))).toEqual(['{"a":{"b":1,"c":{"d":2,"e":3}}}']);
  }
});

it('omitted fields of an item do not make it too large', () => {
  const item = `{"a":1,"b":"${'x'.repeat(500)}","c":2}`;
  for (const [fields, expected, tooLarge] of [
    [['a', 'c'], ['{"a":1,"c":2}'], 0],
    [['a', 'b'], [], 1],
  ] as const) {
    const scanner = new ListScanner(100, FieldTree.of(fields));
    expect(scanner.feed(new TextEncoder().encode(`{"items":[${item}]}`))).toEqual(expected);
    expect(scanner.tooLarge).toBe(tooLarge);
  }
});

describe('a watch that arrives in pieces', () => {
  it('is split into its lines, wherever the pieces end', () => {
    fc.assert(
      fc.property(fc.array(fc.jsonValue()), cuts, (values, places) => {
        const scanner = new LineScanner(1_000_000);
        const text = values.map((value) => `${JSON.stringify(value)}\n`).join('');
        const found = pieces(text, places).flatMap((bytes) => scanner.feed(bytes));
        expect(found).toEqual(values.map((value) => JSON.stringify(value)));
        expect(scanner.isCut).toBe(false);
      }),
    );
  });

  it('keeps unrequested fields of lines that are not one object, and removes those of the next line', () => {
    const odd = [
      '{"a":1,"b":2},',
      ',{"b":2}',
      '{"b":2}}',
      '{"b":2}{"b":3}',
      '{"b":{}',
      '{"b":2}"}',
      '[{"b":2}]',
    ];
    for (const line of odd) {
      const scanner = new LineScanner(100, FieldTree.of(['a']));
      const bytes = new TextEncoder().encode(`${line}\n{"b":2,"a":1}\n \n{"a":3,"b":4}\n`);
      expect(scanner.feed(bytes)).toEqual([line, '{"a":1}', '{"a":3}']);
    }
  });

  it('keeps all fields of lines above 256 KiB, because they are decoded in steps', () => {
    const scan = (): string => 'scanned';
    for (const [size, found] of [
      [256 * 1024, 'scanned'],
      [256 * 1024 + 1, undefined],
    ] as const) {
      const line = `{"b":"${'x'.repeat(size - 8)}"}`;
      const scanner = new LineScanner(1_000_000, FieldTree.of(['a']), scan);
      expect(scanner.feed(new TextEncoder().encode(`${line}\n`))).toEqual([found ?? line]);
    }
  });

  it('reports an end within a line, and counts lines that are too large', () => {
    const scanner = new LineScanner(10);
    const encoder = new TextEncoder();
    expect(scanner.feed(encoder.encode(`1\n\n${'x'.repeat(20)}\n2\n3`))).toEqual(['1', '2']);
    expect(scanner).toMatchObject({ isCut: true, tooLarge: 1 });
  });
});

it('a line that is too large takes no memory after its end (regression: its buffer stayed)', async () => {
  // Many scanners, because other tests of the process release memory at the same time.
  const scanners = Array.from({ length: 32 }, () => new LineScanner(4 * 1024 * 1024));
  const part = Buffer.alloc(2 * 1024 * 1024, 'x');
  const before = await bytesInUse();
  for (const scanner of scanners) {
    for (let count = 0; count < 3; count++) scanner.feed(part);
    scanner.feed(Buffer.from('\n'));
    expect(scanner.tooLarge).toBe(1);
  }
  expect((await bytesInUse()) - before).toBeLessThan(scanners.length * 1024 * 1024);
});
