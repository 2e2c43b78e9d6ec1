import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import type { WatchEvent } from '../../../src/kvstore/session/backend.ts';
import { Past } from './support/past.ts';
import { SequenceChecker } from './support/sequence-checker.ts';

const KEYS = ['a', 'b', 'c', 'd', 'e'];

/** For each revision: the key, and if it is put or deleted. */
const script = fc.array(fc.tuple(fc.constantFrom(...KEYS), fc.boolean()), { minLength: 4, maxLength: 40 });

type Script = readonly (readonly [string, boolean])[];

/** Adds writes to a past, without deletes of absent keys. Values are unique. */
function goOn(past: Past, writes: Script, era: string): void {
  for (const [key, put] of writes) {
    const revision = past.revision + 1;
    if (put) past.add(key, { revision, value: `${era}${revision}` });
    else if (past.at(key, revision)?.value !== undefined) past.add(key, { revision, value: undefined });
    else past.reached(revision);
  }
}

function event(
  type: WatchEvent['type'],
  key: string,
  value: string | undefined,
  modRevision: number,
): WatchEvent {
  return { type, key, value: bytesOfText(value ?? ''), modRevision };
}

/** Returns the events of a watch that follows a past from one revision to another. `held`: its keys. */
function follow(past: Past, held: Set<string>, from: number, to: number): WatchEvent[] {
  const events: WatchEvent[] = [];
  for (let revision = from; revision <= to; revision++) {
    for (const key of KEYS) {
      const write = past.at(key, revision);
      if (write?.revision !== revision) continue;
      if (write.value === undefined && !held.delete(key)) continue;
      events.push(event(kind(write.value, held.has(key)), key, write.value, revision));
      if (write.value !== undefined) held.add(key);
    }
  }
  return events;
}

function kind(value: string | undefined, held: boolean): WatchEvent['type'] {
  if (value === undefined) return 'delete';
  return held ? 'modify' : 'create';
}

/**
 * Returns the events of a watch that lists a past at a revision: existing keys, and deletes of the others.
 */
function list(past: Past, held: Set<string>, revision: number): WatchEvent[] {
  const events: WatchEvent[] = [];
  for (const key of KEYS) {
    const write = past.at(key, revision);
    if (write?.value === undefined) continue;
    events.push(event(held.has(key) ? 'modify' : 'create', key, write.value, write.revision));
  }
  const shown = new Set(events.map(({ key }) => key));
  for (const key of held) if (!shown.has(key)) events.push(event('delete', key, undefined, revision));
  held.clear();
  for (const key of shown) held.add(key);
  return events;
}

function judge(pasts: readonly Past[], events: readonly WatchEvent[]): SequenceChecker {
  const checker = new SequenceChecker(pasts);
  for (const each of events) checker.check(each);
  return checker;
}

const isClean = (checker: SequenceChecker): boolean =>
  checker.breaches.length + checker.difference().lost.length + checker.difference().phantom.length === 0;

/** A past, and a watch that lists, follows, lists again and follows to the end. */
const oneLife = fc.record({ writes: script, first: fc.nat(40), again: fc.nat(40) }).map((life) => {
  const past = new Past();
  goOn(past, life.writes, 'v');
  const first = life.first % past.revision;
  const again = Math.max(first, life.again % past.revision);
  const held = new Set<string>();
  const events = [
    ...list(past, held, first),
    ...follow(past, held, first + 1, again),
    ...list(past, held, again),
    ...follow(past, held, again + 1, past.revision),
  ];
  return { past, events };
});

describe('the checker of sequences', () => {
  it('accepts a watch that lists, follows, and lists again', () => {
    fc.assert(fc.property(oneLife, ({ past, events }) => isClean(judge([past], events))));
  });

  it('accepts a watch that switches to another history', () => {
    const restored = fc.record({ writes: script, more: script, backup: fc.nat(40), seen: fc.nat(40) });
    fc.assert(
      fc.property(restored, ({ writes, more, backup, seen }) => {
        const first = new Past();
        goOn(first, writes, 'v');
        const second = first.upTo(1 + (backup % first.revision));
        goOn(second, more, 'w');
        const held = new Set<string>();
        const events = follow(first, held, 1, seen % (first.revision + 1));
        const listing = second.fork + (seen % (second.revision - second.fork + 1));
        events.push(...list(second, held, listing), ...follow(second, held, listing + 1, second.revision));
        return isClean(judge([first, second], events));
      }),
    );
  });

  it('allows skipped versions if the last one is delivered', () => {
    const past = new Past();
    goOn(
      past,
      [
        ['a', true],
        ['a', true],
        ['a', false],
        ['a', true],
      ],
      'v',
    );
    const events = [event('create', 'a', 'v1', 1), event('modify', 'a', 'v4', 4)];
    expect(isClean(judge([past], events))).toBe(true);
  });
});

type Life = typeof oneLife extends fc.Arbitrary<infer T> ? T : never;
type Mutant = (life: Life, at: number) => readonly WatchEvent[] | undefined;

const spliced = (events: readonly WatchEvent[], at: number, remove: number, ...add: WatchEvent[]) =>
  events.toSpliced(at, remove, ...add);

/** Each makes one error, or returns undefined where its change would be legal. */
const MUTANTS: Readonly<Record<string, Mutant>> = {
  'drops the last event of a key': ({ events }, at) => {
    const dropped = events[at];
    if (dropped === undefined || events.findLastIndex(({ key }) => key === dropped.key) !== at)
      return undefined;
    return dropped.type === 'modify' && isRepeat(events, at) ? undefined : spliced(events, at, 1);
  },
  'repeats an old put': ({ events }, at) => {
    const old = events[at];
    const since = events
      .slice(at + 1)
      .some(({ key, modRevision }) => key === old?.key && modRevision > old.modRevision);
    return old === undefined || old.type === 'delete' || !since
      ? undefined
      : [...events, { ...old, type: 'modify' }];
  },
  'changes a value': ({ events }, at) => {
    const changed = events[at];
    if (changed === undefined || changed.type === 'delete') return undefined;
    return spliced(events, at, 1, { ...changed, value: bytesOfText('never written') });
  },
  'tells a put at another revision': ({ events }, at) => {
    const moved = events[at];
    if (moved === undefined || moved.type === 'delete') return undefined;
    return spliced(events, at, 1, { ...moved, modRevision: moved.modRevision + 1 });
  },
  'invents a delete': ({ past, events }, at) => {
    const { key } = events[at] ?? { key: '' };
    const held = past.at(key, past.revision);
    return held?.value === undefined
      ? undefined
      : [...events, event('delete', key, undefined, past.revision)];
  },
  'calls a modification a creation': ({ events }, at) => {
    const { type } = events[at] ?? {};
    const changed = events[at];
    if (changed === undefined || type !== 'modify') return undefined;
    return spliced(events, at, 1, { ...changed, type: 'create' });
  },
  'tells a delete twice': ({ events }, at) => {
    const twice = events[at];
    return twice?.type === 'delete' ? spliced(events, at, 0, twice) : undefined;
  },
};

/** Returns true if the event repeats the previous event of its key. */
function isRepeat(events: readonly WatchEvent[], at: number): boolean {
  const { key, modRevision } = events[at] ?? {};
  const before = events.slice(0, at).findLast((each) => each.key === key);
  return before?.modRevision === modRevision;
}

describe('the test of the checker', () => {
  it.each(Object.entries(MUTANTS))('it catches, every time, a watch that %s', (_what, mutate) => {
    let wrong = 0;
    fc.assert(
      fc.property(oneLife, fc.nat(60), (life, at) => {
        const events = mutate(life, at % (life.events.length + 1));
        if (events === undefined) return true;
        wrong++;
        return !isClean(judge([life.past], events));
      }),
    );
    expect(wrong).toBeGreaterThan(15);
  });

  it('it detects a watch that returns to the history that was left', () => {
    const first = new Past();
    goOn(
      first,
      [
        ['a', true],
        ['a', true],
      ],
      'v',
    );
    const second = first.upTo(1);
    goOn(
      second,
      [
        ['b', true],
        ['a', true],
      ],
      'w',
    );
    const events = [
      event('create', 'a', 'v1', 1),
      event('create', 'b', 'w2', 2),
      event('modify', 'a', 'v2', 2),
    ];
    expect(judge([first, second], events).breaches).toEqual([
      'a: nothing that could be told now (2: v2; before 1: v1)',
    ]);
  });

  it('it detects a watch that delivers overwritten values from before the backup after a restore', () => {
    const first = new Past();
    goOn(
      first,
      [
        ['a', true],
        ['a', true],
        ['a', true],
      ],
      'v',
    );
    const second = first.upTo(2);
    const events = [event('create', 'a', 'v3', 3), event('modify', 'a', 'v1', 1)];
    expect(judge([first, second], events).breaches).toHaveLength(1);
  });
});
