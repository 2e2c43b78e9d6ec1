import type { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';

/**
 * Yields the output of a decompressor for packed bytes. Throws the error of the decompressor or of the packed bytes.
 * When the iteration ends for any reason, destroys the decompressor and stops reading packed bytes.
 */
export async function* decompressed(
  packed: AsyncIterable<Uint8Array>,
  stream: Transform,
): AsyncGenerator<Buffer, void, void> {
  const fed = pipeline(packed, stream).catch(() => {}); // destroys the stream with the error, which the loop throws
  try {
    for await (const chunk of stream) yield chunk;
  } finally {
    stream.destroy();
    await fed;
  }
}
