import { closeSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Bpf } from '../../../src/datapath/linux/bpf/bpf.ts';
import { type BatchedMap, BpfMap } from '../../../src/datapath/linux/bpf/bpf-map.ts';
import { loadProgram } from '../../../src/datapath/linux/bpf/program.ts';
import {
  DesiredIPCache,
  type IPCacheLayout,
  IPCacheTable,
  ipcacheShape,
  markPrefixes,
  rerankPrefixes,
} from '../../../src/datapath/linux/ipcache-map.ts';
import { KeptTable } from '../../../src/datapath/linux/kept-table.ts';
import { readIPCachePin } from '../../../src/datapath/linux/read-ipcache-pin.ts';
import { Kernel } from '../../../src/datapath/linux/syscall/kernel.ts';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import { sourceRank } from '../../../src/model/source.ts';
import { cpuTime } from '../../base/support/cpu-time.ts';
import { ipcacheMark } from './bpf/programs/ipcache-mark-images.ts';
import { FakeMap } from './support/fake-map.ts';
import { ManualTurns } from './support/fake-table.ts';
import { bitsOf, NaiveTrie } from './support/naive-trie.ts';
import { describeOnLinux } from './support/requirements.ts';
import { exec, Scratch } from './support/scratch.ts';
import { testRun } from './support/test-run.ts';

interface SetUpOptions {
  readonly layout?: IPCacheLayout;
  readonly maxEntries?: number;
}

function setUp({ layout = '1.17', maxEntries = 512_000 }: SetUpOptions = {}) {
  const scratch = new Scratch();
  const path = `${scratch.bpffs()}/ipcache`;
  const bpf = new Bpf(new Kernel());
  const open = (ipcache: IPCache) => {
    const table = IPCacheTable.open(bpf, { path, layout, maxEntries });
    const turns = new ManualTurns();
    const kept = new KeptTable(table, new DesiredIPCache(ipcache, layout), turns);
    ipcache.subscribe(markPrefixes((prefix) => kept.mark(prefix)));
    scratch.defer(() => table[Symbol.dispose]());
    return { table, kept, turns };
  };
  return { scratch, path, bpf, open, [Symbol.dispose]: () => scratch[Symbol.dispose]() };
}

/** Returns the bytes of each entry as the kernel's own tool prints them, key and value. */
function bytesOf(path: string): readonly string[] {
  const entries = JSON.parse(exec('bpftool', '-j', 'map', 'dump', 'pinned', path)) as readonly {
    readonly key: readonly string[];
    readonly value: readonly string[];
  }[];
  const hex = (bytes: readonly string[]): string => bytes.map((byte) => byte.slice(2)).join('');
  return entries.map(({ key, value }) => `${hex(key)} ${hex(value)}`).sort();
}

function shapeOf(keyBytes: number, valueBytes: number): readonly string[] {
  const names = ['entries', '64', 'name', 'cilium_ipcache_'];
  return ['key', `${keyBytes}`, 'value', `${valueBytes}`, ...names];
}

/** Returns the arguments of bpftool for bytes in hexadecimal. */
function bytes(hex: string): readonly string[] {
  return ['hex', ...(hex.match(/../g) ?? [])];
}

function printed(table: Pick<IPCacheTable, 'dump' | 'print'>): Record<string, string> {
  return Object.fromEntries(
    Array.from(table.dump(), ([key, item]) => [key, table.print(item)] as const).sort(),
  );
}

describeOnLinux('the ipcache in the kernel', ['maps', 'bpftool'], () => {
  it.each(['1.18', '1.17', '1.8'] as const)(
    'is read from its pin for a comparison, whatever its capacity, in the layout of Cilium %s, too',
    async (layout) => {
      using it = setUp({ maxEntries: 77, layout });
      expect(() => readIPCachePin(it.path)).toThrow('no map is pinned there');
      const ipcache = new IPCache();
      const { kept, turns } = it.open(ipcache);
      await turns.until(kept.adopt());
      ipcache.upsert('10.1.2.3', {
        identity: 258,
        hostIP: '192.168.0.7',
        encryptKey: 255,
        source: 'kvstore',
      });
      ipcache.upsert('fd00::/64', { identity: 1, source: 'kvstore' });
      ipcache.upsert('10.1.2.3@258', { identity: 3, source: 'kvstore' });
      await turns.until(kept.adopt());
      expect([...readIPCachePin(it.path)].sort((a, b) => (a.prefix < b.prefix ? -1 : 1))).toEqual([
        { prefix: '10.1.2.3/32', identity: 258, hostIP: '192.168.0.7', skipTunnel: false },
        { prefix: '10.1.2.3/32@258', identity: 3, hostIP: undefined, skipTunnel: false },
        { prefix: 'fd00::/64', identity: 1, hostIP: undefined, skipTunnel: false },
      ]);
    },
  );

  it('is read from a pin of Cilium 1.18 and later (regression: a foreign map)', () => {
    using it = setUp();
    const [v4, v6, none] = [
      '40000000000000010a010203000000000000000000000000',
      '6000000000000002fd000000000000000000000000000000',
      '20000000000000010000000000000000000000000000000000'.slice(0, 48),
    ];
    exec('bpftool', 'map', 'create', it.path, 'type', 'lpm_trie', ...shapeOf(24, 24), 'flags', '1');
    for (const [key, value] of [
      // Flags: has tunnel, IPv6 tunnel, skip tunnel, remote cluster (pkg/maps/ipcache).
      [v4, '02010000c0a8000700000000000000000000000000000502'],
      [v6, '03000000fd00000000000000000000000000000900000006'],
      [none, '0200000000000000000000000000000000000000000000' + '09'],
    ] as const)
      exec('bpftool', 'map', 'update', 'pinned', it.path, 'key', ...bytes(key), 'value', ...bytes(value));
    const read = readIPCachePin(it.path);
    expect([...read].sort((a, b) => a.identity - b.identity)).toEqual([
      { prefix: '0.0.0.0/0', identity: 2, hostIP: undefined, skipTunnel: true },
      { prefix: 'fd00::/64', identity: 3, hostIP: 'fd00::9', skipTunnel: false },
      { prefix: '10.1.2.3/32', identity: 258, hostIP: '192.168.0.7', skipTunnel: false },
    ]);
  });

  it.each([
    ['1.17', '00000500'],
    ['1.8', '05000000'],
  ] as const)('has the layout of Cilium %s', async (layout, encryptKey) => {
    using it = setUp({ layout });
    const ipcache = new IPCache();
    const { kept, turns, table } = it.open(ipcache);
    await turns.until(kept.adopt());
    expect(table.lookup('10.1.2.3/32')).toBeUndefined();
    ipcache.upsert('10.1.2.3', { identity: 258, hostIP: '192.168.0.7', encryptKey: 5, source: 'kvstore' });
    ipcache.upsert('fd00::/64', { identity: 1, hostIP: 'fd00::9', source: 'kvstore' });
    // The id of an address space is between prefix length and family (pkg/maps/ipcache).
    ipcache.upsert('10.1.2.3@258', { identity: 3, source: 'kvstore' });
    ipcache.upsert('fd00::/64@5', { identity: 4, source: 'kvstore' });
    await turns.settle();
    expect(bytesOf(it.path)).toEqual([
      `40000000000000010a010203000000000000000000000000 02010000c0a80007${encryptKey}`,
      '40000000020100010a010203000000000000000000000000 030000000000000000000000',
      '6000000000000002fd000000000000000000000000000000 010000000000000000000000',
      '6000000005000002fd000000000000000000000000000000 040000000000000000000000',
    ]);
    expect(printed(table)).toEqual({
      '10.1.2.3/32@258': 'identity 3',
      'fd00::/64@5': 'identity 4',
      '10.1.2.3/32': 'identity 258 via 192.168.0.7 key 5',
      'fd00::/64': 'identity 1',
    });
    const item = { identity: 258, encryptKey: 5, flags: 0, tunnel: expect.any(Number) };
    expect(table.lookup('10.1.2.3/32')).toMatchObject(item);
    // Looks up like a program: the longest prefix that contains the address. The reader of a dump notices
    // nothing.
    const seen: string[] = [];
    for (const [key] of table.dump()) {
      seen.push(key);
      expect(table.lookup('fd00::5/128')?.identity).toBe(1);
      expect(table.lookup('10.1.2.4/32')).toBeUndefined();
    }
    expect(seen.sort()).toEqual(Object.keys(printed(table)).sort());
  });

  it('has the layout of Cilium 1.18, with IPv6 tunnel endpoints', async () => {
    using it = setUp({ layout: '1.18' });
    const ipcache = new IPCache();
    const { kept, turns, table } = it.open(ipcache);
    await turns.until(kept.adopt());
    ipcache.upsert('10.1.2.3', { identity: 258, hostIP: '192.168.0.7', encryptKey: 5, source: 'kvstore' });
    ipcache.upsert('fd00::/64', { identity: 1, hostIP: 'fd00::9', source: 'kvstore' });
    ipcache.upsert('0.0.0.0/0', { identity: 2, source: 'local' });
    await turns.settle();
    expect(bytesOf(it.path)).toEqual([
      '200000000000000100000000000000000000000000000000 020000000000000000000000000000000000000000000000',
      '40000000000000010a010203000000000000000000000000 02010000c0a8000700000000000000000000000000000502',
      '6000000000000002fd000000000000000000000000000000 01000000fd00000000000000000000000000000900000006',
    ]);
    expect(printed(table)).toEqual({
      '0.0.0.0/0': 'identity 2',
      '10.1.2.3/32': 'identity 258 via 192.168.0.7 key 5',
      'fd00::/64': 'identity 1 via fd00::9',
    });
    // A change of the IPv6 endpoint, and back to IPv4, is written.
    for (const hostIP of ['fd00::a', '192.168.0.9']) {
      ipcache.upsert('fd00::/64', { identity: 1, hostIP, source: 'kvstore' });
      await turns.settle();
      expect(printed(table)['fd00::/64']).toBe(`identity 1 via ${hostIP}`);
    }
    expect(bytesOf(it.path).at(-1)).toBe(
      '6000000000000002fd000000000000000000000000000000 01000000c0a8000900000000000000000000000000000002',
    );
  });

  it('follows the cache, and contains an endpoint rather than the CIDR that it hides', async () => {
    using it = setUp();
    const ipcache = new IPCache();
    const { kept, turns, table } = it.open(ipcache);
    await turns.until(kept.adopt());
    ipcache.upsert('10.0.0.1/32', { identity: 100, source: 'local' });
    ipcache.upsert('10.0.0.1', { identity: 200, source: 'kvstore' });
    ipcache.upsert('::/0', { identity: 2, source: 'local' });
    await turns.settle();
    expect(printed(table)).toEqual({ '10.0.0.1/32': 'identity 200', '::/0': 'identity 2' });
    ipcache.delete('10.0.0.1', { source: 'kvstore' });
    ipcache.delete('::/0', { source: 'local' });
    await turns.settle();
    expect(printed(table)).toEqual({ '10.0.0.1/32': 'identity 100' });
  });

  it('is adopted by the next process, which deletes nothing before deletes are allowed', async () => {
    using it = setUp();
    const before = new IPCache();
    const first = it.open(before);
    await first.turns.until(first.kept.adopt());
    for (let i = 0; i < 3000; i++)
      before.upsert(`10.0.${i >> 8}.${i & 255}`, { identity: i + 1, source: 'kvstore' });
    await first.turns.settle();
    first.kept[Symbol.dispose]();

    const ipcache = new IPCache();
    const { kept, turns, table } = it.open(ipcache);
    await turns.until(kept.adopt());
    for (let i = 1000; i < 3000; i++)
      ipcache.upsert(`10.0.${i >> 8}.${i & 255}`, { identity: i < 1500 ? 9999 : i + 1, source: 'kvstore' });
    await turns.settle();
    expect(kept.status()).toMatchObject({
      state: 'adopting',
      unconfirmed: 1000,
      actual: 3000,
      upserts: 500,
      deletes: 0,
    });
    kept.allowDeletes();
    await turns.settle();
    expect(kept.status()).toMatchObject({ state: 'in-sync', actual: 2000, deletes: 1000 });
    const content = printed(table);
    expect(Object.keys(content)).toHaveLength(2000);
    expect(content['10.0.4.0/32']).toBe('identity 9999');
    expect(content['10.0.8.0/32']).toBe('identity 2049');
  });

  it('contains no keys of others for long', async () => {
    using it = setUp();
    const ipcache = new IPCache();
    const { kept, turns, table } = it.open(ipcache);
    // A cluster id above 511, which no cluster has.
    const key = '40 00 00 00 07 02 00 01 0a 01 02 03 00 00 00 00 00 00 00 00 00 00 00 00'.split(' ');
    const value = Array.from({ length: 12 }, () => '1');
    exec('bpftool', 'map', 'update', 'pinned', it.path, 'key', 'hex', ...key, 'value', ...value);
    ipcache.upsert('10.1.2.3', { identity: 7, source: 'local' });
    await turns.until(kept.adopt());
    await turns.settle();
    expect(Object.keys(printed(table))).toEqual(['10.1.2.3/32', `raw:${key.join('')}`]);
    kept.allowDeletes();
    await turns.settle();
    expect(Object.keys(printed(table))).toEqual(['10.1.2.3/32']);
  });

  it('keeps the strongest and most specific entries if it is full, and reports it', async () => {
    using it = setUp({ maxEntries: 3 });
    const ipcache = new IPCache();
    const { kept, turns, table } = it.open(ipcache);
    await turns.until(kept.adopt());
    const claim = (prefix: string, source: 'local' | 'kvstore' | 'k8s'): void =>
      void ipcache.upsert(prefix, { identity: 5, source });
    claim('10.0.0.0/8', 'kvstore');
    claim('10.0.0.1', 'k8s');
    claim('10.0.0.0/24', 'kvstore');
    await turns.settle();
    claim('10.0.0.2', 'kvstore');
    claim('0.0.0.0/0', 'local');
    claim('fd00::1', 'k8s');
    await turns.settle();
    expect(Object.keys(printed(table))).toEqual(['0.0.0.0/0', '10.0.0.0/24', '10.0.0.2/32']);
    expect(kept.status()).toMatchObject({ state: 'degraded', noRoom: 3, pressure: 1, capacity: 3 });
    ipcache.upsert('10.0.0.2', { identity: 6, source: 'kvstore' });
    ipcache.delete('0.0.0.0/0', { source: 'local' });
    await turns.settle();
    expect(printed(table)).toEqual({
      '10.0.0.0/24': 'identity 5',
      '10.0.0.0/8': 'identity 5',
      '10.0.0.2/32': 'identity 6',
    });
  });
});

/** Yields pseudo-random numbers that depend only on the seed. */
function* numbers(seed: number): Generator<number, never, void> {
  for (let state = seed; ; ) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    yield (state ^ (state >>> 13)) >>> 0;
  }
}

interface Form {
  readonly bytes: number;
  readonly text: (address: Uint8Array) => string;
  readonly packet: (address: Uint8Array) => Uint8Array;
}

function packetWith(protocol: number, size: number, at: number): (address: Uint8Array) => Uint8Array {
  return (address) => {
    const packet = new Uint8Array(14 + size);
    packet[12] = protocol >> 8;
    packet[13] = protocol & 255;
    packet[14] = protocol === 0x0800 ? 0x45 : 0x60;
    packet.set(address, 14 + at);
    return packet;
  };
}

const FORMS: Readonly<Record<string, Form>> = {
  IPv4: { bytes: 4, text: (address) => address.join('.'), packet: packetWith(0x0800, 40, 16) },
  IPv6: {
    bytes: 16,
    text: (address) => (Buffer.from(address).toString('hex').match(/.{4}/g) ?? []).join(':'),
    packet: packetWith(0x86dd, 60, 24),
  },
};

const PREFIXES = 20_000;
const ADDRESSES = 100_000;

describeOnLinux('a program in the kernel', ['maps'], () => {
  it.each(Object.entries(FORMS))(
    `finds by the map what a model finds, for ${ADDRESSES} addresses of %s`,
    async (_name, { bytes, text, packet }) => {
      using it = setUp();
      const ipcache = new IPCache();
      const { kept, turns, table } = it.open(ipcache);
      await turns.until(kept.adopt());
      const model = new NaiveTrie();
      const random = numbers(bytes);
      const next = (): number => random.next().value;
      // Few values for each byte, so that many prefixes contain others and addresses.
      const draw = (): Uint8Array =>
        Uint8Array.from({ length: bytes }, () => next() % (bytes === 4 ? 24 : 3));
      const hosts: Uint8Array[] = [];
      for (let i = 0; i < PREFIXES; i++) {
        const address = draw();
        const length = bytes === 4 ? 1 + (next() % 32) : 3 + 5 * (next() % 26);
        hosts.push(address);
        ipcache.upsert(`${text(address)}/${length}`, { identity: i + 1, source: 'kvstore' });
        model.set(bitsOf(address).slice(0, length), i + 1);
      }
      await turns.settle();
      const maps = new Map([['ipcache', table.map.fd]]);
      const program = loadProgram(it.bpf, ipcacheMark, { type: 'schedCls', maps });
      let mismatches = 0;
      let found = 0;
      for (let i = 0; i < ADDRESSES; i++) {
        const near = hosts[next() % hosts.length] ?? draw();
        const address =
          i % 2 === 0 ? draw() : near.map((byte, at) => (at === bytes - 1 ? next() & 255 : byte));
        if (i % 10 === 0) address[0] = 0xfe;
        const expected = model.lookup(bitsOf(address));
        const { context, result } = testRun(it.bpf, program, packet(address));
        if (context.getUint32(8, true) !== expected || result !== -1) mismatches++;
        if (expected !== 0) found++;
      }
      closeSync(program);
      expect(mismatches).toBe(0);
      expect(found).toBeGreaterThan(ADDRESSES / 2);
      expect(found).toBeLessThan(ADDRESSES);
    },
  );

  it('reads tunnel endpoint, encryption key and flags', async () => {
    using it = setUp();
    const ipcache = new IPCache();
    const { kept, turns, table } = it.open(ipcache);
    await turns.until(kept.adopt());
    ipcache.upsert('10.1.2.3', { identity: 9, hostIP: '192.168.0.7', encryptKey: 3, source: 'local' });
    await turns.settle();
    const maps = new Map([['ipcache', table.map.fd]]);
    const program = loadProgram(it.bpf, ipcacheMark, { type: 'schedCls', maps });
    const run = (...address: number[]): readonly number[] => {
      const { context } = testRun(
        it.bpf,
        program,
        FORMS['IPv4']?.packet(Uint8Array.from(address)) ?? new Uint8Array(),
      );
      return [
        context.getUint32(8, true),
        context.getUint32(48),
        context.getUint32(52, true),
        context.getUint32(56, true),
      ];
    };
    expect(run(10, 1, 2, 3)).toEqual([9, 0xc0a80007, 3, 1]);
    expect(run(10, 1, 2, 4)).toEqual([0, 0, 0, 0]);
    closeSync(program);
  });
});

/** Returns what a listener of the cache would have, in the form of the map. */
function wanted(ipcache: IPCache): Record<string, string> {
  const rows = Array.from(ipcache.entries(), ({ key, identity, hostIP, encryptKey }) => {
    const [ip = '', ...space] = key.split('@');
    const length = ip.includes(':') ? 128 : 32;
    const prefix = [ip.includes('/') ? ip : `${ip}/${length}`, ...space].join('@');
    const via = hostIP === undefined || hostIP.includes(':') ? '' : ` via ${hostIP}`;
    return [prefix, `identity ${identity}${via}${encryptKey === 0 ? '' : ` key ${encryptKey}`}`] as const;
  });
  return Object.fromEntries(rows.sort());
}

const CLAIM = fc.record({
  prefix: fc.constantFrom(
    ...[
      '10.0.0.1',
      '10.0.0.1/32',
      '10.0.0.0/24',
      '10.0.0.2',
      '0.0.0.0/0',
      'fd00::1',
      'fd00::1/128',
      'fd00::/8',
      '::/0',
      '10.0.0.1@5',
      '10.0.0.1/32@5',
      '10.0.0.0/24@511',
      'fd00::1@5',
    ],
  ),
  source: fc.constantFrom('local' as const, 'kvstore' as const, 'k8s' as const),
  identity: fc.option(fc.integer({ min: 1, max: 4 }), { nil: undefined }),
  hostIP: fc.constantFrom(undefined, '192.0.2.1', 'fd00::9'),
  encryptKey: fc.constantFrom(0, 3),
});

type Claimed = typeof CLAIM extends fc.Arbitrary<infer T> ? T : never;

/** Writes the claims, some of them in one turn, in a few lives of a process. No identity is withdrawn. */
async function live(map: BatchedMap, claims: readonly Claimed[]): Promise<void> {
  const ipcache = new IPCache();
  const start = async () => {
    const table = new IPCacheTable(map);
    const turns = new ManualTurns();
    const kept = new KeptTable(table, new DesiredIPCache(ipcache), turns);
    const off = ipcache.subscribe(markPrefixes((prefix) => kept.mark(prefix)));
    await turns.until(kept.adopt());
    kept.allowDeletes();
    return { table, turns, kept, off };
  };
  let process = await start();
  for (const [at, { prefix, source, identity, hostIP, encryptKey }] of claims.entries()) {
    if (identity === undefined) ipcache.delete(prefix, { source });
    else ipcache.upsert(prefix, { source, identity, hostIP, encryptKey });
    if (at % 3 === 2) await process.turns.turn();
    if (at % 20 !== 19) continue;
    await process.turns.settle();
    expect(printed(process.table)).toEqual(wanted(ipcache));
    process.off();
    process.kept[Symbol.dispose]();
    process = await start();
  }
  await process.turns.settle();
  expect(printed(process.table)).toEqual(wanted(ipcache));
  expect(process.kept.status()).toMatchObject({ failing: 0, noRoom: 0, pending: 0 });
  process.off();
}

describe('the ipcache in a map', () => {
  it('equals the cache after any steps', () =>
    fc.assert(
      fc.asyncProperty(fc.array(CLAIM, { maxLength: 80 }), (claims) =>
        live(new FakeMap(ipcacheShape('1.17', 1024)), claims),
      ),
      { numRuns: 200 },
    ));
});

it('the ipcache in a map has no tunnel endpoint for entries of this host', async () => {
  const own = new Set(['192.168.0.1']);
  const ipcache = new IPCache();
  const table = new IPCacheTable(new FakeMap(ipcacheShape('1.17', 8)));
  const turns = new ManualTurns();
  const kept = new KeptTable(
    table,
    new DesiredIPCache(ipcache, '1.17', (address) => own.has(address)),
    turns,
  );
  ipcache.subscribe(markPrefixes((prefix) => kept.mark(prefix)));
  await turns.until(kept.adopt());
  ipcache.upsert('10.1.0.1', { identity: 7, hostIP: '192.168.0.1', source: 'kvstore' });
  ipcache.upsert('10.1.0.2', { identity: 8, hostIP: '192.168.0.2', source: 'kvstore' });
  await turns.settle();
  expect(printed(table)).toEqual({
    '10.1.0.1/32': 'identity 7',
    '10.1.0.2/32': 'identity 8 via 192.168.0.2',
  });
  own.clear();
  own.add('192.168.0.2');
  await turns.until(kept.repair());
  expect(printed(table)).toEqual({
    '10.1.0.1/32': 'identity 7 via 192.168.0.1',
    '10.1.0.2/32': 'identity 8',
  });
});

it('the ipcache in a map is dumped correctly while single entries are looked up', () => {
  const table = new IPCacheTable(new FakeMap(ipcacheShape('1.17', 8)));
  const items = [1, 2, 3].map((number) => ({
    key: `10.1.0.${number}/32`,
    item: { identity: number, tunnel: 0, tunnelIPv6: '', encryptKey: 0, flags: 0, sourceRank: 0 },
  }));
  table.apply(items);
  const dumped = Array.from(table.dump(), ([key, item]) => {
    expect(table.lookup('10.1.0.3/32')?.identity).toBe(3);
    return { key, item };
  });
  expect(dumped).toEqual(items);
});

it('the ipcache in a map deletes a mapped address under its own key (regression: deleted the IPv4 address)', () => {
  const map = new FakeMap(ipcacheShape('1.17', 8));
  const table = new IPCacheTable(map);
  const item = { identity: 7, tunnel: 0, tunnelIPv6: '', encryptKey: 0, flags: 0, sourceRank: 0 };
  table.apply([{ key: '10.1.2.3/32', item }]);
  const mapped = 'a0000000 00000002 0000000000000000 0000ffff 0a010203'.replaceAll(' ', '');
  map.content.set(mapped, new Uint8Array(12));
  expect(Object.keys(printed(table))).toEqual(['10.1.2.3/32', `raw:${mapped}`]);
  table.apply([{ key: `raw:${mapped}`, item: undefined }]);
  expect(printed(table)).toEqual({ '10.1.2.3/32': 'identity 7' });
});

it('the ipcache in a map is read without the host bits of keys of others, which the kernel ignores', () => {
  const map = new FakeMap(ipcacheShape('1.17', 8));
  for (const key of ['38000000 00000001 0a010203', '60000000 00000002 fd000000000000010000000000000005'])
    map.content.set(key.replaceAll(' ', '').padEnd(48, '0'), new Uint8Array(12));
  expect(Object.keys(printed(new IPCacheTable(map)))).toEqual(['10.1.2.0/24', 'fd00:0:0:1::/64']);
});

it('the ipcache in a map is read nearly as fast as it is written (regression: 50 times slower)', () => {
  const [keys, values] = [new Uint8Array(24 * 1024), new Uint8Array(12 * 1024)];
  const map: BatchedMap = {
    shape: ipcacheShape('1.17'),
    keys: { bytes: keys, view: new DataView(keys.buffer) },
    values: { view: new DataView(values.buffer) },
    update: (count) => new Array(count).fill(undefined),
    delete: (count) => new Array(count).fill(undefined),
    lookup: () => false,
    batches: () => [1024],
    [Symbol.dispose]: () => {},
  };
  const table = new IPCacheTable(map);
  const changes = Array.from({ length: 1024 }, (_, i) => ({
    key: `10.${i >> 8}.${i & 255}.7/32`,
    item: { identity: i, tunnel: i, tunnelIPv6: '', encryptKey: 0, flags: 0, sourceRank: 0 },
  }));
  const least = (work: () => unknown): number =>
    Math.min(...Array.from({ length: 100 }, () => cpuTime(work)));
  const [written, read] = [least(() => table.apply(changes)), least(() => [...table.dump()])];
  expect(read / written).toBeLessThan(12);
});

describe('the ipcache in a full map', () => {
  const ROOM = 3;
  const NAMES = ['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4', '10.0.0.5'];
  const SOURCE = fc.constantFrom('local' as const, 'kvstore' as const, 'k8s' as const);

  const start = async () => {
    const ipcache = new IPCache({ retainOverruled: true });
    const table = new IPCacheTable(new FakeMap(ipcacheShape('1.17', ROOM)));
    const turns = new ManualTurns();
    const kept = new KeptTable(table, new DesiredIPCache(ipcache), turns);
    ipcache.subscribe(markPrefixes((prefix) => kept.mark(prefix)));
    ipcache.subscribeOwners(rerankPrefixes(kept));
    await turns.until(kept.adopt());
    kept.allowDeletes();
    return { ipcache, table, turns, kept };
  };

  it('contains the strongest entries, even if only the source of an entry has changed', () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(fc.record({ ip: fc.constantFrom(...NAMES), source: SOURCE, isThere: fc.boolean() }), {
          size: 'max',
          maxLength: 40,
        }),
        async (steps) => {
          const { ipcache, table, turns } = await start();
          for (const { ip, source, isThere } of steps) {
            if (isThere) ipcache.upsert(ip, { identity: 7, source });
            else ipcache.delete(ip, { source });
            await turns.settle();
            const sourceRanks = Array.from(ipcache.entries(), (entry) => sourceRank(entry.source));
            const there = Array.from(
              table.dump(),
              ([key]) => ipcache.lookupByPrefix(key)?.source ?? 'restored',
            );
            const strongest = sourceRanks.sort((a, b) => b - a).slice(0, ROOM);
            expect(there.map((one) => sourceRank(one)).sort((a, b) => b - a)).toEqual(strongest);
          }
        },
      ),
      { numRuns: 30 },
    ));

  it('is not written if only the source of an entry has changed', async () => {
    const { ipcache, turns, kept } = await start();
    ipcache.upsert('10.0.0.1', { identity: 7, source: 'k8s' });
    await turns.settle();
    ipcache.upsert('10.0.0.1', { identity: 7, source: 'local' });
    await turns.settle();
    expect(kept.status()).toMatchObject({ upserts: 1, deletes: 0 });
  });
});

describe('the flag for addresses of nodes of other clusters', () => {
  const start = async (layout: IPCacheLayout) => {
    const ipcache = new IPCache({ retainOverruled: true });
    const table = new IPCacheTable(new FakeMap(ipcacheShape(layout, 64)), layout);
    const turns = new ManualTurns();
    const desired = new DesiredIPCache(ipcache, layout, undefined, 'atlantic');
    const kept = new KeptTable(table, desired, turns);
    ipcache.subscribe(markPrefixes((prefix) => kept.mark(prefix)));
    ipcache.subscribeOwners(rerankPrefixes(kept, 'atlantic'));
    await turns.until(kept.adopt());
    return { ipcache, table, turns, kept };
  };
  const REMOTE = { identity: 6, source: 'clustermesh', owner: 'pacific/n1' } as const;

  it('is set for nodes only (regression: Cilium 1.19 answered node ports of other clusters itself)', async () => {
    const { ipcache, table, turns } = await start('1.18');
    ipcache.upsert('192.168.9.1', { ...REMOTE, hostIP: '192.168.9.1' });
    ipcache.upsert('10.9.0.2', { ...REMOTE, identity: 4 });
    ipcache.upsert('10.9.0.3', { ...REMOTE, identity: 8 });
    ipcache.upsert('10.9.0.4', { ...REMOTE, identity: 131_073, owner: 'pacific' });
    ipcache.upsert('192.168.1.1', { identity: 6, source: 'kvstore', owner: 'atlantic/n1' });
    await turns.settle();
    expect(printed(table)).toEqual({
      '192.168.9.1/32': 'identity 6 via 192.168.9.1 flags 8',
      '10.9.0.2/32': 'identity 4',
      '10.9.0.3/32': 'identity 8',
      '10.9.0.4/32': 'identity 131073',
      '192.168.1.1/32': 'identity 6',
    });
  });

  it('follows a change of only the source', async () => {
    const { ipcache, table, turns } = await start('1.18');
    ipcache.upsert('192.168.9.1', REMOTE);
    await turns.settle();
    ipcache.upsert('192.168.9.1', { identity: 6, source: 'kvstore', owner: 'atlantic/n1' });
    await turns.settle();
    expect(printed(table)).toEqual({ '192.168.9.1/32': 'identity 6' });
    ipcache.delete('192.168.9.1', { source: 'kvstore', owner: 'atlantic/n1' });
    await turns.settle();
    expect(printed(table)).toEqual({ '192.168.9.1/32': 'identity 6 flags 8' });
  });

  it('is set for restored nodes, too (regression: a restart removed it until the cluster answered)', async () => {
    const { ipcache, table, turns, kept } = await start('1.18');
    ipcache.upsert('192.168.9.1', { ...REMOTE, source: 'restored' });
    ipcache.upsert('192.168.1.1', { identity: 6, source: 'restored', owner: 'atlantic/n1' });
    await turns.settle();
    const expected = { '192.168.9.1/32': 'identity 6 flags 8', '192.168.1.1/32': 'identity 6' };
    expect(printed(table)).toEqual(expected);
    ipcache.upsert('192.168.9.1', REMOTE);
    await turns.settle();
    expect(printed(table)).toEqual(expected);
    expect(kept.status().upserts).toBe(2); // the confirmation changes no value
  });

  it('is not in earlier layouts', async () => {
    const { ipcache, table, turns } = await start('1.17');
    ipcache.upsert('192.168.9.1', REMOTE);
    await turns.settle();
    expect(printed(table)).toEqual({ '192.168.9.1/32': 'identity 6' });
  });
});

describeOnLinux('the ipcache in a map of this kernel', ['maps'], () => {
  it('equals the cache after a thousand steps', async () => {
    using it = setUp();
    using map = BpfMap.create(it.bpf, ipcacheShape('1.17', 1024), 'ipcache');
    await live(map, fc.sample(CLAIM, { numRuns: 1000, seed: 5 }));
  });
});
