import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LineScanner } from '../../../src/k8s/reflector/line-scanner.ts';
import { ListScanner } from '../../../src/k8s/reflector/list-scanner.ts';

/** Cuts bytes at these places. */
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
  it('is cut into what JSON.parse finds in it, wherever the pieces end', () => {
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

  it('loses only the items that are too large, and counts them', () => {
    const items = [{ a: 1 }, { a: 'x'.repeat(500) }, { a: 2 }];
    const scanner = new ListScanner(100);
    const found = pieces(JSON.stringify({ items }), [5, 50, 200, 300]).flatMap((bytes) =>
      scanner.feed(bytes),
    );
    expect(found).toEqual(['{"a":1}', '{"a":2}']);
    expect(scanner.tooLarge).toBe(1);
  });

  it('that has no items, or null, has none', () => {
    for (const text of [
      '{"metadata":{"resourceVersion":"1"},"items":null}',
      '{"metadata":{"resourceVersion":"1"}}',
    ]) {
      const scanner = new ListScanner(100);
      expect(scanner.feed(new TextEncoder().encode(text))).toEqual([]);
      expect(scanner.shell).toBe(text);
    }
  });

  it('is refused when what is no item goes on and on, such as a page of HTML', () => {
    const scanner = new ListScanner(100);
    const page = new TextEncoder().encode('<p>log in</p>'.repeat(1000));
    expect(() => {
      for (let i = 0; i < 10; i++) scanner.feed(page);
    }).toThrow(/no list/);
  });
});

describe('a watch that arrives in pieces', () => {
  it('is cut into its lines, wherever the pieces end', () => {
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

  it('says when it ends in the middle of a line, and counts lines that are too large', () => {
    const scanner = new LineScanner(10);
    const encoder = new TextEncoder();
    expect(scanner.feed(encoder.encode(`1\n\n${'x'.repeat(20)}\n2\n3`))).toEqual(['1', '2']);
    expect(scanner).toMatchObject({ isCut: true, tooLarge: 1 });
  });
});
