import { describe, expect, it, vi } from 'vitest';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import { HostIPs } from '../../../src/k8s/feed/host-ips.ts';
import { cidrLabels } from '../../../src/metadata/cidr-labels.ts';
import { formatLabels } from '../../../src/model/labels.ts';
import { RESERVED_IDENTITIES } from '../../../src/model/numeric-identity.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { rig } from '../../metadata/support/metadata-rig.ts';
import type { SaidObject } from './support/fake-cluster.ts';
import { FeedWorld } from './support/feed-world.ts';
import { endpointSlice } from './support/objects.ts';
import { RecordingMetadata } from './support/recording-metadata.ts';

async function policyWorld(): Promise<{ readonly world: FeedWorld; readonly metadata: RecordingMetadata }> {
  const metadata = new RecordingMetadata();
  return { world: await new FeedWorld({ metadata }).started(), metadata };
}

/** Returns the versions in which CIDR groups were requested. */
function groupVersions({ cluster }: FeedWorld): readonly string[] {
  return cluster.followers.flatMap(({ kind }) => (kind.plural === 'ciliumcidrgroups' ? [kind.version] : []));
}

function policy(name: string, spec: object, namespace: string | null = 'shop'): SaidObject {
  return { metadata: namespace === null ? { name } : { name, namespace }, spec };
}

/** Returns the spec of a policy with this number of CIDRs, in rules of at most 16,384. */
function manyCIDRs(count: number): object {
  const all = Array.from({ length: count }, (_, n) => `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}/32`);
  const rules = Math.ceil(count / 16_384);
  const ingress = Array.from({ length: rules }, (_, n) => ({
    fromCIDR: all.slice(n * 16_384, (n + 1) * 16_384),
  }));
  return { ingress };
}

describe('the CIDRs of policies', () => {
  it('are those of ipBlocks and their exceptions, one resource each (K 48)', async () => {
    const { world, metadata } = await policyWorld();
    const spec = {
      ingress: [
        { from: [{ ipBlock: { cidr: '10.0.0.0/30', except: ['10.0.0.1/32'] } }, { podSelector: {} }] },
      ],
      egress: [{ to: [{ ipBlock: { cidr: '192.0.2.0/24' } }] }, {}],
    };
    world.cluster.put('networkpolicies', policy('np', spec));
    expect(metadata.said).toEqual([
      '10.0.0.0/30 networkpolicy/shop/np',
      '10.0.0.1/32 networkpolicy/shop/np',
      '192.0.2.0/24 networkpolicy/shop/np',
    ]);
    world.cluster.put('networkpolicies', policy('np', { egress: spec.egress }));
    expect(metadata.said).toEqual(['192.0.2.0/24 networkpolicy/shop/np']);
    world.cluster.delete('networkpolicies', 'np', 'shop');
    expect(metadata.said).toEqual([]);
    expect(metadata.idle).toBe(0);
  });

  it('leave the world its identity if it has exceptions (regression: the world was split into CIDRs with identities of their own)', async () => {
    const { ipcache, metadata, run } = rig();
    const world = await new FeedWorld({ metadata, cache: ipcache }).started();
    const ipBlock = { cidr: '0.0.0.0/0', except: ['169.254.169.254/32'] };
    world.cluster.put('networkpolicies', policy('np', { egress: [{ to: [{ ipBlock }] }] }));
    run();
    expect(Array.from(ipcache.entries(), ({ key }) => key)).toEqual(['0.0.0.0/0', '169.254.169.254/32']);
    expect(ipcache.lookupIdentity('198.51.100.1')).toBe(RESERVED_IDENTITIES.world);
    const exception = ipcache.lookupIdentity('169.254.169.254') ?? 0;
    expect(formatLabels(metadata.identities.labelsOf(exception) ?? [])).toBe(
      'cidr:169.254.169.254/32=;reserved:world=;',
    );
  });

  it('are those of each direction and list of a Cilium policy, including denied ones (K 48)', async () => {
    const { world, metadata } = await policyWorld();
    const rules = (n: number): object => ({
      ingress: [{ fromCIDR: [`10.${n}.0.0/16`], fromCIDRSet: [{ cidr: `10.${n + 1}.0.0/16` }] }],
      egress: [{ toCIDR: [`10.${n + 2}.0.1`], toCIDRSet: [{ cidr: `10.${n + 3}.0.0/16` }] }],
      ingressDeny: [{ fromCIDR: [`10.${n + 4}.0.0/16`] }],
      egressDeny: [{ toCIDRSet: [{ cidr: `10.${n + 5}.0.0/16` }] }],
    });
    world.cluster.put('ciliumnetworkpolicies', { ...policy('p', rules(0)), specs: [rules(10)] });
    world.cluster.put('ciliumclusterwidenetworkpolicies', policy('p', rules(20), null));
    const said = metadata.said.map((line) => line.split(' '));
    const prefixes = (resource: string): readonly string[] =>
      said.filter(([, by]) => by === resource).map(([cidr = '']) => cidr);
    expect(prefixes('cnp/shop/p')).toHaveLength(12);
    expect(prefixes('cnp/shop/p')).toContain('10.2.0.1/32');
    expect(prefixes('ccnp/p')).toHaveLength(6);
  });

  it.each([
    ['v2', []],
    ['v2alpha1', ['ciliumcidrgroups/v2']],
    ['v2', ['ciliumcidrgroups']], // regression: v2alpha1 was missing in the status, which Cilium 1.18 does not install
  ])('of groups are read in version %s of an API server without %j (K 48)', async (version, missing) => {
    const metadata = new RecordingMetadata();
    const world = new FeedWorld({ metadata });
    for (const kind of missing) world.cluster.missing.add(kind);
    await world.started();
    expect(groupVersions(world)).toEqual([version]);
  });

  it('of groups stay when an upgraded API server no longer serves their version (regression: v2alpha1 was requested for ever)', async () => {
    const metadata = new RecordingMetadata();
    const world = new FeedWorld({ metadata });
    const { cluster } = world;
    cluster.missing.add('ciliumcidrgroups/v2');
    await world.started();
    cluster.put('ciliumcidrgroups', {
      metadata: { name: 'office' },
      spec: { externalCIDRs: ['10.0.0.0/24'] },
    });
    cluster.missing.clear();
    cluster.missing.add('ciliumcidrgroups/v2alpha1');
    cluster.list('ciliumcidrgroups');
    await Promise.resolve();
    await Promise.resolve();
    cluster.settle();
    expect(groupVersions(world)).toEqual(['v2alpha1', 'v2']);
    expect(metadata.said).toEqual(['10.0.0.0/24 cidrgroup/office']);
    cluster.delete('ciliumcidrgroups', 'office');
    expect(metadata.said).toEqual([]);
  });

  it('of groups are added and deleted with the group, whatever policies name it; their exceptions are CIDRs of the policies (K 48)', async () => {
    const { world, metadata } = await policyWorld();
    const fromCIDRSet = [{ cidrGroupRef: 'office', except: ['10.0.0.0/25'] }];
    world.cluster.put('ciliumnetworkpolicies', policy('p', { ingress: [{ fromCIDRSet }] }));
    const group = (...externalCIDRs: string[]): void =>
      world.cluster.put('ciliumcidrgroups', { metadata: { name: 'office' }, spec: { externalCIDRs } });
    const exception = '10.0.0.0/25 cnp/shop/p';
    expect(metadata.said).toEqual([exception]);
    group('10.0.0.0/24', '192.0.2.0/24');
    expect(metadata.said).toEqual([
      '10.0.0.0/24 cidrgroup/office',
      exception,
      '192.0.2.0/24 cidrgroup/office',
    ]);
    group('192.0.2.0/24');
    expect(metadata.said).toEqual([exception, '192.0.2.0/24 cidrgroup/office']);
    world.cluster.delete('ciliumcidrgroups', 'office');
    expect(metadata.said).toEqual([exception]);
  });

  it('of a group have its labels, whether a policy names it or not (K 50)', async () => {
    const { world, metadata } = await policyWorld();
    const group = (labels: object, ...externalCIDRs: string[]): void =>
      world.cluster.put('ciliumcidrgroups', {
        metadata: { name: 'office', labels },
        spec: { externalCIDRs },
      } as SaidObject);
    group({ site: 'north', 'io.cilium.k8s.policy.cluster': 'x' }, '10.0.0.0/24', '10.0.0.0/24', 'fd00::/8');
    expect(metadata.said).toEqual(['10.0.0.0/24 cidrgroup/office', 'fd00::/8 cidrgroup/office']);
    const labels = 'generated cidrgroup:io.cilium.policy.cidrgroupname/office=;';
    expect(metadata.labels('10.0.0.0/24', 'cidrgroup/office')).toBe(
      `${labels}cidrgroup:site=north;cidrgroup:site+north=;reserved:world=;`,
    );
    group({ site: 'south' }, '10.0.0.0/24');
    expect(metadata.said).toEqual(['10.0.0.0/24 cidrgroup/office']);
    expect(metadata.labels('10.0.0.0/24', 'cidrgroup/office')).toBe(
      `${labels}cidrgroup:site=south;cidrgroup:site+south=;reserved:world=;`,
    );
    world.cluster.delete('ciliumcidrgroups', 'office');
    expect(metadata.said).toEqual([]);
  });

  it('of two groups have both values of a label (regression: the second value was lost)', async () => {
    const { ipcache, metadata, run } = rig();
    const world = await new FeedWorld({ metadata, cache: ipcache }).started();
    for (const site of ['north', 'south'])
      world.cluster.put('ciliumcidrgroups', {
        metadata: { name: site, labels: { site } },
        spec: { externalCIDRs: ['192.0.2.0/24'] },
      } as SaidObject);
    run();
    const labels = metadata.identities.labelsOf(ipcache.lookupIdentity('192.0.2.1') ?? 0) ?? [];
    expect(labels.map(({ key }) => key)).toEqual(expect.arrayContaining(['site+north', 'site+south']));
  });

  describe('change in steps', () => {
    const POLICIES = 4;
    const CIDRS = Array.from({ length: 600 }, (_, n) => `10.${n >> 8}.${n & 255}.0/24`);

    /** A world with a group and policies of many CIDRs, all of whose labels are set. */
    async function stepWorld(
      onWorld: (world: FeedWorld, metadata: RecordingMetadata) => unknown = () => {},
    ): Promise<{
      readonly world: FeedWorld;
      readonly metadata: RecordingMetadata;
      readonly group: (...externalCIDRs: string[]) => void;
      readonly policyOf: (n: number, spec?: object) => void;
      /** Runs one turn of the event loop. Returns false if none is scheduled. */
      readonly turn: () => Promise<boolean>;
    }> {
      const metadata = new RecordingMetadata();
      const turns: (() => void)[] = [];
      const nextTurn = (turn: () => void): void => void turns.push(turn);
      const gate = new TurnGate({ clock: { now: () => 0 }, nextTurn, weightPerTurn: 1 });
      const turn = async (): Promise<boolean> => {
        const next = turns.shift();
        next?.();
        for (let tick = 0; tick < 8; tick++) await Promise.resolve();
        return next !== undefined;
      };
      const world = new FeedWorld({ metadata, gate });
      onWorld(world, metadata);
      const group = (...externalCIDRs: string[]): void =>
        world.cluster.put('ciliumcidrgroups', { metadata: { name: 'office' }, spec: { externalCIDRs } });
      const policyOf = (n: number, spec: object = { ingress: [{ fromCIDR: CIDRS }] }): void =>
        world.cluster.put('ciliumnetworkpolicies', policy(`p${n}`, spec));
      group(...CIDRS);
      for (let n = 0; n < POLICIES; n++) policyOf(n);
      await world.started();
      while (await turn());
      expect(metadata.size).toBe(CIDRS.length * (1 + POLICIES));
      return { world, metadata, group, policyOf, turn };
    }

    /** Returns a function that makes a change, runs all turns, and returns the most labels set or removed in a turn. */
    function longestTurn(
      metadata: RecordingMetadata,
      turn: () => Promise<boolean>,
    ): (change: () => void) => Promise<number> {
      let calls = 0;
      for (const method of ['upsertMetadata', 'removeMetadata'] as const) {
        const original = metadata[method].bind(metadata) as (...args: unknown[]) => void;
        vi.spyOn(metadata, method).mockImplementation((...args: unknown[]) => {
          calls++;
          original(...args);
        });
      }
      return async (change) => {
        calls = 0;
        change();
        let longest = calls;
        for (let before = calls; await turn(); before = calls) longest = Math.max(longest, calls - before);
        return longest;
      };
    }

    it('if a group is replaced or deleted (regression: in one turn)', async () => {
      const { world, metadata, group, turn } = await stepWorld();
      const longest = longestTurn(metadata, turn);
      const ofPolicies = CIDRS.length * POLICIES;
      expect(await longest(() => group(...CIDRS.slice(0, 300), '192.0.2.0/24'))).toBeLessThanOrEqual(256);
      expect(metadata.size).toBe(301 + ofPolicies);
      expect(await longest(() => world.cluster.delete('ciliumcidrgroups', 'office'))).toBeLessThanOrEqual(
        256,
      );
      expect(metadata.size).toBe(ofPolicies);
    });

    it('if a policy is added, changed or deleted (regression: 65,536 CIDRs in one turn)', async () => {
      const { world, metadata, policyOf, turn } = await stepWorld();
      const longest = longestTurn(metadata, turn);
      const before = metadata.size;
      const fromCIDR = Array.from({ length: 2_000 }, (_, n) => `10.9.${n >> 8}.${n & 255}/32`);
      expect(await longest(() => policyOf(POLICIES, { ingress: [{ fromCIDR }] }))).toBeLessThanOrEqual(256);
      expect(metadata.size).toBe(before + 2_000);
      const ingress = [{ fromCIDR: fromCIDR.slice(1) }];
      expect(await longest(() => policyOf(POLICIES, { ingress }))).toBe(1);
      expect(metadata.size).toBe(before + 1_999);
      const remove = (): void => world.cluster.delete('ciliumnetworkpolicies', `p${POLICIES}`, 'shop');
      expect(await longest(remove)).toBeLessThanOrEqual(256);
      expect(metadata.size).toBe(before);
    });

    it('also if a policy exceeds the limit (regression: its CIDRs were written in one turn)', async () => {
      const { metadata, policyOf, turn } = await stepWorld();
      const before = metadata.size;
      const longest = longestTurn(metadata, turn);
      expect(await longest(() => policyOf(POLICIES, manyCIDRs(65_537)))).toBeLessThanOrEqual(256);
      expect(metadata.size).toBe(before + 65_536);
      expect(await longest(() => policyOf(POLICIES, {}))).toBeLessThanOrEqual(256);
      expect(metadata.size).toBe(before);
    });

    it('until the feed is stopped (regression: the remaining steps ran)', async () => {
      const { world, metadata, group, turn } = await stepWorld();
      group();
      await turn();
      await world.feed.stop();
      const { size } = metadata;
      while (await turn());
      expect([size, metadata.size]).toEqual([expect.any(Number), size]);
      expect(size).toBeGreaterThan(0);
    });

    it('before the list is complete, so that a caller that waits for it finds all labels', async () => {
      const sizes = new Map<string, number>();
      const { metadata } = await stepWorld(({ feed }, said) =>
        feed.onChange((name) => {
          const isComplete = feed.progressOf(name)?.synced === true;
          if (isComplete && !sizes.has(name)) sizes.set(name, said.size);
        }),
      );
      expect(sizes.get('ciliumnetworkpolicies')).toBe(metadata.size);
      expect(sizes.get('ciliumcidrgroups')).toBe(metadata.size);
    });

    it('also after the metadata has thrown (regression: no later change of a group was applied)', async () => {
      const { metadata, group, turn } = await stepWorld();
      vi.spyOn(metadata, 'removeMetadata').mockImplementationOnce(() => {
        throw new Error('no room');
      });
      group();
      while (await turn());
      group('192.0.2.0/24');
      while (await turn());
      expect(metadata.said).toContain('192.0.2.0/24 cidrgroup/office');
    });

    it('although the metadata throws for others (regression: those waited, and the failed ones were lost)', async () => {
      const { world, metadata, group, policyOf, turn } = await stepWorld();
      const upsert = metadata.upsertMetadata.bind(metadata);
      const failing = vi
        .spyOn(metadata, 'upsertMetadata')
        .mockImplementation((prefix, source, resource, labels) => {
          if (['cnp/shop/p0', 'cnp/shop/p1'].includes(resource)) throw new Error('no room');
          upsert(prefix, source, resource, labels);
        });
      const added = '192.0.2.0/24';
      for (let n = 0; n < 3; n++) policyOf(n, { ingress: [{ fromCIDR: [added, ...CIDRS] }] });
      group(...CIDRS, added);
      while (await turn());
      const resources = (): readonly string[] =>
        metadata.said.flatMap((line) => (line.startsWith(`${added} `) ? (line.split(' ')[1] ?? '') : []));
      expect(resources()).toEqual(['cidrgroup/office', 'cnp/shop/p2']);
      failing.mockRestore();
      policyOf(3, {});
      while (await turn());
      expect(resources()).toEqual(['cidrgroup/office', 'cnp/shop/p0', 'cnp/shop/p1', 'cnp/shop/p2']);
      world.cluster.delete('ciliumnetworkpolicies', 'p0', 'shop');
      while (await turn());
      expect(metadata.said.filter((line) => line.endsWith('/p0'))).toEqual([]);
    });

    it('to the CIDRs of a policy that is created again while those of the deleted one are removed', async () => {
      const { world, metadata, policyOf, turn } = await stepWorld();
      const before = metadata.size;
      world.cluster.delete('ciliumnetworkpolicies', 'p1', 'shop');
      await turn();
      expect(metadata.size).toBeLessThan(before);
      policyOf(1);
      while (await turn());
      expect(metadata.size).toBe(before);
    });

    it('to the last state of each policy and group, if these change in between', async () => {
      const { world, metadata, group, policyOf, turn } = await stepWorld();
      const before = metadata.size;
      group('192.0.2.0/24');
      await turn();
      expect(metadata.size).toBeGreaterThan(before - CIDRS.length);
      expect(metadata.size).toBeLessThan(before);
      group('192.0.2.0/24', '198.51.100.0/24');
      world.cluster.delete('ciliumcidrgroups', 'office');
      policyOf(0, { ingress: [{ fromCIDR: ['10.0.49.0/24'] }] });
      policyOf(1); // unchanged, but read again
      world.cluster.delete('ciliumnetworkpolicies', 'p2', 'shop');
      policyOf(POLICIES);
      await turn();
      group('192.0.2.0/24', '10.0.0.0/24');
      while (await turn());
      expect(metadata.said).toEqual(
        [
          ...['10.0.0.0/24', '192.0.2.0/24'].map((cidr) => `${cidr} cidrgroup/office`),
          '10.0.49.0/24 cnp/shop/p0',
          ...[1, 3, 4].flatMap((n) => CIDRS.map((cidr) => `${cidr} cnp/shop/p${n}`)),
        ].sort(),
      );
    });
  });

  it('with an invalid exception are left out, because more would be allowed without it', async () => {
    const { world, metadata } = await policyWorld();
    const except = ['10.0.0.1/32', 'bad'];
    const blocks = [
      { cidr: '10.0.0.0/8', except },
      { cidr: '10.1.0.0/16', except: 7 },
      { cidr: '10.2.0.0/16' },
    ];
    world.cluster.put('ciliumnetworkpolicies', policy('p', { ingress: [{ fromCIDRSet: blocks }] }));
    expect(metadata.said).toEqual(['10.2.0.0/16 cnp/shop/p']);
    expect(world.rejected.map(({ field }) => field)).toEqual([
      'spec.ingress[0].fromCIDRSet[0].except[1]',
      'spec.ingress[0].fromCIDRSet[1].except',
    ]);
  });

  it('are limited in number, and that is reported once until the policy is within the limit (I12)', async () => {
    const { world, metadata } = await policyWorld();
    const put = (spec: object): void => world.cluster.put('ciliumnetworkpolicies', policy('p', spec));
    put({ ...manyCIDRs(65_536), egress: [{ toCIDR: ['10.0.0.0/32'] }] }); // repeats a CIDR
    expect([metadata.size, world.rejected]).toEqual([65_536, []]);
    put(manyCIDRs(65_537));
    expect(metadata.size).toBe(65_536);
    const refused = { reason: 'too-many', at: 'CiliumNetworkPolicy shop/p', field: 'spec' };
    expect(world.rejected).toMatchObject([refused]);
    put(manyCIDRs(65_538));
    expect(world.rejected).toHaveLength(1);
    put(manyCIDRs(1));
    expect(metadata.said).toEqual(['10.0.0.0/32 cnp/shop/p']);
    put(manyCIDRs(65_537));
    expect(world.rejected).toHaveLength(2);
  });

  it('have labels of themselves and of the world, and never override a pod (K 49, 50)', async () => {
    const { world, metadata } = await policyWorld();
    world.cluster.put('ciliumnetworkpolicies', policy('p', { egress: [{ toCIDR: ['fd00::/8'] }] }));
    expect(metadata.labels('fd00::/8', 'cnp/shop/p')).toBe('generated cidr:fd00--0/8=;reserved:world=;');
  });

  it.each([
    ['10.0.0.0/8', 'single-stack', 'cidr:10.0.0.0/8=;reserved:world=;'],
    ['10.0.0.0/8', 'dual-stack', 'cidr:10.0.0.0/8=;reserved:world-ipv4=;'],
    ['::1/128', 'dual-stack', 'cidr:0--1/128=;reserved:world-ipv6=;'],
    ['fd00::1:0/112', 'single-stack', 'cidr:fd00--1-0/112=;reserved:world=;'],
    ['::/1', 'single-stack', 'cidr:0--0/1=;reserved:world=;'],
    ['::/0', 'dual-stack', 'reserved:world-ipv6=;'],
    ['0.0.0.0/0', 'single-stack', 'reserved:world=;'],
  ] as const)('%s has in %s the labels %s (K 50)', (cidr, world, labels) => {
    expect(formatLabels(cidrLabels(cidr, world))).toBe(labels);
  });
});

describe('the addresses of the API server', () => {
  const put = (world: FeedWorld, ...addresses: string[]): void =>
    world.cluster.put('endpointslices', endpointSlice('kubernetes', 'kubernetes', addresses, 'default'));

  it('are those of the current slices of default/kubernetes (K 43)', async () => {
    const { world, metadata } = await policyWorld();
    put(world, '192.0.2.10', '198.51.100.7');
    world.cluster.put('endpointslices', endpointSlice('other', 'kubernetes', ['10.1.1.1']));
    world.cluster.put('endpointslices', endpointSlice('another', 'dns', ['10.1.1.2'], 'default'));
    const resource = 'endpointslice/default/kubernetes';
    expect(metadata.said).toEqual([`192.0.2.10/32 ${resource}`, `198.51.100.7/32 ${resource}`]);
    expect(metadata.labels('192.0.2.10/32', resource)).toBe('kube-apiserver reserved:kube-apiserver=;');
    put(world, '192.0.2.10');
    expect(metadata.said).toEqual([`192.0.2.10/32 ${resource}`]);
    expect(metadata.idle).toBe(0);
  });

  it('stay for 30 s after the slice is deleted, and permanently if it returns (K 43)', async () => {
    const { world, metadata } = await policyWorld();
    put(world, '192.0.2.10');
    world.cluster.delete('endpointslices', 'kubernetes', 'default');
    world.clock.advance(29_000);
    put(world, '192.0.2.10');
    world.clock.advance(60_000);
    expect(metadata.said).toHaveLength(1);
    world.cluster.delete('endpointslices', 'kubernetes', 'default');
    world.clock.advance(29_999);
    expect(metadata.said).toHaveLength(1);
    world.clock.advance(1);
    expect(metadata.said).toEqual([]);
    put(world, '192.0.2.10'); // a slice that was forgotten is new
    expect(metadata.said).toHaveLength(1);
  });

  it('stay permanently if the feed is stopped in the meantime, without a delay', async () => {
    const { world, metadata } = await policyWorld();
    put(world, '192.0.2.10');
    world.cluster.put('endpointslices', endpointSlice('other', 'kubernetes', ['192.0.2.11'], 'default'));
    world.cluster.delete('endpointslices', 'kubernetes', 'default');
    await world.feed.stop();
    expect(world.clock.pending).toBe(0);
    expect(metadata.said).toHaveLength(2);
  });
});

describe('own addresses', () => {
  it('are host, all others are the world, read again every minute (K 51)', () => {
    const clock = new ManualClock();
    const ipcache = new IPCache();
    let addresses = ['192.0.2.1', 'fd00:0::1', 'fe80::1%eth0'];
    const own = new HostIPs({ ipcache, clock, addresses: () => addresses, world: 'single-stack' });
    own.start();
    const identities = (): unknown =>
      Object.fromEntries([...ipcache.entries()].map((e) => [e.key, e.identity]));
    expect(identities()).toEqual({ '0.0.0.0/0': 2, '::/0': 2, '192.0.2.1': 1, 'fd00::1': 1 });
    addresses = ['192.0.2.2'];
    clock.advance(60_000);
    expect(identities()).toEqual({ '0.0.0.0/0': 2, '::/0': 2, '192.0.2.2': 1 });
    expect(ipcache.get('192.0.2.2')).toMatchObject({ source: 'local', hostIP: undefined });
    own.start(); // a second start does not add a second timer
    expect(clock.pending).toBe(1);
    own.stop();
    expect(clock.pending).toBe(0);
  });

  it('stay unchanged while the machine does not return them', () => {
    const clock = new ManualClock();
    const ipcache = new IPCache();
    let read = (): readonly string[] => ['192.0.2.1'];
    const faults: unknown[] = [];
    const addresses = (): readonly string[] => read();
    const onFault = (error: unknown): void => void faults.push(error);
    const own = new HostIPs({ ipcache, clock, addresses, world: 'single-stack', onFault });
    own.start();
    read = () => {
      throw new Error('uv_interface_addresses');
    };
    clock.advance(120_000);
    expect(faults).toHaveLength(2);
    expect(ipcache.get('192.0.2.1')?.identity).toBe(1);
    read = () => ['192.0.2.2'];
    clock.advance(60_000);
    expect([ipcache.get('192.0.2.1'), ipcache.get('192.0.2.2')?.identity]).toEqual([undefined, 1]);
    own.stop();
  });

  it('in both families give the world an identity for each (K 51)', () => {
    const ipcache = new IPCache();
    new HostIPs({ ipcache, clock: new ManualClock(), addresses: () => [], world: 'dual-stack' }).start();
    expect([ipcache.lookup('8.8.8.8')?.identity, ipcache.lookup('fd00::1')?.identity]).toEqual([9, 10]);
  });
});
