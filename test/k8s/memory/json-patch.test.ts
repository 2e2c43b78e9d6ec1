import { describe, expect, it } from 'vitest';
import { jsonPatch, mergePatch } from '../../../src/k8s/memory/json-patch.ts';

const refused = (reason: string): object =>
  expect.objectContaining({ status: expect.objectContaining({ reason }) });

describe('a JSON patch (RFC 6902)', () => {
  it.each<[string, unknown, readonly unknown[], unknown]>([
    ['adds a field', { a: 1 }, [{ op: 'add', path: '/b', value: 2 }], { a: 1, b: 2 }],
    ['adds in the place of a field', { a: 1 }, [{ op: 'add', path: '/a', value: 2 }], { a: 2 }],
    ['adds into a list', { a: [1, 3] }, [{ op: 'add', path: '/a/1', value: 2 }], { a: [1, 2, 3] }],
    ['adds to the end of a list', { a: [1] }, [{ op: 'add', path: '/a/-', value: 2 }], { a: [1, 2] }],
    ['removes a field', { a: 1, b: 2 }, [{ op: 'remove', path: '/a' }], { b: 2 }],
    ['removes from a list', { a: [1, 2, 3] }, [{ op: 'remove', path: '/a/1' }], { a: [1, 3] }],
    ['replaces', { a: { b: 1 } }, [{ op: 'replace', path: '/a/b', value: 2 }], { a: { b: 2 } }],
    ['replaces in a list', { a: [1, 2] }, [{ op: 'replace', path: '/a/0', value: 9 }], { a: [9, 2] }],
    ['unescapes names', { 'a/b': 1, 'a~1b': 2 }, [{ op: 'remove', path: '/a~1b' }], { 'a~1b': 2 }],
    ['unescapes ~01 once', { 'a/b': 1, 'a~1b': 2 }, [{ op: 'remove', path: '/a~01b' }], { 'a/b': 1 }],
    [
      'goes on after a test that holds',
      { a: { b: [1] } },
      [{ op: 'test', path: '/a', value: { b: [1] } }],
      { a: { b: [1] } },
    ],
    [
      'has names that are of every object',
      {},
      [{ op: 'add', path: '/__proto__', value: 1 }],
      JSON.parse('{"__proto__":1}'),
    ],
  ])('%s', (_, document, operations, expected) => {
    const before = JSON.stringify(document);
    expect(JSON.stringify(jsonPatch(document, operations))).toBe(JSON.stringify(expected));
    expect(JSON.stringify(document), 'the document itself').toBe(before);
  });

  it.each<[string, unknown]>([
    ['is no list', { op: 'remove', path: '/a' }],
    ['removes what is not there', [{ op: 'remove', path: '/b' }]],
    ['replaces what is not there', [{ op: 'replace', path: '/b', value: 1 }]],
    ['goes through what is not there', [{ op: 'add', path: '/b/c', value: 1 }]],
    ['goes through a number', [{ op: 'add', path: '/a/c', value: 1 }]],
    ['goes through what every object has', [{ op: 'add', path: '/constructor/c', value: 1 }]],
    ['tests what is another', [{ op: 'test', path: '/a', value: 2 }]],
    ['tests what is not there', [{ op: 'test', path: '/b', value: 2 }]],
    ['has a path without a beginning', [{ op: 'remove', path: 'a' }]],
    ['has no path', [{ op: 'remove' }]],
    ['has an unknown operation', [{ op: 'increase', path: '/a' }]],
    ['has something that is no operation', [7]],
  ])('that %s is rejected', (_, operations) => {
    expect(() => jsonPatch({ a: 1 }, operations)).toThrow(refused('Invalid'));
  });

  it.each<[string, string, string]>([
    ['inserts at a name', 'add', '/a/x'],
    ['inserts at an empty index', 'add', '/a/'],
    ['inserts beyond the end', 'add', '/a/3'],
    ['inserts at a negative index', 'add', '/a/-1'],
    ['inserts at an index with a leading zero', 'add', '/a/01'],
    ['removes the length', 'remove', '/a/length'],
    ['removes beyond the end', 'remove', '/a/2'],
    ['replaces after the last element', 'replace', '/a/-'],
    ['tests the length', 'test', '/a/length'],
    ['goes through a name', 'add', '/a/x/y'],
  ])('that %s of a list is rejected', (_, op, path) => {
    expect(() => jsonPatch({ a: [1, 2] }, [{ op, path, value: 2 }])).toThrow(refused('Invalid'));
  });

  it('of an invalid document is rejected, and so is an unlimited one', () => {
    expect(() => jsonPatch(7, [])).toThrow(refused('Invalid'));
    const test = { op: 'test', path: '/a', value: 1 };
    const tests = Array.from({ length: 10_001 }, () => test);
    expect(jsonPatch({ a: 1 }, tests.slice(1))).toEqual({ a: 1 });
    expect(() => jsonPatch({ a: 1 }, tests)).toThrow(refused('RequestEntityTooLarge'));
  });
});

describe('a merge patch (RFC 7386)', () => {
  it.each<[unknown, unknown, unknown]>([
    [{ a: 'b' }, { a: 'c' }, { a: 'c' }],
    [{ a: 'b' }, { b: 'c' }, { a: 'b', b: 'c' }],
    [{ a: 'b' }, { a: null }, {}],
    [{ a: 'b', b: 'c' }, { a: null }, { b: 'c' }],
    [{ a: ['b'] }, { a: 'c' }, { a: 'c' }],
    [{ a: { b: 'c' } }, { a: { b: 'd', c: null } }, { a: { b: 'd' } }],
    [{ a: [{ b: 'c' }] }, { a: [1] }, { a: [1] }],
    [
      ['a', 'b'],
      ['c', 'd'],
      ['c', 'd'],
    ],
    [{ a: 'b' }, ['c'], ['c']],
    [{ a: 'foo' }, null, null],
    [{ a: 'foo' }, 'bar', 'bar'],
    [{ e: null }, { a: 1 }, { e: null, a: 1 }],
    [[1, 2], { a: 'b', c: null }, { a: 'b' }],
    [{}, { a: { b: { c: null } } }, { a: { b: {} } }],
    [{}, JSON.parse('{"__proto__":{"a":1}}'), JSON.parse('{"__proto__":{"a":1}}')],
  ])('%j with %j is %j', (document, patch, expected) => {
    const before = JSON.stringify(document);
    expect(JSON.stringify(mergePatch(document, patch))).toBe(JSON.stringify(expected));
    expect(JSON.stringify(document), 'the document itself').toBe(before);
  });
});
