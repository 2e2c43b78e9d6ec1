import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { setImmediate as nextTurn } from 'node:timers/promises';

/** What is sent over HTTP before the events. */
export const EVENT_STREAM_HEADERS: Readonly<Record<string, string>> = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-store',
};

/**
 * Writes parts to a connection, each when it has taken the one before, and one a turn of the event loop: a client whose
 * system takes all that is written would leave no turn to others. Resolves when all is written, or the connection has gone.
 * Rejects with what the parts throw, and hangs up.
 */
export async function writeEvents(
  parts: AsyncGenerator<Uint8Array, void, void>,
  connection: ServerResponse,
): Promise<void> {
  connection.writeHead(200, EVENT_STREAM_HEADERS);
  connection.flushHeaders();
  const gone = new AbortController();
  connection.once('close', () => gone.abort());
  try {
    for await (const part of parts) {
      if (connection.destroyed) return;
      if (!connection.write(part)) await once(connection, 'drain', { signal: gone.signal });
      await nextTurn();
    }
    connection.end();
  } catch (error) {
    if (gone.signal.aborted) return;
    connection.destroy();
    throw error;
  }
}

/** The same as a stream, for who asks in the process. `onEnd` is called once, when it has been read or let go. */
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
