import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { CallbackGuard } from '../../src/base/guard.ts';
import { type Rejection, RejectionLog, rejection } from '../../src/base/rejection.ts';
import { distance, nearest, showValue } from '../../src/base/show-value.ts';
import { leastCpuTime } from './support/cpu-time.ts';

describe('a rejection', () => {
  it('has a message with the place, the field, the value and the reason', () => {
    const rejected = rejection('invalid-prefix', 'ip', '10.1.2', 'not an IP address', 'mesh.jsonl:7');
    expect(rejected).toEqual({
      reason: 'invalid-prefix',
      field: 'ip',
      value: '"10.1.2"',
      at: 'mesh.jsonl:7',
      message: 'mesh.jsonl:7: ip "10.1.2": not an IP address',
    });
  });

  it('has a message without a place if there is none', () => {
    const rejected = rejection('invalid-prefix', 'ip', 7, 'not text');
    expect(rejected).toEqual({
      reason: 'invalid-prefix',
      field: 'ip',
      value: '7',
      message: 'ip 7: not text',
    });
  });

  it('contains at most 256 characters of a field, of a place and of a reason, and 120 of a value', () => {
    const [at, field, value, why] = ['a', 'f', 'v', 'w'].map((letter) => letter.repeat(1_400_000));
    const rejected = rejection('too-large', field ?? '', value, why ?? '', at);
    expect(rejected).toEqual({
      reason: 'too-large',
      at: `${'a'.repeat(255)}…`,
      field: `${'f'.repeat(255)}…`,
      value: `"${'v'.repeat(118)}…`,
      message: `${'a'.repeat(255)}…: ${'f'.repeat(255)}… "${'v'.repeat(118)}…: ${'w'.repeat(255)}…`,
    });
    expect(rejection('r', 'f'.repeat(256), 1, 'w')).toMatchObject({ field: 'f'.repeat(256) });
  });
});

describe('a shown value', () => {
  const cyclic: unknown[] = [];
  cyclic.push(cyclic);
  const revoked = Proxy.revocable({}, {});
  revoked.revoke();

  it.each([
    ['text', 'text', '"text"'],
    ['a number', 12, '12'],
    ['null', null, 'null'],
    ['undefined', undefined, 'undefined'],
    ['an object', { a: 1 }, '{"a":1}'],
    ['true', true, 'true'],
    ['a list', [1, [], {}], '[1,[],{}]'],
    ['fields', { a: 'b', 'c"': null }, '{"a":"b","c\\"":null}'],
    ['a bigint', 10n, '[bigint]'],
    ['a function', () => 1, '[function]'],
    ['a cycle', cyclic, '[[[[[[[[…]]]]]]]]'],
    ['what it inherits', Object.create({ inherited: 1 }), '{}'],
    ['a symbol', Symbol('s'), 'Symbol(s)'],
    ['a __proto__ key', JSON.parse('{"__proto__":1}'), '{"__proto__":1}'],
  ])('is short text: %s', (_, value, text) => expect(showValue(value)).toBe(text));

  it.each([
    ['an object that cannot be written', (): unknown => ({ toJSON: () => JSON.parse('{') })],
    [
      'an object without prototype that writes nothing',
      (): unknown => Object.assign(Object.create(null), { toJSON: () => undefined }),
    ],
    [
      'a getter that throws',
      (): unknown => ({
        get a(): never {
          throw new Error('asked');
        },
      }),
    ],
    ['a revoked proxy', (): unknown => revoked.proxy],
  ])('never throws, not even for %s', (_, value) => expect(typeof showValue(value())).toBe('string'));

  it('is cut to 120 characters', () => {
    expect(showValue('x'.repeat(1000))).toHaveLength(120);
    expect(showValue('x'.repeat(1000))).toMatch(/…$/);
    expect(showValue('x'.repeat(118))).toHaveLength(120);
    expect(showValue('x'.repeat(118))).toMatch(/"$/);
    expect(showValue({ ['n'.repeat(1000)]: 1 })).toHaveLength(120);
    expect(showValue(Array.from({ length: 500 }, (_, i) => ({ i })))).toHaveLength(120);
  });

  it('costs the same if the value is larger', async () => {
    const show = (length: number): void => {
      const large = Array.from({ length }, () => 'x'.repeat(1000 * length));
      const row = [large, large, large];
      for (let i = 0; i < 100; i++) showValue([row, row, { row, large }]);
    };
    const few = await leastCpuTime(() => show(10));
    expect(await leastCpuTime(() => show(200), 10 * few)).toBeLessThan(10 * few); // 400 times the text
  });
});

describe('the word that is most similar to an unknown one', () => {
  it('differs in at most a third of the characters, or two of them', () => {
    expect(nearest('chekout', ['check', 'CHECKOUT', 'out'])).toBe('CHECKOUT');
    expect(nearest('ab', ['abcd', 'abcde'])).toBe('abcd');
    expect(nearest('ab', ['abcde'])).toBeUndefined();
    expect(nearest('x'.repeat(65), ['x'.repeat(65)])).toBeUndefined();
    expect([distance('kitten', 'sitting'), distance('abab', 'ab'), distance('', 'ab')]).toEqual([3, 2, 2]);
  });

  it('is found as by a comparison of all, the first of equal ones', () => {
    const word = fc.string({ unit: fc.constantFrom('a', 'b', 'c'), maxLength: 12 });
    fc.assert(
      fc.property(word, fc.array(word, { maxLength: 20 }), (unknown, known) => {
        const far = known.map((name) => distance(unknown, name));
        const least = Math.min(...far);
        const limit = Math.max(2, unknown.length / 3);
        expect(nearest(unknown, known)).toBe(least <= limit ? known[far.indexOf(least)] : undefined);
        for (const [index, name] of known.entries())
          for (const max of [0, 1, 3]) {
            const [exact = 0, bounded] = [far[index], distance(unknown, name, max)];
            expect(exact <= max ? bounded : bounded > max).toBe(exact <= max ? exact : true);
          }
      }),
    );
  });

  /** Returns the number of characters of `names` that are read to find the name most similar to `unknown`. */
  function charactersRead(unknown: string, names: readonly string[], expected: string | undefined): number {
    let read = 0;
    const counted = (name: string): unknown =>
      new Proxy(Object(name), {
        get: (target, property) => {
          read++;
          return Reflect.get(target, property);
        },
      });
    const known = names.map((name) => ({ length: name.length, toLowerCase: () => counted(name) }));
    const found = known.indexOf(nearest(unknown, known as never) as never);
    expect(names[found]).toBe(expected);
    return read;
  }

  it('is found without the comparison of all characters, even if the names are made to be slow (regression: three quarters)', () => {
    const random = (at: number): string => 'abcdefgh'.charAt(Math.imul(at, 0x9e37_79b1) >>> 29);
    const names = Array.from({ length: 50 }, (_, i) =>
      Array.from({ length: 62 }, (_, at) => random(i * 62 + at)).join(''),
    );
    const read = charactersRead(`x${'a'.repeat(60)}y`, names, undefined);
    expect(read / (50 * 62 * 62)).toBeLessThan(0.25);
  });

  it('is found among 1,000 long ones without reading them (regression: all characters of each)', () => {
    const domain = '.eu-west-1.compute.internal';
    const names = Array.from({ length: 1000 }, (_, i) => `own/ip-10-0-${i}${domain}`);
    const long = names.map((name) => name.padEnd(254, 'x'));
    const read = charactersRead(`own/ip-10-0-1,7${domain}`, [...long, ...names], `own/ip-10-0-17${domain}`);
    expect(read / names.length).toBeLessThan(100);
  });
});

describe('a rejection log', () => {
  const refuse = (reason: string, value: number): Rejection => rejection(reason, 'field', value, 'no');

  it('I12 nothing silent: counts by reason and passes every rejection on', () => {
    const seen: Rejection[] = [];
    const log = new RejectionLog((item) => seen.push(item));
    for (const [index, reason] of ['a', 'b', 'a'].entries()) log.add(refuse(reason, index));
    const { total, byReason } = log.status();
    expect(total).toBe(3);
    expect(byReason).toEqual({ a: 2, b: 1 });
    expect(seen.map(({ value }) => value)).toEqual(['0', '1', '2']);
  });

  it('I11 bounded: keeps the last 16, oldest first', () => {
    const log = new RejectionLog();
    for (let i = 0; i < 100; i++) log.add(refuse('a', i));
    expect(log.status().recent.map(({ value }) => Number(value))).toEqual(
      Array.from({ length: 16 }, (_, i) => 84 + i),
    );
    expect(log.status().total).toBe(100);
  });

  it('continues if onReject throws, and counts the fault', () => {
    const guard = new CallbackGuard();
    const log = new RejectionLog(() => {
      throw new Error('my logger failed');
    }, guard);
    log.add(refuse('a', 1));
    log.add(refuse('a', 2));
    expect(log.status().total).toBe(2);
    expect(guard.faults).toBe(2);
  });

  it('returns a status that later rejections do not change', () => {
    const log = new RejectionLog();
    log.add(refuse('a', 1));
    const before = log.status();
    log.add(refuse('b', 2));
    expect(before.total).toBe(1);
    expect(before.byReason).toEqual({ a: 1 });
    expect(before.recent).toHaveLength(1);
  });
});
