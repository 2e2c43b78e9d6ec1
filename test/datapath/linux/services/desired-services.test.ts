import { Map as ImmutableMap, Set as ImmutableSet } from 'immutable';
import { expect, it, vi } from 'vitest';
import { type KnownInputs, NOTHING_KNOWN } from '../../../../src/datapath/linux/known-inputs.ts';
import { DesiredServices } from '../../../../src/datapath/linux/services/desired-services.ts';
import { type Backend, createBackend, createEndpointSlice } from '../../../../src/servicecache/backend.ts';
import { createService, type Service } from '../../../../src/servicecache/service.ts';
import { ServiceCache } from '../../../../src/servicecache/service-cache.ts';

it('waits only for the inputs that a frontend uses (regression: all services waited for all clusters)', () => {
  const cache = new ServiceCache({ clusterName: 'own', nodePort: { enabled: true } });
  const desired = new DesiredServices({ nodePort: { enabled: true }, nodeName: 'here', clients: 'inside' });
  cache.subscribe(desired.listener(() => {}));
  const ports = new Map([['web', { port: 80, protocol: 6, nodePort: 0 }]]);
  const add = (name: string, last: number, fields: Partial<Service>, backends: readonly string[]): void => {
    const id = { namespace: 'shop', name };
    const clusterIPs = [`172.16.0.${last}`];
    cache.updateService(createService({ id, addressing: 'assigned', clusterIPs, ports, ...fields }));
    const list = backends.map((address) => createBackend({ address, ports }));
    cache.updateEndpoints(createEndpointSlice({ service: id, backends: list }));
  };
  add('local', 1, {}, ['10.0.0.1']);
  add('global', 2, { global: true }, ['10.0.0.2']);
  add('on-node', 3, { global: true, internalTrafficPolicy: 'Local' }, ['10.0.0.3']);
  add('prefers-local', 4, { global: true, affinity: 'local' }, ['10.0.0.4']);
  add('needs-remote', 5, { global: true, affinity: 'local' }, []);
  const external = { externalIPs: ImmutableSet(['172.16.0.7']) }; // the policy of internal clients does not apply to it
  add('external', 6, { global: true, internalTrafficPolicy: 'Local', ...external }, ['10.0.0.6']);
  const complete = (inputs: Partial<KnownInputs>): readonly string[] => {
    desired.setInputs({ ...NOTHING_KNOWN, ...inputs });
    const keys = [1, 2, 3, 4, 5, 6, 7, 9].map((last) => `172.16.0.${last}:80/TCP`);
    return keys.filter((key) => desired.isComplete(key)).map((key) => key.slice(9, 10));
  };
  expect(complete({ areClustersKnown: true, isSynced: true })).toEqual([]);
  expect(complete({ isLocalComplete: true })).toEqual(['1', '3', '4', '6']);
  expect(complete({ isLocalComplete: true, isSynced: true })).toEqual(['1', '3', '4', '6', '9']);
  expect(complete({ isLocalComplete: true, areClustersKnown: true })).toEqual([
    '1',
    '2',
    '3',
    '4',
    '5',
    '6',
    '7',
  ]);
});

it('masquerades clients outside the cluster for external frontends, unless the policy is Local', () => {
  const cache = new ServiceCache({ clusterName: 'own', nodePort: { enabled: true } });
  cache.markSynced();
  const nodePort = { enabled: true, ipv4: ['192.0.2.7'] };
  const outside = new DesiredServices({ nodePort, nodeName: 'here', clients: 'outside' });
  const inside = new DesiredServices({ nodePort, nodeName: 'here', clients: 'inside' });
  const external = new DesiredServices({
    nodePort,
    nodeName: 'here',
    clients: 'outside',
    frontends: 'external',
  });
  for (const one of [outside, inside, external]) cache.subscribe(one.listener(() => {}));
  const add = (last: number, externalTrafficPolicy: 'Cluster' | 'Local'): void =>
    void cache.updateService(
      createService({
        id: { namespace: 'shop', name: `s${last}` },
        type: 'NodePort',
        addressing: 'assigned',
        clusterIPs: [`172.16.0.${last}`],
        externalTrafficPolicy,
        ports: [['web', { port: 80, protocol: 6, nodePort: 30_000 + last }]],
      }),
    );
  add(1, 'Cluster');
  add(2, 'Local');
  const masqueraded = (desired: DesiredServices): readonly string[] =>
    [...desired.entries()].filter(([, { masquerade }]) => masquerade).map(([key]) => key);
  expect(masqueraded(outside)).toEqual(['192.0.2.7:30001/TCP']);
  expect(masqueraded(inside)).toEqual([]);
  expect([...external.entries()].map(([key]) => key).sort()).toEqual([
    '192.0.2.7:30001/TCP',
    '192.0.2.7:30002/TCP',
  ]);
  expect([external.size, outside.size]).toEqual([2, 6]);
});

it('limits clients outside the cluster to the source ranges of the family (regression: all were admitted)', () => {
  const cache = new ServiceCache({ clusterName: 'own', nodePort: { enabled: true } });
  cache.markSynced();
  const options = { nodePort: { enabled: true, ipv4: ['192.0.2.7'] }, nodeName: 'here' };
  const inside = new DesiredServices({ ...options, clients: 'inside', limitsNodePorts: true });
  const outside = new DesiredServices({ ...options, clients: 'outside' });
  const all = new DesiredServices({ ...options, clients: 'outside', limitsNodePorts: true });
  const marked = new Set<string>();
  for (const one of [inside, outside, all]) cache.subscribe(one.listener((key) => marked.add(key)));
  const update = (fields: Partial<Service>): void =>
    void cache.updateService(
      createService({
        id: { namespace: 'shop', name: 'web' },
        type: 'LoadBalancer',
        addressing: 'assigned',
        clusterIPs: ['172.16.0.1'],
        externalIPs: ['203.0.113.1'],
        ingressIPs: ['203.0.113.2', 'fd00:203::2'],
        ports: [['web', { port: 80, protocol: 6, nodePort: 30_000 }]],
        ...fields,
      }),
    );
  const limited = (desired: DesiredServices): Readonly<Record<string, string>> =>
    Object.fromEntries(
      [...desired.entries()].flatMap(([key, { sources }]) =>
        sources === undefined ? [] : [[key.split('/')[0], [sources.policy, ...sources.ranges].join(' ')]],
      ),
    );
  update({ sourceRanges: ImmutableSet(['10.0.0.0/8', 'fd00::/8', '192.0.2.0/24']) });
  const external = {
    '203.0.113.1:80': 'allow 10.0.0.0/8 192.0.2.0/24',
    '203.0.113.2:80': 'allow 10.0.0.0/8 192.0.2.0/24',
    '[fd00:203::2]:80': 'allow fd00::/8',
  };
  expect(limited(outside)).toEqual(external);
  expect(limited(all)).toEqual({ ...external, '192.0.2.7:30000': 'allow 10.0.0.0/8 192.0.2.0/24' });
  expect(limited(inside)).toEqual({});
  marked.clear();
  // Without a range of the family no client is admitted, as in Cilium.
  update({ sourceRanges: ImmutableSet(['10.0.0.0/8']), sourceRangesPolicy: 'deny' });
  expect(marked).toContain('203.0.113.2:80/TCP');
  expect(limited(outside)).toEqual({
    '203.0.113.1:80': 'deny 10.0.0.0/8',
    '203.0.113.2:80': 'deny 10.0.0.0/8',
    '[fd00:203::2]:80': 'deny',
  });
  update({ sourceRanges: undefined });
  expect(limited(all)).toEqual({});
});

it('names the services with affinity, as long as they have it', () => {
  const cache = new ServiceCache({ clusterName: 'own' });
  cache.markSynced();
  const desired = new DesiredServices({ nodePort: { enabled: false }, nodeName: 'here', clients: 'inside' });
  cache.subscribe(desired.listener(() => {}));
  const id = (name: string) => ({ namespace: 'shop', name });
  const update = (name: string, sessionAffinitySeconds: number): void =>
    void cache.updateService(createService({ id: id(name), addressing: 'assigned', sessionAffinitySeconds }));
  for (const [name, seconds] of [
    ['a', 0],
    ['b', 30],
    ['c', 30],
    ['d', 30],
  ] as const)
    update(name, seconds);
  expect([...desired.affinityServices()].sort()).toEqual(['shop/b', 'shop/c', 'shop/d']);
  update('a', 30);
  update('b', 0);
  cache.deleteService(id('c'));
  expect([...desired.affinityServices()].sort()).toEqual(['shop/a', 'shop/d']);
});

it('has the frontends of a restricted service only on matching nodes, and follows the labels of the local node', () => {
  const cache = new ServiceCache({ clusterName: 'own' });
  cache.markSynced();
  const desired = new DesiredServices({ nodePort: { enabled: false }, nodeName: 'here', clients: 'inside' });
  desired.setInputs({ ...NOTHING_KNOWN, isLocalComplete: true, areClustersKnown: true, isSynced: true });
  const marked: string[] = [];
  cache.subscribe(desired.listener((frontend) => marked.push(frontend)));
  const ports = new Map([['web', { port: 80, protocol: 6, nodePort: 0 }]]);
  const update = (last: number, fields: Partial<Service>): void => {
    const id = { namespace: 'shop', name: `s${last}` };
    const clusterIPs = [`172.16.0.${last}`];
    cache.updateService(createService({ id, addressing: 'assigned', clusterIPs, ports, ...fields }));
    const backends = [createBackend({ address: `10.0.0.${last}`, ports })];
    const drained = [createBackend({ address: `10.0.1.${last}`, ports, weight: 0 })];
    cache.updateEndpoints(createEndpointSlice({ service: id, name: 'a', backends }));
    cache.updateEndpoints(createEndpointSlice({ service: id, name: 'b', backends: drained }));
  };
  update(1, {});
  update(2, { nodeLabel: 'beefy' });
  update(5, { exposedType: 'LoadBalancer' });
  update(3, { nodeSelector: 'zone in (a, b),!old' });
  update(4, { nodeSelector: 'zone=a', nodeLabel: 'beefy' });
  const here = () => [...desired.entries()].map(([key]) => key).sort();
  const frontends = (...lasts: number[]) =>
    lasts.flatMap((last) => [`172.16.0.${last}:0/ANY`, `172.16.0.${last}:80/TCP`]);
  expect(here()).toEqual(frontends(1));
  expect(desired.isComplete('172.16.0.2:80/TCP')).toBe(false);
  expect(desired.get('172.16.0.1:80/TCP')?.backends).toEqual(['10.0.0.1:80/TCP']);

  const label = 'service.cilium.io/node';
  expect([...desired.setNodeLabels(new Map([[label, 'beefy']]))].sort()).toEqual(frontends(2));
  expect(here()).toEqual(frontends(1, 2));
  expect(desired.isComplete('172.16.0.3:80/TCP')).toBe(true);
  expect([...desired.setNodeLabels(new Map([['zone', 'a']]))].sort()).toEqual(frontends(2, 3, 4));
  expect(here()).toEqual(frontends(1, 3, 4));
  expect(desired.setNodeLabels(new Map([['zone', 'a']]))).toEqual(new Set());

  marked.length = 0;
  update(3, { nodeSelector: 'zone=b' });
  expect([...new Set(marked)].sort()).toEqual(frontends(3));
  expect(here()).toEqual(frontends(1, 4));
  update(3, {});
  cache.deleteService({ namespace: 'shop', name: 's4' });
  expect(here()).toEqual(frontends(1, 3));
  // Neither is restricted any more.
  for (const zone of ['b', 'a']) expect(desired.setNodeLabels(new Map([['zone', zone]]))).toEqual(new Set());
  expect(here()).toEqual(frontends(1, 3));
});

it('formats only the changed backends of a large service (regression: all, for each slice)', () => {
  const cache = new ServiceCache({ clusterName: 'own' });
  const id = { namespace: 'shop', name: 'web' };
  const follow = (): DesiredServices => {
    const desired = new DesiredServices({ nodePort: { enabled: true }, nodeName: 'here', clients: 'inside' });
    cache.subscribe(desired.listener(() => {}))();
    return desired;
  };
  const desired = new DesiredServices({ nodePort: { enabled: true }, nodeName: 'here', clients: 'inside' });
  cache.subscribe(desired.listener(() => {}));
  const updatePort = (name: string): void =>
    void cache.updateService(
      createService({
        id,
        addressing: 'assigned',
        clusterIPs: ['172.16.0.1'],
        ports: [[name, { port: 80, protocol: 6, nodePort: 0 }]],
      }),
    );
  const ports = ImmutableMap({ http: { port: 8080, protocol: 6 }, other: { port: 8081, protocol: 6 } });
  const read = vi.spyOn(ports, 'get');
  const updateSlice = (slice: number, size: number, state: Backend['state'] = 'active'): void => {
    const backends = Array.from({ length: size }, (_, index) =>
      createBackend({
        address: `10.0.${slice}.${index}`,
        ports,
        state: index % 50 === 0 ? state : 'active',
      }),
    );
    cache.updateEndpoints(createEndpointSlice({ service: id, name: `web-${slice}`, backends }));
  };
  const key = '172.16.0.1:80/TCP';
  /** Returns the number of reads of ports: one for each formatted backend, and one if there are new candidates. */
  const formatted = (size: number): number => {
    read.mockClear();
    const item = desired.get(key);
    const reads = read.mock.calls.length;
    expect(item?.backends).toHaveLength(size);
    expect(item).toEqual(follow().get(key));
    return reads;
  };
  updatePort('http');
  for (let slice = 0; slice < 20; slice++) updateSlice(slice, 100);
  expect(formatted(2000)).toBe(2001);
  expect(formatted(2000)).toBe(0);
  updateSlice(3, 90);
  expect(formatted(1990)).toBe(10);
  updateSlice(4, 100, 'terminating');
  expect(formatted(1988)).toBe(3);
  updateSlice(20, 30);
  expect(formatted(2018)).toBe(31);
  updatePort('other');
  expect(formatted(2018)).toBe(2019);
  cache.deleteService(id);
  desired.get(key); // as the table does, to delete the frontend
  updatePort('other');
  expect(formatted(2018)).toBe(2019);
  for (let slice = 0; slice < 10; slice++) updateSlice(slice, 0);
  expect(formatted(1030)).toBe(988);
  updateSlice(20, 0); // fewer than are kept
  expect(formatted(1000)).toBe(31);
  expect(formatted(1000)).toBe(1001);
});

it('a change reads the changed backends only (regression: all of a dual-stack service, 0.1 s for 20,000)', () => {
  const cache = new ServiceCache({ clusterName: 'own' });
  const desired = new DesiredServices({ nodePort: { enabled: false }, nodeName: '', clients: 'inside' });
  cache.subscribe(desired.listener(() => {}));
  const id = { namespace: 'shop', name: 'web' };
  const clusterIPs = ['172.16.0.1', 'fd00:172::1'];
  const http = { port: 80, protocol: 6, nodePort: 0 };
  cache.updateService(createService({ id, addressing: 'assigned', clusterIPs, ports: [['http', http]] }));
  // Two objects in turn, because the ports of successive backends are read once if they are one object.
  const ports = [0, 1].map(() => ImmutableMap({ http: { port: 8080, protocol: 6 } }));
  const reads = ports.map((map) => vi.spyOn(map, 'get'));
  const updateSlice = (slice: number, size: number): void => {
    const backends = Array.from({ length: size }, (_, index) =>
      createBackend({
        address: index % 2 === 0 ? `10.0.${slice}.${index}` : `fd00::${slice}:${index}`,
        ports: ports[index % 4 < 2 ? 0 : 1] ?? [],
      }),
    );
    cache.updateEndpoints(createEndpointSlice({ service: id, name: `web-${slice}`, backends }));
  };
  const sizes = (): readonly unknown[] =>
    ['172.16.0.1:80/TCP', '[fd00:172::1]:80/TCP'].map((key) => desired.get(key)?.backends.length);
  for (let slice = 0; slice < 24; slice++) updateSlice(slice, 100);
  expect(sizes()).toEqual([1200, 1200]);
  for (const read of reads) read.mockClear();
  updateSlice(3, 102);
  expect(sizes()).toEqual([1201, 1201]);
  expect(reads.reduce((sum, read) => sum + read.mock.calls.length, 0)).toBeLessThan(10);
});

it('selects among the backends with the port and family of the frontend (regression: others excluded them)', () => {
  const cache = new ServiceCache({ clusterName: 'own' });
  const desired = new DesiredServices({ nodePort: { enabled: false }, nodeName: 'here', clients: 'inside' });
  cache.subscribe(desired.listener(() => {}));
  const id = { namespace: 'shop', name: 'web' };
  const [web, metrics] = [
    { port: 80, protocol: 6 },
    { port: 90, protocol: 6 },
  ];
  const ports = Object.entries({ web, metrics }).map(
    ([name, port]) => [name, { ...port, nodePort: 0 }] as const,
  );
  const clusterIPs = ['172.16.0.1', 'fd00:172::1'];
  const trafficDistribution = 'prefer-same-node';
  cache.updateService(createService({ id, addressing: 'assigned', clusterIPs, ports, trafficDistribution }));
  const backends = [
    createBackend({ address: '10.0.0.1', ports: [['web', web]], nodeName: 'here' }),
    createBackend({ address: '10.0.0.2', ports: Object.entries({ web, metrics }), nodeName: 'there' }),
    createBackend({ address: 'fd00::2', ports: [['web', web]], nodeName: 'there', state: 'terminating' }),
  ];
  cache.updateEndpoints(createEndpointSlice({ service: id, backends }));
  const selected = (key: string): readonly string[] | undefined => desired.get(key)?.backends;
  expect(selected('172.16.0.1:80/TCP')).toEqual(['10.0.0.1:80/TCP']);
  expect(selected('172.16.0.1:90/TCP')).toEqual(['10.0.0.2:90/TCP']);
  expect(selected('[fd00:172::1]:80/TCP')).toEqual(['[fd00::2]:80/TCP']);
  expect(selected('[fd00:172::1]:90/TCP')).toEqual([]);
});
