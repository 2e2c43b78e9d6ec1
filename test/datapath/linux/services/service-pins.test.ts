import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Bpf } from '../../../../src/datapath/linux/bpf/bpf.ts';
import { BpfMap, ForeignMapError } from '../../../../src/datapath/linux/bpf/bpf-map.ts';
import type { MapInfo, MapShape } from '../../../../src/datapath/linux/bpf/info.ts';
import type { ServiceMapName } from '../../../../src/datapath/linux/services/service-layout.ts';
import {
  ServicePins,
  type ServicePinsOptions,
} from '../../../../src/datapath/linux/services/service-pins.ts';
import { FakeMap } from '../support/fake-map.ts';

const CAPACITY = { slots: 64, backends: 16, clients: 8 };
const LARGER = { slots: 128, backends: 16, clients: 32 };
const PINS = ['services', 'backends', 'members', 'clients', 'peers', 'datagrams'].flatMap((name) => [
  `${name}4`,
  `${name}6`,
]);

class OpenMap extends FakeMap {
  readonly fd: number;
  isClosed = false;

  constructor(shape: MapShape, fd: number) {
    super(shape);
    this.fd = fd;
  }

  override [Symbol.dispose](): void {
    this.isClosed = true;
  }

  /** Writes an entry whose key and value repeat one byte. */
  put(key: number, value: number): void {
    this.keys.bytes.fill(key, 0, this.shape.keySize);
    this.values.bytes.fill(value, 0, this.shape.valueSize);
    expect(this.update(1)).toEqual([undefined]);
  }

  /** The first bytes of all keys, each with that of its value. */
  get entries(): Readonly<Record<number, number | undefined>> {
    return Object.fromEntries(
      [...this.content].map(([key, value]) => [Number.parseInt(key.slice(0, 2), 16), value[0]]),
    );
  }
}

describe('the pinned maps of services', () => {
  let folder: string;
  /** By descriptor. A pin is a file with the descriptor. */
  let maps: OpenMap[];
  /** Name of the map that cannot be created. */
  let refused: string | undefined;
  /** Names of the pins with a map of another layout. */
  let otherLayouts: readonly string[];

  const attributes = new DataView(new ArrayBuffer(64));
  const bpf = {
    attributes: () => attributes,
    text: () => 0,
    call: (_command: string, path: string) =>
      writeFileSync(path, String(attributes.getUint32(8, true)), { flag: 'wx' }),
  } as unknown as Bpf;

  const create = (shape: MapShape, name: string): OpenMap => {
    if (name === refused) throw new Error('no memory');
    const map = new OpenMap(shape, maps.length);
    maps.push(map);
    return map;
  };
  const pinnedAt = (name: string): OpenMap | undefined =>
    maps[Number(readFileSync(join(folder, name), 'utf8'))];
  const open = (options: Omit<ServicePinsOptions, 'folder'>): ServicePins =>
    new ServicePins(bpf, { ...options, folder });
  /** Returns the number of steps. */
  const resize = (pins: ServicePins, attach: () => void = () => {}): number =>
    [...pins.resize(attach)].length;
  /** Opens the pins of an earlier process with another capacity. `fill` writes to its maps. */
  const reopen = (capacity: ServicePinsOptions['capacity'], fill: () => void = () => {}): ServicePins => {
    open({ capacity: CAPACITY });
    fill();
    return open({ capacity });
  };

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'dpcache-pins-'));
    maps = [];
    refused = undefined;
    otherLayouts = [];
    const spied = (map: OpenMap): BpfMap => map as unknown as BpfMap;
    vi.spyOn(BpfMap, 'create').mockImplementation((_bpf, shape, name) => spied(create(shape, name)));
    vi.spyOn(BpfMap, 'openOrCreate').mockImplementation((_bpf, shape, path, name, { isPinned } = {}) => {
      if (otherLayouts.includes(name)) {
        const found = { type: 1, keySize: 1, valueSize: 1, maxEntries: 1, name } as unknown as MapInfo;
        throw Object.assign(new ForeignMapError(path, found, shape), { isOtherLayout: name !== 'peers4' });
      }
      if (existsSync(path)) return spied(pinnedAt(name) as OpenMap);
      const map = create(shape, name);
      if (isPinned === true) writeFileSync(path, String(map.fd));
      return spied(map);
    });
  });
  afterEach(() => {
    vi.restoreAllMocks();
    rmSync(folder, { recursive: true });
  });

  it('are opened again by the next process, and closed', () => {
    const first = open({ capacity: CAPACITY });
    expect(readdirSync(folder)).toEqual(PINS.toSorted());
    const next = open({ capacity: CAPACITY });
    expect([...next.descriptors]).toEqual([...first.descriptors]);
    expect(next.descriptors.get('peers6')).toBe(pinnedAt('peers6')?.fd);
    expect([next.maps[4].family, next.maps[6].family]).toEqual([4, 6]);
    expect([next.needsResize, next.hasOtherLayout, next.problems()]).toEqual([false, false, []]);
    next[Symbol.dispose]();
    expect(maps.map(({ isClosed }) => isClosed)).toEqual(new Array(12).fill(true));
  });

  it('are neither pinned nor replaced in a dry run', () => {
    const dryRun = open({ capacity: CAPACITY, isPinned: false });
    expect([readdirSync(folder), dryRun.needsResize]).toEqual([[], false]);
    open({ capacity: CAPACITY });
    expect(open({ capacity: LARGER, isPinned: false }).needsResize).toBe(false);
  });

  it('of both families are closed if one map of the second cannot be created', () => {
    refused = 'members6';
    expect(() => open({ capacity: CAPACITY })).toThrow('no memory');
    expect(maps.map(({ isClosed }) => isClosed)).toEqual(new Array(8).fill(true));
  });

  it('of another layout are closed if one of the new ones cannot be created (regression: each attempt kept two)', () => {
    otherLayouts = ['services4'];
    refused = 'members4';
    expect(() => open({ capacity: CAPACITY })).toThrow('no memory');
    expect(maps.map(({ isClosed }) => isClosed)).toEqual([true, true]);
  });

  it('of another program are not replaced', () => {
    otherLayouts = ['peers4'];
    expect(() => open({ capacity: CAPACITY })).toThrow(ForeignMapError);
  });

  it.each([4, 6])(
    'of another layout stay pinned until the new ones are filled, and then are replaced: IPv%i',
    (family) => {
      open({ capacity: CAPACITY });
      const before = PINS.map(pinnedAt);
      otherLayouts = [`backends${family}`];
      const pins = open({ capacity: CAPACITY });
      expect([pins.hasOtherLayout, pins.problems()]).toEqual([
        true,
        ['the service maps have another layout: new maps are being filled and will replace them'],
      ]);
      expect(PINS.map(pinnedAt)).toEqual(before);
      pins.replacePins();
      expect([pins.hasOtherLayout, pins.problems()]).toEqual([false, []]);
      expect(readdirSync(folder)).toEqual(PINS.toSorted());
      for (const [at, name] of PINS.entries()) {
        expect(pinnedAt(name)?.fd).toBe(pins.descriptors.get(name));
        expect(pinnedAt(name) === before[at]).toBe(!name.endsWith(`${family}`));
      }
    },
  );

  it('of another size are copied, and replaced when the programs use the copies', () => {
    const pins = reopen(LARGER, () => {
      for (const name of PINS) for (let key = 1; key < 5; key++) pinnedAt(name)?.put(key, 10 * key);
    });
    expect(pins.needsResize).toBe(true);
    const before = PINS.map(pinnedAt);
    let attached = 0;
    const steps = resize(pins, () => {
      attached++;
      expect(PINS.map(pinnedAt)).toEqual(before);
    });
    expect(steps).toBe(10 + 6); // one batch of each map, and another one of those that programs write
    expect([attached, pins.needsResize, pins.problems(), readdirSync(folder)]).toEqual([
      1,
      false,
      [],
      PINS.toSorted(),
    ]);
    for (const [at, name] of PINS.entries()) {
      const map = pinnedAt(name);
      expect([name, map?.fd, map?.isClosed]).toEqual([name, pins.descriptors.get(name), false]);
      expect([name, map?.entries]).toEqual([name, { 1: 10, 2: 20, 3: 30, 4: 40 }]);
      // The backends have the same size.
      expect([name, before[at] === map, before[at]?.isClosed]).toEqual([
        name,
        name.startsWith('backends'),
        !name.startsWith('backends'),
      ]);
    }
    expect(pins.maps[6].maps.clients.shape.maxEntries).toBe(32);
    resize(pins, () => attached++);
    expect(attached).toBe(1); // nothing is left to replace
  });

  it('have what programs wrote to the old ones until the switch, and to the new ones since (regression: overwritten by older entries)', () => {
    const pins = reopen(LARGER);
    const written: readonly ServiceMapName[] = ['clients', 'peers', 'datagrams'];
    const old = (name: ServiceMapName): OpenMap => pinnedAt(`${name}6`) as OpenMap;
    resize(pins, () => {
      for (const name of written) {
        const current = maps[pins.descriptors.get(`${name}6`) ?? -1];
        old(name).put(1, 5); // after it was copied
        old(name).put(2, 5);
        current?.put(2, 6);
        old(name).put(3, 6);
        current?.put(3, 5);
      }
      old('services').put(1, 5); // no program writes this map
    });
    // The values of clients begin with the time of the last use.
    expect(old('clients').entries).toEqual({ 1: 5, 2: 6, 3: 6 });
    for (const name of ['peers', 'datagrams'] as const)
      expect(old(name).entries).toEqual({ 1: 5, 2: 6, 3: 5 });
    expect(old('services').entries).toEqual({});
  });

  it.each<[string, string, (pins: ServicePins) => void]>([
    [
      'the programs cannot be switched',
      'the verifier rejects the program',
      (pins) =>
        resize(pins, () => {
          throw new Error('the verifier rejects the program');
        }),
    ],
    [
      'a new one cannot be created',
      'no memory',
      (pins) => {
        refused = 'peers6';
        resize(pins, () => expect.fail());
      },
    ],
  ])('keep their size if %s, until they can be replaced', (_what, reason, fail) => {
    const pins = reopen(LARGER);
    const before = [...pins.descriptors];
    fail(pins);
    expect(pins.problems()).toEqual([
      `cannot resize the service maps: ${reason}: change --datapath-service-capacity, or restart the agent to try again`,
    ]);
    expect([[...pins.descriptors], pins.needsResize, readdirSync(folder)]).toEqual([
      before,
      true,
      PINS.toSorted(),
    ]);
    expect(maps.map(({ isClosed }) => isClosed)).toEqual(maps.map((_, fd) => fd >= 12));
    refused = undefined;
    resize(pins);
    expect([pins.problems(), pins.needsResize]).toEqual([[], false]); // regression: a problem for ever
  });

  it('keep their size if the new ones have no room for the entries', () => {
    const pins = reopen({ ...CAPACITY, slots: 2 }, () => {
      for (let key = 1; key < 4; key++) pinnedAt('services4')?.put(key, key);
    });
    resize(pins, () => expect.fail());
    expect([pins.problems(), pins.needsResize]).toEqual([[expect.stringContaining('E2BIG')], true]);
  });
});
