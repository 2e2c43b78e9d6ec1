import { describe, expect, it } from 'vitest';
import { ListenerSet } from '../../src/base/listener-set.ts';

type Listener = () => void;

function listenerSet(): { set: ListenerSet<Listener>; faults: unknown[]; tell: () => void } {
  const faults: unknown[] = [];
  const set = new ListenerSet<Listener>((error) => faults.push(error));
  return { set, faults, tell: () => set.notify((listener) => listener()) };
}

describe('a listener set', () => {
  it('calls its listeners in order of subscription', () => {
    const { set, tell } = listenerSet();
    const calls: string[] = [];
    for (const name of ['a', 'b', 'c']) set.add(() => calls.push(name));
    tell();
    expect(calls).toEqual(['a', 'b', 'c']);
  });

  it('I7 isolation: a listener that throws harms neither the others nor the caller, and is reported', () => {
    const { set, faults, tell } = listenerSet();
    const calls: string[] = [];
    const error = new Error('broken');
    set.add(() => calls.push('before'));
    set.add(() => {
      throw error;
    });
    set.add(() => calls.push('after'));
    tell();
    tell();
    expect(calls).toEqual(['before', 'after', 'before', 'after']);
    expect(faults).toEqual([error, error]);
  });

  it('I7 isolation: a report that throws as well stops nobody', () => {
    const calls: string[] = [];
    const set = new ListenerSet<Listener>(() => {
      throw new Error('the log is broken too');
    });
    set.add(() => {
      throw new Error('broken');
    });
    set.add(() => calls.push('after'));
    set.notify((listener) => listener());
    expect(calls).toEqual(['after']);
  });

  it('does not call a listener in the round in which it was added', () => {
    const { set, tell } = listenerSet();
    const calls: string[] = [];
    let added = false;
    set.add(() => {
      calls.push('first');
      if (!added) set.add(() => calls.push('late'));
      added = true;
    });
    tell();
    expect(calls).toEqual(['first']);
    tell();
    expect(calls).toEqual(['first', 'first', 'late']);
  });

  it('does not call a listener any more once it is removed, not even in the same round', () => {
    const { set, tell } = listenerSet();
    const calls: string[] = [];
    set.add(() => off());
    const off = set.add(() => calls.push('removed'));
    set.add(() => calls.push('last'));
    tell();
    expect(calls).toEqual(['last']);
    expect(set.size).toBe(2);
  });

  it('lets a listener remove itself while it is being called', () => {
    const { set, tell } = listenerSet();
    const calls: string[] = [];
    const off = set.add(() => {
      calls.push('once');
      off();
    });
    set.add(() => calls.push('always'));
    tell();
    tell();
    expect(calls).toEqual(['once', 'always', 'always']);
  });

  it('keeps the listeners of a moment for a later delivery, without those that left meanwhile', () => {
    const { set } = listenerSet();
    const calls: string[] = [];
    const off = set.add(() => calls.push('left'));
    set.add(() => calls.push('stayed'));
    const then = set.current;
    off();
    set.add(() => calls.push('came'));
    set.notify((listener) => listener(), then);
    expect(calls).toEqual(['stayed']);
  });

  it('has to forget an object as often as it was added', () => {
    const { set, tell } = listenerSet();
    let calls = 0;
    const listener = (): void => {
      calls++;
    };
    const first = set.add(listener);
    const second = set.add(listener);
    first();
    first();
    tell();
    expect(calls).toBe(1);
    second();
    tell();
    expect(calls).toBe(1);
  });

  it('ends a subscription with the block that holds it', () => {
    const { set } = listenerSet();
    {
      using _subscription = set.add(() => {});
      expect(set.size).toBe(1);
    }
    expect(set.size).toBe(0);
  });
});
