import { describe, expect, it } from 'vitest';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import type { Claim, IPCacheChange, OwnerChange } from '../../src/ipcache/types.ts';
import { haveOneClass } from '../base/support/hidden-class.ts';
import { FoldingListener } from './support/invariants.ts';

const pod = (podName: string): Claim['k8s'] => ({ namespace: 'shop', podName });

function told(cache: IPCache): IPCacheChange[] {
  const changes: IPCacheChange[] = [];
  cache.subscribe({ onChanges: (some) => changes.push(...some) });
  return changes;
}

/** Returns prefix, identity before and identity after. */
const short = (changes: readonly IPCacheChange[]): unknown[] =>
  changes.map((change) => [change.prefix, change.old?.identity, change.new?.identity]);

/** The expected reason for each rejected field. */
const REASONS: Readonly<Record<string, string>> = {
  prefix: 'invalid-prefix',
  identity: 'invalid-identity',
  source: 'unknown-source',
  owner: 'invalid-owner',
  hostIP: 'invalid-host-ip',
  encryptKey: 'invalid-encrypt-key',
  claim: 'invalid-claim',
};

/** Returns metadata with one named port of any type. */
function withPorts(name: unknown, port: unknown): NonNullable<Claim['k8s']> {
  const namedPorts = new Map([[name, port]]) as unknown as NonNullable<Claim['k8s']>['namedPorts'];
  return { namespace: 'a', podName: 'b', namedPorts };
}

describe('an endpoint over its full-length CIDR', () => {
  const claim = (identity: number, source: 'k8s' | 'kvstore' = 'k8s') => ({ identity, source }) as const;

  it('hides the claims on the CIDR, and is counted while it does', () => {
    const cache = new IPCache();
    const changes = told(cache);
    const steps: readonly (readonly [write: () => unknown, shadowed: number, told: readonly unknown[]])[] = [
      [() => cache.upsert('10.0.0.9', claim(1)), 0, [['10.0.0.9/32', undefined, 1]]],
      [() => cache.delete('10.0.0.9', claim(1)), 0, [['10.0.0.9/32', 1, undefined]]],
      [() => cache.upsert('10.0.0.1/32', claim(2)), 0, [['10.0.0.1/32', undefined, 2]]],
      [() => cache.upsert('10.0.0.1', claim(3)), 1, [['10.0.0.1/32', 2, 3]]],
      [() => cache.upsert('10.0.0.1/32', claim(4)), 1, []],
      [() => cache.upsert('10.0.0.1/32', claim(5, 'kvstore')), 1, []],
      [() => cache.delete('10.0.0.1/32', claim(5, 'kvstore')), 1, []],
      [() => cache.delete('10.0.0.1', claim(3)), 0, [['10.0.0.1/32', 3, 4]]],
      [() => cache.upsert('10.0.0.1', claim(3)), 1, [['10.0.0.1/32', 4, 3]]],
      [() => cache.delete('10.0.0.1/32', claim(4)), 0, []],
      [() => cache.upsert('10.0.0.1/32', claim(6)), 1, []],
    ];
    for (const [write, shadowed, expected] of steps) {
      write();
      expect([cache.status().shadowed, short(changes.splice(0))]).toEqual([shadowed, expected]);
    }
  });

  it('is explained by the spelling of the CIDR if the CIDR has no claim', () => {
    const cache = new IPCache();
    cache.upsert('10.0.0.1', claim(1));
    expect(cache.explain('10.0.0.1/32')?.claims.map(({ key }) => key)).toEqual(['10.0.0.1']);
  });
});

describe('the claims on a key', () => {
  it('are deleted one by one if overruled, and the highest number of keys is kept', () => {
    const cache = new IPCache();
    cache.upsert('10.0.0.1', { identity: 1, source: 'kvstore' });
    cache.upsert('10.0.0.1', { identity: 2, source: 'k8s' });
    cache.upsert('10.0.0.2', { identity: 2, source: 'k8s' });
    expect(cache.delete('10.0.0.1', { source: 'k8s' })).toBe('applied');
    expect(cache.get('10.0.0.1')?.identity).toBe(1);
    cache.delete('10.0.0.1', { source: 'kvstore' });
    expect(cache.get('10.0.0.1')).toBeUndefined();
    cache.delete('10.0.0.2', { source: 'k8s' });
    cache.upsert('10.0.0.3', { identity: 2, source: 'k8s' });
    expect(cache.status()).toMatchObject({ entries: 1, highWater: 2 });
  });

  it('have one hidden class in explanations (regression: 3.1 instead of 0.5 µs for a contested key)', () => {
    const cache = new IPCache();
    for (let i = 0; i < 1000; i++)
      for (const source of ['kvstore', 'k8s', 'generated'] as const)
        cache.upsert(`10.0.${i >> 8}.${i & 255}`, { identity: i, source });
    const explained = [...cache.contested()];
    for (const claims of explained)
      for (const [at, claim] of claims.entries()) expect(haveOneClass(claim, explained[0]?.[at])).toBe(true);
  });

  it('are contested after a failed batch exactly as before it', () => {
    const cache = new IPCache();
    const hands: OwnerChange[] = [];
    cache.upsert('10.0.0.1', { identity: 1, source: 'kvstore' });
    cache.upsert('10.0.0.1', { identity: 1, source: 'k8s' });
    cache.subscribeOwners({ onOwnerChanges: (changes) => hands.push(...changes) });
    const failing = (): never => {
      cache.delete('10.0.0.1', { source: 'kvstore' });
      throw new Error('it fails');
    };
    expect(() => cache.batch(failing)).toThrow('it fails');
    expect(hands).toEqual([]);
    cache.delete('10.0.0.1', { source: 'kvstore' });
    expect(hands.map(({ current }) => current?.source)).toEqual(['k8s']);
  });
});

describe('an upsert', () => {
  it('returns its outcome', () => {
    const cache = new IPCache({ maxEntries: 1 });
    expect(cache.upsert('10.0.0.1', { identity: 100, source: 'kvstore' })).toBe('applied');
    expect(cache.upsert('10.0.0.1', { identity: 100, source: 'kvstore' })).toBe('unchanged');
    expect(cache.upsert('10.0.0.1', { identity: 200, source: 'k8s' })).toBe('overruled');
    expect(cache.upsert('10.0.0.2', { identity: 100, source: 'kvstore' })).toBe('capacity');
    expect(cache.upsert('10.0.0', { identity: 100, source: 'kvstore' })).toBe('invalid');
    expect(cache.status().outcomes).toMatchObject({
      applied: 1,
      unchanged: 1,
      overruled: 1,
      capacity: 1,
      invalid: 1,
    });
  });

  it.each<readonly [field: string, key: unknown, bad: object | null]>([
    ['prefix', '10.1.2', {}],
    ['prefix', '10.1.2.3/33', {}],
    ['prefix', '010.1.2.3', {}],
    ['prefix', '::g', {}],
    ['prefix', '', {}],
    ['prefix', 'fe80::1%eth0', {}],
    ['prefix', '__proto__', {}],
    ['prefix', 7, {}],
    ['identity', '10.0.0.1', { identity: -1 }],
    ['identity', '10.0.0.1', { identity: 2 ** 32 }],
    ['identity', '10.0.0.1', { identity: 1.5 }],
    ['identity', '10.0.0.1', { identity: '100' }],
    ['source', '10.0.0.1', { source: 'rumour' }],
    ['source', '10.0.0.1', { source: '__proto__' }],
    ['owner', '10.0.0.1', { owner: 7 }],
    ['hostIP', '10.0.0.1', { hostIP: '192.168.0' }],
    ['hostIP', '10.0.0.1', { hostIP: '192.168.0.0/24' }],
    ['hostIP', '10.0.0.1', { hostIP: 7 }],
    ...[256, -1, 1.5, '7'].map((encryptKey) => ['encryptKey', '10.0.0.1', { encryptKey }] as const),
    ['k8s.podName', '10.0.0.1', { k8s: { namespace: 'shop' } }],
    ['k8s.namespace', '10.0.0.1', { k8s: { podName: 'a' } }],
    ['k8s.namedPorts', '10.0.0.1', { k8s: { namespace: 'a', podName: 'b', namedPorts: {} } }],
    ...[{ port: 70_000, protocol: 6 }, { port: 80, protocol: 256 }, { port: 80 }, {}, null].map(
      (port) => ['k8s.namedPorts.http', '10.0.0.1', { k8s: withPorts('http', port) }] as const,
    ),
    ['k8s.namedPorts.7', '10.0.0.1', { k8s: withPorts(7, { port: 80, protocol: 6 }) }],
    ['k8s', '10.0.0.1', { k8s: null }],
    ['k8s', '10.0.0.1', { k8s: 'shop/a' }],
    ['claim', '10.0.0.1', null],
  ])('rejects an invalid %s (%j %j), changes nothing and names the field', (field, key, bad) => {
    const cache = new IPCache();
    const claim = bad === null ? null : { identity: 100, source: 'kvstore', ...bad };
    expect(cache.upsert(key as string, claim as Claim)).toBe('invalid');
    expect(cache.size).toBe(0);
    const { total, recent } = cache.status().rejections;
    expect(total).toBe(1);
    expect(recent[0]).toMatchObject({ field, reason: REASONS[field] ?? 'invalid-metadata' });
  });

  it.each([null, 7, 'kvstore', undefined])('refuses the writer %j, and says so', (writer) => {
    const cache = new IPCache();
    expect(cache.delete('10.0.0.1', writer as unknown as Claim)).toBe('invalid');
    expect(cache.withdraw(writer as unknown as Claim)).toBe(0);
    const { recent } = cache.status().rejections;
    expect(recent.map(({ field, reason }) => `${field} ${reason}`)).toEqual([
      'by invalid-writer',
      'by invalid-writer',
    ]);
  });

  it('accepts every value at its limit', () => {
    const cache = new IPCache();
    const claim = { identity: 2 ** 32 - 1, source: 'kvstore', encryptKey: 255 } as const;
    for (const protocol of [0, 255])
      for (const port of [0, 65_535])
        expect(cache.upsert('10.0.0.1', { ...claim, k8s: withPorts('http', { port, protocol }) })).toBe(
          'applied',
        );
    expect(cache.get('10.0.0.1')).toMatchObject({ identity: 4_294_967_295, encryptKey: 255 });
  });

  it('keeps the canonical form of the host IP', () => {
    const cache = new IPCache();
    cache.upsert('10.0.0.1', { identity: 100, source: 'kvstore', hostIP: '::ffff:192.168.0.7' });
    expect(cache.get('10.0.0.1')?.hostIP).toBe('192.168.0.7');
  });
});

describe('reads', () => {
  it('find entries by exact key, by prefix and by longest match', () => {
    const cache = new IPCache();
    cache.upsert('10.0.0.1', { identity: 100, source: 'kvstore' });
    cache.upsert('10.0.0.1/32', { identity: 200, source: 'generated' });
    cache.upsert('10.0.0.0/8', { identity: 300, source: 'generated' });
    expect(cache.get('10.0.0.1/32')).toMatchObject({ identity: 200, shadowed: true });
    expect(cache.lookupByPrefix('10.0.0.1/32')).toMatchObject({ identity: 100, key: '10.0.0.1' });
    expect(cache.lookup('10.0.0.1')?.identity).toBe(100);
    expect(cache.lookup('10.9.9.9')).toMatchObject({ identity: 300, key: '10.0.0.0/8' });
    expect(cache.lookup('11.0.0.1')).toBeUndefined();
    expect(cache.lookup('10.0.0.0/8')).toBeUndefined();
    expect([...cache.entries()].map(({ key }) => key).sort()).toEqual(['10.0.0.0/8', '10.0.0.1']);
  });

  it('return no pod for an unknown entry', () => {
    const cache = new IPCache();
    expect([cache.getK8sMetadata('10.0.0.1'), cache.getK8sMetadata('none')]).toEqual([undefined, undefined]);
  });

  it('by prefix prefer the endpoint to the CIDR of the same address, and return no CIDR for an endpoint', () => {
    const cache = new IPCache();
    for (const [i, key] of ['10.0.0.1', '10.0.0.1/32', '10.0.0.2/32', '10.0.0.0/24'].entries())
      cache.upsert(key, { identity: i, source: 'k8s' });
    const keys = ['10.0.0.1/32', '10.0.0.1', '10.0.0.2/32', '10.0.0.2', '10.0.0.0/24', '10.0.1.0/24', 'none'];
    expect(keys.map((key) => cache.lookupByPrefix(key)?.key)).toEqual([
      '10.0.0.1',
      '10.0.0.1',
      '10.0.0.2/32',
      undefined,
      '10.0.0.0/24',
      undefined,
      undefined,
    ]);
  });

  it('explain the claims of a prefix and the rule that decided', () => {
    const cache = new IPCache();
    const rule = (): unknown => cache.explain('10.0.0.1')?.decidedBy;
    expect(rule()).toBeUndefined();
    cache.upsert('10.0.0.1/32', { identity: 1, source: 'kvstore' });
    expect(rule()).toBe('only-claim');
    cache.upsert('10.0.0.1', { identity: 2, source: 'generated' });
    expect(rule()).toBe('endpoint-over-cidr');
    cache.upsert('10.0.0.1', { identity: 3, source: 'clustermesh', owner: 'baltic' });
    expect(rule()).toBe('source-precedence');
    cache.upsert('10.0.0.1', { identity: 4, source: 'clustermesh', owner: 'atlantic' });
    expect(rule()).toBe('owner-name');
    expect(cache.explain('10.0.0.1')?.claims.map(({ identity }) => identity)).toEqual([4, 3, 2, 1]);
  });

  it('of a snapshot return the same for ever', () => {
    const cache = new IPCache();
    cache.upsert('10.0.0.0/8', { identity: 300, source: 'generated' });
    const snapshot = cache.snapshot();
    cache.upsert('10.0.0.1', { identity: 100, source: 'kvstore' });
    cache.delete('10.0.0.0/8', { source: 'generated' });
    expect(snapshot.lookup('10.0.0.1')?.identity).toBe(300);
    expect(snapshot.get('10.0.0.1')).toBeUndefined();
    expect(snapshot.lookupByIdentity(300)).toEqual(['10.0.0.0/8']);
    expect(cache.snapshot().lookup('10.0.0.1')?.identity).toBe(100);
    expect(snapshot.size).toBe(1);
  });
});

describe('named ports', () => {
  const withPort = (port: number): Claim => ({
    identity: 100,
    source: 'kvstore',
    k8s: { namespace: 'shop', podName: 'a', namedPorts: new Map([['http', { port, protocol: 6 }]]) },
  });

  it('are kept from the first read on, including those of shadowed entries', () => {
    const cache = new IPCache();
    cache.upsert('10.0.0.1/32', withPort(80));
    let changes = 0;
    cache.onNamedPortsChange(() => changes++);
    expect([...cache.namedPorts()]).toEqual([['http', [{ port: 80, protocol: 6 }]]]);
    cache.upsert('10.0.0.1', withPort(80));
    expect(changes).toBe(0);
    cache.upsert('10.0.0.2', withPort(8080));
    expect(changes).toBe(1);
    expect(cache.namedPorts().get('http')).toEqual([
      { port: 80, protocol: 6 },
      { port: 8080, protocol: 6 },
    ]);
    cache.batch(() => {
      cache.delete('10.0.0.2', { source: 'kvstore' });
      cache.upsert('10.0.0.3', withPort(8080));
    });
    expect(changes).toBe(1);
  });

  it('are reported when two change at the same time whose port and name read alike in a row (regression: not reported)', () => {
    const cache = new IPCache();
    let changes = 0;
    cache.onNamedPortsChange(() => changes++);
    const namedPorts = new Map([
      ['44a', { port: 80, protocol: 6 }], // 20486 and 44a
      ['a', { port: 8002, protocol: 132 }], // 2048644 and a
    ]);
    const k8s = { namespace: 'shop', podName: 'a', namedPorts };
    cache.upsert('10.0.0.1', { identity: 100, source: 'kvstore', k8s });
    expect([changes, cache.namedPorts().size]).toEqual([1, 2]);
  });
});

describe('listeners for owners', () => {
  it('are notified when a contested key gets another owner, even if nothing else changes', () => {
    const cache = new IPCache();
    const hands: OwnerChange[] = [];
    const changes = told(cache);
    cache.subscribeOwners({ onOwnerChanges: (some) => hands.push(...some) });
    cache.upsert('10.0.0.1', { identity: 6, source: 'k8s', owner: 'a/node' });
    expect(hands).toEqual([]);
    cache.upsert('10.0.0.1', { identity: 6, source: 'kvstore' });
    cache.delete('10.0.0.1', { source: 'kvstore' });
    cache.delete('10.0.0.1', { source: 'k8s', owner: 'a/node' });
    const node = { source: 'k8s', owner: 'a/node' };
    const kvstore = { source: 'kvstore', owner: '' };
    expect(hands.map(({ previous, current }) => [previous, current])).toEqual([
      [node, kvstore],
      [kvstore, node],
      [node, undefined],
    ]);
    expect(short(changes)).toEqual([
      ['10.0.0.1/32', undefined, 6],
      ['10.0.0.1/32', 6, undefined],
    ]);
  });

  it('are notified of the net effect of a batch: not if it is undone, but if another owner of one source wins', () => {
    const cache = new IPCache();
    const told: string[] = [];
    const name = (by: { source: string; owner: string } | undefined): string =>
      by ? `${by.source}/${by.owner}` : '-';
    const [a, b] = (['a', 'b'] as const).map(
      (owner) => ({ identity: 100, source: 'clustermesh', owner }) as const,
    );
    for (const claim of [a, b, { identity: 100, source: 'k8s' } as const])
      for (const key of ['10.0.0.1', '10.0.0.2', '10.0.0.3']) cache.upsert(key, claim as Claim);
    cache.subscribeOwners({
      onOwnerChanges: (changes) =>
        told.push(
          ...changes.map(({ key, previous, current }) => `${key} ${name(previous)} ${name(current)}`),
        ),
    });
    cache.batch(() => {
      cache.delete('10.0.0.1', { source: 'k8s' });
      cache.upsert('10.0.0.1', { identity: 100, source: 'k8s' });
      cache.delete('10.0.0.2', { source: 'k8s' });
      cache.delete('10.0.0.3', { source: 'k8s' });
      cache.delete('10.0.0.3', { source: 'clustermesh', owner: 'a' });
      cache.delete('10.0.0.3', { source: 'clustermesh', owner: 'b' });
    });
    expect(told.splice(0)).toEqual(['10.0.0.2 k8s/ clustermesh/a', '10.0.0.3 k8s/ -']);
    cache.batch(() => {
      cache.delete('10.0.0.1', { source: 'k8s' });
      cache.delete('10.0.0.2', { source: 'clustermesh', owner: 'a' });
    });
    expect(told).toEqual(['10.0.0.1 k8s/ clustermesh/a', '10.0.0.2 clustermesh/a clustermesh/b']);
  });

  it('of each kind are called for their own changes only', () => {
    const cache = new IPCache();
    cache.namedPorts();
    const calls: string[] = [];
    cache.subscribe({ onChanges: (changes) => calls.push(`changes ${changes.length}`) });
    cache.subscribeOwners({ onOwnerChanges: (changes) => calls.push(`owners ${changes.length}`) });
    cache.onNamedPortsChange(() => calls.push('ports'));
    const called = (write: () => unknown): string => {
      write();
      return calls.splice(0).join();
    };
    const claim = { identity: 100, source: 'k8s' } as const;
    const ports = { ...claim, k8s: withPorts('http', { port: 80, protocol: 6 }) };
    expect(called(() => cache.upsert('10.0.0.1', claim))).toBe('changes 1');
    expect(called(() => cache.upsert('10.0.0.1', { ...claim, source: 'kvstore' }))).toBe('owners 1');
    expect(called(() => cache.upsert('10.0.0.2', ports))).toBe('changes 1,ports');
    expect(called(() => cache.upsert('10.0.0.2', { ...ports, source: 'kvstore' }))).toBe('owners 1');
    expect(called(() => cache.upsert('10.0.0.2', { ...claim, source: 'local' }))).toBe(
      'changes 1,owners 1,ports',
    );
  });

  it('are notified once of a prefix that is changed before and after a batch within a batch', () => {
    const cache = new IPCache();
    const changes = told(cache);
    cache.batch(() => {
      cache.upsert('10.0.0.1', { identity: 100, source: 'k8s' });
      cache.batch(() => cache.upsert('10.0.0.2', { identity: 100, source: 'k8s' }));
      cache.upsert('10.0.0.1', { identity: 200, source: 'k8s' });
    });
    expect(short(changes)).toEqual([
      ['10.0.0.1/32', undefined, 200],
      ['10.0.0.2/32', undefined, 100],
    ]);
  });

  it('are notified in single-slot mode, too, when the stronger claim is deleted', () => {
    const cache = new IPCache({ retainOverruled: false });
    const hands: OwnerChange[] = [];
    cache.subscribeOwners({ onOwnerChanges: (some) => hands.push(...some) });
    cache.upsert('10.0.0.1', { identity: 100, source: 'kvstore' });
    cache.upsert('10.0.0.1', { identity: 6, source: 'k8s', owner: 'a/node' });
    cache.delete('10.0.0.1', { source: 'kvstore' });
    expect(hands).toEqual([
      { key: '10.0.0.1', previous: { source: 'kvstore', owner: '' }, current: undefined },
    ]);
  });
});

describe('listeners', () => {
  it('that write are notified of their own writes after the current change, in order', () => {
    const cache = new IPCache();
    const seen: unknown[] = [];
    cache.subscribe({
      onChanges: ([change]) => {
        if (change?.prefix === '10.0.0.1/32')
          cache.upsert('10.0.0.2', { identity: 200, source: 'generated' });
      },
    });
    cache.subscribe({ onChanges: (changes) => seen.push(...changes.map(({ prefix }) => prefix)) });
    cache.upsert('10.0.0.1', { identity: 100, source: 'kvstore' });
    expect(seen).toEqual(['10.0.0.1/32', '10.0.0.2/32']);
  });

  it('that subscribe during a notification receive the change once', () => {
    const cache = new IPCache();
    const late: unknown[] = [];
    let joined = false;
    cache.subscribe({
      onChanges: () => {
        if (joined) return;
        joined = true;
        cache.upsert('10.0.0.2', { identity: 200, source: 'generated' });
        cache.subscribe({ onChanges: (changes) => late.push(...changes.map(({ prefix }) => prefix)) });
      },
    });
    cache.upsert('10.0.0.1', { identity: 100, source: 'kvstore' });
    expect(late).toEqual(['10.0.0.1/32', '10.0.0.2/32']);
  });

  it('without a replay are notified of later changes only, with the entry before the change', () => {
    const cache = new IPCache();
    cache.upsert('10.0.0.1', { identity: 100, source: 'kvstore' });
    const seen: unknown[] = [];
    cache.subscribe(
      { onChanges: (changes) => seen.push(...changes), onSynced: () => seen.push('synced') },
      { replay: false },
    );
    expect(seen).toEqual([]);
    cache.upsert('10.0.0.1', { identity: 200, source: 'kvstore' });
    expect(seen).toMatchObject([{ prefix: '10.0.0.1/32', old: { identity: 100 }, new: { identity: 200 } }]);
  });

  it('are not notified after they have unsubscribed, and may dispose of their subscription again', () => {
    const cache = new IPCache();
    const seen: unknown[] = [];
    const subscription = cache.subscribe({ onChanges: (changes) => seen.push(...changes) });
    subscription[Symbol.dispose]();
    subscription();
    cache.upsert('10.0.0.1', { identity: 100, source: 'kvstore' });
    expect(seen).toEqual([]);
  });

  it('may write during their replay: the replay continues unchanged, and the change follows', () => {
    const cache = new IPCache();
    for (let i = 0; i < 1500; i++)
      cache.upsert(`10.0.${i >> 8}.${i & 255}`, { identity: 300, source: 'k8s' });
    const heard: string[] = [];
    cache.subscribe({
      onChanges: (changes) => {
        heard.push(changes.length === 1 ? short(changes).join() : `${changes.length} entries`);
        if (heard.length === 1) cache.delete('10.0.5.219', { source: 'k8s' });
      },
      onSynced: () => heard.push('synced'),
    });
    expect(heard).toEqual(['1024 entries', '476 entries', 'synced', '10.0.5.219/32,300,']);
  });

  it('ipcache-nested-subscribe: a subscription in a replay waits for its turn, and no write is lost', () => {
    const cache = new IPCache();
    for (let i = 0; i < 1500; i++)
      cache.upsert(`10.0.${i >> 8}.${i & 255}`, { identity: 300, source: 'k8s' });
    const [folded, nested] = [new FoldingListener(), new FoldingListener()];
    let first = true;
    cache.subscribe({
      onChanges: (changes) => {
        folded.onChanges(changes);
        if (!first) return;
        first = false;
        cache.subscribe(nested);
        expect(nested.view.size).toBe(0);
        cache.upsert('10.0.0.0', { identity: 999, source: 'k8s' });
      },
    });
    for (const { view, complaints } of [folded, nested]) {
      expect(view.get('10.0.0.0/32')?.identity).toBe(999);
      expect([view.size, complaints]).toEqual([1500, []]);
    }
    expect([nested.synced, cache.status().listenerFaults]).toEqual([1, 0]);
  });

  it('async-and-throwing-listeners: a rejection is a fault of the listener, and does not end the process', async () => {
    const faults: unknown[] = [];
    const cache = new IPCache({ onListenerFault: (error) => faults.push(error) });
    const error = new Error('async listener');
    cache.subscribe({
      // @ts-expect-error: a promise is no result of a listener, and untyped callers may return one nevertheless
      async onChanges() {
        await Promise.resolve();
        throw error;
      },
    });
    cache.upsert('10.0.0.1', { identity: 300, source: 'k8s' });
    await new Promise((resolve) => setImmediate(resolve));
    expect(faults).toEqual([error]);
    expect(cache.status()).toMatchObject({ listeners: 1, listenerFaults: 1 });
  });

  it('async-and-throwing-listeners: a fault in a replay ends the subscription and notifies its listener', () => {
    const cache = new IPCache();
    for (let i = 0; i < 3000; i++)
      cache.upsert(`10.0.${i >> 8}.${i & 255}`, { identity: 300, source: 'k8s' });
    const heard: string[] = [];
    cache.subscribe({
      onChanges: (changes) => {
        heard.push(`${changes.length} entries`);
        if (heard.length === 2) throw new Error('once');
      },
      onSynced: () => heard.push('synced'),
      onEnded: () => heard.push('ended'),
    });
    cache.upsert('11.0.0.1', { identity: 1, source: 'k8s' });
    expect(heard).toEqual(['1024 entries', '1024 entries', 'ended']);
    expect(cache.status()).toMatchObject({ listeners: 0, listenerFaults: 1 });
  });

  it('of changes, owners and named ports are notified write by write, in this order (regression: owners mixed)', () => {
    const cache = new IPCache();
    const heard: string[] = [];
    cache.upsert('10.0.0.1', { identity: 100, source: 'k8s' });
    cache.subscribe({
      onChanges: ([change]) => {
        if (change?.new?.identity === 200) cache.upsert('10.0.0.1', { identity: 300, source: 'local' });
      },
    });
    cache.subscribeOwners({
      onOwnerChanges: (changes) => heard.push(changes.map(({ current }) => current?.source).join()),
    });
    cache.upsert('10.0.0.1', { identity: 200, source: 'kvstore' });
    expect(heard).toEqual(['kvstore', 'local']);
  });

  it('throwing-on-reject: a callback that throws on a rejection is counted, and the write has its outcome', () => {
    const cache = new IPCache({
      onReject: () => {
        throw new Error('my logger failed');
      },
      onListenerFault: () => {
        throw new Error('and so does this');
      },
    });
    expect(cache.upsert('10.0.0', { identity: 1, source: 'k8s' })).toBe('invalid');
    expect(cache.status()).toMatchObject({ rejections: { total: 1 }, listenerFaults: 2 });
  });
});

describe('a batch', () => {
  it('must be synchronous, and cannot contain a subscribe', () => {
    const cache = new IPCache();
    expect(() =>
      cache.batch(async () => cache.upsert('10.0.0.1', { identity: 100, source: 'kvstore' })),
    ).toThrow('synchronous');
    expect(cache.size).toBe(0);
    expect(() => cache.batch(() => told(cache))).toThrow('must not be called inside a batch');
  });

  it('inside a batch undoes only its own part if it throws', () => {
    const cache = new IPCache();
    const changes = told(cache);
    cache.batch(() => {
      cache.upsert('10.0.0.1', { identity: 100, source: 'kvstore' });
      const inner = (): void => {
        cache.upsert('10.0.0.1', { identity: 200, source: 'kvstore' });
        throw new Error('inner');
      };
      expect(() => cache.batch(inner)).toThrow('inner');
    });
    expect(short(changes)).toEqual([['10.0.0.1/32', undefined, 100]]);
  });
});

describe('traps of known systems', () => {
  it('trap: the shadowed flag becomes stale, a full-length CIDR is never revealed or shown twice', () => {
    const cache = new IPCache();
    const changes = told(cache);
    cache.upsert('10.0.0.1', { identity: 100, source: 'kvstore' });
    cache.upsert('10.0.0.1/32', { identity: 100, source: 'generated' });
    cache.delete('10.0.0.1', { source: 'kvstore' });
    cache.upsert('10.0.0.1', { identity: 100, source: 'kvstore' });
    expect([...cache.entries()]).toHaveLength(1);
    expect(short(changes)).toEqual([['10.0.0.1/32', undefined, 100]]);
  });

  it("trap: a revealed CIDR is announced with the deleted endpoint's key and pod", () => {
    const cache = new IPCache();
    cache.upsert('10.0.0.1/32', { identity: 200, source: 'generated', k8s: pod('own'), encryptKey: 3 });
    cache.upsert('10.0.0.1', { identity: 100, source: 'kvstore', k8s: pod('other'), encryptKey: 9 });
    const changes = told(cache);
    cache.delete('10.0.0.1', { source: 'kvstore' });
    expect(changes.at(-1)?.new).toEqual({ identity: 200, hostIP: undefined, encryptKey: 3, k8s: pod('own') });
  });

  it('trap: same identity and host, other key or pod: listeners are not notified', () => {
    const cache = new IPCache();
    cache.upsert('10.0.0.1', { identity: 100, source: 'kvstore', k8s: pod('a') });
    const changes = told(cache);
    cache.upsert('10.0.0.1', { identity: 100, source: 'kvstore', k8s: pod('b') });
    cache.upsert('10.0.0.1', { identity: 100, source: 'kvstore', k8s: pod('b'), encryptKey: 1 });
    expect(changes.slice(1).map((change) => [change.new?.k8s?.podName, change.new?.encryptKey])).toEqual([
      ['b', 0],
      ['b', 1],
    ]);
  });

  it('trap: the overwritten weaker claim is lost, and nothing remains after the winner is deleted', () => {
    const cache = new IPCache();
    cache.upsert('10.0.0.1', { identity: 100, source: 'k8s' });
    cache.upsert('10.0.0.1', { identity: 200, source: 'local' });
    cache.delete('10.0.0.1', { source: 'local' });
    expect(cache.lookup('10.0.0.1')).toMatchObject({ identity: 100, source: 'k8s' });
  });

  it('trap: a late pod delete removes the entry of the new pod that reuses the IP', () => {
    const cache = new IPCache();
    cache.upsert('10.0.0.1', { identity: 100, source: 'k8s', k8s: pod('old') });
    cache.upsert('10.0.0.1', { identity: 100, source: 'k8s', k8s: pod('new') });
    const ifPod = { namespace: 'shop', podName: 'old' };
    expect(cache.delete('10.0.0.1', { source: 'k8s', ifPod })).toBe('not-owner');
    expect(cache.getK8sMetadata('10.0.0.1')).toEqual(pod('new'));
  });

  it('trap: entries of a removed node or cluster remain', () => {
    const cache = new IPCache();
    cache.upsert('10.0.0.1', { identity: 100, source: 'clustermesh', owner: 'baltic' });
    cache.upsert('10.0.0.2', { identity: 100, source: 'kvstore' });
    cache.upsert('10.0.0.2', { identity: 200, source: 'clustermesh', owner: 'baltic' });
    expect(cache.withdraw({ source: 'clustermesh', owner: 'baltic' })).toBe(2);
    cache.delete('10.0.0.2', { source: 'kvstore' });
    expect(cache.size).toBe(0);
  });

  it('trap: a wide CIDR whose network address is an endpoint is not deleted for listeners', () => {
    const cache = new IPCache();
    cache.upsert('10.0.0.0/8', { identity: 300, source: 'generated' });
    cache.upsert('10.0.0.0', { identity: 100, source: 'kvstore' });
    const changes = told(cache);
    cache.delete('10.0.0.0/8', { source: 'generated' });
    expect(changes.at(-1)).toMatchObject({ kind: 'delete', prefix: '10.0.0.0/8' });
  });

  it('trap: event storms from unchanged objects', () => {
    const cache = new IPCache();
    const claim: Claim = { identity: 100, source: 'kvstore', hostIP: '192.168.0.1' };
    cache.upsert('10.0.0.1', claim);
    const changes = told(cache);
    for (let i = 0; i < 5; i++) cache.upsert('10.0.0.1', { ...claim, hostIP: '::ffff:192.168.0.1' });
    expect(changes).toHaveLength(1);
  });

  it('trap: the map is full and entries are silently lost', () => {
    const cache = new IPCache({ maxEntries: 1 });
    cache.upsert('10.0.0.1', { identity: 100, source: 'kvstore' });
    expect(cache.upsert('10.0.0.2', { identity: 100, source: 'kvstore' })).toBe('capacity');
    expect(cache.status().outcomes.capacity).toBe(1);
  });
});

describe('a change of an entry', () => {
  it('has the same four attributes in every case: the old entry of a delete contained source and owner, too', () => {
    const cache = new IPCache();
    const changes = told(cache);
    cache.upsert('10.0.0.1', { identity: 100, source: 'k8s' });
    cache.upsert('10.0.0.1', { identity: 200, source: 'kvstore', owner: 'east' });
    cache.upsert('10.0.0.1', { identity: 300, source: 'kvstore', owner: 'east' });
    cache.delete('10.0.0.1', { source: 'kvstore', owner: 'east' });
    cache.delete('10.0.0.1', { source: 'k8s' });
    const attributes = ['identity', 'hostIP', 'encryptKey', 'k8s'];
    const entries = changes.flatMap((change) => [change.old ?? [], change.new ?? []].flat());
    expect(entries.map((entry) => Object.keys(entry))).toEqual(entries.map(() => attributes));
    expect(changes.map(({ old }) => old?.identity)).toEqual([undefined, 100, 200, 300, 100]);
  });
});
