import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  formatLabels,
  type Label,
  parseLabelQuery,
  parseLabels,
  sortLabels,
} from '../../src/model/labels.ts';

const MASTER_KEY = /^cilium\/state\/identities\/v1\/id\/(\d+)$/;
const SLAVE_KEY = /^cilium\/state\/identities\/v1\/value\/(.*)\/[^/]+$/;

/** The label strings of a recorded mesh: values of master keys, and slave keys. */
const recorded: readonly string[] = readFileSync(
  new URL('../../examples/mesh.jsonl', import.meta.url),
  'utf8',
)
  .trim()
  .split('\n')
  .map((line): { key: string; value: string } => JSON.parse(line))
  .flatMap(({ key, value }) => (MASTER_KEY.test(key) ? [value] : (SLAVE_KEY.exec(key)?.slice(1) ?? [])));

const text = (excluded: string): fc.Arbitrary<string> =>
  fc
    .array(fc.constantFrom(...'abz.-_/:=09 é'), { maxLength: 6 })
    .map((characters) => characters.filter((character) => !excluded.includes(character)).join(''));
const label: fc.Arbitrary<Label> = fc.record({
  source: text(':=').map((name) => `k${name}`),
  key: text('=').map((name) => `k${name}`),
  value: text(''),
});

describe('a query for labels', () => {
  it('matches each label by its whole text, its source and key, its key and value, and its key', () => {
    fc.assert(
      fc.property(label, label, ({ source, key, value }, other) => {
        fc.pre(!key.includes(':'));
        const labels = [{ source, key, value }];
        const matches = (query: string): boolean | undefined => parseLabelQuery(query)?.(labels);
        for (const query of [`${source}:${key}=${value}`, `${source}:${key}`, `${key}=${value}`, key])
          expect(matches(query)).toBe(true);
        const isSame = other.key === key && other.value === value;
        expect(parseLabelQuery(`${key}=${value}`)?.([other])).toBe(isSame);
        expect(matches(`${source}x:${key}`)).toBe(false);
      }),
    );
  });

  it.each(['', '=a', ':', 'k8s:', ':app', 'k8s:=a'])('%j is rejected', (query) => {
    expect(parseLabelQuery(query)).toBeUndefined();
  });
});

describe('labels', () => {
  it('are read from every key of a recorded mesh and written back byte for byte', () => {
    expect(recorded.length).toBeGreaterThanOrEqual(30);
    for (const text of recorded) expect(formatLabels(parseLabels(text) ?? [])).toBe(text);
  });

  it('equal those in the key', () => {
    expect(parseLabels('k8s:app=checkout;reserved:host=;k8s:io.kubernetes.pod.namespace=shop;')).toEqual(
      [
        { source: 'k8s', key: 'app', value: 'checkout' },
        { source: 'reserved', key: 'host', value: '' },
        { source: 'k8s', key: 'io.kubernetes.pod.namespace', value: 'shop' },
      ].toSorted((a, b) => (a.key < b.key ? -1 : 1)),
    );
  });

  it('survive formatting and parsing', () => {
    fc.assert(
      fc.property(fc.array(label, { minLength: 1 }), (labels) => {
        expect(parseLabels(formatLabels(labels))).toEqual(sortLabels(labels));
      }),
    );
  });

  it('are sorted by key in the key form, whatever their order; of equal keys the last counts', () => {
    const labels = ['b', 'a', 'c', 'a'].map((key, index) => ({ source: 'k8s', key, value: String(index) }));
    expect(formatLabels(labels)).toBe('k8s:a=3;k8s:b=0;k8s:c=2;');
  });

  it.each([
    ['k8s:url=http://host:80/a=b;', { source: 'k8s', key: 'url', value: 'http://host:80/a=b' }],
    ['k8s:a/b=c/d;', { source: 'k8s', key: 'a/b', value: 'c/d' }],
    ['k8s:a=;', { source: 'k8s', key: 'a', value: '' }],
    ['reserved:host;', { source: 'reserved', key: 'host', value: '' }],
    ['cidr:10.0.0.0/8=;', { source: 'cidr', key: '10.0.0.0/8', value: '' }],
    ['k8s:__proto__=1;', { source: 'k8s', key: '__proto__', value: '1' }],
  ])('may look like %s', (text, expected) => expect(parseLabels(text)).toEqual([expected]));

  it.each([
    ['', 'nothing at all'],
    ['k8s:a=b', 'no semicolon at the end'],
    ['a=b;', 'no source'],
    ['a=b:c;', 'a colon only in the value: no source'],
    [':a=b;', 'an empty source'],
    ['=a:b;', 'nothing before the first equals sign'],
    ['k8s:=b;', 'no key'],
    ['k8s:;', 'neither key nor value'],
    [';', 'an empty label'],
    ['k8s:a=b;;', 'an empty label at the end'],
    ['k8s:a=b;c;', 'one bad label among good ones'],
  ])('are never %j: %s', (text) => expect(parseLabels(text)).toBeUndefined());
});
