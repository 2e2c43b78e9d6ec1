import { existsSync, mkdirSync, readdirSync, rmdirSync, unlinkSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Bpf } from '../../../../src/datapath/linux/bpf/bpf.ts';
import { BpfMap } from '../../../../src/datapath/linux/bpf/bpf-map.ts';
import { STAGING_SUFFIX } from '../../../../src/datapath/linux/bpf/pin.ts';
import { KeptTable } from '../../../../src/datapath/linux/kept-table.ts';
import { DesiredServices } from '../../../../src/datapath/linux/services/desired-services.ts';
import type { ServiceLimits } from '../../../../src/datapath/linux/services/family-services.ts';
import {
  type ServiceCapacity,
  serviceCapacity,
} from '../../../../src/datapath/linux/services/service-layout.ts';
import type { ServiceMaps } from '../../../../src/datapath/linux/services/service-maps.ts';
import { ServicePins } from '../../../../src/datapath/linux/services/service-pins.ts';
import { ServiceMapTable } from '../../../../src/datapath/linux/services/service-table.ts';
import { Kernel } from '../../../../src/datapath/linux/syscall/kernel.ts';
import { SyscallError } from '../../../../src/datapath/linux/syscall/syscall-error.ts';
import type { Family } from '../../../../src/net/address-words.ts';
import { brokenFrontends, FakeMap, fakeServiceMaps } from '../support/fake-map.ts';
import { ManualTurns } from '../support/fake-table.ts';
import { describeOnLinux } from '../support/requirements.ts';
import { exec, Scratch } from '../support/scratch.ts';
import { SERVICE_STEP, type ServiceStep, ServiceWorld } from '../support/service-world.ts';

type OpenServiceMaps = (family: Family) => ServiceMaps;

const LIMITS = fc.record({
  entriesPerCall: fc.constantFrom(1, 7, 8192),
  storedList: fc.constantFrom(1, 3, 1024),
});

const CAPACITY: ServiceCapacity = { slots: 4096, backends: 1024, clients: 64 };

/** Starts a process that keeps the maps equal to a world. */
function start(open: OpenServiceMaps, world: ServiceWorld, limits?: ServiceLimits) {
  const table = new ServiceMapTable({ 4: open(4), 6: open(6) }, limits);
  const desired = new DesiredServices({ nodePort: { enabled: true }, nodeName: 'here', clients: 'inside' });
  const turns = new ManualTurns();
  const kept = new KeptTable(table, desired, turns);
  const off = world.cache.subscribe(desired.listener((frontend) => kept.mark(frontend)));
  const stop = (): void => {
    off();
    kept[Symbol.dispose]();
  };
  return { table, kept, turns, stop };
}

function printed(table: ServiceMapTable): Record<string, string> {
  const entries = [...table.dump()].filter((entry) => entry !== undefined);
  return Object.fromEntries(entries.map(([key, item]) => [key, table.print(item)] as const).sort());
}

const sorted = (record: Record<string, string>): Record<string, string> =>
  Object.fromEntries(Object.entries(record).sort());

/** Runs the steps in a few lives of a process. Each life adopts the tables of the previous one. */
async function live(
  open: OpenServiceMaps,
  steps: readonly ServiceStep[],
  everyStep: number,
  limits?: ServiceLimits,
): Promise<void> {
  const world = new ServiceWorld();
  world.cache.markSynced();
  let process = start(open, world, limits);
  await process.turns.until(process.kept.adopt());
  process.kept.allowDeletes();
  await process.turns.settle();
  for (const [at, step] of steps.entries()) {
    world.take(step);
    if (at % 7 === 3) await process.turns.settle();
    if (at % everyStep === everyStep - 1) {
      await process.turns.settle();
      expect(sorted(printed(process.table))).toEqual(sorted(world.expected()));
    }
    if (at % 50 !== 49) continue;
    process.stop();
    process = start(open, world, limits);
    await process.turns.until(process.kept.adopt());
    process.kept.allowDeletes();
  }
  await process.turns.settle();
  expect(sorted(printed(process.table))).toEqual(sorted(world.expected()));
  expect(process.kept.status()).toMatchObject({ failing: 0, pending: 0, noRoom: 0, state: 'in-sync' });
  process.stop();
}

describe('services in the maps of a kernel', () => {
  it('get unused numbers for new backends, whatever numbers others have written (regression: overwrote backends)', () => {
    const open = fakeServiceMaps(CAPACITY);
    const item = (...backends: readonly string[]) => ({ backends, affinitySeconds: 0 });
    const first = new ServiceMapTable({ 4: open(4), 6: open(6) });
    first.apply([{ key: '172.16.0.1:80/TCP', item: item('10.0.0.1:80/TCP', '10.0.0.2:80/TCP') }]);
    const { backends } = open(4).maps;
    open(4).writeBackendKey(0, 0xffff_ffff);
    open(4).writeBackend(0, { ip: '10.0.0.9', port: 80, protocol: 6 });
    expect(backends.update(1)).toEqual([undefined]);
    const second = new ServiceMapTable({ 4: open(4), 6: open(6) });
    printed(second);
    second.apply([
      { key: '172.16.0.2:80/TCP', item: item('10.0.0.3:80/TCP', '10.0.0.4:80/TCP', '10.0.0.5:80/TCP') },
    ]);
    expect(printed(new ServiceMapTable({ 4: open(4), 6: open(6) }))).toMatchObject({
      '172.16.0.1:80/TCP': '→ 10.0.0.1:80/TCP 10.0.0.2:80/TCP',
      '172.16.0.2:80/TCP': '→ 10.0.0.3:80/TCP 10.0.0.4:80/TCP 10.0.0.5:80/TCP',
    });
  });

  it('equal a model after any steps', () =>
    fc.assert(
      fc.asyncProperty(fc.array(SERVICE_STEP, { maxLength: 80 }), LIMITS, (steps, limits) =>
        live(fakeServiceMaps(CAPACITY), steps, 5, limits),
      ),
      { numRuns: 200 },
    ));

  it('always have the slots and backends that they count, after each single write', () =>
    fc.assert(
      fc.asyncProperty(fc.array(SERVICE_STEP, { maxLength: 40 }), LIMITS, async (steps, limits) => {
        const open = fakeServiceMaps(CAPACITY);
        for (const family of [4, 6] as const) {
          const { services, backends } = open(family).maps;
          if (!(services instanceof FakeMap && backends instanceof FakeMap)) throw new Error('not a fake');
          const look = (): void => expect(brokenFrontends(services, backends)).toEqual([]);
          services.onWrite = look;
          backends.onWrite = look;
        }
        await live(open, steps, 5, limits);
      }),
      { numRuns: 100 },
    ));

  const web = (number: number): string => `172.16.0.${number}:80/TCP`;
  const service = (number: number, affinitySeconds = 0): ServiceStep => ({
    do: 'service',
    service: { number, affinitySeconds, isLocal: false, isShared: false },
  });
  const slice = (number: number, ...ips: readonly string[]): ServiceStep => ({
    do: 'slice',
    number,
    backends: ips.map((ip) => ({ ip, state: 'active', node: 'here' })),
  });
  const setUp = async (capacity: ServiceCapacity = CAPACITY) => {
    const open = fakeServiceMaps(capacity);
    const world = new ServiceWorld();
    world.cache.markSynced();
    const process = start(open, world);
    await process.turns.until(process.kept.adopt());
    const map = (name: 'services' | 'backends' | 'members'): FakeMap => {
      const found = open(4).maps[name];
      if (found instanceof FakeMap) return found;
      throw new Error('not a fake');
    };
    return { ...process, open, world, map };
  };
  const numbersOf = (backends: FakeMap): readonly string[] =>
    [...backends.content].map(([key, value]) => `${Buffer.from(key, 'hex').readUInt32LE()} ${value[3]}`);

  it('keep the numbers of their backends in the next process', async () => {
    const { open, world, turns, map, stop } = await setUp();
    world.take(service(1));
    world.take(slice(1, '10.0.0.1', '10.0.0.2', '10.0.0.3'));
    await turns.settle();
    const before = numbersOf(map('backends'));
    world.take(slice(1, '10.0.0.3', '10.0.0.1', '10.0.0.4'));
    await turns.settle();
    const kept = numbersOf(map('backends')).filter((row) => before.includes(row));
    expect(kept.length).toBeGreaterThanOrEqual(4);
    stop();
    const next = start(open, world);
    await next.turns.until(next.kept.adopt());
    await next.turns.settle();
    expect(numbersOf(map('backends'))).toEqual(expect.arrayContaining([...kept]));
    expect(next.kept.status()).toMatchObject({ upserts: 0, actual: 6 });
  });

  it('are not changed by a process that does not know them yet', async () => {
    const { open, world, turns, table, stop } = await setUp();
    world.take(service(1));
    world.take(slice(1, '10.0.0.1'));
    await turns.settle();
    const content = printed(table);
    stop();
    const later = new ServiceWorld();
    const next = start(open, later);
    await next.turns.until(next.kept.adopt());
    await next.turns.settle();
    expect(printed(next.table)).toEqual(content);
    expect(next.kept.status()).toMatchObject({ state: 'adopting', unconfirmed: 6 });
    later.cache.markSynced();
    next.kept.allowDeletes();
    await next.turns.settle();
    expect(printed(next.table)).toEqual({});
    for (const map of Object.values(open(4).maps)) expect([...map.batches()]).toEqual([0]);
  });

  it('remain unchanged if there is no room for another backend, and others are updated', async () => {
    const { world, turns, table, kept } = await setUp({ ...CAPACITY, backends: 4 });
    kept.allowDeletes();
    world.take(service(1));
    world.take(slice(1, '10.0.0.1'));
    world.take(service(2));
    world.take(slice(2, '10.0.0.1'));
    await turns.settle();
    world.take(slice(1, '10.0.0.2', '10.0.0.3', '10.0.0.4'));
    await turns.settle();
    expect(printed(table)[web(1)]).toBe('→ 10.0.0.1:8080/TCP');
    world.take(slice(2, '10.0.0.2'));
    await turns.settle();
    expect(printed(table)[web(2)]).toBe('→ 10.0.0.2:8080/TCP');
    expect(kept.status()).toMatchObject({ state: 'degraded', noRoom: 2 });
  });

  it('name the full map, and are written as soon as another service has fewer backends', async () => {
    const { world, turns, table, kept } = await setUp({ ...CAPACITY, backends: 4 });
    kept.allowDeletes();
    world.take(service(1));
    world.take(slice(1, '10.0.0.1', '10.0.0.2'));
    world.take(service(2));
    await turns.settle();
    expect(kept.status()).toMatchObject({ state: 'in-sync', pressure: 1 });
    world.take(slice(2, '10.0.0.3'));
    await turns.settle();
    expect(kept.status()).toMatchObject({ state: 'degraded', noRoom: 2, failing: 0, pressure: 1 });
    expect(kept.status().maps).toEqual([
      // Each service has two frontends, and one for all other ports; those of the second one have no backends
      // yet.
      { name: 'services4', used: 10, capacity: 4096 },
      { name: 'backends4', used: 4, capacity: 4 },
      { name: 'members4', used: 0, capacity: 4096 },
      ...[
        { name: 'services6', used: 6, capacity: 4096 },
        { name: 'backends6', used: 0, capacity: 4 },
        { name: 'members6', used: 0, capacity: 4096 },
      ],
    ]);
    world.take(slice(1, '10.0.0.1'));
    await turns.settle();
    expect(sorted(printed(table))).toEqual(sorted(world.expected()));
    expect(kept.status()).toMatchObject({ state: 'in-sync', noRoom: 0 });
  });

  it('are repaired after a slot was deleted', async () => {
    const { world, turns, table, kept, map } = await setUp();
    kept.allowDeletes();
    world.take(service(1, 30));
    world.take(slice(1, '10.0.0.1', '10.0.0.2'));
    await turns.settle();
    for (const key of map('services').content.keys()) {
      if (key.slice(12, 16) !== '0200') continue;
      map('services').content.delete(key);
    }
    map('backends').content.set('99990000', new Uint8Array(12));
    expect((await turns.until(kept.plan())).map(({ key }) => key).sort()).toEqual([
      // Its members still refer to the backend of the slot.
      ...['172.16.0.1:53/UDP', web(1), 'unused backend 0.0.0.0:0/ANY'],
    ]);
    await turns.until(kept.repair());
    expect(sorted(printed(table))).toEqual(sorted(world.expected()));
  });

  it('lose foreign keys that differ in the scope or in padding only (regression: others were deleted, and these stayed)', async () => {
    const { world, turns, table, kept, map } = await setUp();
    kept.allowDeletes();
    world.take(service(1, 30));
    world.take(slice(1, '10.0.0.1', '10.0.0.2'));
    await turns.settle();
    const before = { services: [...map('services').content], members: [...map('members').content] };
    for (const [name, at] of [['services', 18] as const, ['members', 14] as const])
      for (const [key, value] of before[name])
        map(name).content.set(`${key.slice(0, at)}01${key.slice(at + 2)}`, value);
    const foreign = ['172.16.0.1:53/273', '172.16.0.1:80/262'];
    expect((await turns.until(kept.plan())).map(({ key }) => key)).toEqual(expect.arrayContaining(foreign));
    await turns.until(kept.repair());
    await turns.settle();
    for (const name of ['services', 'members'] as const)
      expect(new Map(map(name).content)).toEqual(new Map(before[name]));
    expect(sorted(printed(table))).toEqual(sorted(world.expected()));
    expect(await turns.until(kept.plan())).toEqual([]);
  });

  it('are returned few slots at a time (regression: 256 frontends in a turn, however many slots they have)', () => {
    const open = fakeServiceMaps({ slots: 65_536, backends: 4096, clients: 64 });
    const table = new ServiceMapTable({ 4: open(4), 6: open(6) });
    const backends = Array.from({ length: 3000 }, (_, at) => `10.0.${at >> 8}.${at & 255}:80/TCP`).sort();
    const item = { backends, affinitySeconds: 0 };
    for (let at = 0; at < 8; at++) {
      const key = `10.96.0.${at}:80/TCP`;
      while (table.apply([{ key, item }])[0] === 'unfinished');
    }
    const steps: number[] = [0];
    let frontends = 0;
    for (const entry of table.dump()) {
      if (entry === undefined) steps.push(0);
      else steps[steps.length - 1] = (steps.at(-1) ?? 0) + entry[1].backends.length;
      if (entry !== undefined) frontends++;
    }
    expect([frontends, Math.max(...steps)]).toEqual([8, 9000]);
  });

  it('lose foreign entries with IPv4-mapped addresses (regression: their keys were written as IPv4, and these stayed)', async () => {
    const { turns, kept, open } = await setUp();
    kept.allowDeletes();
    const { services, backends } = open(6).maps;
    if (!(services instanceof FakeMap && backends instanceof FakeMap)) throw new Error('not fakes');
    const address = `${'00'.repeat(10)}ffff0a000001`;
    services.content.set(`${address}0050000006000000`, Uint8Array.of(0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0));
    services.content.set(`${address}0050010006000000`, Uint8Array.of(7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    backends.content.set('07000000', Buffer.from(`${address}1f90060000000000`, 'hex'));
    backends.content.set('08000000', Buffer.from(`${address}1f91060000000000`, 'hex'));
    await turns.until(kept.repair());
    await turns.settle();
    expect([services.content.size, backends.content.size]).toEqual([0, 0]);
  });

  it('are known as before after an interrupted read: deleted ones are deleted in the kernel', async () => {
    const { world, turns, table, kept, map } = await setUp();
    kept.allowDeletes();
    world.take(service(1));
    world.take(slice(1, '10.0.0.1', '10.0.0.2'));
    await turns.settle();
    const batches = map('services').batches.bind(map('services'));
    map('services').batches = () => {
      throw new Error('no memory');
    };
    await expect(turns.until(kept.plan())).rejects.toThrow('no memory');
    map('services').batches = batches;
    world.take({ do: 'delete-service', number: 1 });
    await turns.settle();
    expect(printed(table)).toEqual({});
  });

  it('keep a backend while clients may have affinity to it, because its number would be reused', async () => {
    const { world, turns, kept, map } = await setUp();
    kept.allowDeletes();
    world.take(service(1, 30));
    world.take(slice(1, '10.0.0.1', '10.0.0.2'));
    await turns.settle();
    const before = numbersOf(map('backends'));
    map('members').broken = true;
    world.take(slice(1, '10.0.0.1'));
    await turns.settle();
    expect(kept.status()).toMatchObject({ state: 'degraded', failing: 2 });
    expect(numbersOf(map('backends'))).toEqual(before);
    map('members').broken = false;
    turns.clock.advance(60_000);
    await turns.settle();
    expect(numbersOf(map('backends'))).toHaveLength(before.length / 2);
    expect(kept.status().state).toBe('in-sync');
  });

  it('leave no backend that could not be deleted at first (regression: it stayed until a restart)', async () => {
    const { world, turns, kept, map } = await setUp();
    kept.allowDeletes();
    world.take(service(1));
    world.take(slice(1, '10.0.0.1', '10.0.0.2'));
    await turns.settle();
    map('backends').broken = true;
    world.take(slice(1, '10.0.0.1'));
    await turns.settle();
    expect(numbersOf(map('backends'))).toHaveLength(4);
    map('backends').broken = false;
    world.take(service(2));
    await turns.settle();
    expect(numbersOf(map('backends'))).toHaveLength(2);
  });

  it('refer to no backend that could not be written', async () => {
    const { world, turns, table, kept, map } = await setUp();
    map('backends').broken = true;
    world.take(service(1));
    world.take(slice(1, '10.0.0.1', '10.0.0.2'));
    await turns.settle();
    expect(kept.status()).toMatchObject({ state: 'degraded' });
    map('backends').broken = false;
    turns.clock.advance(60_000);
    await turns.settle();
    expect(sorted(printed(table))).toEqual(sorted(world.expected()));
    expect(numbersOf(map('backends'))).toHaveLength(4);
  });

  it('of a large service are written and deleted in several turns (regression: all entries in one turn)', async () => {
    const { world, turns, table, kept, map } = await setUp({
      slots: 1 << 17,
      backends: 1 << 16,
      clients: 64,
    });
    kept.allowDeletes();
    const [services, backends, members] = [map('services'), map('backends'), map('members')];
    let written = 0;
    for (const each of [services, backends, members]) each.onWrite = () => written++;
    const mostPerTurn = async (): Promise<number> => {
      let most = 0;
      for (let isMore = true; isMore; written = 0) {
        isMore = await turns.turn();
        most = Math.max(most, written);
      }
      return most;
    };
    const ips = Array.from({ length: 3000 }, (_, at) => `10.0.${at >> 8}.${at & 255}`);
    world.take(service(1, 30));
    world.take(slice(1, ...ips));
    expect(await mostPerTurn()).toBeLessThan(8192 + 32); // of 18,000; frontends are not counted
    expect(brokenFrontends(services, backends)).toEqual([]);
    expect(sorted(printed(table))).toEqual(sorted(world.expected()));
    const sizes = (): readonly number[] => [services, backends, members].map(({ content }) => content.size);
    world.take({ do: 'delete-service', number: 1 });
    expect(await mostPerTurn()).toBeLessThan(8192 + 32);
    expect(sizes()).toEqual([0, 0, 0]);
    // Deleted while it is being written.
    world.take(service(1, 30));
    await turns.turn();
    expect(sizes()).not.toEqual([0, 0, 0]);
    world.take({ do: 'delete-service', number: 1 });
    await turns.settle();
    expect(sizes()).toEqual([0, 0, 0]);
    expect(kept.status()).toMatchObject({ state: 'in-sync', pending: 0, actual: 0 });
  });

  it('keep the backends of a large service while others are written (regression: deleted and written again)', async () => {
    const open = fakeServiceMaps(CAPACITY);
    const { backends } = open(4).maps;
    const table = new ServiceMapTable({ 4: open(4), 6: open(6) }, { entriesPerCall: 4, storedList: 1024 });
    const item = (from: number, to: number) => ({
      backends: Array.from({ length: to - from }, (_, at) => `10.0.0.${from + at}:80/TCP`).sort(),
      affinitySeconds: 0,
    });
    const apply = (number: number, from: number, to: number) =>
      table.apply([{ key: web(number), item: item(from, to) }]);
    expect(apply(1, 10, 18)).toEqual(['unfinished']);
    expect(apply(2, 20, 21)).toEqual([undefined]);
    expect(table.apply([{ key: '[fd00::1]:80/TCP', item: item(0, 0) }])).toEqual([undefined]);
    let writes = 0;
    if (backends instanceof FakeMap) backends.onWrite = () => writes++;
    let turns = 1;
    while (apply(1, 10, 18).includes('unfinished')) turns++;
    expect([writes, turns]).toEqual([4, 3]);
  });

  it('delete few unused backends in one call, also without a step of their family (regression: all)', () => {
    const open = fakeServiceMaps(CAPACITY);
    const { backends } = open(4).maps;
    if (!(backends instanceof FakeMap)) throw new Error('the map is a fake');
    const table = new ServiceMapTable({ 4: open(4), 6: open(6) }, { entriesPerCall: 50, storedList: 1024 });
    const other = new ServiceMapTable({ 4: open(4), 6: open(6) }, { entriesPerCall: 4, storedList: 1024 });
    const endpoints = Array.from({ length: 10 }, (_, at) => `10.0.0.${at}:80/TCP`);
    table.apply([{ key: web(1), item: { backends: endpoints, affinitySeconds: 0 } }]);
    backends.broken = true;
    table.apply([{ key: web(1), item: undefined }]);
    backends.broken = false;
    expect(backends.content.size).toBe(10);
    const unused = [...other.dump()].flatMap((row) => row?.[0] ?? []);
    expect(unused).toHaveLength(10);
    const release = () => other.apply(unused.map((key) => ({ key, item: undefined })));
    expect(release().filter((outcome) => outcome === 'unfinished')).toHaveLength(6);
    expect(backends.content.size).toBe(6);
    other.apply([{ key: '[fd00::1]:80/TCP', item: undefined }]);
    expect(backends.content.size).toBe(2);
    expect(release().filter((outcome) => outcome !== undefined)).toEqual([]);
    expect(backends.content.size).toBe(0);
  });

  it('are retried if they cannot be written', async () => {
    const { world, turns, table, kept, map } = await setUp();
    map('services').broken = true;
    world.take(service(1));
    world.take(slice(1, '10.0.0.1'));
    await turns.settle();
    expect(kept.status()).toMatchObject({ state: 'degraded', failing: 3 });
    map('services').broken = false;
    turns.clock.advance(60_000);
    await turns.settle();
    expect(sorted(printed(table))).toEqual(sorted(world.expected()));
  });

  it('keep the slots and backends of a frontend whose smaller count cannot be written', async () => {
    const { world, turns, table, kept, map } = await setUp();
    kept.allowDeletes();
    world.take(service(1));
    world.take(slice(1, '10.0.0.1', '10.0.0.2'));
    await turns.settle();
    const services = map('services');
    const update = services.update.bind(services);
    services.update = (count) => Array.from({ length: count }, () => new SyscallError('update', 1));
    world.take(slice(1, '10.0.0.1'));
    await turns.settle();
    expect(kept.status()).toMatchObject({ state: 'degraded', failing: 2 });
    expect(brokenFrontends(services, map('backends'))).toEqual([]);
    services.update = update;
    turns.clock.advance(60_000);
    await turns.settle();
    expect(sorted(printed(table))).toEqual(sorted(world.expected()));
  });
});

describeOnLinux('services in the maps of this kernel', ['maps', 'bpftool'], () => {
  it('keep their size if a new one cannot be pinned, until it can', () => {
    using scratch = new Scratch();
    const bpf = new Bpf(new Kernel());
    const folder = scratch.bpffs();
    const first = { slots: 4096, backends: 512, clients: 64 };
    new ServicePins(bpf, { folder, capacity: first })[Symbol.dispose]();
    using pins = new ServicePins(bpf, { folder, capacity: CAPACITY });
    mkdirSync(`${folder}/backends6${STAGING_SUFFIX}`);
    let attached = 0;
    for (const _ of pins.resize(() => void attached++));
    expect(pins.problems()).toEqual([expect.stringContaining(`backends6${STAGING_SUFFIX}`)]);
    const state = (): readonly unknown[] => {
      using next = new ServicePins(bpf, { folder, capacity: CAPACITY });
      const sizes = [next.maps[4], next.maps[6]].map(({ maps }) => maps.backends.shape.maxEntries);
      return [...sizes, pins.needsResize, attached];
    };
    expect(state()).toEqual([512, 512, true, 0]);
    expect(readdirSync(folder).filter((name) => name.endsWith(STAGING_SUFFIX))).toEqual([
      `backends6${STAGING_SUFFIX}`,
    ]);
    rmdirSync(`${folder}/backends6${STAGING_SUFFIX}`);
    for (const _ of pins.resize(() => void attached++));
    expect([...state(), pins.problems()]).toEqual([1024, 1024, false, 1, []]);
  });

  it('are replaced if a killed process left a new map of another layout (regression: EEXIST until an rm)', () => {
    using scratch = new Scratch();
    const bpf = new Bpf(new Kernel());
    const folder = scratch.bpffs();
    new ServicePins(bpf, { folder, capacity: { slots: 2048, backends: 512, clients: 64 } })[Symbol.dispose]();
    using pins = new ServicePins(bpf, { folder, capacity: CAPACITY });
    const [path, other] = [`${folder}/backends4${STAGING_SUFFIX}`, `${folder}/services4${STAGING_SUFFIX}`];
    const shape = { type: 'hash', keySize: 40, valueSize: 4, maxEntries: 8 } as const;
    BpfMap.openOrCreate(bpf, shape, path, 'backends4')[Symbol.dispose]();
    BpfMap.openOrCreate(bpf, shape, other, 'of_others')[Symbol.dispose]();
    const resize = (): unknown => [...pins.resize(() => {})];
    resize();
    expect(pins.problems()).toEqual([expect.stringContaining(`EEXIST: ${other}`)]);
    unlinkSync(other);
    resize();
    expect([pins.problems(), pins.needsResize, existsSync(path)]).toEqual([[], false, false]);
  });

  it('keep their size if the new one has no room for the entries, and report the reason', async () => {
    using scratch = new Scratch();
    const bpf = new Bpf(new Kernel());
    const folder = scratch.bpffs();
    const world = new ServiceWorld();
    world.cache.markSynced();
    {
      using pins = new ServicePins(bpf, { folder, capacity: CAPACITY });
      const { kept, turns } = start((family) => pins.maps[family], world);
      await turns.until(kept.adopt());
      world.take({
        do: 'service',
        service: { number: 1, affinitySeconds: 0, isLocal: false, isShared: false },
      });
      await turns.settle();
    }
    using pins = new ServicePins(bpf, { folder, capacity: { ...CAPACITY, slots: 2 } });
    expect(pins.needsResize).toBe(true);
    let attached = 0;
    for (const _ of pins.resize(() => void attached++));
    expect([attached, pins.problems().join()]).toEqual([
      0,
      expect.stringMatching(/cannot resize the service maps: .*E2BIG.*: change --datapath-service-capacity/),
    ]);
    const { table } = start((family) => pins.maps[family], world);
    expect(sorted(printed(table))).toEqual(sorted(world.expected()));
  });

  it('use memory per entry: their capacity would be 300 MB', () => {
    using scratch = new Scratch();
    const folder = scratch.bpffs();
    using _pins = new ServicePins(new Bpf(new Kernel()), { folder, capacity: serviceCapacity() });
    const bytes = ['services', 'backends', 'members'].flatMap((name) =>
      [4, 6].map((family): number => {
        const shown = exec('bpftool', '-j', 'map', 'show', 'pinned', `${folder}/${name}${family}`);
        return JSON.parse(shown).bytes_memlock;
      }),
    );
    expect(bytes.reduce((sum, one) => sum + one, 0)).toBeLessThan(100 << 20);
  });

  it('equal a model after a thousand steps', async () => {
    using scratch = new Scratch();
    const bpf = new Bpf(new Kernel());
    using pins = new ServicePins(bpf, { folder: scratch.bpffs(), capacity: CAPACITY });
    const open: OpenServiceMaps = (family) => pins.maps[family];
    const steps = fc.sample(SERVICE_STEP, { numRuns: 1000, seed: 11 });
    await live(open, steps, 25);
  });
});
