import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodedSegment, namePath } from '../../src/api/name-path.ts';

describe('the path of a name', () => {
  const part = fc.oneof(
    fc.string({ unit: 'binary', minLength: 1, maxLength: 8 }),
    fc.string({ unit: fc.constantFrom('~', '.', '%2e', '%'), minLength: 1, maxLength: 5 }),
  );
  const name = fc
    .array(
      part.filter((text) => !text.includes('/')),
      { minLength: 1, maxLength: 3 },
    )
    .map((parts) => parts.join('/'));

  it('keeps every name through a parser of URLs', () => {
    fc.assert(
      fc.property(name, (text) => {
        const { pathname } = new URL(`http://localhost/v1/nodes/${namePath(text)}`);
        const segments = pathname.slice('/v1/nodes/'.length).split('/');
        expect(segments.map((segment) => decodedSegment(decodeURIComponent(segment))).join('/')).toBe(text);
      }),
    );
  });

  it('changes only names that consist of dots', () => {
    expect(namePath('shop/checkout-1')).toBe('shop/checkout-1');
    expect(namePath('./..')).toBe('~./~..');
    expect(namePath('~./...')).toBe('~~./...');
  });

  it('of a node of a hostile cluster with a lone surrogate is a path, not an error that ends the page', () => {
    expect(namePath('far/a\udcff')).toBe('far/a%EF%BF%BD');
  });
});
