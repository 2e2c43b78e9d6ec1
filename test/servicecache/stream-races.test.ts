import fc from 'fast-check';
import { describe, it } from 'vitest';
import { ServiceStream } from '../../src/servicecache/service-stream.ts';
import { everythingArrives, nothingAfterTheEnd } from './support/stream-races.ts';

describe('whatever the order of updates, work and acknowledgements', () => {
  it('I1 the consumer ends up with what the cache holds, and servicesSynced comes, not too early', async () => {
    await fc.assert(everythingArrives((source) => new ServiceStream(source)));
  });
});

describe('whenever a stream ends', () => {
  it('its loop ends, those who wait are told, and nothing more is taken from the queue', async () => {
    await fc.assert(nothingAfterTheEnd((source, signal) => new ServiceStream(source, signal)));
  });
});
