import { createRequire } from 'node:module';
import { beforeEach, describe, expect, it } from 'vitest';
import { decompressZstd } from '../../../../src/kvstore/codec/zstd/zstd.ts';
import { MAX_CONTENT, rawZstdFrame, readZstdFrame } from '../../../../src/kvstore/codec/zstd/zstd-frame.ts';
import { type Decoded, decodeWith } from '../../../../src/net/fields.ts';
import { zstdProgram } from '../support/slice-proto.ts';

const MIB = 1024 * 1024;
const MAGIC = [0x28, 0xb5, 0x2f, 0xfd];

type Decoder = Parameters<typeof decompressZstd>[2];

/** The functions of Node, from 22.15 on. */
const {
  zstdDecompressSync,
  zstdCompressSync,
}: {
  zstdDecompressSync?: Decoder;
  zstdCompressSync?: (content: Uint8Array, options?: object) => Uint8Array;
} = createRequire(import.meta.url)('node:zlib');

/** The decoders that this version of Node can use, by name. Null selects the package. */
const DECODERS: readonly (readonly [name: string, decoder: Decoder])[] = [
  ['fzstd', null],
  ...(zstdDecompressSync === undefined ? [] : ([['node:zlib', zstdDecompressSync]] as const)),
];

let decoder: Decoder = null;

function decompress(frame: Uint8Array): Decoded<Uint8Array> {
  return decodeWith('k', () => {
    const steps = decompressZstd(frame, undefined, decoder);
    for (;;) {
      const step = steps.next();
      if (step.done) return step.value;
    }
  });
}

function outcomeOf(frame: Uint8Array): string {
  const decoded = decompress(frame);
  return decoded.ok
    ? `${decoded.value.length} bytes`
    : decoded.rejection.message.slice('k: value '.length).replaceAll('"', '');
}

/** Returns true if a frame has this content. Faster than `toEqual` for large buffers. */
function isDecompressed(frame: Uint8Array, expected: Buffer): boolean {
  const decoded = decompress(frame);
  return decoded.ok && expected.equals(decoded.value);
}

/** Returns text that compresses like slices. */
function content(size: number): Buffer {
  const lines: string[] = [];
  for (let i = 0; lines.length * 24 < size; i++)
    lines.push(`node-${(i * 2_654_435_761) % 97} 10.${i % 251}.${i % 13}.7`.padEnd(24));
  return Buffer.from(lines.join('').slice(0, size));
}

describe.each(DECODERS)('a zstd frame, decompressed by %s,', (_name, one) => {
  beforeEach(() => {
    decoder = one;
  });

  it.each([0, 1, 30, 1000, 131_072, 131_073, 1_000_000])('of %i bytes is decompressed', (size) => {
    const bytes = content(size);
    for (const args of [['-1'], ['-3'], ['-19'], ['--fast=3'], ['--no-check', '--no-content-size']])
      expect(isDecompressed(zstdProgram(args, bytes), bytes)).toBe(true);
  });

  it.each([0, 1, 131_072, 131_073, 3 * MIB])(
    'of %i bytes in raw blocks is read by the zstd program',
    (size) => {
      const bytes = content(size);
      const frame = rawZstdFrame(bytes);
      expect(zstdProgram(['-d'], frame).equals(bytes)).toBe(true);
      expect(isDecompressed(frame, bytes)).toBe(true);
    },
  );

  it('without its size is decompressed to what it contains', () => {
    const bytes = content(300_000);
    const frame = zstdProgram(['--no-content-size'], bytes);
    expect(readZstdFrame(frame)).toMatchObject({ declaredSize: undefined });
    expect(isDecompressed(frame, bytes)).toBe(true);
  });

  it.runIf(zstdCompressSync)('that Node compressed is decompressed, here and by the zstd program', () => {
    for (const size of [0, 1, 1000, 131_073, 1_000_000]) {
      const bytes = content(size);
      const frame = zstdCompressSync?.(bytes) ?? bytes;
      expect(isDecompressed(frame, bytes)).toBe(true);
      expect(zstdProgram(['-d'], frame).equals(bytes)).toBe(true);
    }
  });
});

describe.each(DECODERS)(
  'a value, decompressed by %s, is rejected as invalid-zstd or too-large',
  (name, one) => {
    beforeEach(() => {
      decoder = one;
    });

    const frame = zstdProgram([], content(1000));
    const hex = (...bytes: number[]): Buffer => Buffer.from([...MAGIC, ...bytes]);

    it.each<[string, Uint8Array]>([
      ['is not a zstd frame', new Uint8Array()],
      ['is not a zstd frame', Buffer.from('{"cluster":"c"}')],
      ['is not a zstd frame', Buffer.from([0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0])],
      ['has more than one frame', Buffer.concat([frame, frame])],
      ['has more than one frame', Buffer.concat([frame, Buffer.from([0])])],
      ['ends in a block', frame.subarray(0, -1)],
      ['ends before its last block', hex(0x20, 1)],
      ['ends in its header', hex(0xa0, 1)],
      ['needs a dictionary', hex(0x21, 7, 1, 1, 0, 0)],
      ['has a reserved bit set', hex(0x28, 1, 9, 0, 0, 0)],
      ['has a block of a reserved type', hex(0x20, 1, 7, 0, 0)],
      ['larger than its window', hex(0x20, 1, 0x11, 0, 0, 1, 2)],
      ['has less content than it declares', hex(0x20, 2, 0x09, 0, 0, 1)],
    ])('%s', (why, value) => {
      expect(outcomeOf(value)).toContain(why);
    });

    it('if its content differs from the header', () => {
      const broken = Buffer.from(frame);
      broken.fill(0xff, 20, 60);
      expect(decompress(broken)).toMatchObject({ ok: false, rejection: { reason: 'invalid-zstd' } });
      // A compressed block of 3 literals, in a frame that declares 5 bytes.
      const three = hex(0x20, 5, 0x2d, 0, 0, 0x18, 1, 2, 3, 0);
      expect(decompress(three)).toMatchObject({ ok: false, rejection: { reason: 'invalid-zstd' } });
      if (name === 'fzstd') expect(outcomeOf(three)).toContain('has 3 bytes when it is decompressed');
    });

    it.each([0, 1, 4, 7, 31, 32, 100, 1000, 131_073])(
      'if its checksum is that of another content than its %i bytes (regression: accepted before Node 22.15)',
      (size) => {
        const valid = zstdProgram(['--check'], content(size));
        expect(decompress(valid)).toMatchObject({ ok: true });
        const broken = Buffer.from(valid);
        broken.writeUInt32LE((valid.readUInt32LE(valid.length - 4) ^ 0x8000) >>> 0, valid.length - 4);
        expect(decompress(broken)).toMatchObject({ ok: false, rejection: { reason: 'invalid-zstd' } });
      },
    );

    it('if its content in raw blocks differs from its checksum', () => {
      const raw = hex(0x24, 4, 0x21, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0);
      expect(outcomeOf(raw)).toContain('has content that does not match its checksum');
    });

    it.each<[string, number, readonly string[]]>([
      ['1048577 bytes: must have at most 1048576', MIB + 1, [`--stream-size=${MIB + 1}`]],
      ['more than 1048576 bytes: must have at most 1048576', MIB + 1, ['--no-content-size']],
      ['134217728 bytes: must have a window of at most 8388608', 1000, ['--long=27', '--no-content-size']],
    ])('%s', (why, size, args) => {
      const zeros = zstdProgram(args, Buffer.alloc(size));
      expect(decompress(zeros)).toMatchObject({ ok: false, rejection: { reason: 'too-large' } });
      expect(outcomeOf(zeros)).toContain(why);
    });

    it('if it has more than 8 MiB, but not if it has 8 MiB and little repetition', () => {
      const random = content(MAX_CONTENT);
      for (let i = 0; i < random.length; i += 16) random[i] = (i * 2_654_435_761) >>> 24;
      expect(outcomeOf(rawZstdFrame(random))).toBe(`${MAX_CONTENT} bytes`);
      const more = rawZstdFrame(Buffer.concat([random, Buffer.of(0)]));
      expect(outcomeOf(more)).toContain(`${MAX_CONTENT + 1} bytes: must have at most ${MAX_CONTENT} bytes`);
    });

    it('if its blocks are so many and its window so large that moving the window would take seconds', () => {
      const blocks = Array.from({ length: 5000 }, (_, i) => [i === 4999 ? 1 : 0, 0, 0]).flat();
      expect(outcomeOf(hex(0x00, 0x68, ...blocks))).toContain('has too many blocks for its window');
      expect(outcomeOf(hex(0x00, 0x00, ...blocks.slice(-3000)))).toBe('0 bytes');
    });
  },
);

describe('the decoder of Node, from 22.15 on', () => {
  it('gets the limit of the content, and its errors are rejections', () => {
    const run = (decoder: () => Uint8Array): Decoded<Uint8Array> =>
      decodeWith('k', () => {
        const step = decompressZstd(zstdProgram([], content(1000)), undefined, decoder).next();
        return step.value ?? Buffer.alloc(0);
      });
    expect(run(() => content(1000))).toEqual({ ok: true, value: content(1000) });
    const fails = (error: Error) => (): never => {
      throw error;
    };
    expect(run(fails(new RangeError('Cannot create a Buffer larger than 1048576 bytes')))).toMatchObject({
      rejection: { reason: 'too-large' },
    });
    expect(run(fails(new Error('Data corruption detected')))).toMatchObject({
      rejection: { reason: 'invalid-zstd', message: 'k: value "244 bytes": Data corruption detected' },
    });
  });
});

describe('the content of a frame', () => {
  /** Returns a frame of 2 MiB: a raw block of `raw` bytes, and blocks that repeat one byte. */
  function frameOf(raw: number): Uint8Array {
    const header = Buffer.alloc(9);
    header.writeUInt32LE(0xfd2fb528, 0);
    header.writeUInt8(0b1010_0000, 4);
    header.writeUInt32LE(2 << 20, 5);
    const parts: Uint8Array[] = [header];
    const add = (length: number, type: number, isLast: boolean, content: Uint8Array): void => {
      const block = Buffer.alloc(3);
      block.writeUIntLE((length << 3) | (type << 1) | Number(isLast), 0, 3);
      parts.push(block, content);
    };
    add(raw, 0, false, new Uint8Array(raw));
    for (let left = (2 << 20) - raw; left > 0; left -= 128 << 10)
      add(Math.min(left, 128 << 10), 1, left <= 128 << 10, new Uint8Array(1));
    return Buffer.concat(parts);
  }

  it('above 1 MiB has at most 200 times the size of the frame', () => {
    const overhead = frameOf(1).length - 1;
    const least = Math.ceil((2 << 20) / 200) - overhead;
    const frame = frameOf(least);
    expect(readZstdFrame(frame)).toMatchObject({ sizeLimit: 200 * frame.length, maxSize: 2 << 20 });
    expect(decodeWith('value', () => readZstdFrame(frameOf(least - 1)))).toMatchObject({
      ok: false,
      rejection: { reason: 'too-large' },
    });
  });
});
