import type { Watch, WatchEvent, WatchStatus } from '../../../../src/kvstore/session/backend.ts';
import type { Past } from './past.ts';
import { type Difference, SequenceChecker } from './sequence-checker.ts';

/** Reads a watch, and checks its events when their history is known. */
export class CheckedWatch {
  readonly name: string;
  readonly done: Promise<void>;
  readonly #watch: Watch;
  readonly #checker: SequenceChecker;
  #unchecked: WatchEvent[] = [];
  #gate: Promise<void> | undefined;

  constructor(name: string, watch: Watch, pasts: readonly Past[]) {
    this.name = name;
    this.#watch = watch;
    this.#checker = new SequenceChecker(pasts);
    this.done = this.#read();
  }

  get events(): number {
    return this.#checker.events;
  }

  get repeats(): number {
    return this.#checker.repeats;
  }

  status(): WatchStatus {
    return this.#watch.status();
  }

  /** Returns true if all events up to this revision have been received. */
  isPast(revision: number): boolean {
    const { state, nextRevision, queuedBytes } = this.#watch.status();
    return state === 'watching' && nextRevision > revision && queuedBytes === 0 && this.#gate === undefined;
  }

  /** Stops reading until the returned function is called. */
  hold(): () => void {
    let release: () => void = () => {};
    this.#gate = new Promise((resolve) => {
      release = () => {
        this.#gate = undefined;
        resolve();
      };
    });
    return release;
  }

  /** Checks the events since the last call, as far as the history is known. Returns the errors. */
  check(known: number): readonly string[] {
    const first = this.#unchecked.findIndex(({ modRevision }) => modRevision > known);
    const checkable = this.#unchecked.splice(0, first < 0 ? this.#unchecked.length : first);
    for (const event of checkable) this.#checker.check(event);
    return this.#checker.breaches.splice(0);
  }

  /** Returns the difference between the folded events and the store. Must be called after `check`. */
  difference(): Difference {
    return this.#checker.difference();
  }

  async #read(): Promise<void> {
    for await (const batch of this.#watch) {
      for (const event of batch) this.#unchecked.push(event);
      await this.#gate;
    }
  }
}
