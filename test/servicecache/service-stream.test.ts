import { describe, expect, it } from 'vitest';
import { formatServiceID } from '../../src/servicecache/service-id.ts';
import {
  ServiceStreamClosedError,
  type StreamedServiceEvent,
} from '../../src/servicecache/service-stream.ts';
import { growthPerItem } from '../base/support/cpu-time.ts';
import { cacheOf, SHOP, service, slice, transcript } from './support/scene.ts';

/** Returns the next event of an iteration, or `undefined` at its end. */
async function next(
  events: AsyncIterator<StreamedServiceEvent, void>,
): Promise<StreamedServiceEvent | undefined> {
  const result = await events.next();
  return result.done === true ? undefined : result.value;
}

function addresses(event: StreamedServiceEvent | undefined): readonly string[] {
  return [...(event?.endpoints.backends.keys() ?? [])].sort();
}

/** Returns true if a promise has settled after all due work. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let settled = false;
  const note = (): void => {
    settled = true;
  };
  promise.then(note, note);
  for (let turn = 0; turn < 10; turn++) await Promise.resolve();
  return settled;
}

describe('a stream coalesces per service', () => {
  it('to the latest state, with the last one received by this consumer as the old one', async () => {
    const cache = cacheOf();
    cache.updateService(service());
    cache.updateEndpoints(slice('s', ['10.0.0.1']));
    using stream = cache.stream();
    const events = stream[Symbol.asyncIterator]();
    const first = await next(events);
    expect([first?.action, addresses(first), first?.oldEndpoints]).toEqual([
      'update',
      ['10.0.0.1'],
      undefined,
    ]);
    for (const address of ['10.0.0.2', '10.0.0.3', '10.0.0.4']) cache.updateEndpoints(slice('s', [address]));
    expect(stream.pending).toBe(1);
    const second = await next(events);
    expect(addresses(second)).toEqual(['10.0.0.4']);
    expect(second?.oldEndpoints).toBe(first?.endpoints);
  });

  it('and yields 120,000 waiting services at a constant cost for each (regression: a new iterator of a Map for each)', async () => {
    const growth = await growthPerItem(7_500, async (count) => {
      const cache = cacheOf();
      cache.markSynced();
      using stream = cache.stream();
      for (let i = 0; i < count; i++)
        cache.updateService(service({ id: { namespace: 'shop', name: `s${i}` } }));
      const events = stream[Symbol.asyncIterator]();
      for (let i = 0; i < count; i++) await events.next();
      expect(stream.pending).toBe(0);
    });
    expect(growth).toBeLessThan(6);
  });

  it('so that a service that was added and deleted, or changed and changed back, is omitted', async () => {
    const cache = cacheOf();
    cache.markSynced();
    cache.updateService(service());
    using stream = cache.stream();
    const events = stream[Symbol.asyncIterator]();
    await next(events);
    const other = { namespace: 'shop', name: 'other' };
    cache.updateService(service({ id: other }));
    cache.deleteService(other);
    cache.updateEndpoints(slice('s', ['10.0.0.1']));
    cache.deleteEndpoints(SHOP, 's');
    cache.deleteService(SHOP);
    cache.updateService(service());
    const last = { namespace: 'shop', name: 'z' };
    cache.updateService(service({ id: last }));
    expect((await next(events))?.id).toEqual(last);
  });

  it('trap: so that a consumer that reads nothing blocks no other, with one waiting state per service (I11)', () => {
    const cache = cacheOf();
    using stream = cache.stream();
    const told = transcript(cache);
    cache.updateService(service());
    for (let at = 0; at < 1000; at++) cache.updateEndpoints(slice('s', [`10.0.0.${at % 250}`]));
    expect([stream.pending, told.length]).toEqual([1, 1000]);
  });

  it('and a delete contains the last state received by this consumer', async () => {
    const cache = cacheOf();
    cache.updateService(service());
    cache.updateEndpoints(slice('s', ['10.0.0.1']));
    using stream = cache.stream();
    const events = stream[Symbol.asyncIterator]();
    await next(events);
    cache.updateEndpoints(slice('s', ['10.0.0.2']));
    cache.deleteService(SHOP);
    const gone = await next(events);
    expect([gone?.action, addresses(gone)]).toEqual(['delete', ['10.0.0.1']]);
  });
});

describe('servicesSynced', () => {
  it('waits for the inputs, and for the acknowledgement of all services known then', async () => {
    const cache = cacheOf();
    using stream = cache.stream();
    const synced = stream.servicesSynced();
    const events = stream[Symbol.asyncIterator]();
    cache.updateService(service());
    cache.updateEndpoints(slice('s', ['10.0.0.1']));
    const first = await next(events);
    first?.acknowledge();
    expect(await isSettled(synced)).toBe(false);
    cache.updateEndpoints(slice('s', ['10.0.0.2']));
    cache.markSynced();
    expect(await isSettled(synced)).toBe(false);
    const second = await next(events);
    first?.acknowledge();
    expect([await isSettled(synced), stream.unacknowledged]).toEqual([false, 1]);
    second?.acknowledge();
    second?.acknowledge();
    expect([await isSettled(synced), stream.unacknowledged]).toEqual([true, 0]);
    await stream.servicesSynced();
  });

  it('does not wait for later services', async () => {
    const cache = cacheOf();
    cache.markSynced();
    using stream = cache.stream();
    cache.updateService(service());
    await stream.servicesSynced();
    expect(stream.pending).toBe(1);
  });

  it('accepts a later state for an earlier one', async () => {
    const cache = cacheOf();
    cache.updateService(service());
    cache.markSynced();
    using stream = cache.stream();
    const events = stream[Symbol.asyncIterator]();
    const synced = stream.servicesSynced();
    const first = await next(events);
    cache.updateEndpoints(slice('s', ['10.0.0.1']));
    const second = await next(events);
    second?.acknowledge();
    expect(await isSettled(synced)).toBe(true);
    first?.acknowledge();
  });

  it('counts a change that was undone as acknowledged', async () => {
    const cache = cacheOf();
    cache.updateService(service());
    cache.updateEndpoints(slice('s', ['10.0.0.1']));
    using stream = cache.stream();
    const events = stream[Symbol.asyncIterator]();
    const first = await next(events);
    cache.updateEndpoints(slice('s', []));
    cache.markSynced();
    cache.updateEndpoints(slice('s', ['10.0.0.1']));
    const synced = stream.servicesSynced();
    const waiting = next(events);
    expect(await isSettled(synced)).toBe(false);
    first?.acknowledge();
    expect(await isSettled(synced)).toBe(true);
    stream.close();
    expect(await waiting).toBeUndefined();
  });

  it('trap: one acknowledgement per event is enough, however many remote updates there were', async () => {
    const cache = cacheOf();
    cache.updateService(service({ global: true }));
    using stream = cache.stream();
    const remote = { cluster: 'east', ...SHOP };
    for (let port = 1; port < 10; port++) {
      cache.mergeExternalServiceUpdate({
        ...remote,
        frontends: new Map(),
        backends: new Map([['10.9.0.1', new Map([['http', { port, protocol: 6 }]])]]),
        labels: new Map(),
        selector: new Map(),
        includeExternal: true,
        shared: true,
        clusterID: 2,
      });
    }
    cache.markSynced();
    const synced = stream.servicesSynced();
    (await next(stream[Symbol.asyncIterator]()))?.acknowledge();
    await synced;
  });

  it('rejects if the stream is closed first', async () => {
    const cache = cacheOf();
    const stop = new AbortController();
    const stream = cache.stream(stop.signal);
    const synced = stream.servicesSynced();
    stop.abort();
    await expect(synced).rejects.toBeInstanceOf(ServiceStreamClosedError);
    await expect(stream.servicesSynced()).rejects.toMatchObject({
      name: 'ServiceStreamClosedError',
      code: 'stream-closed',
      retryable: false,
    });
  });
});

describe('the end of a stream', () => {
  it('is the end of its loop, and it receives nothing more', async () => {
    const cache = cacheOf();
    cache.updateService(service());
    cache.markSynced();
    const stream = cache.stream();
    const seen: string[] = [];
    for await (const event of stream) {
      seen.push(formatServiceID(event.id));
      break;
    }
    expect(seen).toEqual(['shop/checkout']);
    expect(cache.status().listeners).toBe(0);
    cache.deleteService(SHOP);
    expect(stream.pending).toBe(0);
  });

  it('is its disposal, and no acknowledgement counts afterwards', async () => {
    const cache = cacheOf();
    cache.updateService(service());
    cache.markSynced();
    const stream = cache.stream();
    const synced = stream.servicesSynced();
    const event = await next(stream[Symbol.asyncIterator]());
    stream[Symbol.dispose]();
    event?.acknowledge();
    await expect(synced).rejects.toBeInstanceOf(ServiceStreamClosedError);
    expect([stream.unacknowledged, cache.status().listeners]).toEqual([1, 0]);
  });

  it('is its signal, while it waits or before its start', async () => {
    const cache = cacheOf();
    const stop = new AbortController();
    const waiting = next(cache.stream(stop.signal)[Symbol.asyncIterator]());
    stop.abort();
    expect(await waiting).toBeUndefined();
    expect(await next(cache.stream(stop.signal)[Symbol.asyncIterator]())).toBeUndefined();
    expect(cache.status().listeners).toBe(0);
  });
});
