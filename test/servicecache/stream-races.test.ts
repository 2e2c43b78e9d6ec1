import fc from 'fast-check';
import { describe, it } from 'vitest';
import { ServiceStream } from '../../src/servicecache/service-stream.ts';
import { everythingArrives, nothingAfterTheEnd } from './support/stream-races.ts';

describe('for any order of updates, work and acknowledgements', () => {
  it('I1 the consumer ends up with the state of the cache, and servicesSynced resolves, not too early', async () => {
    await fc.assert(everythingArrives((source) => new ServiceStream(source)));
  });
});

describe('for any end of a stream', () => {
  it('its loop ends, waiting callers are notified, and nothing more is taken from the queue', async () => {
    await fc.assert(nothingAfterTheEnd((source, signal) => new ServiceStream(source, signal)));
  });
});
