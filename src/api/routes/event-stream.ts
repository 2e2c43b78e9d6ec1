import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { setImmediate as nextTurn } from 'node:timers/promises';

export const EVENT_STREAM_HEADERS: Readonly<Record<string, string>> = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-store',
};

/**
 * Writes parts to a connection with backpressure. Writes at most one part per turn of the event loop, because a fast
 * client could otherwise accept parts without a pause. Resolves when all parts are written or the connection is closed.
 * If the generator throws, closes the connection and rejects with the error.
 */
export async function writeEvents(
  parts: AsyncGenerator<Uint8Array, void, void>,
  connection: ServerResponse,
): Promise<void> {
  connection.writeHead(200, EVENT_STREAM_HEADERS);
  connection.flushHeaders();
  const disconnected = new AbortController();
  connection.once('close', () => disconnected.abort());
  try {
    for await (const part of parts) {
      if (connection.destroyed) return;
      if (!connection.write(part)) await once(connection, 'drain', { signal: disconnected.signal });
      await nextTurn();
    }
    connection.end();
  } catch (error) {
    if (disconnected.signal.aborted) return;
    connection.destroy();
    throw error;
  }
}

/**
 * Returns the parts as a stream, for requests within the process. Calls `onEnd` once: at the end, on a failure or on a
 * cancel.
 */
export function streamOf(
  parts: AsyncGenerator<Uint8Array, void, void>,
  onEnd: () => void,
): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          await nextTurn();
          const { done, value } = await parts.next();
          if (done !== true) return controller.enqueue(value);
        } catch (error) {
          onEnd();
          throw error;
        }
        onEnd();
        controller.close();
      },
      cancel: onEnd,
    },
    { highWaterMark: 0 },
  );
}
