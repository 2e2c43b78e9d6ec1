import fc from 'fast-check';
import type { IPCache } from '../../../src/ipcache/ipcache.ts';

/** A write to a cache. */
export type Write =
  | { readonly op: 'upsert'; readonly key: string; readonly identity: number; readonly host: number }
  | { readonly op: 'delete'; readonly key: string };

const few = fc.nat(7);
/** Few addresses that share their first bits, so that prefixes contain each other. */
const ipv4 = fc.tuple(few, few, few).map(([a, b, c]) => `10.${a % 2}.${16 * b}.${32 * c}`);
const ipv6 = fc.tuple(few, few, few).map(([a, b, c]) => `fd00:${a % 2}:${b}::${c}`);
export const address: fc.Arbitrary<string> = fc.oneof(ipv4, ipv6, fc.ipV4(), fc.ipV6());

const ends = fc.constantFrom(0, 16, 24, 32, 48, 64, 96, 127, 128);
const key = fc.oneof(
  address,
  address.map((ip) => `${ip}@5`),
  fc.tuple(ipv4, fc.oneof(fc.nat(32), ends)).map(([ip, length]) => `${ip}/${Math.min(length, 32)}`),
  fc.tuple(ipv6, fc.oneof(fc.nat(128), ends)).map(([ip, length]) => `${ip}/${length}`),
);

const identity = fc.oneof(fc.nat(5), fc.constantFrom(2 ** 31, 2 ** 32 - 1));

export const write: fc.Arbitrary<Write> = fc.oneof(
  { weight: 3, arbitrary: fc.record({ op: fc.constant('upsert' as const), key, identity, host: few }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('delete' as const), key }) },
);

/** Hosts by number: none, and addresses of both families. */
const HOSTS = [
  undefined,
  undefined,
  '192.0.2.1',
  '192.0.2.2',
  '2001:db8::1',
  '2001:db8::2',
  '192.0.2.3',
  '::1',
];

export function apply(cache: IPCache, write: Write): void {
  if (write.op === 'delete') {
    cache.delete(write.key, { source: 'kvstore' });
    return;
  }
  const encryptKey = write.host % 3 === 1 ? 255 : 0;
  cache.upsert(write.key, { ...write, hostIP: HOSTS[write.host], encryptKey, source: 'kvstore' });
}
