import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { ApiClient } from '../../src/api/api-client.ts';
import { watchChanges } from '../../src/client/watch-changes.ts';

/** Lines of `/v1/monitor` that a test sends. */
class Lines {
  readonly #lines: string[] = [];
  #isEnded = false;
  #failure: Error | undefined;
  #wake = (): void => {};

  send(name: string): void {
    this.#lines.push(`event: ${name}`, 'data: {}', '');
    this.#wake();
  }

  end(): void {
    this.#isEnded = true;
    this.#wake();
  }

  fail(error: Error): void {
    this.#failure = error;
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<string> {
    for (;;) {
      const line = this.#lines.shift();
      if (line !== undefined) yield line;
      else if (this.#failure !== undefined) throw this.#failure;
      else if (this.#isEnded) return;
      else
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
    }
  }
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

it('a change during the work of the consumer is shown once, after half a second', async () => {
  const lines = new Lines();
  const client = Object.create(ApiClient.prototype) as ApiClient;
  client.lines = () => lines[Symbol.asyncIterator]();
  const { signal } = new AbortController();
  let shown = 0;
  let finish = (): void => {};
  const showing = (async () => {
    for await (const _ of watchChanges(client, 'ip', signal)) {
      shown++;
      await new Promise<void>((resolve) => {
        finish = resolve;
      });
    }
  })();
  lines.send('synced');
  await vi.advanceTimersByTimeAsync(0);
  expect(shown).toBe(1);
  lines.send('change');
  lines.send('change');
  await vi.advanceTimersByTimeAsync(10);
  finish();
  await vi.advanceTimersByTimeAsync(499);
  expect(shown).toBe(1);
  await vi.advanceTimersByTimeAsync(1);
  expect(shown).toBe(2);
  finish();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(shown).toBe(2);
  lines.end();
  await showing;
});

it.each(['is interrupted', 'loses the agent'])('a consumer that %s', async (how) => {
  const lines = new Lines();
  const client = Object.create(ApiClient.prototype) as ApiClient;
  client.lines = () => lines[Symbol.asyncIterator]();
  const stop = new AbortController();
  const showing = (async () => {
    for await (const _ of watchChanges(client, 'ip', stop.signal));
  })();
  lines.send('synced');
  await vi.advanceTimersByTimeAsync(10_000);
  if (how === 'is interrupted') stop.abort();
  lines.fail(new Error('the agent has stopped')); // an aborted request fails, too
  if (how === 'is interrupted') await showing;
  else await expect(showing).rejects.toThrow('the agent has stopped');
});
