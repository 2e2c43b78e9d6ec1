import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeWith, Fields, type RejectField, rejectInput } from '../../src/net/fields.ts';

type Lenient = Fields<undefined>;
type Reader = (fields: Lenient) => unknown;

/** Reads `json` leniently. Returns the fields, and rejections as `reason path`. */
function read<T>(
  json: unknown,
  reader: (fields: Lenient) => T,
): { readonly value: T; readonly rejected: string[] } {
  const rejected: string[] = [];
  const reject: RejectField<undefined> = (reason, field, value, why) => {
    rejected.push(`${reason} ${field} ${JSON.stringify(value)}: ${why}`);
    return undefined;
  };
  const fields = Fields.of(json, reject, 'object');
  if (fields === undefined) throw new Error(rejected[0]);
  return { value: reader(fields), rejected };
}

describe('a field', () => {
  it.each<[string, Reader]>([
    ['string', (fields) => fields.string('a')],
    ['word', (fields) => fields.word('a', ['x'])],
    ['boolean', (fields) => fields.boolean('a')],
    ['number', (fields) => fields.number('a', 0, 9)],
    ['integer', (fields) => fields.integer('a', 0, 9)],
    ['address', (fields) => fields.address('a')],
    ['addressOf', (fields) => fields.addressOf(4, 'a')],
    ['cidr', (fields) => fields.cidr('a')],
    ['object', (fields) => fields.object('a')],
  ])('that is absent or null is undefined, and not rejected: %s', (_name, reader) => {
    expect(read({}, reader)).toEqual({ value: undefined, rejected: [] });
    expect(read({ a: null }, reader)).toEqual({ value: undefined, rejected: [] });
  });

  it.each<[string, Reader, unknown, string]>([
    ['string', (fields) => fields.string('a'), 1, 'wrong-type a 1: must be a string'],
    ['text', (fields) => fields.text('a'), 7, 'wrong-type a 7: must be a string'],
    ['number', (fields) => fields.number('a', 0, 9), '5', 'wrong-type a "5": must be a number'],
    ['number', (fields) => fields.number('a', 1, 9), 0.9, 'out-of-range a 0.9: must be a number from 1 to 9'],
    ['number', (fields) => fields.number('a', 1, 9), 9.1, 'out-of-range a 9.1: must be a number from 1 to 9'],
    ['text', (fields) => fields.text('a'), '', 'missing-field a "": must not be empty'],
    ['text', (fields) => fields.text('a'), undefined, 'missing-field a undefined: is missing'],
    ['word', (fields) => fields.word('a', ['x', 'y']), 'X', 'unknown-value a "X": must be one of x, y'],
    ['boolean', (fields) => fields.boolean('a'), 'true', 'wrong-type a "true": must be true or false'],
    ['integer', (fields) => fields.integer('a', 0, 9), '5', 'wrong-type a "5": must be a number'],
    ['integer', (fields) => fields.integer('a', 1, 9), 0, 'out-of-range a 0: must be an integer from 1 to 9'],
    [
      'integer',
      (fields) => fields.integer('a', 1, 9),
      10,
      'out-of-range a 10: must be an integer from 1 to 9',
    ],
    [
      'integer',
      (fields) => fields.integer('a', 1, 9),
      1.5,
      'out-of-range a 1.5: must be an integer from 1 to 9',
    ],
    [
      'address',
      (fields) => fields.address('a'),
      '10.0.0',
      'invalid-address a "10.0.0": is not a valid IP address',
    ],
    [
      'address',
      (fields) => fields.address('a'),
      '10.0.0.0/8',
      'invalid-address a "10.0.0.0/8": is not a valid IP address',
    ],
    [
      'addressOf',
      (fields) => fields.addressOf(4, 'a'),
      'fd00::1',
      'wrong-family a "fd00::1": must be an IPv4 address',
    ],
    [
      'addressOf',
      (fields) => fields.addressOf(6, 'a'),
      '10.0.0.1',
      'wrong-family a "10.0.0.1": must be an IPv6 address',
    ],
    ['cidr', (fields) => fields.cidr('a'), '10.0.0.1', 'invalid-cidr a "10.0.0.1": is not a valid CIDR'],
    [
      'cidr',
      (fields) => fields.cidr('a'),
      '10.0.0.0/33',
      'invalid-cidr a "10.0.0.0/33": is not a valid CIDR',
    ],
    ['object', (fields) => fields.object('a'), [], 'wrong-type a []: must be an object'],
    ['item', (fields) => fields.item('a'), undefined, 'wrong-type a null: must be an object'],
  ])('of a wrong form is rejected, and undefined: %s', (_name, reader, value, rejection) => {
    expect(read({ a: value }, reader)).toEqual({ value: undefined, rejected: [rejection] });
  });

  it.each<[string, Reader, unknown, unknown]>([
    ['string', (fields) => fields.string('a'), '', ''],
    ['text', (fields) => fields.text('a'), 'x', 'x'],
    ['word', (fields) => fields.word('a', ['x', 'y']), 'y', 'y'],
    ['word', (fields) => fields.word('a', ['x', 'y']), '', undefined],
    ['boolean', (fields) => fields.boolean('a'), false, false],
    ['number', (fields) => fields.number('a', 0, 9), 1.5, 1.5],
    ['number', (fields) => fields.number('a', 0, 9), 0, 0],
    ['number', (fields) => fields.number('a', 0, 9), 9, 9],
    ['integer', (fields) => fields.integer('a', 0, 9), 0, 0],
    ['integer', (fields) => fields.integer('a', 0, 9), 9, 9],
    ['address', (fields) => fields.address('a'), '::ffff:10.0.0.1', '10.0.0.1'],
    ['address', (fields) => fields.address('a'), '', undefined],
    ['addressOf', (fields) => fields.addressOf(6, 'a'), 'FD00::0:1', 'fd00::1'],
    ['addressOf', (fields) => fields.addressOf(4, 'a'), '10.0.0.1', '10.0.0.1'],
    ['cidr', (fields) => fields.cidr('a'), ' 10.1.2.3/16\n', '10.1.0.0/16'],
  ])('of the right form is returned: %s', (_name, reader, value, expected) => {
    expect(read({ a: value }, reader)).toEqual({ value: expected, rejected: [] });
  });

  it('is an own property only: no name reaches a prototype', () => {
    for (const name of ['__proto__', 'constructor', 'toString', 'hasOwnProperty']) {
      expect(read({}, (fields) => fields.value(name)).value).toBeUndefined();
    }
    const json: unknown = JSON.parse('{"__proto__":{"constructor":"x"}}');
    expect(read(json, (fields) => fields.object('__proto__')?.string('constructor')).value).toBe('x');
    expect(read({ list: [] }, (fields) => fields.list('list').string('length')).value).toBeUndefined();
  });
});

describe('a list', () => {
  it('may be the input itself', () => {
    const decoded = decodeWith('file', () =>
      Fields.ofList([{ a: 1 }, {}], rejectInput, 'script').items((list, index) => list.item(index).text('a')),
    );
    expect(decoded).toMatchObject({
      rejection: { field: '[0].a', message: 'file: [0].a 1: must be a string' },
    });
    const none = decodeWith('file', () => Fields.ofList({}, rejectInput, 'script'));
    const rejection = { reason: 'wrong-type', message: 'file: script {}: must be a list' };
    expect(none).toMatchObject({ rejection });
  });

  it('returns its elements without rejected ones, which are named by their path', () => {
    const json = { spec: { ports: [{ port: 80 }, null, 7, { port: 'x' }, { port: 0 }] } };
    const ports = read(json, (fields) =>
      fields
        .object('spec')
        ?.list('ports')
        .items((list, index) => list.item(index)?.integer('port', 1, 65_535)),
    );
    expect(ports.value).toEqual([80]);
    expect(ports.rejected).toEqual([
      'wrong-type spec.ports[1] null: must be an object',
      'wrong-type spec.ports[2] 7: must be an object',
      'wrong-type spec.ports[3].port "x": must be a number',
      'out-of-range spec.ports[4].port 0: must be an integer from 1 to 65535',
    ]);
  });

  it('is empty if it is absent, and rejected if it is not a list or too long', () => {
    const sizes = (json: unknown) => read(json, (fields) => fields.list('a', 2).size);
    expect(sizes({})).toEqual({ value: 0, rejected: [] });
    expect(sizes({ a: [1, 2] })).toEqual({ value: 2, rejected: [] });
    expect(sizes({ a: {} })).toEqual({ value: 0, rejected: ['wrong-type a {}: must be a list'] });
    expect(sizes({ a: [1, 2, 3] })).toEqual({
      value: 0,
      rejected: ['too-many a "3 elements": must have at most 2'],
    });
  });
});

describe('a map', () => {
  it('returns strings in the order of the input, without other values', () => {
    const { value, rejected } = read({ labels: { b: '1', a: '2', c: 3, d: null } }, (fields) => [
      ...fields.strings('labels'),
    ]);
    expect(value).toEqual([
      ['b', '1'],
      ['a', '2'],
    ]);
    expect(rejected).toEqual(['wrong-type labels.c 3: must be a string']);
  });

  it('has no names if it is absent, and is rejected if it is not an object or too large', () => {
    const names = (json: unknown) => read(json, (fields) => fields.map('a', 2).names);
    expect(names({})).toEqual({ value: [], rejected: [] });
    expect(names({ a: { x: 1, y: 2 } })).toEqual({ value: ['x', 'y'], rejected: [] });
    expect(names({ a: [] })).toEqual({ value: [], rejected: ['wrong-type a []: must be an object'] });
    expect(names({ a: { x: 1, y: 2, z: 3 } })).toEqual({
      value: [],
      rejected: ['too-many a "3 entries": must have at most 2'],
    });
  });

  it('is named by its own path, too', () => {
    const { value } = read({ a: { b: [{}] } }, (fields) => {
      const list = fields.map('a').list('b');
      return [fields.path, list.path, list.item(0)?.path, list.item(0)?.pathOf('c')];
    });
    expect(value).toEqual(['', 'a.b', 'a.b[0]', 'a.b[0].c']);
  });
});

describe('an input that is rejected completely', () => {
  it('returns its first rejection, with its place', () => {
    const decoded = decodeWith('key', () => {
      const fields = Fields.of({ a: 1, b: 2 }, rejectInput, 'value');
      return [fields.string('a'), fields.string('b')];
    });
    expect(decoded).toEqual({
      ok: false,
      rejection: {
        reason: 'wrong-type',
        field: 'a',
        value: '1',
        at: 'key',
        message: 'key: a 1: must be a string',
      },
    });
  });

  it('returns the value if nothing is rejected', () => {
    const decoded = decodeWith('key', () => Fields.of({ a: 'x' }, rejectInput, 'value').string('a'));
    expect(decoded).toEqual({ ok: true, value: 'x' });
  });

  it.each([undefined, null, 1, 'text', [], true])('is so if it is no object: %j', (value) => {
    const decoded = decodeWith('key', () => Fields.of(value, rejectInput, 'value'));
    const rejection = {
      reason: 'wrong-type',
      field: 'value',
      message: expect.stringContaining('must be an object'),
    };
    expect(decoded).toMatchObject({ ok: false, rejection });
  });

  it('passes other errors on', () => {
    expect(() =>
      decodeWith('key', () => {
        throw new RangeError('a bug');
      }),
    ).toThrow(RangeError);
  });
});

it('reading never throws, whatever the JSON, and rejections are named', () => {
  const names = fc.constantFrom('a', 'b', '__proto__', 'constructor', 'length');
  const json = fc.letrec<{ value: unknown }>((tie) => ({
    value: fc.oneof(
      { depthSize: 'small' },
      fc.constantFrom<unknown>(null, true, -1, 1.5, 80, '', 'x', '10.0.0.1', 'fd00::/8'),
      fc.array(tie('value'), { maxLength: 3 }),
      fc.dictionary(names, tie('value')),
    ),
  }));
  const readAll = (fields: Lenient, depth: number): void => {
    for (const name of ['a', 'b', '__proto__', 'constructor', 'length', 0]) {
      fields.string(name);
      fields.text(name);
      fields.boolean(name);
      fields.integer(name, 0, 100);
      fields.word(name, ['x']);
      fields.addressOf(4, name);
      fields.cidr(name);
      fields.strings(name, 1);
      for (const nested of [fields.object(name), fields.map(name, 1), fields.list(name, 2)]) {
        if (nested !== undefined && nested.size > 0 && depth < 2) readAll(nested, depth + 1);
      }
    }
  };
  fc.assert(
    fc.property(fc.dictionary(names, json.value), (object) => {
      const { rejected } = read(object, (fields) => readAll(fields, 0));
      for (const line of rejected) expect(line).toMatch(/^[a-z-]+ \S+ .*: .+/);
    }),
    { numRuns: 200 },
  );
});
