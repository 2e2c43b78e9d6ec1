import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LabelSelectorError, matchesLabels, parseLabelSelector } from '../../src/model/label-selector.ts';

const matches = (selector: string, labels: Readonly<Record<string, string>>): boolean =>
  matchesLabels(parseLabelSelector(selector), new Map(Object.entries(labels)));

/** A requirement as text, and its meaning for labels, written independently. */
type Said = readonly [text: string, isMet: (labels: Readonly<Record<string, string>>) => boolean];

const key = fc.constantFrom('a', 'b', 'service.cilium.io/node', 'x.y_z-1');
const value = fc.constantFrom('1', '2', '3', 'beefy', 'in', 'notin', '');
const space = fc.constantFrom('', ' ', '\t ');

const said: fc.Arbitrary<Said> = fc.oneof(
  key.map((k): Said => [k, (labels) => Object.hasOwn(labels, k)]),
  fc.tuple(space, key).map(([s, k]): Said => [`!${s}${k}`, (labels) => !Object.hasOwn(labels, k)]),
  fc
    .tuple(key, fc.constantFrom('=', '=='), value, space)
    .map(([k, op, v, s]): Said => [`${k}${s}${op}${s}${v}`, (labels) => labels[k] === v]),
  fc.tuple(key, value, space).map(([k, v, s]): Said => [`${k}${s}!=${s}${v}`, (labels) => labels[k] !== v]),
  fc
    .tuple(key, fc.constantFrom('in', 'notin'), fc.array(value, { minLength: 1, maxLength: 4 }), space)
    .filter(([, , values]) => values.length > 1 || values[0] !== '')
    .map(([k, op, values, s]): Said => {
      const text = `${k} ${op}${s}(${s}${values.join(`${s},${s}`)}${s})`;
      return [text, (labels) => values.some((v) => labels[k] === v) === (op === 'in')];
    }),
  fc.tuple(key, fc.constantFrom('<', '>'), fc.integer({ min: 0, max: 4 })).map(([k, op, n]): Said => {
    const number = (text: string | undefined) =>
      text === undefined || text === '' ? Number.NaN : Number(text);
    return [`${k}${op}${n}`, (labels) => (op === '<' ? number(labels[k]) < n : number(labels[k]) > n)];
  }),
);
const labels = fc.dictionary(key, value, { maxKeys: 4 });

describe('a label selector', () => {
  it('selects what its requirements say, each alone and all together', () => {
    fc.assert(
      fc.property(fc.array(said, { maxLength: 4 }), space, labels, (all, s, given) => {
        const text = all.map(([each]) => each).join(`${s},${s}`);
        expect(matches(text, given)).toBe(all.every(([, isMet]) => isMet(given)));
      }),
      { numRuns: 2000 },
    );
  });

  it.each([
    ['service.cilium.io/node in ( beefy , slow )', true],
    ['service.cilium.io/node == slow', true],
    ['service.cilium.io/node = beefy', false],
    ['', true],
    ['  ', true],
    ['n > 9223372036854775806', true],
    ['n < 9223372036854775807', false],
  ])('%j', (selector, expected) => {
    expect(matches(selector, { 'service.cilium.io/node': 'slow', n: '9223372036854775807' })).toBe(expected);
  });

  it.each([
    ...[
      ',',
      'a,',
      ',a',
      'a,,b',
      'a b',
      '!',
      '!a=b',
      '=b',
      'a in',
      'a in b',
      'a in ()',
      'a in (b',
      'a in (b c)',
    ],
    ...['a in (b))', 'a=b=c', 'a>', 'a>x', 'a<1.5', 'a>9223372036854775808', 'in', 'notin=a', 'a=(b)', '-a'],
    ...['a/b/c', '/a', 'A/b', `${'k'.repeat(64)}`, `a=${'v'.repeat(64)}`, 'a=-b', 'a=b-', 'a=ü', 'a!b'],
  ])('%j is refused', (text) => {
    expect(() => parseLabelSelector(text)).toThrow(LabelSelectorError);
  });

  it('never fails otherwise, nor takes long', () => {
    const unit = fc.constantFrom(
      'a',
      '1',
      ' ',
      '=',
      '!',
      '(',
      ')',
      ',',
      '<',
      '>',
      'in',
      'notin',
      ' in ',
      '/',
      '-',
    );
    fc.assert(
      fc.property(fc.array(unit, { maxLength: 30 }), (units) => {
        try {
          parseLabelSelector(units.join(''));
        } catch (error) {
          expect(error).toBeInstanceOf(LabelSelectorError);
        }
      }),
      { numRuns: 2000 },
    );
    const many = Array.from({ length: 10_000 }, (_, i) => `k${i} in (a, b)`).join(',');
    expect(parseLabelSelector(many)).toHaveLength(10_000);
  });
});
