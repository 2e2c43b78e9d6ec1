import { expect, it } from 'vitest';
import { SharedParts } from '../../src/k8s/endpoint-addresses.ts';
import { SharedValues } from '../../src/k8s/shared-values.ts';

it('returns the first of equal values, and remembers a limited number of them', () => {
  const shared = new SharedValues<object>();
  const first = {};
  expect(shared.share('a', first)).toBe(first);
  expect(shared.share('a', {})).toBe(first);
  for (let i = 0; i < 4096; i++) shared.share(String(i), {});
  const again = {};
  expect(shared.share('a', again)).toBe(again);
});

it('does not confuse ports, whatever their names are', () => {
  const shared = new SharedParts();
  const port = { port: 1, protocol: 6 };
  const all = [
    new Map([['a', port]]),
    new Map([['a', { port: 1, protocol: 17 }]]),
    new Map([['a', { port: 11, protocol: 6 }]]),
    new Map([['a:1/6,1:b', port]]),
    new Map([
      ['a', port],
      ['b', port],
    ]),
  ];
  for (const ports of all) expect(shared.ports(ports)).toBe(ports);
  for (const ports of all) expect(shared.ports(new Map(ports))).toBe(ports);
});
