import { describe, expect, it } from 'vitest';
import { DeliveryQueue } from '../../src/base/delivery-queue.ts';
import { CallbackGuard } from '../../src/base/guard.ts';
import { ListenerSet } from '../../src/base/listener-set.ts';
import type { Unsubscribe } from '../../src/base/subscription.ts';

type Listener = (what: string) => unknown;

/** A log of words that replays earlier words, like an engine. */
class Log {
  readonly faults: unknown[] = [];
  readonly guard = new CallbackGuard((error) => this.faults.push(error));
  readonly #queue = new DeliveryQueue(this.guard);
  readonly listeners = new ListenerSet<Listener>(this.#queue);
  /** Number of replayed words that were read, which shows that a replay is lazy. */
  read = 0;
  #words: readonly string[] = [];

  write(...words: string[]): void {
    this.#queue.deliverAfter(() => {
      for (const word of words) {
        this.listeners.beforeChange();
        this.#words = [...this.#words, word];
        this.listeners.notify((listener, what) => listener(what), word);
      }
    });
  }

  /** Live words only. */
  follow(listener: Listener): Unsubscribe {
    return this.listeners.subscribe(listener);
  }

  /** Receives the earlier words, `.`, then live words; `ended` if the replay fails. */
  subscribe(listener: Listener): Unsubscribe {
    return this.listeners.subscribe(listener, {
      steps: () => this.#replay(),
      ended: (one) => one('ended'),
    });
  }

  *#replay(): Generator<(listener: Listener) => unknown, undefined, void> {
    for (let i = 0; i < this.#words.length; i++) {
      const word = this.#words[i] ?? '';
      this.read++;
      yield (listener) => listener(word);
    }
    yield (listener) => listener('.');
  }
}

describe('a listener set', () => {
  it('calls its listeners in order of subscription', () => {
    const log = new Log();
    const calls: string[] = [];
    for (const name of ['a', 'b', 'c']) log.follow((what) => calls.push(`${name}:${what}`));
    log.write('x', 'y');
    expect(calls).toEqual(['a:x', 'b:x', 'c:x', 'a:y', 'b:y', 'c:y']);
  });

  it('I7 isolation: a listener that throws affects neither the others nor the caller, and is reported', () => {
    const log = new Log();
    const calls: string[] = [];
    const error = new Error('broken');
    log.follow(() => calls.push('before'));
    log.follow(() => {
      throw error;
    });
    log.follow(() => calls.push('after'));
    log.write('x', 'y');
    expect(calls).toEqual(['before', 'after', 'before', 'after']);
    expect(log.faults).toEqual([error, error]);
  });

  it('does not call a listener in the round in which it was added', () => {
    const log = new Log();
    const calls: string[] = [];
    let added = false;
    log.follow((what) => {
      calls.push(`first:${what}`);
      if (!added) log.follow((late) => calls.push(`late:${late}`));
      added = true;
    });
    log.write('x');
    log.write('y');
    expect(calls).toEqual(['first:x', 'first:y', 'late:y']);
  });

  it('does not call a removed listener, not even in the same round', () => {
    const log = new Log();
    const calls: string[] = [];
    log.follow(() => off());
    const off = log.follow(() => calls.push('removed'));
    log.follow(() => calls.push('last'));
    log.write('x');
    expect(calls).toEqual(['last']);
    expect(log.listeners.size).toBe(2);
  });

  it('lets a listener remove itself while it is being called', () => {
    const log = new Log();
    const calls: string[] = [];
    const off = log.follow(() => {
      calls.push('once');
      off();
    });
    log.follow(() => calls.push('always'));
    log.write('x', 'y');
    expect(calls).toEqual(['once', 'always', 'always']);
  });

  it('has a subscription for each time that an object was added', () => {
    const log = new Log();
    let calls = 0;
    const listener = (): void => {
      calls++;
    };
    const first = log.follow(listener);
    const second = log.follow(listener);
    first();
    first();
    log.write('x');
    expect(calls).toBe(1);
    second();
    log.write('y');
    expect(calls).toBe(1);
  });

  it('ends a subscription with the block that owns it', () => {
    const log = new Log();
    {
      using _subscription = log.follow(() => {});
      expect(log.listeners.size).toBe(1);
    }
    expect(log.listeners.size).toBe(0);
  });
});

describe('notifications caused by a callback', () => {
  it('are delivered after the current one, to all listeners in the same order', () => {
    const log = new Log();
    const calls: string[] = [];
    log.follow((what) => {
      if (what === 'x') log.write('caused');
    });
    log.follow((what) => calls.push(what));
    log.write('x', 'y');
    expect(calls).toEqual(['x', 'y', 'caused']);
  });

  it('do not reach listeners that joined after them or left before their delivery', () => {
    const log = new Log();
    const calls: string[] = [];
    const off = log.follow(() => calls.push('left'));
    log.follow((what) => {
      if (what !== 'x') return;
      log.write('caused');
      off();
      log.follow((late) => calls.push(`late:${late}`));
      log.write('heard');
    });
    log.write('x');
    expect(calls).toEqual(['left', 'late:heard']);
  });
});

describe('a replay', () => {
  it('is delivered first and complete; what its listener writes meanwhile follows', () => {
    const log = new Log();
    log.write('a', 'b');
    const calls: string[] = [];
    log.subscribe((what) => {
      calls.push(what);
      if (what === 'a') log.write('live');
    });
    expect(calls).toEqual(['a', 'b', '.', 'live']);
  });

  it('requested by a callback contains the state at its turn', () => {
    const log = new Log();
    log.write('a');
    const calls: string[] = [];
    log.follow((what) => {
      if (what !== 'x') return;
      log.write('before');
      log.subscribe((late) => calls.push(late));
      expect(calls).toEqual([]);
      log.write('between');
    });
    log.write('x');
    log.write('after');
    expect(calls).toEqual(['a', 'x', 'before', 'between', '.', 'after']);
  });

  it('is not delivered if its subscription ended before its turn, and stops when it ends', () => {
    const log = new Log();
    log.write('a', 'b');
    const calls: string[] = [];
    log.follow(() => log.subscribe(() => calls.push('never'))());
    log.follow((what) => {
      if (what !== 'x') return;
      const off = log.subscribe((late) => {
        calls.push(late);
        off();
      });
    });
    log.write('x');
    expect(calls).toEqual(['a']);
    expect(log.listeners.size).toBe(2);
  });

  it('that fails ends the subscription and notifies its listener (regression: it missed the rest)', () => {
    const log = new Log();
    log.write('a', 'b', 'c');
    const calls: string[] = [];
    const error = new Error('broken');
    log.subscribe((what) => {
      calls.push(what);
      if (what === 'b') throw error;
    });
    log.write('live');
    expect(calls).toEqual(['a', 'b', 'ended']);
    expect(log.faults).toEqual([error]);
    expect(log.listeners.size).toBe(0);
  });

  it('is read step by step while nothing changes, and completed before a change', () => {
    const log = new Log();
    log.write('a', 'b', 'c');
    const read: number[] = [];
    log.subscribe(() => read.push(log.read));
    expect(read).toEqual([1, 2, 3, 3]);
    log.read = 0;
    const readAtOnce: number[] = [];
    log.subscribe((what) => {
      if (what === 'a') log.write('d');
      readAtOnce.push(log.read);
    });
    expect(readAtOnce).toEqual([3, 3, 3, 3, 3]);
  });
});
