import { getEventListeners } from 'node:events';
import { describe, expect, it, vi } from 'vitest';
import { HashPrefixTable } from '../../src/lpm/hash-prefix-table.ts';
import { LocalIdentities } from '../../src/metadata/local-identities.ts';
import { METADATA_OWNER } from '../../src/metadata/metadata-layer.ts';
import type { Label, Labels } from '../../src/model/labels.ts';
import type { Source } from '../../src/model/source.ts';
import { type Rig, rig } from './support/metadata-rig.ts';

const LOCAL = 1 << 24;
const label = (source: string, key: string, value = ''): Label => ({ source, key, value });
const reserved = (...keys: readonly string[]): Labels => keys.map((key) => label('reserved', key));
const app = (value: string): Labels => [label('k8s', 'app', value)];

/** Sets labels of a prefix and applies them. */
function say(
  { metadata, run }: Rig,
  cidr: string,
  labels: Labels,
  resource = 'a',
  source: Source = 'generated',
) {
  const revision = metadata.upsertMetadata(cidr, source, resource, labels);
  run();
  return revision;
}

/** Returns a label, and a function that returns how often its value was read. */
function countedLabel(): { readonly label: Label; readonly reads: () => number } {
  let count = 0;
  const counted = {
    ...label('k8s', 'counted'),
    get value() {
      count++;
      return '';
    },
  };
  return { label: counted, reads: () => count };
}

/** Returns the labels of the claims for a key. */
function labelsAt({ ipcache, metadata }: Rig, key: string): readonly string[] {
  const claim = ipcache.explain(key)?.claims.find(({ owner }) => owner === METADATA_OWNER);
  const labels = metadata.identities.labelsOf(claim?.identity ?? 0) ?? [];
  return labels.map(({ source, key: name, value }) => `${source}:${name}=${value}`);
}

describe('the merged labels of a prefix', () => {
  it.each([
    [['host'], 1],
    [['remote-node'], 6],
    [['kube-apiserver', 'remote-node'], 7],
    [['health'], 4],
    [['ingress'], 8],
    [['host', 'health'], 1],
    [['health', 'ingress'], 4],
  ] as const)('the reserved labels %j are %i, of an address or a CIDR', (keys, identity) => {
    const world = rig();
    for (const cidr of ['10.1.2.3/32', '10.1.0.0/16', 'fd00::1/128']) say(world, cidr, reserved(...keys));
    const { ipcache } = world;
    const got = Array.from(ipcache.entries(), (entry) => `${entry.key} ${entry.identity}`).sort();
    expect(got).toEqual([`10.1.0.0/16 ${identity}`, `10.1.2.3 ${identity}`, `fd00::1 ${identity}`]);
  });

  it.each([
    ['single-stack', '10.1.2.3/32', 2],
    ['single-stack', 'fd00::1/128', 2],
    ['dual-stack', '10.1.2.3/32', 9],
    ['dual-stack', 'fd00::1/128', 10],
  ] as const)(
    'no label but the world is the world, and no endpoint: %s %s is %i',
    (stack, cidr, identity) => {
      for (const labels of [[], reserved('world'), reserved('world-ipv4', 'world-ipv6')]) {
        const world = rig({ world: stack });
        say(world, cidr, labels);
        expect(Array.from(world.ipcache.entries(), ({ key, identity: id }) => [key, id])).toEqual([
          [cidr, identity],
        ]);
      }
    },
  );

  it('a label with the key of the world that is not reserved is kept', () => {
    const world = rig({ world: 'dual-stack' });
    say(world, '10.0.0.0/8', [...app('x'), label('k8s', 'world', '1')]);
    expect(labelsAt(world, '10.0.0.0/8')).toEqual(['k8s:app=x', 'k8s:world=1', 'reserved:world-ipv4=']);
  });

  it('of one key have the value of the strongest source, then of the smaller name; of source `cidr` the first counts', () => {
    const world = rig();
    say(world, '10.0.0.0/8', app('weak'), 'a', 'generated');
    say(world, '10.0.0.0/8', app('strong'), 'b', 'k8s');
    expect(labelsAt(world, '10.0.0.0/8')[0]).toBe('k8s:app=strong');
    say(world, '10.0.0.0/8', app('first'), 'a', 'k8s');
    expect(labelsAt(world, '10.0.0.0/8')[0]).toBe('k8s:app=first');
    say(world, '10.0.0.0/8', [label('cidr', '9.0.0.0/8'), label('cidr', '8.0.0.0/8')], 'a', 'k8s');
    expect(labelsAt(world, '10.0.0.0/8').filter((text) => text.startsWith('cidr'))).toEqual([
      'cidr:9.0.0.0/8=',
    ]);
  });

  it('a prefix has the labels of prefixes that contain it, and not of those within it', () => {
    const world = rig();
    say(world, '10.1.0.0/17', app('inner'));
    say(world, '10.1.0.0/16', [label('k8s', 'tier', 'mid')]);
    say(world, '10.0.0.0/8', [label('k8s', 'zone', 'a')]);
    expect(labelsAt(world, '10.1.0.0/17')).toContain('k8s:zone=a');
    expect(labelsAt(world, '10.1.0.0/16')).toEqual(['k8s:tier=mid', 'reserved:world=', 'k8s:zone=a']);
  });

  it('only a node at exactly this address adds the labels of its node', () => {
    const world = rig();
    const { ipcache } = world;
    ipcache.upsert('10.0.0.0', { identity: 6, source: 'generated', owner: 'n', hostIP: '192.168.0.1' });
    ipcache.upsert('10.0.0.3', { identity: 300, source: 'generated', owner: 'n', hostIP: '192.168.0.1' });
    for (const cidr of ['10.0.0.0/24', '10.0.0.3/32']) say(world, cidr, reserved('kube-apiserver'));
    expect(ipcache.get('10.0.0.0/24')?.identity).toBeGreaterThan(LOCAL);
    const claim = ipcache.explain('10.0.0.3')?.claims.find(({ owner }) => owner === METADATA_OWNER);
    expect([claim?.hostIP, (claim?.identity ?? 0) > LOCAL]).toEqual([undefined, true]);
  });
});

describe('revisions', () => {
  it('two writes before a turn have one turn, and the first revision counts', () => {
    const { metadata, run } = rig();
    metadata.upsertMetadata('10.0.0.0/8', 'generated', 'a', app('x'));
    metadata.upsertMetadata('10.0.0.0/8', 'generated', 'a', app('y'));
    expect(metadata.status()).toMatchObject({ applied: 0, revision: 2, pending: 1 });
    expect(run()).toBe(1);
    expect(metadata.status()).toMatchObject({ applied: 2, revision: 2, pending: 0 });
  });

  it('a change of a node is a revision if its address has labels', () => {
    const world = rig();
    const revision = say(world, '10.0.0.1/32', app('x'));
    expect(world.metadata.refresh('10.0.0.2')).toBe(revision);
    expect(world.metadata.refresh('nonsense')).toBe(revision);
    expect(world.metadata.refresh('10.0.0.1')).toBe(revision + 1);
    expect(world.metadata.refresh('10.0.0.1/32')).toBe(revision + 2);
  });

  it('a waiting caller leaves nothing after its signal, and one whose signal has fired does not wait', async () => {
    const { metadata, run } = rig();
    metadata.upsertMetadata('10.0.0.0/8', 'generated', 'a', app('x'));
    const { signal } = new AbortController();
    const waiting = metadata.waitForRevision(1, signal);
    expect(getEventListeners(signal, 'abort')).toHaveLength(1);
    expect(await metadata.waitForRevision(1, AbortSignal.abort())).toBe(false);
    run();
    expect([await waiting, getEventListeners(signal, 'abort').length]).toEqual([true, 0]);
    expect(await metadata.waitForRevision(1, AbortSignal.abort())).toBe(true);
  });

  it('a turn merges fewer prefixes if they have many labels (regression: 1,000 groups with one CIDR cost 1 s in a turn)', () => {
    const { metadata, run } = rig();
    for (let i = 0; i < 50; i++) metadata.upsertMetadata(`10.0.0.${i}`, 'generated', 'r', app('x'));
    run();
    for (let i = 0; i < 400; i++)
      metadata.upsertMetadata('10.0.0.0/8', 'generated', `group-${i}`, [
        label('cidrgroup', `group-${i}`, ''),
      ]);
    run(1);
    expect(metadata.status().pending).toBeGreaterThan(30);
    run();
    expect(metadata.status()).toMatchObject({ pending: 0, identities: 2 });
  });

  it('a resource with the labels of all others of a prefix causes no work (regression: 1,000 policies with 0.0.0.0/0 merged all prefixes 1,000 times)', () => {
    const world = rig();
    const { ipcache, metadata, run } = world;
    for (let i = 0; i < 50; i++) metadata.upsertMetadata(`10.0.0.${i}`, 'generated', 'r', app('x'));
    const everything = '0.0.0.0/0';
    const revision = say(world, everything, reserved('world'), 'policy-0');
    const upsert = vi.spyOn(ipcache, 'upsert');
    for (let i = 1; i < 100; i++) {
      expect(metadata.upsertMetadata(everything, 'generated', `policy-${i}`, reserved('world'))).toBe(
        revision,
      );
      expect(metadata.removeMetadata(everything, `policy-${i - 1}`)).toBe(revision);
    }
    expect([run(), upsert.mock.calls.length]).toEqual([0, 0]);
    const changes = [
      () => metadata.upsertMetadata(everything, 'k8s', 'policy-0', reserved('world')),
      () => metadata.upsertMetadata(everything, 'k8s', 'policy-1', [...reserved('world'), ...app('y')]),
      () => metadata.removeMetadata(everything, 'policy-1'),
      () => metadata.removeMetadata(everything, 'policy-0'),
      () => metadata.removeMetadata(everything, 'policy-99'),
    ];
    changes.forEach((change, at) => {
      expect(change()).toBe(revision + at + 1);
      expect(metadata.status().pending).toBe(51);
      run();
    });
    expect(metadata.status().prefixes).toBe(50);
  });

  it('a policy with the labels of another one causes no work beside a group (regression: each of 1,000 policies with 0.0.0.0/0 merged all prefixes again if a group contained it, too)', () => {
    const { metadata, run } = rig();
    const POLICIES = 20_000;
    const everything = '0.0.0.0/0';
    for (let i = 0; i < 500; i++)
      metadata.upsertMetadata(`10.0.${i >> 8}.${i & 255}`, 'generated', 'r', app('x'));
    metadata.upsertMetadata(everything, 'generated', 'cidrgroup', [label('cidrgroup', 'g')]);
    metadata.upsertMetadata(everything, 'generated', 'policy-0', reserved('world'));
    run();
    const { revision } = metadata;
    const begun = process.cpuUsage();
    for (let i = 1; i < POLICIES; i++)
      metadata.upsertMetadata(everything, 'generated', `policy-${i}`, reserved('world'));
    for (let i = POLICIES - 1; i > 0; i--) metadata.removeMetadata(everything, `policy-${i}`);
    expect([metadata.revision, run()]).toEqual([revision, 0]);
    expect(process.cpuUsage(begun).user).toBeLessThan(3_000_000); // µs; 19 s if each reads all policies
    metadata.removeMetadata(everything, 'policy-0');
    expect([metadata.revision, metadata.status().pending]).toEqual([revision + 1, 501]);
  });

  it('policies with the same labels are added and removed in any order without work (regression: in the order of their names, each removal read all policies)', () => {
    const { metadata, run, ipcache } = rig();
    const counted = countedLabel();
    const names = Array.from({ length: 10 }, (_, i) => `policy-${i}`);
    metadata.upsertMetadata('10.0.0.0/8', 'generated', 'policy-9', [counted.label]);
    run();
    const { revision } = metadata;
    const reads = counted.reads();
    for (const name of names.toReversed())
      metadata.upsertMetadata('10.0.0.0/8', 'generated', name, [label('k8s', 'counted', '')]);
    for (const name of names.slice(0, 9)) metadata.removeMetadata('10.0.0.0/8', name);
    expect([metadata.revision, run(), counted.reads()]).toEqual([revision, 0, reads]);
    metadata.removeMetadata('10.0.0.0/8', 'policy-9');
    run();
    expect([metadata.revision, ipcache.size]).toEqual([revision + 1, 0]);
  });

  it('the labels of a prefix are not merged for each of many changes before a turn', () => {
    const { metadata, run } = rig();
    const counted = countedLabel();
    metadata.upsertMetadata('10.0.0.0/8', 'generated', 'a', [counted.label]);
    run();
    const reads = counted.reads();
    for (let i = 0; i < 100; i++) metadata.upsertMetadata('10.0.0.0/8', 'generated', `b${i}`, app(`x${i}`));
    expect(counted.reads() - reads).toBeLessThan(10);
  });

  it('labels that only look like those before are a change (regression: a value with a space and a colon looked like a further label)', () => {
    const world = rig();
    say(world, '10.0.0.0/8', [label('k8s', 'a', 'x k8s:b=y')]);
    say(world, '10.0.0.0/8', [label('k8s', 'a', 'x'), label('k8s', 'b', 'y')]);
    expect(labelsAt(world, '10.0.0.0/8')).toEqual(['k8s:a=x', 'k8s:b=y', 'reserved:world=']);
  });

  it('a policy that comes before a group instead of after it is a change', () => {
    const world = rig();
    say(world, '10.0.0.0/8', [label('k8s', 'k', 'group')], 'b');
    say(world, '10.0.0.0/8', [label('k8s', 'k', 'policy')], 'c');
    expect(labelsAt(world, '10.0.0.0/8')).toEqual(['k8s:k=group', 'reserved:world=']);
    say(world, '10.0.0.0/8', [label('k8s', 'k', 'policy')], 'a');
    expect(labelsAt(world, '10.0.0.0/8')).toEqual(['k8s:k=policy', 'reserved:world=']);
    world.metadata.removeMetadata('10.0.0.0/8', 'a');
    world.run();
    expect(labelsAt(world, '10.0.0.0/8')).toEqual(['k8s:k=group', 'reserved:world=']);
  });

  it('many changes of a CIDR before a turn visit the prefixes within it once (regression: 1,000 changes of 0.0.0.0/0 visited 20,000 prefixes each time, in 12 s)', () => {
    const world = rig();
    const { metadata, run } = world;
    const everything = '0.0.0.0/0';
    for (let i = 0; i < 500; i++)
      metadata.upsertMetadata(`10.0.${i >> 8}.${i & 255}`, 'generated', 'r', app('x'));
    run();
    const visits = vi.spyOn(HashPrefixTable.prototype, 'covered');
    for (let i = 0; i < 1_000; i++) metadata.upsertMetadata(everything, 'generated', 'group', app(`y${i}`));
    expect(visits).toHaveBeenCalledTimes(1);
    expect([metadata.status().pending, metadata.applied]).toEqual([501, 500]);
    run(1); // 256 of the prefixes
    metadata.upsertMetadata(everything, 'generated', 'group', [label('k8s', 'z', 'last')]);
    expect(metadata.status().pending).toBe(501);
    run();
    for (const address of ['10.0.0.0/32', '10.0.1.243/32'])
      expect(labelsAt(world, address)).toEqual(['k8s:app=x', 'reserved:world=', 'k8s:z=last']);
    expect(metadata.applied).toBe(metadata.revision);
  });

  it('labels of a group that contains the CIDRs of 1,000 policies are merged with one label of these policies', () => {
    const world = rig();
    for (let i = 0; i < 1_000; i++)
      world.metadata.upsertMetadata('10.0.0.0/8', 'generated', `policy-${i}`, reserved('world'));
    world.metadata.upsertMetadata('10.0.0.0/8', 'generated', 'cidrgroup', [label('cidrgroup', 'g')]);
    for (let i = 0; i < 50; i++) world.metadata.upsertMetadata(`10.0.0.${i}`, 'generated', 'r', app('x'));
    expect(world.run()).toBe(1);
    expect(labelsAt(world, '10.0.0.0/8')).toEqual(['cidrgroup:g=', 'reserved:world=']);
    expect(labelsAt(world, '10.0.0.1/32')).toEqual(['k8s:app=x', 'cidrgroup:g=', 'reserved:world=']);
  });

  it('a label with the key of a `cidr` label is kept, because the latter may be of no use in a longer prefix', () => {
    const world = rig();
    say(world, '10.0.0.0/8', [label('cidr', 'k'), label('k8s', 'k', 'v')]);
    say(world, '10.0.0.1/32', [label('cidr', 'own')]);
    expect(labelsAt(world, '10.0.0.0/8')).toEqual(['cidr:k=', 'reserved:world=']);
    expect(labelsAt(world, '10.0.0.1/32')).toEqual(['k8s:k=v', 'cidr:own=', 'reserved:world=']);
  });

  it('the order of labels counts also if two resources have the same ones (I2)', () => {
    const [first, second] = [label('cidr', 'a'), label('cidr', 'b')];
    const world = rig();
    say(world, '10.0.0.0/8', [first, second], 'b');
    say(world, '10.0.0.0/8', [second, first], 'a');
    expect(labelsAt(world, '10.0.0.0/8')).toEqual(['cidr:b=', 'reserved:world=']);
  });

  it('rejections are counted by reason, and are not revisions', () => {
    const { metadata, run } = rig();
    expect(metadata.upsertMetadata('10.0.0.0/33', 'generated', 'a', app('x'))).toBe(0);
    expect(metadata.upsertMetadata('10.0.0.0/8', 'nobody' as Source, 'a', app('x'))).toBe(0);
    expect(metadata.removeMetadata('nonsense', 'a')).toBe(0);
    const { byReason, recent } = metadata.status().rejections;
    expect(byReason).toEqual({ 'invalid-prefix': 1, 'unknown-source': 1 });
    expect(recent.map(({ field }) => field).sort()).toEqual(['prefix', 'source']);
    expect(run()).toBe(0);
  });
});

describe('identity numbers', () => {
  it('that are missing cost no turns until one is free, and then one', () => {
    const { metadata, run, ipcache } = rig({ identities: new LocalIdentities(1) });
    for (const [i, cidr] of ['10.0.0.0/8', '11.0.0.0/8', '12.0.0.0/8'].entries())
      metadata.upsertMetadata(cidr, 'generated', 'a', app(String(i)));
    expect([run(), run()]).toEqual([1, 0]);
    metadata.removeMetadata('10.0.0.0/8', 'a');
    run(1);
    expect(metadata.status()).toMatchObject({ withoutIdentity: 2, pending: 1, applied: 4, revision: 4 });
    expect([run(), ipcache.get('11.0.0.0/8')?.identity]).toEqual([1, LOCAL + 1]);
    for (const cidr of ['11.0.0.0/8', '12.0.0.0/8']) metadata.removeMetadata(cidr, 'a');
    run();
    expect(metadata.status()).toMatchObject({ prefixes: 0, withoutIdentity: 0, identities: 0 });
  });

  it('that are freed are retried by one set of labels each (regression: all waiting prefixes were retried)', () => {
    const { metadata, run, ipcache } = rig({ identities: new LocalIdentities(1) });
    const labelsOf = { '10.0.0.0/8': 'a', '11.0.0.0/8': 'b', '12.0.0.0/8': 'c', '13.0.0.0/8': 'b' };
    for (const [cidr, label] of Object.entries(labelsOf))
      metadata.upsertMetadata(cidr, 'generated', 'r', app(label));
    run();
    metadata.removeMetadata('10.0.0.0/8', 'r');
    run(1);
    expect(metadata.status()).toMatchObject({ withoutIdentity: 3, pending: 2 });
    run();
    expect(metadata.status()).toMatchObject({ withoutIdentity: 1, pending: 0 });
    expect(ipcache.get('13.0.0.0/8')?.identity).toBe(ipcache.get('11.0.0.0/8')?.identity);
    metadata.upsertMetadata('11.0.0.0/8', 'generated', 'r', app('c'));
    metadata.removeMetadata('13.0.0.0/8', 'r');
    run();
    expect(metadata.status()).toMatchObject({ withoutIdentity: 0, identities: 1 });
  });

  it('that were reserved and not requested are assigned to waiting prefixes', () => {
    const identities = new LocalIdentities(1);
    identities.withhold([{ identity: LOCAL + 1, labels: app('of before') }]);
    const world = rig({ identities });
    say(world, '10.0.0.0/8', app('x'));
    expect(world.metadata.status()).toMatchObject({ withoutIdentity: 1 });
    world.metadata.releaseWithheld();
    world.run();
    expect(world.metadata.status()).toMatchObject({ withoutIdentity: 0, identities: 1 });
  });

  it('are counted when they are allocated and released', () => {
    const identities = new LocalIdentities();
    const changes: number[] = [];
    const did = (..._: readonly unknown[]): void => void changes.push(identities.changes);
    did(identities.allocate(app('x')));
    did(identities.allocate(app('x')));
    did(identities.release(LOCAL + 1));
    did(identities.release(LOCAL + 1));
    expect(changes).toEqual([1, 1, 1, 2]);
    expect(() => identities.release(LOCAL + 1)).toThrow('not in use');
  });

  it('find a free number without a search, also if few are free (regression: all numbers were searched)', () => {
    const COUNT = 1_000;
    const identities = new LocalIdentities(COUNT);
    const used = Array.from({ length: COUNT - 1 }, (_, n) => identities.allocate(app(`${n}`)) ?? 0);
    identities.allocate(app('last'));
    const lookups = vi.spyOn(Map.prototype, 'has');
    const allocated = used.toReversed().map((identity, n) => {
      identities.release(identity);
      return identities.allocate(app(`again-${n}`));
    });
    const { length } = lookups.mock.calls;
    lookups.mockRestore();
    expect(allocated).toEqual(used.toReversed());
    expect(length).toBeLessThan(20 * COUNT);
  });

  it('that are freed are reused in the order in which they were freed, also after they were withheld', () => {
    const identities = new LocalIdentities(4);
    const [a = 0, b = 0, c = 0] = ['a', 'b', 'c'].map((name) => identities.allocate(app(name)));
    for (const identity of [c, a, b]) identities.release(identity);
    identities.withhold([{ identity: a, labels: app('a') }]);
    expect([identities.allocate(app('d')), identities.allocate(app('e'))]).toEqual([LOCAL + 4, c]);
    identities.releaseWithheld();
    expect(['f', 'g', 'h'].map((name) => identities.allocate(app(name)))).toEqual([b, a, undefined]);
  });

  it('are limited to 65,535, and are at least one', () => {
    expect(() => new LocalIdentities(0)).toThrow('65,535');
    expect(() => new LocalIdentities(65_536)).toThrow('65,535');
    const all = new LocalIdentities();
    all.withhold([{ identity: LOCAL + 65_535, labels: app('last') }]);
    expect(all.allocate(app('last'))).toBe(LOCAL + 65_535);
    expect(new LocalIdentities(65_535).allocate(app('x'))).toBe(LOCAL + 1);
  });

  it('outside the range, or reserved for other labels already, are not reserved', () => {
    const identities = new LocalIdentities(3);
    identities.withhold([
      { identity: LOCAL + 4, labels: app('beyond') },
      { identity: LOCAL + 3, labels: app('last') },
      { identity: LOCAL + 3, labels: app('again') },
    ]);
    expect(identities.withheld).toBe(1);
    expect(identities.allocate(app('again'))).toBe(LOCAL + 1);
    expect(identities.allocate(app('last'))).toBe(LOCAL + 3);
  });
});
