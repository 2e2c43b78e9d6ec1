import { closeSync, existsSync, mkdirSync, openSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { systemClock } from '../../../src/base/system-clock.ts';
import { Bpf } from '../../../src/datapath/linux/bpf/bpf.ts';
import { BpfMap } from '../../../src/datapath/linux/bpf/bpf-map.ts';
import { STAGING_SUFFIX } from '../../../src/datapath/linux/bpf/pin.ts';
import { cleanHost } from '../../../src/datapath/linux/clean-host.ts';
import { HostAccess } from '../../../src/datapath/linux/host-access.ts';
import { openHostDatapath } from '../../../src/datapath/linux/host-datapath.ts';
import type { HostDatapathOptions } from '../../../src/datapath/linux/host-options.ts';
import { retireNodes } from '../../../src/datapath/linux/host-parts.ts';
import { ipcacheShape } from '../../../src/datapath/linux/ipcache-map.ts';
import type { LinuxDatapath } from '../../../src/datapath/linux/linux-datapath.ts';
import { NetlinkSocket } from '../../../src/datapath/linux/netlink/netlink-socket.ts';
import { NftServices } from '../../../src/datapath/linux/nftables/nft-services.ts';
import { serviceCapacity, serviceMapShapes } from '../../../src/datapath/linux/services/service-layout.ts';
import {
  openNftables,
  retirePrograms,
  retireRules,
} from '../../../src/datapath/linux/services/service-parts.ts';
import { runInNamespace } from '../../../src/datapath/linux/syscall/in-namespace.ts';
import { Kernel } from '../../../src/datapath/linux/syscall/kernel.ts';
import { SyscallError } from '../../../src/datapath/linux/syscall/syscall-error.ts';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import { NodeManager } from '../../../src/nodemanager/node-manager.ts';
import { createBackend, createEndpointSlice } from '../../../src/servicecache/backend.ts';
import { createService } from '../../../src/servicecache/service.ts';
import { ServiceCache } from '../../../src/servicecache/service-cache.ts';
import { until } from '../../base/support/until.ts';
import { cable, internal } from './paths/support/path-network.ts';
import { describeOnLinux } from './support/requirements.ts';
import { type Namespace, Scratch } from './support/scratch.ts';

const CLONE_NEWNET = 0x40000000;
/** Group of rtnetlink. */
const IPV4_ROUTES_GROUP = 7;

const NEEDS = ['maps', 'routes', 'tunnel', 'nftables', 'namespaces', 'ip'] as const;

describeOnLinux('a host that an agent manages', NEEDS, () => {
  let scratch: Scratch;
  let host: Namespace;
  let pins: string;
  const kernel = new Kernel();

  beforeEach(() => {
    scratch = new Scratch();
    host = scratch.namespace('host');
    pins = scratch.bpffs();
  });
  afterEach(() => scratch[Symbol.dispose]());

  const context = () => {
    const ipcache = new IPCache();
    const clock = systemClock;
    const nodes = new NodeManager({ ipcache, clock, clusterName: 'own', nodeName: 'here' });
    const engines = { ipcache, nodes, services: new ServiceCache({ clusterName: 'own' }) };
    return { engines, clock, random: Math.random, nodeName: 'here', clusterName: 'own' };
  };
  const optionsOf = (pinFolder: string, others: Partial<HostDatapathOptions> = {}): HostDatapathOptions => ({
    pinFolder,
    routing: 'direct',
    services: 'nftables',
    layout: '1.17',
    dryRun: false,
    ...others,
  });
  const within = <T>(namespace: Namespace, work: () => T): T => runInNamespace(kernel, namespace.path, work);
  const open = (namespace: Namespace, options: HostDatapathOptions): LinuxDatapath => {
    const { datapath } = within(namespace, () => openHostDatapath(options, context()));
    scratch.defer(() => datapath[Symbol.dispose]());
    return datapath;
  };
  const states = (datapath: LinuxDatapath) =>
    Object.fromEntries(
      datapath.status().parts.map(({ name, state, missing: [why = ''] }) => [name, `${state} ${why}`.trim()]),
    );
  const RUNS = { nodes: 'running', ipcache: 'running', services: 'running' };

  it('cannot be managed by another one in its network namespace or folder before that has ended', () => {
    const [one, two] = [join(pins, 'one'), join(pins, 'two')];
    const first = open(host, optionsOf(one));
    expect(states(first)).toEqual(RUNS);
    expect(states(open(host, optionsOf(two)))).toEqual({
      nodes:
        'unavailable another agent manages the routes of this network namespace: stop it, or start this one with --datapath-routing off',
      ipcache: 'running',
      services:
        'unavailable another agent manages the rules of this network namespace: stop it, or start this one with another --datapath-services',
    });
    const other = open(scratch.namespace('other'), optionsOf(one));
    expect(states(other)).toEqual({
      ...RUNS,
      ipcache: `unavailable another agent uses the pins in ${one}: stop it, or set another folder with --datapath-pins`,
    });
    // A dry run writes nothing, so it blocks nothing.
    expect(states(open(host, optionsOf(one, { dryRun: true })))).toEqual(RUNS);
    first[Symbol.dispose]();
    expect(states(open(host, optionsOf(one)))).toEqual(RUNS);
  });

  it('keeps its routes if another agent has no routing, or if clean removes everything', () => {
    const folder = join(pins, 'one');
    host.run('ip', 'route', 'add', '10.9.0.0/24', 'dev', 'lo', 'proto', '201');
    const first = open(host, optionsOf(folder));
    mkdirSync(join(pins, 'two'));
    const retire = (): string => {
      within(host, () => {
        using access = new HostAccess(optionsOf(join(pins, 'two'), { routing: 'off' }), context());
        retireNodes(access);
        retireRules(access);
      });
      return host.run('ip', 'route', 'show', 'proto', '201');
    };
    expect(retire()).toContain('10.9.0.0/24');
    expect(within(host, () => cleanHost(folder)).remaining).toEqual([
      expect.stringContaining('another agent manages the routes of this network namespace'),
      expect.stringContaining('another agent manages the rules of this network namespace'),
      expect.stringContaining(`another agent uses the pins in ${folder}`),
    ]);
    first[Symbol.dispose]();
    expect(retire()).toBe('');
  });

  it('leaves no pin that clean considers foreign if a map was not replaced completely (regression)', () => {
    const folder = join(pins, 'one');
    mkdirSync(folder);
    const path = join(folder, `services4${STAGING_SUFFIX}`);
    const shape = serviceMapShapes(4, serviceCapacity(10)).services;
    using _map = BpfMap.openOrCreate(new Bpf(kernel), shape, path, 'services4');
    expect(within(host, () => cleanHost(folder))).toEqual({ removed: [path], remaining: [] });
  });

  it('writes no found prefix again if the restored caches have it (regression: each of them)', async () => {
    const options = optionsOf(join(pins, 'one'), { routing: 'off', services: 'off' });
    const live = async (identity: number): Promise<number | undefined> => {
      const world = context();
      const { ipcache } = world.engines;
      for (let i = 0; i < 600; i++)
        ipcache.upsert(`10.1.${i >> 8}.${i & 255}`, { identity: 7, source: 'restored' });
      using datapath = within(host, () => openHostDatapath(options, world).datapath);
      const adopted = datapath.adopt();
      ipcache.upsert('10.1.0.5', { identity, source: 'kvstore' });
      await adopted;
      datapath.connect(world.engines);
      datapath.allowDeletes();
      await datapath.flushed();
      expect(datapath.lookupPrefix('10.1.0.5/32')?.kernel).toBe(`identity ${identity}`);
      return datapath.status().tables.find(({ name }) => name === 'ipcache')?.upserts;
    };
    expect(await live(8)).toBe(600);
    expect(await live(9)).toBe(1);
  });

  /** Keeps this thread in a network namespace until the test ends. */
  function enter({ path }: Namespace): void {
    const [here, there] = [openSync('/proc/thread-self/ns/net', 'r'), openSync(path, 'r')];
    kernel.call('setns', there, CLONE_NEWNET);
    scratch.defer(() => {
      kernel.call('setns', here, CLONE_NEWNET);
      for (const fd of [here, there]) closeSync(fd);
    });
  }

  it('keeps its routes, prefixes and rules unchanged in a restart, although weaker nodes and claims arrive first and the local node last (regression: wrote those of the weaker ones)', async () => {
    cable([host, 'eth0', ['192.168.0.1/24']], [scratch.namespace('router'), 'eth0', ['192.168.0.254/24']]);
    enter(host);
    const options = optionsOf(join(pins, 'one'), { routing: 'auto' });
    const complete = {
      areLocalEntriesKnown: true,
      isLocalComplete: true,
      areClustersKnown: true,
      isSynced: true,
    };
    const start = async () => {
      const world = context();
      const { datapath } = openHostDatapath(options, world);
      scratch.defer(() => datapath[Symbol.dispose]());
      await datapath.adopt();
      datapath.connect(world.engines);
      const { ipcache, nodes, services } = world.engines;
      const node = (name: string, source: 'kvstore' | 'custom-resource', ip: string, ipv4AllocCIDR: string) =>
        nodes.nodeUpdated({ cluster: 'own', name, source, addresses: internal(ip), ipv4AllocCIDR });
      return {
        datapath,
        weak: () => {
          node('a', 'custom-resource', '192.168.0.5', '10.2.0.0/24');
          node('far', 'custom-resource', '198.51.100.3', '10.3.0.0/24');
        },
        strong: () => {
          node('near', 'kvstore', '192.168.0.2', '10.2.0.0/24');
          node('far', 'kvstore', '198.51.100.3', '10.3.0.0/24');
          ipcache.upsert('198.51.100.3', { identity: 7, source: 'kube-apiserver' });
          const ports = new Map([['web', { port: 80, protocol: 6, nodePort: 0 }]]);
          const id = { namespace: 'shop', name: 'web' };
          services.updateService(createService({ id, clusterIPs: ['172.16.0.1'], ports }));
          const backends = [createBackend({ address: '10.2.0.7', ports })];
          services.updateEndpoints(createEndpointSlice({ service: id, backends }));
          services.markSynced();
          node('here', 'kvstore', '192.168.0.1', '10.9.0.0/24');
          datapath.setInputs(complete);
          datapath.allowDeletes();
        },
      };
    };
    const first = await start();
    first.weak();
    first.strong();
    await until('everything is written', () => {
      const [paths, ...others] = first.datapath.status().tables;
      return paths?.actual === 4 && others.every(({ pending }) => pending === 0);
    });
    first.datapath[Symbol.dispose]();

    using monitor = new NetlinkSocket(kernel, { groups: [IPV4_ROUTES_GROUP] });
    const second = await start();
    second.weak();
    await second.datapath.flushed();
    second.strong();
    await until('everything is confirmed', () =>
      second.datapath.status().tables.every(({ pending, state }) => pending === 0 && state === 'in-sync'),
    );
    expect(await second.datapath.plan()).toEqual([]);
    const written = second.datapath
      .status()
      .tables.map(({ name, upserts, deletes }) => [name, upserts, deletes]);
    expect(written).toEqual([
      ['paths', 0, 0],
      ['ipcache', 0, 0],
      ['ipcache-pins', 0, 0],
      ['nftables', 0, 0],
    ]);
    expect(monitor.receive()).toBeUndefined();
  });

  it('whose pins are at the root of a bpf file system is left clean (regression: reported as a failure)', () => {
    using _map = BpfMap.openOrCreate(new Bpf(kernel), ipcacheShape('1.17'), join(pins, 'ipcache'), 'ipcache');
    expect(within(host, () => cleanHost(pins))).toEqual({
      removed: [join(pins, 'ipcache')],
      remaining: [],
    });
  });

  it('whose ipcache has another size of values is left clean for each layout (regression: only for 1.17)', () => {
    const paths = ['ipcache', 'ipcache-1_18', 'ipcache-1_8'].map((name) => join(pins, name));
    const shape = { ...ipcacheShape('1.17'), valueSize: 32, maxEntries: 8 };
    for (const path of paths) BpfMap.openOrCreate(new Bpf(kernel), shape, path, 'ipcache')[Symbol.dispose]();
    const { removed, remaining } = within(host, () => cleanHost(pins));
    expect([removed.toSorted(), remaining]).toEqual([paths, []]);
  });

  it('keeps no new map of an interrupted replacement if services are switched off (regression: until a clean)', () => {
    const path = join(pins, `services4${STAGING_SUFFIX}`);
    const shape = serviceMapShapes(4, serviceCapacity(10)).services;
    using _map = BpfMap.openOrCreate(new Bpf(kernel), shape, path, 'services4');
    using access = new HostAccess(optionsOf(pins, { services: 'off' }), context());
    retirePrograms(access);
    expect(existsSync(path)).toBe(false);
  });

  it('deletes routes without a wait for rules that could not be followed (regression: for ten seconds, each time)', () => {
    using follow = vi.spyOn(NftServices.prototype, 'follow').mockImplementationOnce(() => {
      throw new SyscallError('socket', constants.errno.EMFILE);
    });
    within(host, () => {
      using access = new HostAccess(optionsOf(pins, { routing: 'off' }), context());
      expect(() => openNftables(access)).toThrow('EMFILE');
      expect(access.routeUsers).toEqual([]);
    });
    expect(follow).toHaveBeenCalledOnce();
  });
});
