import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { cidrLabels } from '../../src/metadata/cidr-labels.ts';
import { LocalIdentities } from '../../src/metadata/local-identities.ts';
import { METADATA_OWNER } from '../../src/metadata/metadata-layer.ts';
import type { Labels } from '../../src/model/labels.ts';
import type { Source } from '../../src/model/source.ts';
import { NaiveMetadata } from './naive-metadata.ts';
import { type Rig, rig } from './support/metadata-rig.ts';

const LOCAL = 1 << 24;
const reserved = (key: string): Labels => [{ source: 'reserved', key, value: '' }];
const app = (value: string): Labels => [{ source: 'k8s', key: 'app', value }];

const PREFIXES = [
  '0.0.0.0/0',
  '10.0.0.0/8',
  '10.1.0.0/16',
  '10.1.2.0/24',
  '10.1.2.3/32',
  '10.1.2.4/32',
  '::/0',
  'fd00::/8',
  'fd00::1/128',
];
const RESOURCES = ['a', 'b', 'c'];
const SOURCES: readonly Source[] = ['generated', 'generated', 'k8s', 'kube-apiserver'];

const labelsOf = (dual: boolean, cidr: string): fc.Arbitrary<Labels> =>
  fc.oneof(
    { weight: 4, arbitrary: fc.constant(cidrLabels(cidr, dual ? 'dual-stack' : 'single-stack')) },
    { weight: 2, arbitrary: fc.constantFrom(app('x'), app('y'), [...app('x'), ...reserved('world')]) },
    { weight: 2, arbitrary: fc.constant(reserved('kube-apiserver')) },
    { weight: 1, arbitrary: fc.constantFrom('host', 'remote-node', 'health', 'ingress').map(reserved) },
    { weight: 1, arbitrary: fc.constant([]) },
  );

type Operation =
  | { readonly op: 'say'; cidr: string; source: Source; resource: string; labels: Labels }
  | { readonly op: 'unsay'; cidr: string; resource: string }
  | { readonly op: 'node'; address: string; identity: 1 | 6 | undefined; key: number }
  | { readonly op: 'run'; turns: number };

const operations = (dual: boolean): fc.Arbitrary<readonly Operation[]> => {
  const cidr = fc.constantFrom(...PREFIXES);
  const resource = fc.constantFrom(...RESOURCES);
  const say = fc
    .record({ cidr, resource, source: fc.constantFrom(...SOURCES) })
    .chain((rest) => labelsOf(dual, rest.cidr).map((labels) => ({ op: 'say' as const, ...rest, labels })));
  return fc.array(
    fc.oneof(
      { weight: 5, arbitrary: say },
      { weight: 2, arbitrary: fc.record({ op: fc.constant('unsay' as const), cidr, resource }) },
      {
        weight: 1,
        arbitrary: fc.record({
          op: fc.constant('node' as const),
          address: fc.constantFrom('10.1.2.3', 'fd00::1'),
          identity: fc.constantFrom(1 as const, 6 as const, undefined),
          key: fc.constantFrom(0, 7),
        }),
      },
      { weight: 2, arbitrary: fc.record({ op: fc.constant('run' as const), turns: fc.constantFrom(1, 2) }) },
    ),
    { maxLength: 24, size: 'max' },
  );
};

function claims({ ipcache, metadata }: Rig): unknown[] {
  const found = Array.from(ipcache.entries({ includeShadowed: true })).flatMap(({ key }) =>
    (ipcache.explain(key)?.claims ?? []).filter(
      (claim) => claim.key === key && claim.owner === METADATA_OWNER,
    ),
  );
  return found
    .map(({ key, source, identity, hostIP, encryptKey }) => {
      const labels = metadata.identities.labelsOf(identity);
      const texts = labels?.map((label) => `${label.source}:${label.key}=${label.value}`).sort();
      return { key, source, what: texts?.join(';') ?? identity, hostIP, encryptKey };
    })
    .sort((a, b) => (a.key < b.key ? -1 : 1));
}

describe('labels of prefixes', () => {
  it.each([false, true])('become the claims that the naive model has, dual stack: %s', (dual) => {
    fc.assert(
      fc.property(operations(dual), fc.constantFrom(1, 3, 256), (history, chunk) => {
        const world = rig({ world: dual ? 'dual-stack' : 'single-stack', chunk });
        const { ipcache, metadata, run } = world;
        const model = new NaiveMetadata(dual);
        for (const operation of history) {
          if (operation.op === 'run') run(operation.turns);
          else if (operation.op === 'say') {
            const { cidr, source, resource, labels } = operation;
            metadata.upsertMetadata(cidr, source, resource, labels);
            model.upsert(cidr, source, resource, labels);
          } else if (operation.op === 'unsay') {
            metadata.removeMetadata(operation.cidr, operation.resource);
            model.remove(operation.cidr, operation.resource);
          } else {
            const { address, identity, key } = operation;
            const node = { identity: identity ?? 0, hostIP: '192.168.0.1', encryptKey: key };
            if (identity === undefined) ipcache.delete(address, { source: 'kvstore', owner: 'own/n' });
            else ipcache.upsert(address, { ...node, source: 'kvstore', owner: 'own/n' });
            if (identity === undefined) model.nodes.delete(address);
            else model.nodes.set(address, node);
            metadata.refresh(address);
          }
        }
        run();
        const expected = [...model.expected()].sort((a, b) => (a.key < b.key ? -1 : 1));
        expect(claims(world)).toEqual(expected);
        const wanted = new Set(expected.flatMap(({ what }) => (typeof what === 'string' ? [what] : [])));
        expect(metadata.status()).toMatchObject({
          pending: 0,
          applied: metadata.revision,
          identities: wanted.size,
          withoutIdentity: 0,
        });
      }),
    );
  });

  it('of a policy never override those of a pod, and remain while any policy has them', () => {
    const { ipcache, metadata, run } = rig();
    const labels = cidrLabels('10.1.2.3/32', 'single-stack');
    for (const policy of ['cnp/a', 'cnp/b'])
      metadata.upsertMetadata('10.1.2.3/32', 'generated', policy, labels);
    ipcache.upsert('10.1.2.3', { identity: 300, source: 'k8s' });
    run();
    expect(ipcache.lookup('10.1.2.3')?.identity).toBe(300);
    ipcache.delete('10.1.2.3', { source: 'k8s' });
    metadata.removeMetadata('10.1.2.3/32', 'cnp/a');
    run();
    expect(ipcache.lookup('10.1.2.3')).toMatchObject({ source: 'generated', identity: LOCAL + 1 });
    metadata.removeMetadata('10.1.2.3/32', 'cnp/b');
    run();
    expect(ipcache.lookup('10.1.2.3')).toBeUndefined();
    expect(metadata.status()).toMatchObject({ prefixes: 0, identities: 0 });
  });

  it('of the API server give a remote node identity 7 with all attributes of its node, and leave the local host at 1', () => {
    const { ipcache, metadata, run } = rig();
    const labels = reserved('kube-apiserver');
    ipcache.upsert('10.0.0.1', { identity: 6, source: 'kvstore', hostIP: '192.168.0.1', encryptKey: 3 });
    ipcache.upsert('10.0.0.2', { identity: 1, source: 'local' });
    for (const ip of ['10.0.0.1', '10.0.0.2', '10.0.0.3'])
      metadata.upsertMetadata(`${ip}/32`, 'kube-apiserver', 'slice', labels);
    run();
    expect(ipcache.lookup('10.0.0.1')).toMatchObject({ identity: 7, hostIP: '192.168.0.1', encryptKey: 3 });
    expect(ipcache.lookup('10.0.0.2')).toMatchObject({ identity: 1, source: 'local' });
    const { identity = 0 } = ipcache.lookup('10.0.0.3') ?? {};
    expect(metadata.identities.labelsOf(identity)?.map(({ key }) => key)).toEqual([
      '10.0.0.3/32',
      'kube-apiserver',
      'world',
    ]);
  });

  it.each([0, Number.NaN])('of %s prefixes a turn are rejected (regression: NaN meant no limit)', (chunk) => {
    expect(() => rig({ chunk })).toThrow('chunk must be at least 1');
  });

  it('are applied in chunks, each one batch, with revisions', async () => {
    const { ipcache, metadata, run } = rig({ chunk: 100 });
    const batches: number[] = [];
    ipcache.subscribe({ onChanges: (changes) => void batches.push(changes.length) });
    let revision = 0;
    for (let i = 0; i < 250; i++) {
      const cidr = `10.1.${i}.0/24`;
      revision = metadata.upsertMetadata(cidr, 'generated', 'cnp/a', cidrLabels(cidr, 'single-stack'));
    }
    let applied: boolean | undefined;
    const half = metadata.waitForRevision(100);
    const all = metadata.waitForRevision(revision).then((value) => {
      applied = value;
    });
    run(1);
    expect(await half).toBe(true);
    expect([metadata.applied, applied]).toEqual([100, undefined]);
    run(2);
    await all;
    expect([metadata.applied, applied]).toEqual([250, true]);
    expect(batches).toEqual([100, 100, 50]);
    expect(await metadata.waitForRevision()).toBe(true);
    const stop = new AbortController();
    const never = metadata.waitForRevision(revision + 1, stop.signal);
    stop.abort();
    expect(await never).toBe(false);
  });

  it.each([[null], ['app=x'], [[null]], [[{ source: 'k8s', key: 'app' }]]])(
    'are rejected and counted if they are %j (regression: a TypeError in a later turn)',
    (wrong) => {
      const { metadata, ipcache, run } = rig();
      metadata.upsertMetadata('10.0.0.0/8', 'generated', 'a', app('x'));
      Reflect.apply(metadata.upsertMetadata, metadata, ['10.1.0.0/16', 'generated', 'a', wrong]);
      run();
      expect(metadata.status()).toMatchObject({
        prefixes: 1,
        pending: 0,
        rejections: { byReason: { 'invalid-labels': 1 } },
      });
      expect(ipcache.size).toBe(1);
    },
  );

  it('change nothing if they are written again, and an invalid prefix is rejected and counted', () => {
    const { metadata, run } = rig();
    const revision = metadata.upsertMetadata('10.0.0.0/8', 'generated', 'a', app('x'));
    run();
    expect(metadata.upsertMetadata('10.1.1.1/8', 'generated', 'a', app('x'))).toBe(revision);
    expect(metadata.upsertMetadata('10.0.0', 'generated', 'a', app('x'))).toBe(revision);
    expect(metadata.removeMetadata('10.0.0.0/8', 'b')).toBe(revision);
    expect(metadata.refresh('10.0.0.1')).toBe(revision);
    expect(run()).toBe(0);
    expect(metadata.status()).toMatchObject({ prefixes: 1, rejections: { total: 1 } });
  });

  it('wait for an identity if all are in use, and get the first free one', () => {
    const { ipcache, metadata, run } = rig({ identities: new LocalIdentities(1) });
    for (const [cidr, name] of [
      ['10.0.0.0/8', 'x'],
      ['11.0.0.0/8', 'y'],
    ] as const)
      metadata.upsertMetadata(cidr, 'generated', 'a', app(name));
    run();
    expect(ipcache.get('11.0.0.0/8')).toBeUndefined();
    expect(metadata.status()).toMatchObject({ withoutIdentity: 1, applied: 2 });
    metadata.removeMetadata('10.0.0.0/8', 'a');
    run();
    expect(ipcache.get('11.0.0.0/8')).toMatchObject({ identity: LOCAL + 1 });
    expect(metadata.status()).toMatchObject({ withoutIdentity: 0, pending: 0 });
  });
});

describe('a label of a CIDR', () => {
  it.each([
    ['10.0.0.0/8', ['cidr:10.0.0.0/8', 'reserved:world-ipv4']],
    ['fd00::/8', ['cidr:fd00--0/8', 'reserved:world-ipv6']],
    ['::1/128', ['cidr:0--1/128', 'reserved:world-ipv6']],
    ['::/0', ['reserved:world-ipv6']],
    ['0.0.0.0/0', ['reserved:world-ipv4']],
  ])('of %s', (cidr, expected) => {
    expect(cidrLabels(cidr, 'dual-stack').map(({ source, key }) => `${source}:${key}`)).toEqual(expected);
    expect(cidrLabels(cidr, 'single-stack').at(-1)?.key).toBe('world');
  });
});

describe('node-local identities', () => {
  it('are one for the same labels, counted, and reused as late as possible', () => {
    const identities = new LocalIdentities(3);
    const [x, y] = [identities.allocate(app('x')), identities.allocate(app('y'))];
    expect([x, y, identities.allocate(app('x'))]).toEqual([LOCAL + 1, LOCAL + 2, LOCAL + 1]);
    identities.release(LOCAL + 1);
    expect(identities.labelsOf(LOCAL + 1)).toEqual(app('x'));
    identities.release(LOCAL + 1);
    expect(identities.labelsOf(LOCAL + 1)).toBeUndefined();
    expect(identities.allocate(app('z'))).toBe(LOCAL + 3);
    expect(identities.allocate(app('w'))).toBe(LOCAL + 1);
    expect(identities.allocate(app('v'))).toBeUndefined();
  });

  it('of before a restart are reserved for their labels until they are released', () => {
    const identities = new LocalIdentities(3);
    identities.withhold([
      { identity: LOCAL + 1, labels: app('x') },
      { identity: LOCAL + 2, labels: app('y') },
      { identity: LOCAL + 2, labels: app('again') },
      { identity: 66_000, labels: app('of a cluster') },
    ]);
    expect(identities.allocate(app('new'))).toBe(LOCAL + 3);
    expect(identities.allocate(app('newer'))).toBeUndefined();
    expect(identities.allocate(app('y'))).toBe(LOCAL + 2);
    expect(identities.withheld).toBe(1);
    identities.releaseWithheld();
    expect(identities.allocate(app('newer'))).toBe(LOCAL + 1);
    expect([...identities.entries()].map(({ identity }) => identity)).toEqual([
      LOCAL + 3,
      LOCAL + 2,
      LOCAL + 1,
    ]);
  });
});
