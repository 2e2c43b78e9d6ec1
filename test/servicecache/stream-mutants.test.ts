import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ServiceStream } from '../../src/servicecache/service-stream.ts';
import { everythingArrives } from './support/stream-races.ts';

/** Reports that it is synced as soon as the inputs are. */
class Hasty extends ServiceStream {
  override servicesSynced(): Promise<void> {
    return Promise.resolve();
  }
}

describe('a broken stream is detected', () => {
  it('one that is synced before the consumer is', async () => {
    const run = await fc.check(
      everythingArrives((source) => new Hasty(source)),
      { numRuns: 200 },
    );
    expect(run.failed).toBe(true);
  });

  it('one that loses deletes', async () => {
    const run = await fc.check(
      everythingArrives(
        (source) =>
          new ServiceStream({
            subscribe: (listener) =>
              source.subscribe({
                ...listener,
                onEvents: (events) => listener.onEvents(events.filter(({ action }) => action !== 'delete')),
              }),
          }),
      ),
    );
    expect(run.failed).toBe(true);
  });
});
