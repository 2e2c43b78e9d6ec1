import type { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { deferred } from '../../base/sleep.ts';

/**
 * Yields the output of a decompressor for packed bytes. Throws the error of the decompressor or of the packed bytes.
 * Settles only when the iterator of the packed bytes has ended, because its owner then reads the bytes after them.
 */
export async function* decompressed(
  packed: AsyncIterable<Uint8Array>,
  stream: Transform,
): AsyncGenerator<Buffer, void, void> {
  const { promise: ended, resolve: end } = deferred();
  async function* input(): AsyncGenerator<Uint8Array, void, void> {
    try {
      yield* packed;
    } finally {
      end();
    }
  }
  pipeline(input(), stream).catch(() => {}); // destroys the stream with the error, which the loop throws
  try {
    for await (const chunk of stream) yield chunk;
  } finally {
    stream.destroy();
    await ended; // because the pipeline ends earlier if the stream fails
  }
}
