import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, it, onTestFinished, vi } from 'vitest';
import type { Bpf } from '../../../../src/datapath/linux/bpf/bpf.ts';
import { BpfMap, ForeignMapError } from '../../../../src/datapath/linux/bpf/bpf-map.ts';
import type { MapInfo, MapShape } from '../../../../src/datapath/linux/bpf/info.ts';
import { serviceCapacity } from '../../../../src/datapath/linux/services/service-layout.ts';
import { ServicePins } from '../../../../src/datapath/linux/services/service-pins.ts';

afterEach(() => void vi.restoreAllMocks());

it('new maps of another layout are closed if one of them cannot be created (regression: each attempt kept two)', () => {
  let open = 0;
  let created = 0;
  vi.spyOn(BpfMap, 'openOrCreate').mockImplementation((_bpf, shape, path, name) => {
    const found = { type: 0, keySize: 1, valueSize: 1, maxEntries: 1, name } as unknown as MapInfo;
    const error = new ForeignMapError(path, found, shape);
    throw Object.assign(error, { isOtherLayout: true });
  });
  vi.spyOn(BpfMap, 'create').mockImplementation(() => {
    if (++created % 3 === 0) throw new Error('no memory');
    open++;
    return { [Symbol.dispose]: () => open-- } as unknown as BpfMap;
  });
  const options = { folder: '/sys/fs/bpf/x', capacity: serviceCapacity() };
  expect(() => new ServicePins({} as Bpf, options)).toThrow('no memory');
  expect([open, created]).toEqual([0, 3]);
});

it('the reason why maps were not resized is no longer a problem after they were (regression: for ever)', () => {
  const folder = mkdtempSync(join(tmpdir(), 'dpcache-pins-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const map = (shape: MapShape): BpfMap =>
    ({ shape, fd: 3, batches: () => [], [Symbol.dispose]: () => {} }) as unknown as BpfMap;
  vi.spyOn(BpfMap, 'openOrCreate').mockImplementation((_bpf, shape) => map({ ...shape, maxEntries: 1 }));
  const create = vi.spyOn(BpfMap, 'create').mockImplementation(() => {
    throw new Error('no memory');
  });
  // Pins as files, written when the path is passed to the kernel.
  const bpf = {
    attributes: () => new DataView(new ArrayBuffer(64)),
    text: (path: string) => {
      writeFileSync(path, '');
      return 0;
    },
    call: () => 0,
  } as unknown as Bpf;
  const pins = new ServicePins(bpf, { folder, capacity: serviceCapacity() });
  const resize = (): unknown => [...pins.resize(() => {})];
  resize();
  expect(pins.problems()).toEqual([expect.stringContaining('no memory')]);
  create.mockImplementation((_bpf, shape) => map(shape));
  resize();
  expect([pins.problems(), pins.isResized, readdirSync(folder).length]).toEqual([[], false, 12]);
});
