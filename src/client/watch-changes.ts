import type { ApiClient } from '../api/api-client.ts';
import type { ChangeType } from '../api/change-types.ts';
import { sleep } from '../base/sleep.ts';
import { systemClock } from '../base/system-clock.ts';
import { agentEvents } from './monitor.ts';

/** Minimum interval between two updates of a list. */
const INTERVAL_MS = 500;

/**
 * Yields when the stream of events has begun, and again after changes of a type, at most twice a second. One yield
 * covers all changes since the previous one. Returns when the agent ends or the signal fires. Throws `AgentError`.
 */
export async function* watchChanges(
  client: ApiClient,
  type: ChangeType,
  signal: AbortSignal,
): AsyncGenerator<void, void, void> {
  let hasChanged = false;
  let hasEnded = false;
  let wake = (): void => {};
  const following = (async () => {
    try {
      for await (const _ of agentEvents(client, { types: type })) {
        hasChanged = true; // also after `synced`, the first event: lists that are read from now on miss no change
        wake();
      }
    } finally {
      hasEnded = true;
      wake();
    }
  })();
  following.catch(() => {}); // thrown at the end, after the last changes
  while (!signal.aborted && (hasChanged || !hasEnded)) {
    if (hasChanged) {
      hasChanged = false;
      yield;
      await sleep(systemClock, INTERVAL_MS, signal);
    } else {
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  }
  await following.catch((error: unknown) => {
    if (!signal.aborted) throw error;
  });
}
