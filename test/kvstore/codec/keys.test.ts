import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { UsageError } from '../../../src/base/arguments.ts';
import { bytesOfKey, keyOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import {
  compareKeys,
  inRange,
  keyAfter,
  keyRange,
  prefixEnd,
  prefixRange,
} from '../../../src/kvstore/codec/key-range.ts';
import * as keys from '../../../src/kvstore/codec/keys.ts';

describe('the names of keys', () => {
  it.each([
    [keys.nodeKey({ cluster: 'a', name: 'n1' }), { kind: 'node', layout: 'state', cluster: 'a', name: 'n1' }],
    [
      keys.serviceKey({ cluster: 'a', namespace: 'ns', name: 's' }),
      { kind: 'service', layout: 'state', cluster: 'a', namespace: 'ns', name: 's' },
    ],
    [
      keys.endpointSliceKey({ cluster: 'a', namespace: 'ns', name: 's-1' }),
      { kind: 'endpointslice', layout: 'state', cluster: 'a', namespace: 'ns', name: 's-1' },
    ],
    [
      keys.ipKey('10.0.0.0/8'),
      { kind: 'ip', layout: 'state', addressSpace: 'default', prefix: '10.0.0.0/8' },
    ],
    [keys.identityKey(300), { kind: 'identity', layout: 'state', id: '300' }],
    [
      keys.identityValueKey('k8s:a/b=c;', '10.0.0.1'),
      { kind: 'identity-value', labels: 'k8s:a/b=c;', node: '10.0.0.1' },
    ],
    ['cilium/state/identities/v1/locks/x/1f', { kind: 'identity-lock', path: 'x/1f' }],
    [keys.clusterConfigKey('a'), { kind: 'cluster-config', cluster: 'a' }],
    [keys.syncedKey('a', 'ip'), { kind: 'synced', cluster: 'a', prefix: 'cilium/state/ip/v1' }],
    ['cilium/cache/ip/v1/a/10.0.0.1', { kind: 'ip', layout: 'cache', cluster: 'a', prefix: '10.0.0.1' }],
    ['cilium/cache/identities/v1/a/id/7', { kind: 'identity', layout: 'cache', cluster: 'a', id: '7' }],
    ['cilium/cache/nodes/v1/a/n', { kind: 'node', layout: 'cache', cluster: 'a', name: 'n' }],
    ['cilium/.heartbeat', { kind: 'heartbeat' }],
    ['cilium/.initlock/5', { kind: 'init-lock', name: '5' }],
    ['cilium/.initlock/leases/1f', { kind: 'init-lock', name: 'leases/1f' }],
    ['cilium/kvstoremesh-lock/1f', { kind: 'kvstoremesh-lock', name: '1f' }],
  ])('%s', (key, expected) => {
    expect(keys.parseKvstoreKey(key)).toMatchObject(expected);
  });

  it.each([
    '',
    'cilium',
    'cilium/state/nodes/v1/a',
    'cilium/state/nodes/v1/a/',
    'cilium/state/nodes/v1/a/b/c',
    'cilium/state/nodes/v2/a/b',
    'cilium/state/services/v1/a/b',
    'cilium/state/identities/v1/value/x',
    'cilium/state/identities/v1/value//n',
    'cilium/state/identities/v1/value/x/',
    'cilium/state/identities/v1/id/',
    'cilium/state/identities/v1/locks/',
    'cilium/state/identities/v1/other/x',
    'cilium/state/nodes/v1//n',
    'cilium/state/identities/v1/other/k8s:a=1;/n',
    'cilium/state/identities/v1/values/k8s:a=1;/n',
    'cilium/state/services/v1/a//s',
    'cilium/state/services/v1/a/b/c/d',
    'cilium/state/ip/v1/default',
    'cilium/state/other/v1/a/b',
    'cilium/cache/identities/v1/a',
    'cilium/cache/identities/v1/a/id/',
    'cilium/other/ip/v1/default/10.0.0.1',
    'cilium/other/x',
    'cilium/kvstoremesh-lock',
    'cilium/kvstoremesh-lock/1f/x',
    'cilium/synced/a',
    'cilium/cluster-config/a/b',
    'cilium//x',
    'other/state/nodes/v1/a/b',
  ])('%j is invalid', (key) => {
    expect(keys.parseKvstoreKey(key)).toBeUndefined();
  });

  it('are those of Cilium', () => {
    const resources = keys.MESH_RESOURCES.flatMap((resource) =>
      (['state', 'cache'] as const).map((layout) => keys.resourcePrefix(resource, 'a', layout)),
    );
    expect(resources).toEqual([
      ...['cilium/state/nodes/v1/a/', 'cilium/cache/nodes/v1/a/'],
      ...['cilium/state/services/v1/a/', 'cilium/cache/services/v1/a/'],
      ...['cilium/state/endpointslices/v1/a/', 'cilium/cache/endpointslices/v1/a/'],
      ...['cilium/state/identities/v1/id/', 'cilium/cache/identities/v1/a/id/'],
      ...['cilium/state/ip/v1/default/', 'cilium/cache/ip/v1/a/'],
    ]);
    expect([keys.INIT_LOCKS_PREFIX, keys.IDENTITY_LOCKS_PREFIX]).toEqual([
      ...['cilium/.initlock/', 'cilium/state/identities/v1/locks/'],
    ]);
    expect(keys.syncedKey('a', 'nodes', 'cache')).toBe('cilium/synced/a/cilium/cache/nodes/v1');
    expect(keys.identityValueKey('k8s:a=1;', 'n')).toBe('cilium/state/identities/v1/value/k8s:a=1;/n');
  });

  it('a prefix ends in "/", so that cluster `a` does not see `ab` (trap)', () => {
    for (const layout of ['state', 'cache'] as const) {
      for (const resource of keys.MESH_RESOURCES) {
        expect(keys.resourcePrefix(resource, 'a', layout)).toMatch(/\/$/);
      }
    }
    expect(keys.nodeKey({ cluster: 'ab', name: 'n' }).startsWith(keys.resourcePrefix('nodes', 'a'))).toBe(
      false,
    );
  });
});

describe('the functions that return keys', () => {
  it.each<readonly [string, (...args: never[]) => string, readonly unknown[]]>([
    ['serviceKey: service must be an object, not "a"', keys.serviceKey, ['a', 'ns', 's']],
    ['serviceKey: service.namespace must be a string', keys.serviceKey, [{ cluster: 'a', name: 's' }]],
    [
      'endpointSliceKey: slice.name must be a string',
      keys.endpointSliceKey,
      [{ cluster: 'a', namespace: '' }],
    ],
    ['serviceExportKey: service.cluster must be a string, not undefined', keys.serviceExportKey, [{}]],
    ['nodeKey: node must be an object, not "a"', keys.nodeKey, ['a', 'n1']],
    ['nodeKey: node.name must be a string, not undefined', keys.nodeKey, [{ cluster: 'a' }]],
    ['ipKey: prefix must be a string, not {', keys.ipKey, [{ prefix: '10.0.0.1' }]],
    ['identityKey: id must be a number, not "300"', keys.identityKey, ['300']],
    ['identityValueKey: labels must be a string, not 7', keys.identityValueKey, [7, 'n']],
    ['identityValueKey: node must be a string, not undefined', keys.identityValueKey, ['k8s:a=1;']],
    ['clusterConfigKey: cluster must be a string, not undefined', keys.clusterConfigKey, [undefined]],
    ['syncedPrefix: cluster must be a string, not {}', keys.syncedPrefix, [{}]],
    ['syncedKey: resource must be one of nodes, services,', keys.syncedKey, ['a', 'pods']],
    ['syncedKey: layout must be one of state, cache, not "copy"', keys.syncedKey, ['a', 'ip', 'copy']],
    ['resourcePrefix: resource must be one of nodes, services,', keys.resourcePrefix, ['a', 'nodes']],
    ['resourcePrefix: cluster must be a string, not {}', keys.resourcePrefix, ['nodes', {}]],
    ['resourcePrefix: layout must be one of state, cache, not "x"', keys.resourcePrefix, ['nodes', 'a', 'x']],
  ])('reject a wrong argument (regression: keys with `undefined`): %s', (message, run, args) => {
    const call = (): unknown => Reflect.apply(run, undefined, args);
    expect(call).toThrow(UsageError);
    expect(call).toThrow(message);
  });
});

describe('keys as strings', () => {
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 8 }),
    fc.string({ unit: 'binary', maxLength: 6 }).map((text) => Uint8Array.from(Buffer.from(text))),
    fc
      .array(fc.constantFrom(0, 0x2f, 0x7f, 0x80, 0xbf, 0xc3, 0xe2, 0xed, 0xf0, 0xff), { maxLength: 8 })
      .map((b) => Uint8Array.from(b)),
  );

  it('every byte sequence has its own string, and back', () => {
    fc.assert(
      fc.property(bytes, (key) => {
        expect([...bytesOfKey(keyOfBytes(key))]).toEqual([...key]);
      }),
    );
  });

  it('are ordered by their bytes', () => {
    fc.assert(
      fc.property(bytes, bytes, (a, b) => {
        const expected = Math.sign(Buffer.compare(a, b));
        expect(Math.sign(compareKeys(keyOfBytes(a), keyOfBytes(b)))).toBe(expected);
      }),
    );
  });

  it('a prefix range contains exactly the keys that start with the prefix', () => {
    fc.assert(
      fc.property(bytes, bytes, (prefix, key) => {
        const starts = Buffer.from(key).subarray(0, prefix.length).equals(prefix);
        const text = keyOfBytes(key);
        expect(text.length > 0 && inRange(text, prefixRange(keyOfBytes(prefix)))).toBe(
          key.length > 0 && starts,
        );
      }),
    );
  });

  it('are ordered by their bytes beyond the basic plane, too', () => {
    const ascending = [
      '',
      'a',
      'a\0',
      'ab',
      '\ud7ff',
      '\ue000',
      '\ue000a',
      '\uffff',
      '\u{10000}',
      '\u{1f600}',
    ];
    for (const [i, a] of ascending.entries())
      for (const [k, b] of ascending.entries()) {
        expect([a, b, Math.sign(compareKeys(a, b))]).toEqual([a, b, Math.sign(i - k)]);
      }
  });

  it('a range includes its start and excludes its end', () => {
    const range = { start: 'b', end: 'd' };
    expect(['a', 'b', 'c', 'cz', 'd', 'e'].filter((key) => inRange(key, range))).toEqual(['b', 'c', 'cz']);
    expect(keyRange('a')).toEqual({ start: 'a', end: 'a\0' });
    expect(prefixRange('')).toEqual({ start: '\0', end: '\0' });
  });

  it('ends of prefixes', () => {
    expect(prefixEnd('a/')).toBe('a0');
    expect(bytesOfKey(prefixEnd(keyOfBytes(Uint8Array.of(0x61, 0xff, 0xff))))).toEqual(Buffer.from('b'));
    expect(prefixEnd('')).toBe('\0');
    expect(compareKeys('a', keyAfter('a'))).toBeLessThan(0);
  });
});
