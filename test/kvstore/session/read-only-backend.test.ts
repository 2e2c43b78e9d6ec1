import { once } from 'node:events';
import { describe, expect, it, vi } from 'vitest';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import type { Watch } from '../../../src/kvstore/session/backend.ts';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import {
  ReadOnlyBackend,
  type SourceChange,
  type SourceEntry,
} from '../../../src/kvstore/session/read-only-backend.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';

/** A source in memory. Its changes are pushed by the test; `cut` ends or fails them. */
class Source extends ReadOnlyBackend {
  readonly clock: ManualClock;
  readonly content = new Map<string, string>();
  readonly opened: string[] = [];
  /** The signals of the opened changes. */
  readonly signals: AbortSignal[] = [];
  /** Number of opened changes that have ended. */
  ended = 0;
  failure: Error | undefined;
  #queue: (SourceChange[] | Error | undefined)[] = [];
  #waiting: (() => void)[] = [];
  /** Runs within each list, before its result is taken. */
  whileListing: () => void = () => {};

  constructor(clock: ManualClock = new ManualClock(), options: object = {}) {
    super({ ...options, kind: 'memory', clock, random: () => 1 });
    this.clock = clock;
  }

  set(key: string, value: string): void {
    this.content.set(key, value);
    this.#push([{ key, value: bytesOfText(value) }]);
  }

  remove(key: string): void {
    this.content.delete(key);
    this.#push([{ key }]);
  }

  cut(error?: Error): void {
    this.#push(error);
  }

  protected override async list(prefix: string): Promise<readonly SourceEntry[]> {
    if (this.failure !== undefined) throw this.failure;
    this.whileListing();
    return [...this.content]
      .filter(([key]) => key.startsWith(prefix))
      .map(([key, value]) => ({ key, value: bytesOfText(value) }));
  }

  protected override async *changes(prefix: string, signal: AbortSignal): AsyncGenerator<SourceChange[]> {
    this.opened.push(prefix);
    this.signals.push(signal);
    this.#queue = [];
    signal.addEventListener('abort', () => this.#wake());
    try {
      while (!signal.aborted) {
        while (this.#queue.length > 0) {
          const next = this.#queue.shift();
          if (next === undefined) return;
          if (next instanceof Error) throw next;
          yield next;
        }
        await new Promise<void>((resolve) => this.#waiting.push(resolve));
      }
    } finally {
      this.ended++;
    }
  }

  #push(item: SourceChange[] | Error | undefined): void {
    this.#queue.push(item);
    this.#wake();
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }
}

/** Reads a watch event by event, as `create a=1`. */
function events(watch: Watch): () => Promise<string | undefined> {
  const batches = watch[Symbol.asyncIterator]();
  const read: string[] = [];
  return async () => {
    while (read.length === 0) {
      const { done, value } = await batches.next();
      if (done === true) return undefined;
      for (const { type, key, value: bytes } of value)
        read.push(`${type} ${key}${bytes.length > 0 ? `=${textOfBytes(bytes)}` : ''}`.trim());
    }
    return read.shift();
  };
}

/** Runs the timers of a pause once it has begun. */
async function passPause(source: Source): Promise<void> {
  while (source.clock.pending === 0) await new Promise((resolve) => setImmediate(resolve));
  source.clock.advance(60_000);
}

it('compares a list with the known keys in several turns of the event loop (regression: in one turn)', async () => {
  const source = new Source();
  for (let at = 0; at < 2000; at++) source.content.set(`p/${at}`, '1');
  const next = events(source.watch('p/'));
  for (let at = 0; at <= 2000; at++) await next(); // the keys, and list-done
  source.content.delete('p/0');
  let turns = 0;
  let counting: NodeJS.Immediate | undefined;
  const count = (): void => {
    turns++;
    counting = setImmediate(count);
  };
  source.whileListing = count;
  source.cut();
  const deletion = next();
  await passPause(source);
  expect(await deletion).toBe('delete p/0');
  clearImmediate(counting);
  expect(turns).toBeGreaterThan(5);
});

it('has the system clock if none is given (regression: without a clock, each watch waited forever)', async () => {
  class OneKey extends ReadOnlyBackend {
    protected override async list(): Promise<readonly SourceEntry[]> {
      return [{ key: 'p/a', value: bytesOfText('1') }];
    }

    protected override async *changes(_: string, signal: AbortSignal): AsyncGenerator<SourceChange[]> {
      await once(signal, 'abort');
      yield [];
    }
  }
  const backend = new OneKey({ kind: 'one' });
  const events: string[] = [];
  for await (const batch of backend.watch('p/')) {
    events.push(...batch.map(({ type, key }) => `${type} ${key}`));
    if (batch.some(({ type }) => type === 'list-done')) break;
  }
  expect(events).toEqual(['create p/a', 'list-done ']);
  await backend.close();
});

describe('a read-only backend', () => {
  it('watches only folders, as other backends (regression: a watch of cluster `a` also delivered `ab`)', () => {
    expect(() => new Source().watch('cilium/a')).toThrow('watch: prefix must end in "/", not cilium/a');
  });

  it('delivers only the key of a watch of an exact key, not others that begin with it', async () => {
    const source = new Source();
    source.content.set('a', 'x').set('ab', 'other').set('a/1', 'other');
    const next = events(source.watch('a', { exactKey: true }));
    expect([await next(), await next()]).toEqual(['create a=x', 'list-done']);
    source.set('ab', 'changed');
    source.remove('a/1');
    source.remove('a');
    expect(await next()).toBe('delete a');
  });

  it('ends a watch by the signal of the watch (regression: an option of a subclass with this name replaced it)', async () => {
    const options = { signal: AbortSignal.abort() };
    const next = events(new Source(new ManualClock(), options).watch('p/'));
    expect(await next()).toBe('list-done');
  });

  it('delivers the listed keys, then list-done, then each change once', async () => {
    const source = new Source();
    source.content.set('a/1', 'x').set('b/1', 'other prefix');
    const next = events(source.watch('a/'));
    expect([await next(), await next()]).toEqual(['create a/1=x', 'list-done']);
    source.set('a/1', 'x'); // no difference
    source.set('b/2', 'other prefix');
    source.set('a/1', 'y');
    source.set('a/2', 'z');
    source.remove('a/1');
    source.remove('a/unknown');
    source.set('a/3', '');
    expect([await next(), await next(), await next(), await next()]).toEqual([
      'modify a/1=y',
      'create a/2=z',
      'delete a/1',
      'create a/3',
    ]);
  });

  it('delivers a change that happens during the list once', async () => {
    const source = new Source();
    source.whileListing = () => source.set('a/1', 'x');
    const next = events(source.watch('a/'));
    expect([await next(), await next()]).toEqual(['create a/1=x', 'list-done']);
    source.set('a/2', 'y');
    expect(await next()).toBe('create a/2=y');
  });

  it('lists again after a failure, and delivers only the differences', async () => {
    const source = new Source();
    source.content.set('a/1', 'x').set('a/2', 'x').set('a/3', 'x');
    const watch = source.watch('a/');
    const next = events(watch);
    while ((await next()) !== 'list-done');
    const pending = next();
    source.failure = new Error('the source is down');
    source.cut(new Error('cut'));
    await passPause(source); // the list fails, too
    while (watch.status().failures < 2) await new Promise((resolve) => setImmediate(resolve));
    expect(source.status()).toMatchObject({
      connected: false,
      lastFailure: { message: 'the source is down' },
    });
    source.failure = undefined;
    source.content.set('a/1', 'y').delete('a/2');
    await passPause(source);
    expect([await pending, await next()]).toEqual(['modify a/1=y', 'delete a/2']);
    expect(watch.status()).toMatchObject({ state: 'listing', keys: 2, listings: 1, failures: 2 });
    source.set('a/4', 'z');
    expect(await next()).toBe('create a/4=z');
    expect(watch.status()).toMatchObject({ state: 'watching', keys: 3, listings: 2 });
    expect(source.status()).toMatchObject({ connected: true });
  });

  it('waits longer after each failure in a row, and briefly again after a success', async () => {
    const source = new Source();
    const next = events(source.watch('a/'));
    const delays: number[] = [];
    const pass = async (): Promise<void> => {
      while (source.clock.nextAt === undefined) await new Promise((resolve) => setImmediate(resolve));
      const delay = source.clock.nextAt - source.clock.now();
      delays.push(delay);
      source.clock.advance(delay);
    };
    source.failure = new Error('the source is down');
    const listed = next();
    await pass();
    await pass();
    source.failure = undefined;
    await pass();
    expect(await listed).toBe('list-done');
    source.set('a/1', 'x');
    expect(await next()).toBe('create a/1=x');
    void next();
    source.cut(new Error('cut'));
    await pass();
    expect(delays).toEqual([500, 1000, 2000, 500]);
  });

  it('opens changes again that end without an error', async () => {
    const source = new Source();
    const next = events(source.watch('a/'));
    expect(await next()).toBe('list-done');
    const pending = next();
    source.cut();
    source.content.set('a/1', 'x');
    await passPause(source);
    expect(await pending).toBe('create a/1=x');
    expect(source.opened).toEqual(['a/', 'a/']);
  });

  it('delivers large lists in batches of 256', async () => {
    const source = new Source();
    for (let i = 0; i < 600; i++) source.content.set(`a/${i}`, 'x');
    const sizes: number[] = [];
    for await (const batch of source.watch('a/')) {
      sizes.push(batch.length);
      if (batch[0]?.type === 'list-done') break;
    }
    expect(sizes).toEqual([256, 256, 88, 1]);
  });

  it('lets other work run between the batches of a list (regression: none during a whole list)', async () => {
    const source = new Source();
    for (let i = 0; i < 5000; i++) source.content.set(`a/${i}`, 'x');
    let turns = 0;
    const countTurn = (): void => {
      turns++;
      timer = setImmediate(countTurn);
    };
    let timer = setImmediate(countTurn);
    for await (const [event] of source.watch('a/')) if (event?.type === 'list-done') break;
    clearImmediate(timer);
    expect(turns).toBeGreaterThan(5);
  });

  it('delivers nothing of a list after its signal (regression: the rest of the list)', async () => {
    const source = new Source();
    for (let i = 0; i < 5000; i++) source.content.set(`a/${i}`, 'x');
    const stop = new AbortController();
    let batches = 0;
    for await (const _ of source.watch('a/', { signal: stop.signal })) {
      batches++;
      stop.abort();
    }
    expect(batches).toBe(1);
  });

  it('ends its watches when it is closed or their signal fires, and shows only open ones', async () => {
    const source = new Source();
    const stop = new AbortController();
    const first = events(source.watch('a/', { signal: stop.signal }));
    const second = events(source.watch('b/'));
    expect([await first(), await second()]).toEqual(['list-done', 'list-done']);
    const [endsFirst, endsSecond] = [first(), second()];
    stop.abort();
    expect(await endsFirst).toBeUndefined();
    expect(source.status().watches.map(({ prefix }) => prefix)).toEqual(['b/']);
    await source.close();
    expect(await endsSecond).toBeUndefined();
    await expect(source.get('a/1')).rejects.toMatchObject({ code: 'closed' });
  });

  it('shows no watch that was never read (regression: showed it until the end of the process)', async () => {
    const source = new Source();
    source.watch('a/');
    expect(source.status().watches).toEqual([]);
  });

  it('counts a failed list of a watch once (regression: twice)', async () => {
    const source = new Source();
    source.failure = new Error('broken');
    const watch = source.watch('a/');
    const reading = events(watch)();
    await vi.waitFor(() => expect(watch.status().failures).toBe(1), 60_000);
    expect(source.status().requests).toMatchObject({ internal: 1 });
    await source.close();
    await reading;
  });

  it('counts failures by their code (regression: all as internal)', async () => {
    const source = new Source();
    source.failure = new KvstoreError('forbidden', 'no right');
    await expect(source.get('a/1')).rejects.toMatchObject({ code: 'forbidden' });
    source.failure = new Error('broken');
    await expect(source.get('a/1')).rejects.toMatchObject({ code: 'internal' });
    expect(source.status().requests).toEqual({ forbidden: 1, internal: 1 });
  });

  it('ends the changes of an attempt whose list fails', async () => {
    const source = new Source();
    source.failure = new Error('broken');
    const watch = source.watch('a/');
    const reading = events(watch)();
    await vi.waitFor(() => expect(watch.status().failures).toBe(1), 60_000);
    expect(source.signals.map(({ aborted }) => aborted)).toEqual([true]);
    await source.close();
    await reading;
  });

  it('ends changes that wait until their reader continues, which a signal does not end', async () => {
    const source = new Source();
    source.whileListing = () => source.set('a/1', 'x');
    for await (const batch of source.watch('a/')) if (batch.some(({ type }) => type === 'list-done')) break;
    expect(source.ended).toBe(1);
    await source.close();
  });

  it('records no failure of a watch or list that is aborted (regression: an aborted list counted as failed)', async () => {
    const source = new Source();
    const stopWithin = (stop: () => unknown): void => {
      source.whileListing = () => {
        stop();
        throw new Error('the request was aborted');
      };
    };
    const [first, second] = [new AbortController(), new AbortController()];
    stopWithin(() => first.abort());
    const watch = source.watch('a/', { signal: first.signal });
    expect(await events(watch)()).toBeUndefined();
    expect(watch.status()).toMatchObject({ state: 'ended', failures: 0, lastFailure: undefined });
    stopWithin(() => second.abort());
    await expect(source.listPrefix('a/', { signal: second.signal })).rejects.toMatchObject({
      code: 'aborted',
    });
    stopWithin(() => source.close());
    await expect(source.get('a/1')).rejects.toMatchObject({ code: 'closed' });
    expect(source.status()).toMatchObject({ requests: {}, lastFailure: undefined });
  });

  it('returns single keys and sorted lists', async () => {
    const source = new Source();
    source.content.set('a/2', 'y').set('a/1', 'x').set('a/10', 'z');
    expect((await source.listPrefix('a/')).map(({ key }) => key)).toEqual(['a/1', 'a/10', 'a/2']);
    expect(await source.get('a/1')).toMatchObject({ key: 'a/1', value: bytesOfText('x') });
    expect((await source.read('a/3')).kv).toBeUndefined();
  });

  it('keeps the revisions of a key while reads return the same value', async () => {
    const source = new Source();
    const read = async (): Promise<readonly (number | undefined)[]> => {
      const kv = await source.get('a/1');
      return [kv?.createRevision, kv?.modRevision];
    };
    source.content.set('a/1', 'x');
    const [created, modified] = await read();
    expect(await read()).toEqual([created, modified]);
    source.content.set('a/1', 'y');
    const changed = await read();
    expect(changed[0]).toBe(created);
    expect(changed[1]).toBeGreaterThan(modified ?? 0);
    source.content.delete('a/1');
    expect(await read()).toEqual([undefined, undefined]);
    source.content.set('a/1', 'y');
    expect((await read())[0]).toBeGreaterThan(changed[1] ?? 0);
  });

  it('keeps the revisions of the last 1024 read keys', async () => {
    const source = new Source();
    for (let at = 0; at <= 1024; at++) source.content.set(`a/${at}`, 'x');
    const revisionOf = async (key: string): Promise<number | undefined> =>
      (await source.get(key))?.modRevision;
    const [first, second] = [await revisionOf('a/0'), await revisionOf('a/1')];
    for (let at = 2; at <= 1024; at++) await revisionOf(`a/${at}`);
    expect(await revisionOf('a/1')).toBe(second);
    expect(await revisionOf('a/0')).toBeGreaterThan(first ?? 0);
  });

  it('rejects writes and locks as forbidden', async () => {
    const source = new Source();
    const writes: readonly Promise<unknown>[] = [
      ...[source.update(), source.updateIfDifferent(), source.createOnly()],
      ...[source.delete(), source.deletePrefix(), source.lock()],
    ];
    for (const write of writes)
      await expect(write).rejects.toMatchObject({
        code: 'forbidden',
        message: 'the memory backend is read-only: write to its source directly',
      });
  });
});
