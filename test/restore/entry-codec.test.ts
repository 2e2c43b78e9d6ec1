import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ByteBuffer, DamagedError } from '../../src/net/byte-buffer.ts';
import { type CheckpointEntry, type PortSets, readEntry, writeEntry } from '../../src/restore/entry-codec.ts';
import { MAX_NUMBERED_TEXTS, NumberedTexts } from '../../src/restore/numbered-texts.ts';
import { bytesInUse } from '../base/support/garbage.ts';

function reader(bytes: readonly number[] | Uint8Array): ByteBuffer {
  return new ByteBuffer(Uint8Array.from(bytes), bytes.length, bytes.length);
}

function writer(size = 16): ByteBuffer {
  return new ByteBuffer(new Uint8Array(size), Number.POSITIVE_INFINITY);
}

function readBytes(bytes: readonly number[]): CheckpointEntry {
  return readEntry(reader(bytes), new NumberedTexts(), new Map());
}

const value = fc.oneof(
  fc.record({ what: fc.constant('Byte' as const), value: fc.nat(255) }),
  fc.record({ what: fc.constant('Word' as const), value: fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }) }),
  fc.record({ what: fc.constant('Number' as const), value: fc.maxSafeNat() }),
  fc.record({ what: fc.constant('Text' as const), value: fc.string({ unit: 'grapheme' }) }),
  fc.record({ what: fc.constant('numbered' as const), value: fc.constantFrom('', 'kvstore', 'été') }),
);

describe('values in a checkpoint', () => {
  it('are read back unchanged, section by section, however small the buffer was', () => {
    fc.assert(
      fc.property(
        fc.array(fc.array(value, { maxLength: 20 })),
        fc.integer({ min: 1, max: 64 }),
        (sections, size) => {
          const out = writer(size);
          const [written, read] = [new NumberedTexts(), new NumberedTexts()];
          for (const values of sections) {
            for (const { what, value: it } of values) {
              if (what === 'numbered') written.write(out, it);
              else Reflect.apply(out[`write${what}`], out, [it]);
            }
            const from = reader(out.bytesFrom(0));
            const found = values.map(({ what }) => ({
              what,
              value: what === 'numbered' ? read.read(from) : from[`read${what}`](),
            }));
            expect([found, from.at]).toEqual([values, out.length]);
            out.clear();
          }
        },
      ),
    );
  });

  it.each([
    [0x7f, [0x7f]],
    [0x80, [0x80, 0x01]],
    [300, [0xac, 0x02]],
    [2 ** 32 - 1, [0xff, 0xff, 0xff, 0xff, 0x0f]],
  ])('encode the number %i in as few bytes as possible', (number, bytes) => {
    const out = writer();
    out.writeNumber(number);
    expect([...out.bytesFrom(0)]).toEqual(bytes);
  });

  it('have numbers for the first 65,536 texts, and repeat the others', () => {
    const out = writer();
    const [written, read] = [new NumberedTexts(), new NumberedTexts()];
    const all = Array.from({ length: MAX_NUMBERED_TEXTS + 2 }, (_, i) => i.toString(36));
    for (let round = 0; round < 2; round++) for (const text of all) written.write(out, text);
    const from = reader(out.bytesFrom(0));
    for (let round = 0; round < 2; round++) expect(all.every((text) => read.read(from) === text)).toBe(true);
    expect(from.at).toBe(from.length);
  });

  it('take less than 100 bytes of memory if they have 20 characters, because the IPCache keeps them', async () => {
    const count = 20_000;
    const out = writer();
    for (let i = 0; i < count; i++) out.writeText(`web-7d9c5b8f6d-${i.toString().padStart(5, '0')}`);
    const from = reader(out.bytesFrom(0));
    const before = await bytesInUse();
    const texts = Array.from({ length: count }, () => from.readText());
    expect(((await bytesInUse()) - before) / texts.length).toBeLessThan(100);
  });

  it('are invalid if more texts have numbers than a writer assigns', () => {
    const bytes = Array.from({ length: MAX_NUMBERED_TEXTS + 1 }, () => [1, 1, 65]).flat();
    const from = reader(bytes);
    const texts = new NumberedTexts();
    for (let i = 0; i < MAX_NUMBERED_TEXTS; i++) texts.read(from);
    expect(() => texts.read(from)).toThrow(DamagedError);
  });
});

describe('an invalid entry', () => {
  // flags, address, identity, and the source `k8s` and the owner `` as texts that get numbers
  const [source, owner] = [
    [1, 3, 107, 56, 115],
    [1, 0],
  ];
  const WHOLE = [0, 10, 0, 0, 1, 7, ...source, ...owner];

  it.each<[string, readonly number[]]>([
    ['unknown flags', [128, ...WHOLE.slice(1)]],
    ['a CIDR that is longer than an IPv4 address', [1, 33, ...WHOLE.slice(1)]],
    ['a CIDR that is longer than an IPv6 address', [3, 129, ...Array(12).fill(0), ...WHOLE.slice(1)]],
    ['an address space of no cluster', [128, 0x80, 0x80, 4, ...WHOLE.slice(1)]],
    [
      'an identity of more than 32 bits',
      [...WHOLE.slice(0, 5), 0x80, 0x80, 0x80, 0x80, 0x10, ...source, ...owner],
    ],
    ['a number without an end', [...WHOLE.slice(0, 5), 0x87, ...Array(8).fill(0x80), 0, ...source, ...owner]],
    ['a source that is none', [...WHOLE.slice(0, 6), 1, 1, 107, ...owner]],
    ['the number of a text that was not written', [...WHOLE.slice(0, 6), ...source, 3]],
  ])('is rejected: %s', (_, bytes) => {
    expect(readBytes(WHOLE)).toMatchObject({
      key: '10.0.0.1',
      identity: 7,
      source: 'k8s',
      owner: '',
    });
    expect(() => readBytes(bytes)).toThrow(DamagedError);
  });

  it('is rejected: one that is cut at any byte', () => {
    for (let length = 0; length < WHOLE.length; length++)
      expect(() => readBytes(WHOLE.slice(0, length))).toThrow(DamagedError);
  });
});

describe('named ports of entries', () => {
  it('are one map if they are equal, also in different sections', () => {
    const out = writer();
    const [written, texts] = [new NumberedTexts(), new NumberedTexts()];
    const portSets: PortSets = new Map();
    const portsOf = (...ports: readonly (readonly [string, number, number])[]): unknown => {
      const namedPorts = new Map(ports.map(([name, port, protocol]) => [name, { port, protocol }]));
      const k8s = { namespace: 'default', podName: 'web', namedPorts };
      const identity = 7 as CheckpointEntry['identity'];
      const entry = { key: '10.0.0.1', identity, source: 'k8s', owner: '', hostIP: undefined, encryptKey: 0 };
      out.clear();
      writeEntry(out, written, { ...entry, source: 'k8s', k8s });
      const read = readEntry(reader(out.bytesFrom(0)), texts, portSets).k8s?.namedPorts;
      expect(read).toEqual(namedPorts);
      return read;
    };
    portsOf(['http', 80, 6], ['dns', 53, 17]); // with the names
    const both = portsOf(['http', 80, 6], ['dns', 53, 17]);
    expect(portsOf(['http', 80, 6], ['dns', 53, 17])).toBe(both);
    const others = [
      portsOf(['http', 80, 6]),
      portsOf(['http', 80, 17], ['dns', 53, 17]),
      portsOf(['http', 8, 6], ['dns', 53, 17]),
      portsOf(['http', 80, 6], ['d', 53, 17]),
      portsOf(['http 80 6 3 dns', 53, 17]),
      portsOf(['dns', 53, 17], ['http', 80, 6]), // the order is kept
    ];
    expect(new Set([both, ...others]).size).toBe(7);
  });
});
