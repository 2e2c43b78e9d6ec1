import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import { advance, settle } from '../support/settle.ts';
import { WatchWorld } from '../support/watch-world.ts';

const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;

let world: WatchWorld;
beforeEach(() => {
  world = new WatchWorld();
});
afterEach(() => world.end());

const names = (count: number): string[] =>
  Array.from({ length: count }, (_, i) => String(i).padStart(4, '0'));

describe('the known state of a watch is compared with the store', () => {
  it.each([
    [0, 15],
    [0.5, 30],
    [0.999, 44.97],
  ])(
    'about every half hour, at random, so that watches do not synchronise: with %d after %d min',
    async (random, min) => {
      world.losing(({ key }) => key === 'p/lost');
      const recorder = world.read({ random: () => random });
      await settle();
      world.put('lost', 'told');
      await advance(world.clock, min * MINUTE_MS - SECOND_MS);
      expect(recorder.story).toEqual(['list-done', 'create p/told']);
      await advance(world.clock, 2 * SECOND_MS);
      expect(recorder.story).toContain('create p/lost');
    },
  );

  it('without an event for its reader or its owner if nothing differs', async () => {
    world.put('a', 'b');
    const recorder = world.read();
    await settle(4);
    world.put('c');
    await advance(world.clock, 5 * HOUR_MS);
    expect(recorder.story).toEqual(['create p/a', 'create p/b', 'list-done', 'create p/c']);
    expect(world.states).toEqual([
      'listing',
      'watching',
      ...new Array(world.states.length - 2).fill('watching'),
    ]);
    expect(recorder.status()).toMatchObject({ failures: 0, listings: 1 });
    expect(world.link.streams).toBe(1);
  });

  it('by its values, once and without an event, after a stream was interrupted (regression: delivered every key again)', async () => {
    world.put('a', 'b');
    const recorder = world.read();
    await settle(4);
    const before = recorder.story.length;
    const values: string[] = [];
    world.link.onRead = ({ start, keysOnly, limit }) => {
      if (start === 'p/' && keysOnly !== true && limit !== 1) values.push(start);
    };
    world.link.cut();
    await advance(world.clock, 500);
    expect([recorder.status().state, values]).toEqual(['watching', []]);
    await advance(world.clock, SECOND_MS);
    const compared = values.length;
    expect(compared).toBeGreaterThan(0);
    await advance(world.clock, HOUR_MS / 4);
    expect(values.length).toBe(compared);
    expect(recorder.story.slice(before)).toEqual([]);
    expect(recorder.status()).toMatchObject({ listings: 1, failures: 1 });
  });

  it('except if nothing was known at the failure', async () => {
    world.put('a', 'b');
    world.link.down();
    const recorder = world.read();
    await advance(world.clock, 100);
    world.link.up();
    await advance(world.clock, HOUR_MS / 4);
    expect(recorder.story).toEqual(['create p/a', 'create p/b', 'list-done']);
    expect(recorder.status().streams).toBe(1);
  });

  it('by its values in at most a fiftieth of the time', async () => {
    world.put(...names(600));
    let reads = 0;
    world.link.onRead = () => {
      if (++reads <= 2) world.clock.advance(5 * SECOND_MS); // the server is slow
    };
    const recorder = world.read();
    await settle(40);
    expect(recorder.status()).toMatchObject({ state: 'watching', keys: 600 });
    const tookMs = 10 * SECOND_MS;
    world.link.cut();
    await advance(world.clock, 10 * SECOND_MS);
    const before = reads;
    await advance(world.clock, 50 * tookMs - 11 * SECOND_MS);
    expect(reads).toBe(before);
    await advance(world.clock, 3 * SECOND_MS);
    expect(reads).toBeGreaterThan(before);
  });

  it('immediately again, if that has failed', async () => {
    world.losing(({ key }) => key === 'p/lost');
    const recorder = world.read();
    await settle();
    world.put('lost', 'told');
    await settle();
    let reads = 0;
    world.link.onRead = () => {
      if (++reads === 1) throw new KvstoreError('overloaded', 'too many requests');
    };
    await advance(world.clock, HOUR_MS / 2 - SECOND_MS);
    expect([recorder.status().failures, recorder.content.has('p/lost')]).toEqual([0, false]);
    await advance(world.clock, 1500);
    expect(recorder.status()).toMatchObject({ failures: 1, state: 'watching' });
    expect(recorder.content.has('p/lost')).toBe(true);
  });

  it('and is still followed if that always fails', async () => {
    world.put(...names(20));
    const recorder = world.read();
    await settle(4);
    world.put('told');
    world.link.onRead = ({ limit = 0, minModRevision = 0 }) => {
      if (limit > 1 && minModRevision === 0) throw new KvstoreError('overloaded', 'too many keys');
    };
    await advance(world.clock, HOUR_MS / 2 + MINUTE_MS);
    expect(recorder.status().failures).toBeGreaterThan(9);
    world.states.splice(0);
    world.put('new');
    await advance(world.clock, 10 * SECOND_MS);
    expect(recorder.content.has('p/new')).toBe(true);
    expect(world.states).toContain('watching');
  });

  it('by the number of keys only, if that proves that nothing is missing', async () => {
    world.put(...names(20));
    const limits = { firstPageKeys: 2, pageKeys: 4 };
    const recorder = world.read({ limits });
    await settle(20);
    let pages = 0;
    world.link.onRead = ({ keysOnly }) => void (keysOnly === true && pages++);
    world.link.down();
    world.putElsewhere();
    world.server.compact(); // the stream cannot be resumed
    world.link.up();
    await advance(world.clock, 500);
    expect([recorder.status().state, recorder.status().streams, pages]).toEqual(['watching', 2, 0]);
  });

  it('and is listed completely if no anchor of the history is left, and its owner is notified', async () => {
    world.losing(() => true);
    const recorder = world.read();
    world.put('a', 'b');
    await settle(4);
    world.put('a', 'b', 'c');
    await advance(world.clock, HOUR_MS / 2 - SECOND_MS);
    expect(world.states).toEqual(['listing', 'watching']);
    await advance(world.clock, 2 * SECOND_MS);
    expect(world.states).toEqual(['listing', 'watching', 'listing', 'watching']);
    expect(recorder.status().listings).toBe(2);
    expect(recorder.story.slice(-3).toSorted()).toEqual(['create p/c', 'modify p/a', 'modify p/b']);
  });
});

describe('a watch that fails', () => {
  it('retries immediately, however often it failed before its last success', async () => {
    world.put('a');
    const recorder = world.read();
    await settle(4);
    for (let outage = 1; outage <= 3; outage++) {
      world.link.down();
      await advance(world.clock, MINUTE_MS);
      world.link.up();
      await advance(world.clock, 10 * SECOND_MS);
      expect(recorder.status().state).toBe('watching');
      world.link.cut();
      await advance(world.clock, 200);
      expect(recorder.status().state).toBe('watching');
    }
  });

  it('retries with backoff if each stream ends soon (regression: ten times a second, each time with a listing)', async () => {
    const recorder = world.read();
    await settle(4);
    for (let ms = 0; ms < MINUTE_MS; ms += 50) {
      world.link.cut();
      await advance(world.clock, 50);
    }
    expect(recorder.status().streams).toBeGreaterThan(20);
    expect(recorder.status().streams).toBeLessThan(100);
    await advance(world.clock, 10 * SECOND_MS);
    world.link.cut();
    await advance(world.clock, 200);
    expect(recorder.status().state).toBe('watching');
  });

  it('retries with backoff if each stream sends a key of another prefix (regression: twenty times a second)', async () => {
    world.telling((observer) => ({
      onEvents: (events, header, isPartial) =>
        observer.onEvents(
          events.map(({ modRevision }) => ({ key: 'q/a', value: undefined, modRevision })),
          header,
          isPartial,
        ),
    }));
    const recorder = world.read();
    for (let ms = 0; ms < MINUTE_MS; ms += 50) {
      world.put('a');
      await advance(world.clock, 50);
    }
    expect(recorder.status().streams).toBeGreaterThan(20);
    expect(recorder.status().streams).toBeLessThan(100);
  });

  it('notifies its owner: waiting, and then its next state', async () => {
    world.put('a');
    world.putElsewhere();
    world.read();
    await settle(4);
    world.states.splice(0);
    world.link.cut();
    await advance(world.clock, 200);
    expect(world.states).toEqual(['waiting', 'listing', 'watching']);
    world.put('b');
    await settle();
    world.states.splice(0);
    world.link.cut();
    await advance(world.clock, 200);
    expect(world.states).toEqual(['waiting', 'watching']); // the stream was resumed
  });

  it('does not combine the stream of one server with the answers of another', async () => {
    let isAhead = true;
    world.telling((observer) => ({
      onCreated: (header) => {
        observer.onCreated(isAhead ? { ...header, revision: header.revision + 1 } : header);
        isAhead = false;
      },
    }));
    world.put('a');
    const recorder = world.read();
    await advance(world.clock, 500);
    expect(recorder.status()).toMatchObject({
      state: 'watching',
      failures: 1,
      lastFailure: { code: 'unavailable' },
    });
    expect(recorder.story).toEqual(['create p/a', 'list-done']);
  });

  it('and finds another history reports how far it had followed the previous one', async () => {
    const backup = world.server.snapshot();
    const until: number[] = [];
    const begun = world.clock.now();
    const onDiverged = (lostHistorySeenAt: number): void => void until.push(lostHistorySeenAt - begun);
    world.put('a', 'b', 'c');
    world.read({ onDiverged }, { mayGoBack: true });
    await advance(world.clock, 10 * SECOND_MS);
    world.link.down();
    await advance(world.clock, MINUTE_MS);
    world.server.restore(backup);
    world.link.up();
    await advance(world.clock, 10 * SECOND_MS);
    expect(until).toEqual([10 * SECOND_MS]);
    world.server.restore(backup);
    await advance(world.clock, SECOND_MS);
    expect(until).toHaveLength(1); // the same as before
  });

  it('and finds another history ends if its owner requests it', async () => {
    const backup = world.server.snapshot();
    world.put('a', 'b', 'c');
    const recorder = world.read({ endOnDivergence: true });
    await settle(4);
    world.server.restore(backup);
    await advance(world.clock, MINUTE_MS);
    expect(recorder.ended).toBe(true);
    expect(recorder.status().state).toBe('diverged');
    expect(world.states).toEqual(['listing', 'watching', 'waiting', 'diverged']);
    expect(recorder.content.size).toBe(3);
  });

  it('removes the keys that a list had confirmed of a history that no longer exists', async () => {
    const backup = world.server.snapshot();
    world.put(...names(300));
    let pages = 0;
    world.link.onRead = ({ limit = 0 }) => {
      if (limit <= 1 || (++pages !== 3 && pages !== 5)) return;
      world.server.restore(backup);
      for (let page = 0; page < pages; page++) world.putElsewhere();
      world.put(...names(300));
    };
    let diverged = 0;
    const recorder = world.read(
      { limits: { firstPageKeys: 100, pageKeys: 100, sliceKeys: 1 }, onDiverged: () => diverged++ },
      { mayGoBack: true },
    );
    for (let turn = 0; turn < 1000 && diverged < 2; turn++) {
      await settle(1);
      world.clock.advance(1);
    }
    expect(diverged).toBe(2);
    await advance(world.clock, MINUTE_MS);
    await settle(1000);
    expect(recorder.content.size).toBe(300);
  });
});
