import fc from 'fast-check';
import { expect, it } from 'vitest';
import { FrameDecoder } from '../../../src/kvstore/etcd/frame-decoder.ts';

function frameOf(message: Uint8Array): Buffer {
  const frame = Buffer.concat([Buffer.alloc(5), message]);
  frame.writeUInt32BE(message.length, 1);
  return frame;
}

it('returns the frames of any chunks, and keeps no chunk', () => {
  const messages = fc.array(fc.uint8Array({ maxLength: 20 }), { maxLength: 6 });
  fc.assert(
    fc.property(messages, fc.array(fc.integer({ min: 1, max: 12 }), { minLength: 1 }), (sent, sizes) => {
      const frames = sent.map(frameOf);
      const all = Buffer.concat(frames);
      const decoder = new FrameDecoder(20);
      const received: Buffer[] = [];
      for (let at = 0, i = 0; at < all.length; i++) {
        const chunk = Buffer.from(all.subarray(at, at + (sizes[i % sizes.length] ?? 1)));
        at += chunk.length;
        received.push(...decoder.write(chunk));
        chunk.fill(0xff); // the memory of a chunk is used again
      }
      expect(received).toEqual(frames);
    }),
  );
});

it('rejects a message that is too large when its length arrives', () => {
  const frame = frameOf(new Uint8Array(21));
  const decoder = new FrameDecoder(20);
  expect(decoder.write(frame.subarray(0, 4))).toEqual([]);
  expect(() => decoder.write(frame.subarray(4, 5))).toThrow('Received message larger than max (21 vs 20)');
});
