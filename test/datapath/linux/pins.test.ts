import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { openHostDatapath } from '../../../src/datapath/linux/host-datapath.ts';
import type { HostDatapathOptions } from '../../../src/datapath/linux/host-options.ts';
import type { LinuxDatapath } from '../../../src/datapath/linux/linux-datapath.ts';
import { runInNamespace } from '../../../src/datapath/linux/syscall/in-namespace.ts';
import { Kernel } from '../../../src/datapath/linux/syscall/kernel.ts';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import { NodeManager } from '../../../src/nodemanager/node-manager.ts';
import { ServiceCache } from '../../../src/servicecache/service-cache.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { until } from '../../base/support/until.ts';
import { describeOnLinux } from './support/requirements.ts';
import { exec, type Namespace, Scratch } from './support/scratch.ts';

describeOnLinux('pins of a datapath', ['maps', 'sockets', 'nftables', 'namespaces', 'bpftool'], () => {
  let scratch: Scratch;
  let pins: string;
  let cgroup: string;
  let clock: ManualClock;
  let host: Namespace;
  const kernel = new Kernel();

  beforeEach(() => {
    scratch = new Scratch();
    pins = join(scratch.bpffs(), 'dpcache');
    cgroup = scratch.cgroup();
    host = scratch.namespace('host');
    clock = new ManualClock();
  });
  afterEach(() => scratch[Symbol.dispose]());

  const start = async (others: Partial<HostDatapathOptions> = {}): Promise<LinuxDatapath> => {
    const ipcache = new IPCache();
    const random = (): number => 1;
    const nodes = new NodeManager({ ipcache, clock, random, clusterName: 'own', nodeName: 'here' });
    const engines = { ipcache, nodes, services: new ServiceCache({ clusterName: 'own' }) };
    const open = () =>
      openHostDatapath(
        {
          pinFolder: pins,
          cgroup,
          routing: 'off',
          services: 'socket',
          layout: '1.17',
          dryRun: false,
          ...others,
        },
        { engines, clock, random, nodeName: 'here', clusterName: 'own' },
      );
    const { datapath } = runInNamespace(kernel, host.path, open);
    scratch.defer(() => datapath[Symbol.dispose]());
    await datapath.adopt();
    datapath.connect(engines);
    datapath.allowDeletes();
    return datapath;
  };
  const missing = (datapath: LinuxDatapath): readonly string[] =>
    datapath.status().parts.flatMap((part) => part.missing);
  /**
   * Waits for a consequence of a kernel event. At each look `stepMs` pass on the clock, in total less than
   * `limitMs`.
   */
  const within = (limitMs: number, stepMs: number, what: string, isSo: () => boolean): Promise<void> => {
    const end = clock.now() + limitMs - 1;
    return until(what, () => {
      clock.advance(Math.min(stepMs, end - clock.now()));
      return isSo();
    });
  };
  const turn = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5));
  const idOf = (kind: 'map' | 'link', name: string): number =>
    JSON.parse(exec('bpftool', '-j', kind, 'show', 'pinned', join(pins, name))).id;
  const attached = (): readonly string[] =>
    JSON.parse(exec('bpftool', '-j', 'cgroup', 'show', cgroup)).map(
      ({ attach_type }: { readonly attach_type: string }) => attach_type,
    );

  it('are restored soon after they were removed, and refer to the same maps', async () => {
    const datapath = await start();
    const maps = readdirSync(pins).filter((name) => !name.startsWith('socket'));
    expect(maps).toHaveLength(13);
    const before = maps.map((name) => [name, idOf('map', name)]);
    for (const name of readdirSync(pins)) rmSync(join(pins, name));
    expect(missing(datapath)).toContain('map ipcache is missing, expected pinned');
    expect(missing(datapath)).toHaveLength(21);
    // Caused by an event of the folder, not by the check every ten seconds.
    await within(1_000, 20, 'all pins are back', () => missing(datapath).length === 0);
    expect(missing(datapath)).toEqual([]);
    expect(maps.map((name) => [name, idOf('map', name)])).toEqual(before);
    expect(attached()).toHaveLength(8);
    expect(datapath.status().tables.map(({ name, repairs }) => [name, repairs])).toEqual([
      ['ipcache', 0],
      ['ipcache-pins', 1],
      ['services', 0],
      ['nftables', 0],
      ['service-pins', 20],
    ]);
  });

  it('are restored in a folder that was deleted and created again', async () => {
    const datapath = await start({ services: 'off' });
    const id = idOf('map', 'ipcache');
    for (let round = 0; round < 2; round++) {
      rmSync(pins, { recursive: true });
      await within(20_000, 1_000, 'the pin is back', () => existsSync(join(pins, 'ipcache')));
      expect([idOf('map', 'ipcache'), missing(datapath)]).toEqual([id, []]);
    }
    // From the next check on, an event of the new folder is the cause again.
    clock.advance(10_000);
    await turn();
    rmSync(join(pins, 'ipcache'));
    await within(1_000, 20, 'the pin is back again', () => existsSync(join(pins, 'ipcache')));
    expect(idOf('map', 'ipcache')).toBe(id);
  });

  it('of the map of prefixes are looked up like a program does', async () => {
    const datapath = await start({ services: 'off' });
    expect(datapath.lookupPrefix('10.1.0.2/32')).toMatchObject({ kernel: undefined, cache: undefined });
    const key = '40 0 0 0 0 0 0 1 10 1 0 2 0 0 0 0 0 0 0 0 0 0 0 0'.split(' ');
    const value = '9 0 0 0 0 0 0 0 0 0 0 0'.split(' ');
    exec('bpftool', 'map', 'update', 'pinned', join(pins, 'ipcache'), 'key', ...key, 'value', ...value);
    expect(datapath.lookupPrefix('10.1.0.2/32')).toEqual({
      table: 'ipcache',
      key: '10.1.0.2/32',
      kernel: 'identity 9',
      cache: undefined,
    });
  });

  it('do not replace foreign pins at their paths, which are reported', async () => {
    const datapath = await start({ services: 'off' });
    const path = join(pins, 'ipcache');
    rmSync(path);
    exec('bpftool', ...`map create ${path} type hash key 4 value 4 entries 5 name foreign`.split(' '));
    await datapath.repair();
    expect(missing(datapath)).toEqual(['map ipcache is replaced, expected pinned']);
    const table = datapath.status().tables.find(({ name }) => name === 'ipcache-pins');
    expect(table).toMatchObject({
      state: 'degraded',
      failures: [{ key: 'map ipcache', reason: expect.stringContaining(`${path} is a foreign BPF object`) }],
    });
    expect(exec('bpftool', 'map', 'show', 'pinned', path)).toContain('name foreign');
    rmSync(path);
    await datapath.repair();
    expect(missing(datapath)).toEqual([]);
  });

  it('of a detached program appear in the status and the diff, and are attached again within ten seconds', async () => {
    const datapath = await start();
    exec('bpftool', 'link', 'detach', 'pinned', join(pins, 'socket_connect4'));
    expect(attached()).toHaveLength(7);
    expect(missing(datapath)).toEqual([
      `program socket_connect4 is detached, expected attached to ${cgroup}`,
    ]);
    expect(await datapath.plan()).toEqual([
      {
        table: 'service-pins',
        key: 'program socket_connect4',
        kernel: 'detached',
        cache: `attached to ${cgroup}`,
      },
    ]);
    // Nothing in the folder has changed.
    await turn();
    clock.advance(9_000);
    await turn();
    clock.advance(1_000);
    await until('it is attached', () => missing(datapath).length === 0);
    expect(attached()).toHaveLength(8);
    expect([missing(datapath), await datapath.plan()]).toEqual([[], []]);
  });

  it('of others at the start make a part unavailable until they are deleted, and the next repair opens it', async () => {
    exec('mkdir', pins);
    const path = join(pins, 'services6');
    exec('bpftool', ...`map create ${path} type hash key 4 value 4 entries 5 name foreign`.split(' '));
    const datapath = await start();
    const states = () => datapath.status().parts.map(({ name, state }) => `${name} ${state}`);
    expect(states()).toEqual(['nodes off', 'ipcache running', 'services unavailable']);
    const open = readdirSync('/proc/self/fd').length;
    for (let round = 0; round < 3; round++) await datapath.repair();
    expect(readdirSync('/proc/self/fd').length).toBe(open);
    rmSync(path);
    await runInNamespace(kernel, host.path, () => datapath.repair());
    expect(states()).toEqual(['nodes off', 'ipcache running', 'services running']);
    expect(attached()).toHaveLength(8);
  });

  it('of others at the paths of replaced maps remain (regression: were deleted with the maps of earlier agents)', async () => {
    exec('mkdir', pins);
    const paths = ['ipcache-1_8', 'ipcache_new'].map((name) => join(pins, name));
    for (const path of paths)
      exec('bpftool', ...`map create ${path} type hash key 4 value 4 entries 5 name foreign`.split(' '));
    const datapath = await start({ services: 'off' });
    await datapath.flushed();
    await turn();
    for (const path of paths) expect(existsSync(path)).toBe(true);
  });

  it('in a folder that was created again belong to the same agent (regression: a second one wrote the maps, too)', async () => {
    await start({ services: 'off' });
    rmSync(pins, { recursive: true });
    await within(20_000, 1_000, 'the pin is back', () => existsSync(join(pins, 'ipcache')));
    const second = await start({ services: 'off' });
    expect(missing(second)).toEqual([expect.stringContaining(`another agent uses the pins in ${pins}`)]);
  });

  it('of another agent in a folder that was created again are reported, and nothing is added (regression: advice to delete them)', async () => {
    const first = await start();
    rmSync(pins, { recursive: true });
    const second = await start({ services: 'off' });
    expect(missing(second)).toEqual([]);
    const reasons = (): readonly string[] =>
      first.status().tables.flatMap(({ failures }) => failures.map(({ reason }) => reason));
    await within(20_000, 1_000, 'the restores have failed', () => reasons().length > 1);
    for (const reason of reasons())
      expect(reason).toContain(`another agent uses the pins in ${pins}: stop it, or set another folder`);
    expect(readdirSync(pins)).toEqual(['ipcache']);
  });
});
