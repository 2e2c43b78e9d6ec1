import { describe, expect, it } from 'vitest';
import { CallbackGuard } from '../../src/base/guard.ts';
import { type Rejection, RejectionLog, rejection, showValue } from '../../src/base/rejection.ts';

describe('a rejection', () => {
  it('names the place, the field, the value and the reason in one sentence', () => {
    const refused = rejection('invalid-prefix', 'ip', '10.1.2', 'not an IP address', 'mesh.jsonl:7');
    expect(refused).toEqual({
      reason: 'invalid-prefix',
      field: 'ip',
      value: '"10.1.2"',
      at: 'mesh.jsonl:7',
      message: 'mesh.jsonl:7: ip "10.1.2": not an IP address',
    });
  });

  it('does without a place when there is none', () => {
    const refused = rejection('invalid-prefix', 'ip', 7, 'not text');
    expect(refused).toEqual({ reason: 'invalid-prefix', field: 'ip', value: '7', message: 'ip 7: not text' });
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
    ['a bigint', 10n, '[bigint]'],
    ['a cycle', cyclic, '[object]'],
    ['a symbol', Symbol('s'), 'Symbol(s)'],
    ['a __proto__ key', JSON.parse('{"__proto__":1}'), '{"__proto__":1}'],
  ])('is short text: %s', (_, value, text) => expect(showValue(value)).toBe(text));

  it.each([
    ['an object that cannot be written', (): unknown => ({ toJSON: () => JSON.parse('{') })],
    [
      'an object without prototype that writes nothing',
      (): unknown => Object.assign(Object.create(null), { toJSON: () => undefined }),
    ],
    ['a revoked proxy', (): unknown => revoked.proxy],
  ])('never throws, for %s neither', (_, value) => expect(typeof showValue(value())).toBe('string'));

  it('is cut to 120 characters', () => {
    expect(showValue('x'.repeat(1000))).toHaveLength(120);
    expect(showValue('x'.repeat(1000))).toMatch(/…$/);
    expect(showValue('x'.repeat(118))).toHaveLength(120);
    expect(showValue('x'.repeat(118))).toMatch(/"$/);
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
    expect(Object.fromEntries(byReason)).toEqual({ a: 2, b: 1 });
    expect(seen.map(({ value }) => value)).toEqual(['0', '1', '2']);
  });

  it('I11 bounded: remembers the last 16, oldest first', () => {
    const log = new RejectionLog();
    for (let i = 0; i < 100; i++) log.add(refuse('a', i));
    expect(log.status().recent.map(({ value }) => Number(value))).toEqual(
      Array.from({ length: 16 }, (_, i) => 84 + i),
    );
    expect(log.status().total).toBe(100);
  });

  it('goes on when onReject throws, and counts the fault', () => {
    const guard = new CallbackGuard();
    const log = new RejectionLog(() => {
      throw new Error('my logger failed');
    }, guard);
    log.add(refuse('a', 1));
    log.add(refuse('a', 2));
    expect(log.status().total).toBe(2);
    expect(guard.faults).toBe(2);
  });

  it('gives a status that later rejections do not change', () => {
    const log = new RejectionLog();
    log.add(refuse('a', 1));
    const before = log.status();
    log.add(refuse('b', 2));
    expect(before.total).toBe(1);
    expect([...before.byReason.keys()]).toEqual(['a']);
    expect(before.recent).toHaveLength(1);
  });
});
