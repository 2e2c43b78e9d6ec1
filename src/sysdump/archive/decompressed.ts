import type { Transform } from 'node:stream';

/**
 * Yields the output of a decompressor for packed bytes. Throws the error of the decompressor or of the packed bytes.
 * When the iteration ends for any reason, destroys the decompressor and stops reading packed bytes.
 */
export async function* decompressed(
  packed: AsyncIterable<Uint8Array>,
  stream: Transform,
): AsyncGenerator<Buffer, void, void> {
  const feed = (async () => {
    for await (const chunk of packed) {
      if (stream.destroyed) return;
      if (!stream.write(chunk)) await drained(stream);
    }
    stream.end();
  })().catch((error: unknown) => {
    stream.destroy(error instanceof Error ? error : new Error(String(error)));
  });
  try {
    for await (const chunk of stream) yield chunk;
  } finally {
    stream.destroy();
    await feed;
  }
}

/** Resolves when a stream accepts data again, or has been destroyed. */
function drained(stream: Transform): Promise<void> {
  return new Promise((resolve) => {
    if (stream.destroyed) {
      resolve();
      return;
    }
    const done = (): void => {
      stream.off('drain', done);
      stream.off('close', done);
      resolve();
    };
    stream.on('drain', done);
    stream.on('close', done);
  });
}
