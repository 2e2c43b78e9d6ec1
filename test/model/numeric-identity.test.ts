import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { UsageError } from '../../src/base/arguments.ts';
import {
  clusterIDOf,
  clusterIdentityRange,
  identityScope,
  isNumericIdentity,
  LOCAL_IDENTITY_SCOPE,
  type MaxConnectedClusters,
  MINIMAL_ALLOCATED_IDENTITY,
  REMOTE_NODE_IDENTITY_SCOPE,
  RESERVED_IDENTITIES,
  reservedIdentityName,
} from '../../src/model/numeric-identity.ts';

describe('an identity', () => {
  it('has a reserved name from 0 to 10', () => {
    const names = Array.from({ length: 12 }, (_, identity) => reservedIdentityName(identity));
    expect(names).toEqual([
      ...['unknown', 'host', 'world', 'unmanaged', 'health', 'init', 'remote-node'],
      ...['kube-apiserver', 'ingress', 'world-ipv4', 'world-ipv6', undefined],
    ]);
    for (const [name, identity] of Object.entries(RESERVED_IDENTITIES)) {
      expect(reservedIdentityName(identity)).toBe(name);
    }
  });

  it.each([0, 1, 255, 65536, 0xffff_ffff])('may be %d', (value) =>
    expect(isNumericIdentity(value)).toBe(true),
  );
  it.each([-1, 2 ** 32, 0.5, Number.NaN, Number.POSITIVE_INFINITY, '1', null, undefined, 1n, []])(
    'is never %s',
    (value) => expect(isNumericIdentity(value)).toBe(false),
  );

  it('contains its scope in the upper byte', () => {
    expect(identityScope(66536)).toBe(0);
    expect(identityScope(0xff_ffff)).toBe(0);
    expect(identityScope(LOCAL_IDENTITY_SCOPE + 5)).toBe(LOCAL_IDENTITY_SCOPE);
    expect(identityScope(REMOTE_NODE_IDENTITY_SCOPE + 5)).toBe(REMOTE_NODE_IDENTITY_SCOPE);
    expect(identityScope(0xff00_0000)).toBe(0xff00_0000);
  });
});

describe.each<MaxConnectedClusters>([255, 511])('in a mesh of %d clusters', (max) => {
  const size = max === 255 ? 0x1_0000 : 0x8000;

  it('a cluster may allocate all numbers with its id that are not reserved', () => {
    expect(clusterIdentityRange(0, max)).toEqual({ min: MINIMAL_ALLOCATED_IDENTITY, max: size - 1 });
    expect(clusterIdentityRange(1, max)).toEqual({ min: size, max: 2 * size - 1 });
    expect(clusterIdentityRange(max, max)).toEqual({ min: max * size, max: (max + 1) * size - 1 });
    expect(clusterIdentityRange(max, max).max).toBe(LOCAL_IDENTITY_SCOPE - 1);
  });

  it.each([-1, 1.5, Number.NaN, max + 1, '1' as never])(
    'a cluster with the id %s has no identities',
    (id) => {
      const rule = `clusterIdentityRange: clusterID must be an integer from 0 to ${max}, not ${id}`;
      expect(() => clusterIdentityRange(id, max)).toThrow(new UsageError('invalid-argument', rule));
    },
  );

  it('contains the id of its cluster at both ends of the range, and of another beyond them', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max }), fc.nat(), (cluster, n) => {
        const range = clusterIdentityRange(cluster, max);
        const identity = range.min + (n % (range.max - range.min + 1));
        expect(isNumericIdentity(identity)).toBe(true);
        expect(clusterIDOf(identity, max)).toBe(cluster);
        expect(clusterIDOf(range.max + 1, max)).not.toBe(cluster);
        expect(identityScope(identity)).toBe(0);
      }),
    );
  });
});
