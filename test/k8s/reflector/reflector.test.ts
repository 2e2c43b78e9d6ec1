import { getEventListeners } from 'node:events';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { OPEN_GATE, TurnGate } from '../../../src/base/turn-gate.ts';
import { Reflector, type ReflectorContext } from '../../../src/k8s/reflector/reflector.ts';
import type { FollowOptions, KubernetesObject, ResourceKind } from '../../../src/k8s/resource.ts';
import { ManualClock, WALL_TIME_AT_0 } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';
import { RecordingSink } from '../support/recording-sink.ts';
import { type AskedRequest, ScriptedApi } from '../support/scripted-api.ts';

const PODS: ResourceKind = { group: '', version: 'v1', plural: 'pods', labelSelector: 'a=b' };

function pod(name: string, resourceVersion: string, uid = `${name}-1`): KubernetesObject {
  return { metadata: { name, namespace: 'n', uid, resourceVersion } };
}

const added = (object: unknown): unknown => ({ type: 'ADDED', object });
const deleted = (object: unknown): unknown => ({ type: 'DELETED', object });
const bookmark = (resourceVersion: string, annotations?: object): unknown => ({
  type: 'BOOKMARK',
  object: { metadata: { resourceVersion, annotations } },
});
const END_OF_LIST = { 'k8s.io/initial-events-end': 'true' };

let clock: ManualClock;
let api: ScriptedApi;
let sink: RecordingSink;
let closed: AbortController;
let faults: unknown[];
let states: string[];
let reflector: Reflector;
beforeEach(() => {
  clock = new ManualClock();
  clock.advance(50_000);
  api = new ScriptedApi();
  sink = new RecordingSink();
  closed = new AbortController();
  faults = [];
  states = [];
});
afterEach(async () => {
  closed.abort();
  await reflector.stopped;
  expect(reflector.status().state).toBe('stopped');
  expect(clock.pending, 'timers that were left behind').toBe(0);
  // The signal of the client outlives its reflectors.
  expect(getEventListeners(closed.signal, 'abort')).toEqual([]);
  expect(sink.breaches).toEqual([]);
});

function follow(options: FollowOptions = {}, context: Partial<ReflectorContext> = {}): void {
  const onFault = (error: unknown): void => void faults.push(error);
  const onState = (state: string): void => void states.push(state);
  reflector = new Reflector(
    ...([PODS, sink, { onState, ...options }] as const),
    ...[
      { transport: api, clock, random: () => 0, gate: OPEN_GATE, closed: closed.signal, onFault, ...context },
    ],
  );
}

/** Follows, refuses the stream, returns the list, and returns the request for a watch. */
async function followedFrom(items: readonly unknown[], version = '5'): Promise<AskedRequest> {
  follow();
  await (await api.takes('stream')).refuse(422);
  await (await api.takes('list')).list(version, items);
  return api.takes('watch');
}

/** The next watch after a lost connection and the wait. */
async function provingAfter(watch: AskedRequest): Promise<AskedRequest> {
  await watch.cut();
  await advance(clock, 1_000);
  return api.takes('prove');
}

describe('the status of a reflector', () => {
  it('contains the counts of changes, and the age of the last one', async () => {
    const watch = await followedFrom([pod('a', '1'), { metadata: {} }, pod('b', '2')]);
    expect(reflector.status()).toMatchObject({
      resource: 'pods/v1',
      labelSelector: 'a=b',
      fieldSelector: undefined,
      state: 'listing',
      listed: true,
      objects: 2,
      events: 2,
      lastEventAt: WALL_TIME_AT_0 + 50_000,
      rejected: 1,
      bookmarks: 0,
      lists: 1,
      watches: 0,
      lagMs: 0,
      failures: 0,
      lastFailure: undefined,
    });
    await advance(clock, 7_000);
    await watch.say(deleted(pod('a', '6')), bookmark('7'), added({}), added(pod('c', '8')));
    expect(reflector.status()).toMatchObject({
      state: 'watching',
      objects: 2,
      events: 4,
      lastEventAt: WALL_TIME_AT_0 + 57_000,
      rejected: 2,
      bookmarks: 1,
      lists: 1,
      watches: 1,
      lagMs: 0,
    });
    await advance(clock, 9_000);
    expect(reflector.status()).toMatchObject({ lagMs: 9_000, lastEventAt: WALL_TIME_AT_0 + 57_000 });
    expect([...sink.objects.keys()]).toEqual(['n/b', 'n/c']);
    expect(faults).toEqual([]);
  });

  it('contains since when it has missed changes, and the time to the next attempt (regression: it was unknown)', async () => {
    const watch = await followedFrom([pod('a', '1')]);
    expect(reflector.status()).toMatchObject({ behindMs: undefined, retryInMs: undefined });
    await watch.say(added(pod('a', '7')));
    await watch.cut();
    await advance(clock, 300);
    expect(reflector.status()).toMatchObject({ behindMs: 300, retryInMs: 500 });
    await advance(clock, 500);
    const proof = await api.takes('prove');
    expect(reflector.status()).toMatchObject({ behindMs: 800, retryInMs: undefined });
    await proof.refuse(503);
    await advance(clock, 600);
    expect(reflector.status()).toMatchObject({ behindMs: 1400, retryInMs: 1000 });
    await advance(clock, 1000);
    await (await api.takes('prove')).list('9', [pod('a', '7')]);
    await (await api.takes('watch')).say(bookmark('8'));
    expect(reflector.status()).toMatchObject({ behindMs: undefined, retryInMs: undefined });
  });

  it('contains the version up to which changes were delivered, of puts and of bookmarks', async () => {
    const watch = await followedFrom([pod('a', '1')]);
    await watch.say(added(pod('a', '7')));
    expect(reflector.status().resourceVersion).toBe('7');
    await watch.say(bookmark('9'));
    expect(reflector.status().resourceVersion).toBe('9');
  });

  it('contains no lag before the first list', async () => {
    follow();
    await (await api.takes('stream')).say(added(pod('a', '1')));
    expect(reflector.status()).toMatchObject({
      listed: false,
      objects: 1,
      lagMs: undefined,
      resourceVersion: undefined,
    });
  });

  it('is reported whenever its state changes', async () => {
    const watch = await followedFrom([]);
    await watch.say(added(pod('a', '6')));
    await watch.cut();
    expect(states).toEqual(['watching', 'waiting']);
    closed.abort();
    await reflector.stopped;
    expect(states).toEqual(['watching', 'waiting', 'stopped']);
  });

  it('counts no failure if a server has compacted, or does not serve the kind or streams', async () => {
    const watch = await followedFrom([]);
    await watch.say({ type: 'ERROR', object: { code: 410 } });
    await advance(clock, 800);
    await (await api.takes('list')).refuse(404);
    expect(reflector.status()).toMatchObject({ state: 'missing', failures: 0, lastFailure: undefined });
    await advance(clock, 1_600);
    await (await api.takes('list')).refuse(422, 'nonsense');
    expect(reflector.status()).toMatchObject({
      failures: 1,
      lastFailure: { code: 'invalid', message: 'nonsense' },
    });
  });

  it('counts a failure if a stream is refused for another reason', async () => {
    follow();
    await (await api.takes('stream')).refuse(403, 'not you');
    await api.takes('list');
    expect(reflector.status().failures).toBe(1);
  });

  it('names the missing right, to list or to watch', async () => {
    const grant = (verb: string): string =>
      `not you: grant the verb "${verb}" on the resource "pods" of the API group ""`;
    const watch = await followedFrom([]);
    await watch.refuse(403, 'not you');
    expect(reflector.status().lastFailure?.message).toBe(grant('watch'));
    await advance(clock, 800);
    await (await api.takes('list')).refuse(403, 'not you');
    expect(reflector.status().lastFailure?.message).toBe(grant('list'));
  });
});

describe('a wait for the first list', () => {
  it('ends with it, and requires no time after it', async () => {
    follow();
    const before = reflector.waitForListed({ quietMs: 20_000 });
    await (await api.takes('stream')).say(bookmark('5', END_OF_LIST));
    await before;
    await reflector.waitForListed({ signal: AbortSignal.abort() });
  });

  it('ends with its signal', async () => {
    follow();
    const over = new AbortController();
    const [waiting, late] = [reflector.waitForListed({ signal: over.signal, quietMs: 1 }), new Error('late')];
    over.abort(late);
    await expect(waiting).rejects.toBe(late);
    await expect(reflector.waitForListed({ signal: over.signal })).rejects.toBe(late);
  });

  it('ends if it is stopped before or during the wait', async () => {
    follow();
    const stopped = expect.objectContaining({ message: 'pods/v1: stopped before its list was complete' });
    const waiting = reflector.waitForListed();
    closed.abort();
    await expect(waiting).rejects.toEqual(stopped);
    await expect(reflector.waitForListed()).rejects.toEqual(stopped);
  });

  it('leaves no timer, and no listener on its signal', async () => {
    follow();
    const list = await api.takes('stream');
    const [over, { signal }] = [new AbortController(), new AbortController()];
    const timers = clock.pending;
    const [aborted, listed] = [over.signal, signal].map((ended) =>
      reflector.waitForListed({ signal: ended, quietMs: 20_000 }),
    );
    expect(clock.pending).toBe(timers + 2);
    over.abort(new Error('late'));
    await expect(aborted).rejects.toThrow('late');
    expect([clock.pending, getEventListeners(over.signal, 'abort')]).toEqual([timers + 1, []]);
    await list.say(bookmark('5', END_OF_LIST));
    await listed;
    expect(getEventListeners(signal, 'abort')).toEqual([]);
  });

  it('has a progress deadline: ends if no data came for the time, and reports the reason (K 55)', async () => {
    follow();
    const list = await api.takes('stream');
    await advance(clock, 5_000);
    let outcome: unknown;
    reflector.waitForListed({ quietMs: 20_000 }).catch((error) => {
      outcome = error;
    });
    await advance(clock, 19_999);
    await list.say(added(pod('a', '1')));
    await advance(clock, 19_999);
    expect(outcome).toBeUndefined();
    await advance(clock, 1);
    expect(outcome).toMatchObject({
      code: 'unavailable',
      message: 'pods/v1 is listing: no progress for 20 s',
    });
    await list.cut();
    const late = expect(reflector.waitForListed({ quietMs: 100 })).rejects.toThrow(
      'pods/v1 is waiting: no progress for 0.1 s: cut',
    );
    await advance(clock, 100);
    await late;
  });
});

describe('the delay after a failure', () => {
  async function delays(random: number, retryAfterMs: number, count: number): Promise<readonly number[]> {
    follow({}, { random: () => random });
    await (await api.takes('stream')).refuse(422);
    const found: number[] = [];
    for (let i = 0; i < count; i++) {
      await (await api.takes('list')).refuse(503, 'busy', retryAfterMs);
      const from = clock.now();
      await advance(clock, (clock.nextAt ?? 0) - from);
      found.push(clock.now() - from);
    }
    return found;
  }

  it('doubles from 0.8 s to 30 s (K 3)', async () =>
    expect(await delays(0, 0, 8)).toEqual([800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]));

  it('is up to twice as long, at random', async () => expect(await delays(0.5, 0, 2)).toEqual([1200, 2400]));

  it('is at least as long as the server requests', async () =>
    expect(await delays(0.5, 1_000, 2)).toEqual([1500, 2400]));
});

describe('a watch', () => {
  it.each([
    [0, '300'],
    [0.5, '450'],
    [0.9999, '599'],
  ])('is requested for a random time between 300 and 600 s: %s (K 2)', async (random, seconds) => {
    follow({}, { random: () => random });
    await (await api.takes('stream')).say(bookmark('5', END_OF_LIST));
    const { query } = await api.takes('watch');
    expect(query.get('timeoutSeconds')).toBe(seconds);
  });

  it('that has not ended half a minute after its time is dead', async () => {
    const watch = await followedFrom([pod('a', '1')]);
    watch.open();
    await advance(clock, 329_999);
    expect(reflector.status()).toMatchObject({ state: 'watching', failures: 0 });
    await advance(clock, 1);
    expect(watch.signal.aborted).toBe(true);
    expect(reflector.status()).toMatchObject({ state: 'waiting', lastFailure: { code: 'silent' } });
  });

  it('that was silent for three minutes within its first event is dead (regression: it was kept for ten)', async () => {
    const watch = await followedFrom([]);
    watch.open();
    await watch.write('{"type":"ADDED","object":');
    await advance(clock, 179_999);
    expect(reflector.status().state).toBe('watching');
    await advance(clock, 1);
    expect(reflector.status()).toMatchObject({ state: 'waiting', lastFailure: { code: 'silent' } });
  });

  it('that was silent for three minutes after its first event is dead', async () => {
    const watch = await followedFrom([]);
    await watch.say(bookmark('6'));
    await advance(clock, 100_000);
    await watch.write('{"type":');
    await advance(clock, 179_999);
    expect(reflector.status().state).toBe('watching');
    await advance(clock, 1);
    expect(reflector.status()).toMatchObject({ state: 'waiting', lastFailure: { code: 'silent' } });
  });

  it('that is not accepted within half a minute is dead', async () => {
    const watch = await followedFrom([]);
    await advance(clock, 30_000);
    expect(watch.signal.aborted).toBe(true);
    expect(reflector.status()).toMatchObject({ watches: 0, lastFailure: { code: 'silent' } });
  });

  it('that immediately repeats known events, and ends, has failed (regression: it was requested without a pause)', async () => {
    const watch = await followedFrom([], '5');
    await watch.say(bookmark('5'), added({}));
    await watch.end();
    expect(api.waiting).toBe(0);
    expect(reflector.status().state).toBe('waiting');
    await advance(clock, 800);
    await api.takes('watch');
  });

  it('is not resumed from the version 0 of a bookmark, after which deletes are missing (regression)', async () => {
    const watch = await followedFrom([]);
    await watch.say(bookmark('9'), bookmark('0'));
    await watch.end();
    expect((await api.takes('watch')).query.get('resourceVersion')).toBe('9');
    expect(reflector.status()).toMatchObject({ bookmarks: 1, rejected: 1 });
  });

  it('is not resumed from the version 0 of an object, after which deletes are missing (regression)', async () => {
    const watch = await followedFrom([]);
    await watch.say(added(pod('a', '9')), added(pod('b', '0')), deleted(pod('a', '0')));
    await watch.end();
    expect((await api.takes('watch')).query.get('resourceVersion')).toBe('9');
    expect(reflector.status()).toMatchObject({ objects: 1, rejected: 2 });
  });

  it('that ends is requested again immediately, from the last version', async () => {
    const watch = await followedFrom([]);
    await watch.say(bookmark('9'));
    await watch.end();
    const next = await api.takes('watch');
    expect(next.query.get('resourceVersion')).toBe('9');
    next.open();
    await advance(clock, 1_000);
    await next.end();
    await api.takes('watch');
    expect(reflector.status()).toMatchObject({ failures: 0, watches: 2 });
  });

  it('that ends immediately without an event is followed by a delay', async () => {
    const watch = await followedFrom([]);
    watch.open();
    await watch.end();
    expect(reflector.status()).toMatchObject({ state: 'waiting', failures: 0 });
    await advance(clock, 800);
    await api.takes('watch');
  });

  it('that ends within an event has lost its connection', async () => {
    const watch = await followedFrom([]);
    await watch.say(added(pod('a', '6')));
    await watch.write('{"type":"ADDED"');
    await watch.end();
    expect(reflector.status()).toMatchObject({ state: 'waiting', lastFailure: { code: 'broken' } });
    await advance(clock, 800);
    await api.takes('prove');
  });

  it('delivers the events before an error', async () => {
    const watch = await followedFrom([]);
    await watch.say(added(pod('a', '6')), { type: 'ERROR', object: { code: 500, message: 'oh' } });
    expect(sink.log).toEqual(['put n/a']);
    expect(reflector.status()).toMatchObject({ events: 1, lastFailure: { code: 'internal', message: 'oh' } });
  });

  it('with an object that no API server stores ends, and is followed by a list', async () => {
    const watch = await followedFrom([]);
    await watch.write('{"type":"ADDED","object":{"a":"');
    for (let i = 0; i < 17; i++) await watch.write('x'.repeat(1024 * 1024));
    await watch.write('"}}\n');
    expect(reflector.status()).toMatchObject({ lastFailure: { code: 'garbled' } });
    await advance(clock, 800);
    await api.takes('list');
  });
});

describe('a server that was lost', () => {
  const watchingAfterPut = async (): Promise<AskedRequest> => {
    const watch = await followedFrom([pod('a', '1')]);
    await watch.say(added(pod('b', '6')), bookmark('9'));
    return watch;
  };

  it('has proven itself with the last written object: the watch continues from there', async () => {
    const proof = await provingAfter(await watchingAfterPut());
    expect(proof.query.get('fieldSelector')).toBe('metadata.name=b');
    await proof.list('70', [pod('x', '3'), pod('b', '6')]);
    const watch = await api.takes('watch');
    expect(watch.query.get('resourceVersion')).toBe('6');
    expect(reflector.status()).toMatchObject({ lists: 1, failures: 1 });
  });

  it('has proven itself with an object of 3 MB, the largest that it stores (regression: all objects were listed)', async () => {
    const proof = await provingAfter(await watchingAfterPut());
    await proof.list('70', [{ ...pod('b', '6'), data: 'x'.repeat(3 << 20) }]);
    await api.takes('watch');
    expect(reflector.status()).toMatchObject({ lists: 1, failures: 1 });
  });

  it.each([
    ['has no such object', []],
    ['has it at another version', [pod('b', '7')]],
    ['has it in another life', [pod('b', '6', 'b-2')]],
    ['has something that is no object', [7, {}, { metadata: { uid: 'b-1' } }]],
    ['has no items', undefined],
  ])('that %s is listed again', async (_, items) => {
    const proof = await provingAfter(await watchingAfterPut());
    await proof.write(JSON.stringify({ metadata: {}, items }));
    await proof.end();
    const list = await api.takes('list');
    expect(list.query.get('resourceVersion'), 'not older than what was seen').toBe('9');
    await list.list('80', [pod('a', '1'), pod('b', '8', 'b-2')]);
    expect(reflector.status()).toMatchObject({ lists: 2, failures: 1 });
    expect(sink.log.slice(2)).toEqual(['delete n/b', 'put n/b']);
  });

  it.each([
    ['the last event was a delete', [added(pod('b', '6')), deleted(pod('b', '7'))]],
    ['there was none', []],
  ])('is listed again if %s', async (_, lines) => {
    const watch = await followedFrom([pod('a', '1')]);
    await watch.say(...lines);
    await watch.cut();
    await advance(clock, 800);
    await api.takes('list');
  });

  it('is watched again immediately behind a proxy that closes idle connections; a quiet kind is not listed (regression: each time, with waits of up to a minute)', async () => {
    let watch = await followedFrom([pod('a', '1')]);
    for (let i = 0; i < 20; i++) {
      await watch.say();
      await advance(clock, 35_000);
      await watch.cut();
      watch = await api.takes('watch');
      expect(watch.query.get('resourceVersion')).toBe('5');
    }
    expect(reflector.status()).toMatchObject({ lists: 1, watches: 20, failures: 20 });
  });

  it('that hangs during its proof is abandoned', async () => {
    const proof = await provingAfter(await watchingAfterPut());
    await advance(clock, 60_000);
    expect(proof.signal.aborted).toBe(true);
    expect(reflector.status().lastFailure?.code).toBe('silent');
  });
});

describe('a list', () => {
  it('in pages is complete with the last page', async () => {
    follow();
    await (await api.takes('stream')).refuse(410);
    await (await api.takes('list')).list('5', [pod('a', '1')], 'next');
    const second = await api.takes('list');
    expect([second.query.get('continue'), second.query.get('limit')]).toEqual(['next', '500']);
    expect(sink.listings).toBe(0);
    await second.list('5', [pod('b', '2')]);
    expect(sink.listings).toBe(1);
    expect((await api.takes('watch')).query.get('resourceVersion')).toBe('5');
  });

  it('whose continue token is repeated has failed (regression: it requested the same page for ever)', async () => {
    follow();
    await (await api.takes('stream')).refuse(410);
    await (await api.takes('list')).list('5', [pod('a', '1')], 'next');
    await (await api.takes('list')).list('5', [pod('a', '1')], 'next');
    const message = 'the list repeats its continue token next';
    expect(reflector.status()).toMatchObject({ listed: false, lastFailure: { code: 'garbled', message } });
  });

  it('of which 101 pages have no new object has failed (regression: a server with ever new tokens was asked for ever)', async () => {
    follow();
    await (await api.takes('stream')).refuse(410);
    await (await api.takes('list')).list('5', [pod('a', '1')], '0');
    for (let page = 1; page <= 100; page++)
      await (await api.takes('list')).list('5', page === 50 ? [] : [pod('a', '1')], `${page}`);
    await (await api.takes('list')).list('5', [pod('b', '1')], 'b');
    for (let page = 1; page <= 101; page++)
      await (await api.takes('list')).list('5', [pod('b', '1')], `b${page}`);
    const message = 'the list has no new object in 101 pages';
    expect(reflector.status()).toMatchObject({ listed: false, lastFailure: { code: 'garbled', message } });
    expect(api.waiting).toBe(0);
  });

  it('may take long while it progresses: a minute of silence ends it', async () => {
    follow();
    await (await api.takes('stream')).refuse(422);
    const list = await api.takes('list');
    expect(list.gzip).toBe(true);
    await advance(clock, 59_999);
    await list.write('{"metadata":{"resourceVersion":"5"},"items":[');
    await advance(clock, 59_999);
    expect(list.signal.aborted).toBe(false);
    await advance(clock, 1);
    expect(reflector.status()).toMatchObject({ state: 'waiting', lastFailure: { code: 'silent' } });
  });

  it('deletes all objects that it does not contain at its end, in slices (K 6)', async () => {
    const gate = new TurnGate({ clock, nextTurn: setImmediate, weightPerTurn: 16 });
    follow({}, { gate });
    await (await api.takes('stream')).refuse(422);
    await (await api.takes('list')).list(
      '5',
      ['a', 'b', 'c', 'd', 'e'].map((name) => pod(name, '1')),
    );
    await settle(20);
    await (await api.takes('watch')).say({ type: 'ERROR', object: { code: 410 } });
    await advance(clock, 800);
    const batches: number[] = [];
    const apply = sink.apply.bind(sink);
    sink.apply = (events) => {
      batches.push(events.length);
      apply(events);
    };
    await (await api.takes('list')).list('9', [pod('e', '1')]);
    await settle(20);
    expect([...sink.objects.keys()]).toEqual(['n/e']);
    expect(batches).toEqual([2, 2]);
    await api.takes('watch');
  });

  it('whose server sends it byte by byte is abandoned after 10.5 minutes (regression: never)', async () => {
    follow();
    await (await api.takes('stream')).refuse(422);
    const list = await api.takes('list');
    for (let part = 0; part < 21; part++) {
      expect(list.signal.aborted).toBe(false);
      await list.write(' ');
      await advance(clock, 30_000);
    }
    expect(list.signal.aborted).toBe(true);
    expect(reflector.status()).toMatchObject({ state: 'waiting', lastFailure: { code: 'silent' } });
  });

  it('without objects that no API server stores is complete; they are counted', async () => {
    follow();
    await (await api.takes('stream')).refuse(422);
    const list = await api.takes('list');
    await list.write(`{"metadata":{"resourceVersion":"5"},"items":[${JSON.stringify(pod('a', '1'))},{"a":"`);
    for (let i = 0; i < 17; i++) await list.write('x'.repeat(1024 * 1024));
    await list.write('"}]}');
    await list.end();
    expect(reflector.status()).toMatchObject({ listed: true, objects: 1, rejected: 1 });
    await api.takes('watch');
  });
});

describe('a streaming list', () => {
  it('contains concurrent changes: a deleted object is removed (regression: it stayed permanently)', async () => {
    follow();
    const all = ['a', 'b', 'c'].map((name) => added(pod(name, '1')));
    await (await api.takes('stream')).say(...all, bookmark('5', END_OF_LIST));
    await (await api.takes('watch')).say({ type: 'ERROR', object: { code: 410 } });
    await advance(clock, 800);
    const again = await api.takes('stream');
    await again.say(added(pod('b', '1')), deleted(pod('a', '6')), deleted(pod('b', '7')));
    await again.say(added(pod('a', '8', 'a-2')), bookmark('9', END_OF_LIST));
    const { query } = await api.takes('watch');
    expect(query.get('resourceVersion')).toBe('9');
    expect([...sink.versions]).toEqual([['n/a', '8']]);
    expect(sink.log.slice(3)).toEqual(['delete n/a', 'delete n/b', 'put n/a', 'delete n/c']);
  });

  it('ends only with the bookmark of its end; an invalid object is counted', async () => {
    follow();
    const stream = await api.takes('stream');
    expect(stream.gzip).toBe(false);
    await stream.say(added(pod('a', '1')), added({}), added({}), added(pod('b', '2')));
    expect(reflector.status()).toMatchObject({ listed: false, objects: 2, rejected: 2 });
    await stream.say(bookmark('5', END_OF_LIST), added(pod('c', '6')));
    expect(stream.signal.aborted).toBe(true);
    const { query } = await api.takes('watch');
    expect(query.get('resourceVersion')).toBe('5');
    expect([...sink.objects.keys()]).toEqual(['n/a', 'n/b']);
    expect(reflector.status()).toMatchObject({ listed: true, lists: 1, rejected: 2 });
  });

  it('without objects that no API server stores is complete; they are counted', async () => {
    follow();
    const stream = await api.takes('stream');
    await stream.write('{"type":"ADDED","object":{"a":"');
    for (let i = 0; i < 17; i++) await stream.write('x'.repeat(1024 * 1024));
    await stream.write('"}}\n');
    await stream.say(bookmark('5', END_OF_LIST));
    expect(reflector.status()).toMatchObject({ listed: true, rejected: 1 });
    await api.takes('watch');
  });

  it('that sends only changes is replaced by a list half a minute after its time (regression: never)', async () => {
    follow();
    const stream = await api.takes('stream');
    expect(stream.query.get('timeoutSeconds')).toBe('600');
    for (let version = 1; version <= 21; version++) {
      expect(api.waiting).toBe(0);
      await stream.say(added(pod('a', String(version))));
      await advance(clock, 30_000);
    }
    const list = await api.takes('list');
    await list.list('22', [pod('a', '21')]);
    await api.takes('watch');
    expect([...sink.versions]).toEqual([['n/a', '21']]);
    expect(reflector.status()).toMatchObject({ listed: true, lastFailure: { code: 'silent' } });
  });

  it('that ends without it is incomplete: the server is listed', async () => {
    follow();
    const stream = await api.takes('stream');
    await stream.say(added(pod('a', '1')));
    await stream.end();
    await api.takes('list');
    expect(reflector.status()).toMatchObject({ listed: false, lastFailure: { code: 'garbled' } });
  });
});

describe('the end of a reflector', () => {
  it('before its start sends no request', async () => {
    follow({ signal: AbortSignal.abort() });
    await reflector.stopped;
    expect(api.waiting).toBe(0);
    expect(states).toEqual(['stopped']);
  });

  it('aborts the operation in progress, and delivers nothing more', async () => {
    const over = new AbortController();
    follow({ signal: over.signal });
    const stream = await api.takes('stream');
    await stream.say(added(pod('a', '1')));
    over.abort();
    expect(stream.signal.aborted).toBe(true);
    await stream.say(added(pod('b', '2')), bookmark('5', END_OF_LIST));
    await reflector.stopped;
    expect(sink.log).toEqual(['put n/a']);
    expect(sink.listings).toBe(0);
    expect(reflector.status()).toMatchObject({ listed: false, events: 1, failures: 0 });
  });

  it('by a sink during a list ends that list', async () => {
    follow();
    sink.apply = () => closed.abort();
    await (await api.takes('stream')).refuse(422);
    await (await api.takes('list')).list('5', [pod('a', '1')]);
    await reflector.stopped;
    expect(sink.listings).toBe(0);
    expect(reflector.status()).toMatchObject({ listed: false, lists: 0 });
  });

  it('ends the delay before the next attempt', async () => {
    follow();
    await (await api.takes('stream')).refuse(503);
    expect(clock.pending).toBe(1);
    closed.abort();
    await reflector.stopped;
    expect(clock.pending).toBe(0);
    expect(api.waiting).toBe(0);
  });
});

describe('failing callbacks', () => {
  it('are reported, and the kind is still followed', async () => {
    const oh = new Error('oh');
    follow({
      onState: () => {
        throw oh;
      },
      keep: () => {
        throw oh;
      },
    });
    sink.onListed = () => {
      throw oh;
    };
    await (await api.takes('stream')).refuse(422);
    await (await api.takes('list')).list('5', [{ ...pod('a', '1'), spec: 7 }]);
    await (await api.takes('watch')).say(deleted(pod('a', '6')));
    expect(faults).toEqual([oh, oh, oh]);
    expect(sink.log).toEqual(['put n/a', 'delete n/a']);
  });

  it('of a trim function keep the object as returned', async () => {
    const kept: unknown[] = [];
    follow({ keep: (object) => ({ metadata: object.metadata, kept: true }) });
    const apply = sink.apply.bind(sink);
    sink.apply = (events) => {
      for (const { object } of events) kept.push(object['kept']);
      apply(events);
    };
    await (await api.takes('stream')).say(added(pod('a', '1')), bookmark('5', END_OF_LIST));
    await (await api.takes('watch')).say(deleted(pod('a', '6')));
    expect(kept).toEqual([undefined, true]);
  });
});
