import fc from 'fast-check';
import { describe, it } from 'vitest';
import type { Unsubscribe } from '../../src/base/subscription.ts';
import { type Change, KEYS, type Probe, SUBJECTS, type Subject } from './support/subjects.ts';

/** A call on an engine, by the test or by a callback. */
type Action =
  | { readonly do: 'put'; readonly key: string; readonly value: number }
  | { readonly do: 'remove'; readonly key: string }
  | { readonly do: 'batch'; readonly actions: readonly Action[] }
  | { readonly do: 'subscribe' }
  | { readonly do: 'unsubscribe'; readonly which: number }
  | { readonly do: 'throw' }
  | { readonly do: 'nothing' };

const key = fc.constantFrom(...KEYS);
const put = fc.record({ do: fc.constant('put' as const), key, value: fc.integer({ min: 1, max: 3 }) });
const remove = fc.record({ do: fc.constant('remove' as const), key });
const write: fc.Arbitrary<Action> = fc.oneof({ weight: 3, arbitrary: put }, remove);
const action: fc.Arbitrary<Action> = fc.oneof(
  { weight: 5, arbitrary: write },
  fc.record({ do: fc.constant('batch' as const), actions: fc.array(write, { maxLength: 4 }) }),
  { weight: 2, arbitrary: fc.constant({ do: 'subscribe' as const }) },
  fc.record({ do: fc.constant('unsubscribe' as const), which: fc.nat() }),
);
/** Actions of callbacks. Most do nothing, so that chains end. */
const reaction: fc.Arbitrary<Action> = fc.oneof(
  { weight: 4, arbitrary: fc.constant({ do: 'nothing' as const }) },
  { weight: 4, arbitrary: action },
  fc.constant({ do: 'throw' as const }),
);

class Fault extends Error {}

/** Folds its events, and records each violation of the contract of listeners (SEMANTICS 9). */
class Witness implements Probe {
  readonly folded = new Map<string, number>();
  /** Events after the replay. */
  readonly live: string[] = [];
  readonly #world: World;
  off: Unsubscribe | undefined;
  state: 'replaying' | 'live' | 'ended' | 'left' = 'replaying';

  constructor(world: World) {
    this.#world = world;
  }

  changes(changes: readonly Change[]): void {
    const inReplay = this.state === 'replaying' && this.#world.subject.hasReplayEnd;
    if (changes.length === 0) this.#world.complain('called with no change');
    if (new Set(changes.map((change) => change.key)).size < changes.length)
      this.#world.complain('a key twice in one call');
    for (const { key: changed, old, next } of changes) {
      if (old !== this.folded.get(changed)) this.#world.complain(`old of ${changed} was never delivered`);
      if (old === next) this.#world.complain(`a change of ${changed} that changes nothing`);
      if (inReplay && old !== undefined) this.#world.complain(`${changed} changes within the replay`);
      if (next === undefined) this.folded.delete(changed);
      else this.folded.set(changed, next);
      if (!inReplay) this.live.push(`${changed}=${next}`);
    }
    this.#called();
  }

  synced(): void {
    if (this.state === 'live') this.#world.complain('synced twice');
    // An exception in this call is one in the replay, too.
    this.#called(() => {
      if (this.state === 'replaying') this.state = 'live';
    });
  }

  ended(): void {
    if (this.state !== 'replaying') this.#world.complain('ended after the replay');
    this.state = 'ended';
  }

  #called(afterwards = (): void => {}): void {
    if (this.state === 'ended' || this.state === 'left') this.#world.complain(`called when ${this.state}`);
    this.#world.react();
    afterwards();
  }
}

/** An engine, its model, and its listeners. */
class World {
  readonly subject: Subject;
  readonly complaints: string[] = [];
  readonly #model = new Map<string, number>();
  readonly #witnesses: Witness[] = [];
  readonly #reactions: Action[];
  #inCallback = false;

  constructor(subject: Subject, reactions: readonly Action[]) {
    this.subject = subject;
    this.#reactions = [...reactions];
  }

  complain(what: string): void {
    this.complaints.push(what);
  }

  act(act: Action): void {
    switch (act.do) {
      case 'put':
        this.#model.set(act.key, act.value); // first, because callbacks read it
        this.subject.put(act.key, act.value);
        break;
      case 'remove':
        this.#model.delete(act.key);
        this.subject.remove(act.key);
        break;
      case 'batch':
        this.subject.batch(() => {
          for (const each of act.actions) this.act(each);
        });
        break;
      case 'subscribe':
        this.#join();
        break;
      case 'unsubscribe':
        this.#leave(act.which);
        break;
      case 'throw':
        if (this.subject.hasReplayEnd) throw new Fault();
    }
    for (const each of KEYS) {
      if (this.subject.get(each) !== this.#model.get(each)) this.complain(`reads do not show ${each}`);
    }
  }

  /** Runs the next action of a callback. */
  react(): void {
    if (this.#inCallback) this.complain('a callback within a callback');
    this.#inCallback = true;
    try {
      this.act(this.#reactions.shift() ?? { do: 'nothing' });
    } finally {
      this.#inCallback = false;
    }
  }

  /** At rest, every listener has exactly the content, and received it in the same order as the others. */
  settle(): void {
    const listening = this.#witnesses.filter(({ state }) => state !== 'ended' && state !== 'left');
    const longest = listening[0]?.live ?? [];
    for (const { state, folded, live } of listening) {
      if (this.subject.hasReplayEnd && live.join() !== longest.slice(longest.length - live.length).join())
        this.complain(`order: ${live}, but another listener got ${longest}`);
      if (state === 'replaying' && this.subject.hasReplayEnd) this.complain('never synced');
      for (const each of KEYS) {
        if (folded.get(each) !== this.#model.get(each))
          this.complain(`I1: fold of ${each}: ${folded.get(each)}, not ${this.#model.get(each)}`);
      }
    }
    if (this.complaints.length > 0) throw new Error(this.complaints.join('\n'));
  }

  #join(): void {
    const witness = new Witness(this);
    this.#witnesses.push(witness);
    witness.off = this.subject.subscribe(witness);
  }

  #leave(which: number): void {
    const witness = this.#witnesses[which % Math.max(1, this.#witnesses.length)];
    if (witness?.off === undefined) return;
    witness.off();
    if (witness.state !== 'ended') witness.state = 'left';
  }
}

describe.each(SUBJECTS.map((make) => ({ name: make().name, make })))('$name', ({ make }) => {
  it('I1 one rule of re-entrancy: callbacks may read, write, subscribe, unsubscribe and throw anywhere', () => {
    fc.assert(
      fc.property(
        fc.array(action, { maxLength: 12 }),
        fc.array(reaction, { maxLength: 30, size: 'max' }),
        (actions, reactions) => {
          const world = new World(make(), reactions);
          world.act({ do: 'subscribe' });
          for (const each of actions) {
            world.act(each);
            world.settle();
          }
        },
      ),
    );
  });
});
