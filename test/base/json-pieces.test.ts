import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseJsonInPieces } from '../../src/base/json-pieces.ts';
import { leastCpuTime } from './support/cpu-time.ts';

/** Returns the value and the number of steps, or that the text is not JSON. */
function inPieces(
  text: string,
  piece?: number,
): { readonly json: unknown; readonly steps: number } | 'malformed' {
  const pieces = parseJsonInPieces(text, piece);
  try {
    for (let steps = 1; ; steps++) {
      const step = pieces.next();
      if (step.done) return { json: step.value, steps };
    }
  } catch (error) {
    if (error instanceof SyntaxError) return 'malformed';
    throw error;
  }
}

function atOnce(text: string): string {
  try {
    return JSON.stringify({ json: JSON.parse(text) });
  } catch {
    return 'malformed';
  }
}

function expectAgreement(text: string, piece: number): void {
  const found = inPieces(text, piece);
  // Compared as text, because large objects have no prototype.
  expect(found === 'malformed' ? found : JSON.stringify({ json: found.json })).toBe(atOnce(text));
}

const PARTS = [
  ...[
    '{',
    '}',
    '[',
    ']',
    ',',
    ':',
    '"',
    '\\',
    '1',
    '-',
    'null',
    ' ',
    '\n',
    '\u00a0',
    '"a":',
    '"__proto__":',
    '"constructor"',
  ],
];
const pieceSize = fc.integer({ min: 1, max: 12 });

describe('JSON in pieces', () => {
  it('equals the result of JSON.parse, wherever the text is cut', () => {
    const indented = fc.jsonValue({ maxDepth: 5 }).map((value) => JSON.stringify(value, null, 2));
    const named = fc
      .dictionary(fc.constantFrom('__proto__', 'constructor', 'a', '1'), fc.jsonValue())
      .map((value) => JSON.stringify(value));
    fc.assert(fc.property(fc.oneof(fc.json(), indented, named), pieceSize, expectAgreement));
  });

  it('is malformed if and only if JSON.parse rejects the text', () => {
    const change = fc.tuple(fc.nat(), fc.constantFrom(...PARTS), fc.boolean());
    fc.assert(
      fc.property(fc.json(), fc.array(change, { maxLength: 3 }), pieceSize, (json, changes, piece) => {
        let text = json;
        for (const [position, part, replaces] of changes) {
          const at = position % (text.length + 1);
          text = text.slice(0, at) + part + text.slice(at + Number(replaces));
        }
        expectAgreement(text, piece);
      }),
    );
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...PARTS), { maxLength: 14 }), pieceSize, (parts, piece) => {
        expectAgreement(parts.join(''), piece);
      }),
    );
  });

  it.each([
    '[1,]',
    '[,1]',
    '{"a":1,}',
    '{,"a":1}',
    '{"a" 1}',
    '{1:1}',
    '[1}',
    '{"a":[}]',
    '[1]]',
    '["a]',
    '[ 1 2 ]',
  ])('is malformed in every cut: %s', (text) => {
    for (let piece = 1; piece <= text.length; piece++) expect(inPieces(text, piece)).toBe('malformed');
  });

  it('returns the last of equal names, as JSON.parse does, also across pieces', () => {
    expect(inPieces('{"a":1,"b":2,"a":3}', 4)).toMatchObject({ json: { a: 3, b: 2 } });
  });

  it('takes many steps for a large text, and one for a small one', () => {
    const large = JSON.stringify({ list: Array.from({ length: 50_000 }, (_, i) => `${i}`) });
    expect(inPieces(large)).toMatchObject({ steps: expect.toSatisfy((steps: number) => steps > 10) });
    expect(inPieces('{"a":[1,2,3]}')).toMatchObject({ steps: 1 });
  });

  it('rejects large containers that are nested deeper than 16', () => {
    const nested = (depth: number): string => `${'[1,'.repeat(depth)}"${'x'.repeat(20)}"${']'.repeat(depth)}`;
    expect(inPieces(nested(16), 4)).not.toBe('malformed');
    expect(inPieces(nested(17), 4)).toBe('malformed');
  });

  it.each([
    ['quotes', `[${'"",'.repeat(300_000)}0]`],
    ['escapes', `{"a":"${'\\"'.repeat(400_000)}"}`],
    ['a string without an end', `{"a":"${'\\\\"'.repeat(300_000)}`],
    ['white space', `[${' '.repeat(900_000)}x`],
    ['brackets', '['.repeat(900_000)],
    ['nested objects', `${'{"a":'.repeat(150_000)}1${'}'.repeat(150_000)}`],
  ])('costs time linear in the text: 1 MB of %s', async (_name, text) => {
    // At most 150 ms; quadratic work takes minutes.
    expect(await leastCpuTime(() => inPieces(text), 2_000)).toBeLessThan(2_000);
  });
});
