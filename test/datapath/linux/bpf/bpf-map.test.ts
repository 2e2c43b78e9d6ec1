import { closeSync, existsSync, fstatSync, openSync } from 'node:fs';
import { constants } from 'node:os';
import { expect, it, vi } from 'vitest';
import { Bpf } from '../../../../src/datapath/linux/bpf/bpf.ts';
import { BATCH_ENTRIES, BpfMap, ForeignMapError } from '../../../../src/datapath/linux/bpf/bpf-map.ts';
import type { MapShape } from '../../../../src/datapath/linux/bpf/info.ts';
import { unpin } from '../../../../src/datapath/linux/bpf/pin.ts';
import { loadProgram } from '../../../../src/datapath/linux/bpf/program.ts';
import { Kernel } from '../../../../src/datapath/linux/syscall/kernel.ts';
import { describeOnLinux } from '../support/requirements.ts';
import { exec, Scratch } from '../support/scratch.ts';

const { EINTR, EPERM } = constants.errno;
const NUMBERS: MapShape = { type: 'hash', keySize: 4, valueSize: 8, maxEntries: 3000 };

function setUp() {
  const scratch = new Scratch();
  const bpf = new Bpf(new Kernel());
  return { scratch, bpf, folder: scratch.bpffs(), [Symbol.dispose]: () => scratch[Symbol.dispose]() };
}

/** Writes `keys`, each with its double as value, and returns the codes of the rejected ones. */
function write(map: BpfMap, keys: readonly number[]): Record<number, string> {
  keys.forEach((key, at) => {
    map.keys.view.setUint32(at * 4, key, true);
    map.values.view.setUint32(at * 8, key * 2, true);
  });
  const refused = map.update(keys.length).flatMap((error, at) => (error ? [[keys[at], error.code]] : []));
  return Object.fromEntries(refused);
}

function remove(map: BpfMap, keys: readonly number[]): readonly unknown[] {
  for (const [at, key] of keys.entries()) map.keys.view.setUint32(at * 4, key, true);
  return map.delete(keys.length).filter((error) => error !== undefined);
}

function read(map: BpfMap): readonly number[] {
  const found: number[] = [];
  for (const count of map.batches()) {
    for (let at = 0; at < count; at++) {
      const key = map.keys.view.getUint32(at * 4, true);
      expect(map.values.view.getUint32(at * 8, true)).toBe(key * 2);
      found.push(key);
    }
  }
  return found.sort((a, b) => a - b);
}

const range = (from: number, to: number): readonly number[] =>
  Array.from({ length: to - from }, (_, i) => from + i);

/** Creates a map with the keys 0 to 2499. */
function filledMap(bpf: Bpf): BpfMap {
  const map = BpfMap.create(bpf, NUMBERS, 'numbers');
  for (let from = 0; from < 2500; from += 500) write(map, range(from, from + 500));
  return map;
}

describeOnLinux('a map in the kernel', ['maps'], () => {
  it('is read to its end even if the kernel interrupts the read, and the read ends', () => {
    using it = setUp();
    using map = filledMap(it.bpf);
    const ask = it.bpf.tryCall.bind(it.bpf);
    let asked = 0;
    // Every other batch fails before its first entry, or after its last one.
    vi.spyOn(it.bpf, 'tryCall').mockImplementation((command) => {
      asked++;
      if (asked % 3 === 1) {
        it.bpf.attributes().setUint32(32, 0, true);
        return -EINTR;
      }
      const result = ask(command);
      return result === 0 && asked % 3 === 2 ? -EINTR : result;
    });
    expect(read(map)).toEqual(range(0, 2500));
    vi.mocked(it.bpf.tryCall).mockImplementation(() => {
      it.bpf.attributes();
      return -EINTR;
    });
    expect(() => read(map)).toThrow('EINTR');
  });

  it('is read to its end if the kernel interrupts each batch several times', () => {
    using it = setUp();
    using map = filledMap(it.bpf);
    const ask = it.bpf.tryCall.bind(it.bpf);
    let asked = 0;
    vi.spyOn(it.bpf, 'tryCall').mockImplementation((command) => {
      if (++asked % 6 === 0) return ask(command);
      it.bpf.attributes().setUint32(32, 0, true);
      return -EINTR;
    });
    expect(read(map)).toEqual(range(0, 2500));
  });

  it('is created on a kernel that charges it to the limit of locked memory (regression: EPERM before 5.11)', () => {
    const kernel = new Kernel();
    const bpf = new Bpf(kernel);
    const [tryCall, systemCall] = [bpf.tryCall.bind(bpf), kernel.native.call.bind(kernel.native)];
    let limit = '';
    vi.spyOn(kernel.native, 'call').mockImplementation((name, ...words) => {
      if (name !== 'setrlimit') return systemCall(name, ...words);
      limit = Buffer.from(bpf.scratch.bytes.subarray(0, 16)).toString('hex');
      return 0;
    });
    vi.spyOn(bpf, 'tryCall').mockImplementation((command) =>
      command === 'MAP_CREATE' && limit !== 'f'.repeat(32) ? -EPERM : tryCall(command),
    );
    BpfMap.create(bpf, NUMBERS, 'numbers')[Symbol.dispose]();
    vi.mocked(bpf.tryCall).mockReturnValue(-EPERM);
    expect(() => BpfMap.create(bpf, NUMBERS, 'numbers')).toThrow('bpf(MAP_CREATE): EPERM: numbers');
  });

  it('closes only its own descriptors if it is disposed of twice', () => {
    using it = setUp();
    const closed = BpfMap.create(it.bpf, NUMBERS, 'numbers');
    closed[Symbol.dispose]();
    const others = openSync('/dev/null', 'r');
    expect(others).toBe(closed.fd);
    closed[Symbol.dispose]();
    expect(fstatSync(others).isCharacterDevice()).toBe(true);
    closeSync(others);
  });

  it('contains the entries that were written, in batches', () => {
    using it = setUp();
    using map = BpfMap.create(it.bpf, NUMBERS, 'numbers');
    expect(read(map)).toEqual([]);
    for (let from = 0; from < 2500; from += 500) expect(write(map, range(from, from + 500))).toEqual({});
    expect(2500).toBeGreaterThan(2 * BATCH_ENTRIES);
    expect(read(map)).toEqual(range(0, 2500));
    map.keys.view.setUint32(0, 7, true);
    expect(map.lookup()).toBe(true);
    expect(map.values.view.getUint32(0, true)).toBe(14);
    map.keys.view.setUint32(0, 9999, true);
    expect(map.lookup()).toBe(false);
  });

  it('takes as many entries as fit, and returns an error for each of the others', () => {
    using it = setUp();
    using map = BpfMap.create(it.bpf, { ...NUMBERS, maxEntries: 4 }, 'small');
    expect(write(map, [1, 2, 3, 4, 5, 2, 6])).toEqual({ 5: 'E2BIG', 6: 'E2BIG' });
    expect(read(map)).toEqual([1, 2, 3, 4]);
  });

  it('reports a delete that the kernel refuses in the middle of a batch, and applies the others', () => {
    using it = setUp();
    using map = BpfMap.create(it.bpf, NUMBERS, 'numbers');
    write(map, range(0, 10));
    const ask = it.bpf.tryCall.bind(it.bpf);
    let asked = 0;
    vi.spyOn(it.bpf, 'tryCall').mockImplementation((command) => {
      if (command !== 'MAP_DELETE_BATCH' || asked++ > 0) return ask(command);
      // The kernel has deleted three of them.
      it.bpf.attributes().setUint32(32, 3, true);
      return -constants.errno.EPERM;
    });
    expect(remove(map, range(0, 10))).toEqual([expect.objectContaining({ code: 'EPERM' })]);
    vi.restoreAllMocks();
    expect(read(map)).toEqual(range(0, 4));
  });

  it('ignores deletes of absent keys', () => {
    using it = setUp();
    using map = BpfMap.create(it.bpf, NUMBERS, 'numbers');
    write(map, [1, 2, 3, 4, 5]);
    expect(remove(map, [1, 10, 11, 3, 12, 4, 13])).toEqual([]);
    expect(read(map)).toEqual([2, 5]);
  });

  it('returns an error for every entry of a batch if the kernel refuses the first', () => {
    using it = setUp();
    using map = BpfMap.create(it.bpf, NUMBERS, 'numbers');
    const other = BpfMap.create(it.bpf, NUMBERS, 'closed');
    closeSync(other.fd);
    expect(write(other, [1, 2, 3])).toEqual({ 1: 'EBADF', 2: 'EBADF', 3: 'EBADF' });
    expect(write(map, [1])).toEqual({});
  });

  it('is found under its pin, and deleted with it', () => {
    using it = setUp();
    const path = `${it.folder}/numbers`;
    {
      using made = BpfMap.openOrCreate(it.bpf, NUMBERS, path, 'numbers');
      write(made, [1, 2]);
    }
    using again = BpfMap.openOrCreate(it.bpf, NUMBERS, path, 'numbers');
    expect(read(again)).toEqual([1, 2]);
    unpin(path);
    expect(existsSync(path)).toBe(false);
    expect(BpfMap.open(it.bpf, NUMBERS, path)).toBeUndefined();
  });

  it('is distinguished from another map under its pin', () => {
    using it = setUp();
    const path = `${it.folder}/numbers`;
    exec(
      'bpftool',
      'map',
      'create',
      path,
      'type',
      'array',
      'key',
      '4',
      'value',
      '16',
      'entries',
      '9',
      'name',
      'x',
    );
    const open = (): unknown => BpfMap.openOrCreate(it.bpf, NUMBERS, path, 'numbers');
    expect(open).toThrow(ForeignMapError);
    expect(open).toThrow(
      `${path} is a different map: found type 2, key 4 B, value 16 B, max_entries 9; expected type 1, key 4 B, value 8 B, max_entries 3000`,
    );
  });
});

describeOnLinux('a program and the verifier', ['maps'], () => {
  it('loads even if signals interrupt it several times (regression: a second one was an error)', () => {
    using it = setUp();
    // r0 = 0, exit
    const code = Buffer.from('b7000000000000009500000000000000', 'hex').toString('base64');
    const tried = vi.spyOn(it.bpf, 'tryCall');
    for (let signals = 0; signals < 4; signals++) tried.mockReturnValueOnce(-constants.errno.EAGAIN);
    const fd = loadProgram(
      it.bpf,
      { name: 'nothing', code, maps: [] },
      { type: 'schedCls', maps: new Map() },
    );
    expect(exec('bpftool', 'prog', 'show', 'name', 'nothing')).toContain('sched_cls');
    closeSync(fd);
  });

  it('is refused with the output of the verifier', () => {
    using it = setUp();
    // r0 = r2, which is uninitialized; exit.
    const code = Buffer.from('bf20000000000000' + '9500000000000000', 'hex').toString('base64');
    const load = (): unknown =>
      loadProgram(it.bpf, { name: 'bad', code, maps: [] }, { type: 'schedCls', maps: new Map() });
    expect(load).toThrow(/bpf\(PROG_LOAD\): EACCES: bad\n(.*\n)*R2 !read_ok/);
  });
});
