import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  compareSources,
  compareWriters,
  isSource,
  mayOverwrite,
  SOURCES,
  type Source,
  sourceRank,
} from '../../src/model/source.ts';

const anySource: fc.Arbitrary<Source> = fc.constantFrom(...SOURCES);
const anyWriter = fc.record({ source: anySource, owner: fc.constantFrom('', 'a', 'ab', 'b', 'B', 'é') });

describe('a source', () => {
  it('has its rank, strongest first', () => {
    expect(SOURCES.map((source) => [source, sourceRank(source)])).toEqual([
      ['kube-apiserver', 11],
      ['local', 10],
      ['kvstore', 9],
      ['custom-resource', 8],
      ['k8s', 7],
      ['clustermesh', 6],
      ['directory', 5],
      ['api', 4],
      ['generated', 3],
      ['restored', 2],
      ['unspec', 1],
    ]);
  });

  it('keeps the order of the sources of 1.8', () => {
    const known: Source[] = ['local', 'kvstore', 'custom-resource', 'k8s', 'generated', 'unspec'];
    expect(known.toSorted(compareSources)).toEqual(known);
  });

  it.each(['', 'Local', 'cilium', '__proto__', 'constructor', 7, null, undefined])('is never %j', (value) => {
    expect(isSource(value)).toBe(false);
    expect(sourceRank(String(value))).toBe(0);
  });

  it.each(SOURCES)('is %s', (source) => expect(isSource(source)).toBe(true));

  it('may be overwritten by an equal or stronger one', () => {
    fc.assert(
      fc.property(anySource, anySource, (current, next) => {
        expect(mayOverwrite(current, next)).toBe(SOURCES.indexOf(next) <= SOURCES.indexOf(current));
      }),
    );
  });
});

describe('writers', () => {
  it('I4 one winner: are in a total order, by source and then by owner, the absent one first', () => {
    fc.assert(
      fc.property(anyWriter, anyWriter, anyWriter, (a, b, c) => {
        const ab = compareWriters(a, b);
        expect(ab + compareWriters(b, a)).toBe(0);
        expect(ab === 0).toBe(a.source === b.source && a.owner === b.owner);
        if (ab <= 0 && compareWriters(b, c) <= 0) expect(compareWriters(a, c)).toBeLessThanOrEqual(0);
        if (a.source !== b.source) expect(ab < 0).toBe(SOURCES.indexOf(a.source) < SOURCES.indexOf(b.source));
        else if (a.owner === '' && b.owner !== '') expect(ab).toBeLessThan(0);
      }),
    );
  });
});
