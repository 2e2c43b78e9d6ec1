import { StreamDecoder } from '@grpc/grpc-js/build/src/stream-decoder.js';
import { beforeAll, expect, it } from 'vitest';
import { releaseReceivedChunks } from '../../../src/kvstore/etcd/release-chunks.ts';

beforeAll(releaseReceivedChunks);

/** Returns a message with its header of grpc: no compression, and the length. */
function framed(message: Buffer): Buffer {
  const header = Buffer.alloc(5);
  header.writeUInt32BE(message.length, 1);
  return Buffer.concat([header, message]);
}

function chunksOf(decoder: StreamDecoder): readonly Buffer[] | undefined {
  return (decoder as unknown as { readonly readPartialMessage?: readonly Buffer[] }).readPartialMessage;
}

it('bug: an ended call kept the chunks of its answer until the next collection of the old generation', () => {
  const decoder = new StreamDecoder(-1);
  const message = framed(Buffer.alloc(100, 'a'));
  expect(decoder.write(message.subarray(0, 60))).toEqual([]);
  expect(chunksOf(decoder)).toHaveLength(1);
  expect(decoder.write(message.subarray(60))).toEqual([message]);
  expect(chunksOf(decoder)).toEqual([]);
});

it('keeps the first chunk of the next message', () => {
  const decoder = new StreamDecoder(-1);
  const [first, second] = [framed(Buffer.from('first')), framed(Buffer.from('second'))];
  expect(decoder.write(Buffer.concat([first, second.subarray(0, 8)]))).toEqual([first]);
  expect(chunksOf(decoder)).toHaveLength(1);
  expect(decoder.write(second.subarray(8))).toEqual([second]);
  expect(chunksOf(decoder)).toEqual([]);
});

it('decodes an empty message', () => {
  expect(new StreamDecoder(-1).write(framed(Buffer.alloc(0)))).toEqual([framed(Buffer.alloc(0))]);
});
