import { StreamDecoder } from '@grpc/grpc-js/build/src/stream-decoder.js';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { releaseParts } from '../../../src/kvstore/etcd/release-parts.ts';

releaseParts();

/** Returns a message in the framing of gRPC: a flag, the length, and the content. */
function frame(content: Uint8Array): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(content.length, 1);
  return Buffer.concat([head, content]);
}

/** Returns the memory that a decoder refers to. */
function memoryOf(decoder: StreamDecoder): ReadonlySet<ArrayBufferLike> {
  const buffers = Object.values(decoder)
    .flat()
    .filter((value) => value instanceof Uint8Array);
  return new Set(buffers.map(({ buffer }) => buffer));
}

describe('the decoder of grpc-js', () => {
  it('refers to no part of a complete message (regression: until a collection of the old generation)', () => {
    const decoder = new StreamDecoder(-1);
    const message = frame(Buffer.alloc(200_000, 'x'));
    const parts = [0, 1, 5, 70_000, 140_000].map((from, i, all) =>
      Buffer.from(message.subarray(from, all[i + 1])),
    );
    const received = parts.map((part) => decoder.write(part));
    expect(received).toEqual([[], [], [], [], [message]]);
    const memory = memoryOf(decoder);
    expect(parts.filter(({ buffer }) => memory.has(buffer))).toEqual([]);
  });

  it('returns all messages, whatever the lengths of the parts', () => {
    const messages = fc.array(fc.uint8Array({ maxLength: 12 }), { maxLength: 6 });
    fc.assert(
      fc.property(
        messages,
        fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1 }),
        (contents, lengths) => {
          const frames = contents.map(frame);
          const bytes = Buffer.concat(frames);
          const decoder = new StreamDecoder(-1);
          const received: Buffer[] = [];
          for (let at = 0, i = 0; at < bytes.length; i++) {
            const length = lengths[i % lengths.length] ?? 1;
            received.push(...decoder.write(bytes.subarray(at, at + length)));
            at += length;
          }
          expect(received).toEqual(frames);
        },
      ),
    );
  });
});
