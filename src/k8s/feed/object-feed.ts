import type { RejectionLog } from '../../base/rejection.ts';
import type { TurnGate } from '../../base/turn-gate.ts';
import { AgingTable } from '../aging-table.ts';
import type { ObjectName } from '../object-table.ts';
import { type ObjectFields, parseObject } from '../parse-object.ts';
import type { KubernetesObject, ResourceEvent, ResourceSink } from '../resource.ts';

/** Objects that a step of a sweep or withdrawal takes away: about a ms. */
const OBJECTS_PER_STEP = 256;

/** What the objects of one kind say, and where that goes. */
export interface ObjectReader<T> {
  /** As rejections name it: `CiliumEndpoint`. */
  readonly kind: string;
  /** The fields that {@link ObjectReader.read} looks at, as of `FollowOptions`. Default: all. */
  readonly fields?: readonly string[];
  /** What an object says; `undefined`: nothing. */
  read(fields: ObjectFields): T | undefined;
  /** Whether an object says the same again: then what it said is kept, and nothing changes. Default: it never does. */
  same?(now: T, before: T): boolean;
  /** An object says something else; or, `undefined`, nothing any more. One of the two is there. */
  change(now: T | undefined, before: T | undefined): void;
  /** Runs changes as one batch of an engine. Default: one after the other. */
  batch?(changes: () => void): void;
  /** A list begins: what is put until {@link ObjectReader.listed} comes in no order. */
  begin?(): void;
  /** The first list is complete, and what it lacked is gone. */
  listed?(): void;
}

/** What {@link ObjectFeed} takes from its surroundings. */
export interface ObjectFeedOptions {
  readonly rejections: RejectionLog;
  /** Shares large sweeps out over turns of the event loop. Default: all at once. */
  readonly gate?: TurnGate | undefined;
}

/** An {@link ObjectFeed}, whatever its objects say. */
export interface AnyFeed {
  readonly size: number;
  readonly rejected: number;
  readonly complete: boolean;
  /** `undefined`: all. */
  readonly fields: readonly string[] | undefined;
  begin(onComplete?: () => void): ResourceSink;
  withdrawSteps(): Iterable<unknown>;
}

/**
 * Follows the objects of one kind, whoever hands them over: keeps **what each object said** and changes only what differs
 * from that (K 10), not from what a reflector held before. So a reflector may be ended and another one begun
 * ({@link ObjectFeed.begin}): what was known stays, and what the new list lacks goes when that list is complete. An object
 * that cannot be used says nothing, also if it did before: a restart would show the same (I9). Its rejection is counted,
 * and the others go on (I12).
 */
export class ObjectFeed<T> implements AnyFeed {
  readonly #reader: ObjectReader<T>;
  readonly #options: ObjectFeedOptions;
  /** What objects said; old is what the present run has not seen. */
  readonly #said = new AgingTable<T>();
  #run = 0;
  #complete = false;
  #rejected = 0;

  constructor(reader: ObjectReader<T>, options: ObjectFeedOptions) {
    this.#reader = reader;
    this.#options = options;
  }

  get fields(): readonly string[] | undefined {
    return this.#reader.fields;
  }

  /** Objects that say something. */
  get size(): number {
    return this.#said.size;
  }

  /** Fields and objects that were rejected. */
  get rejected(): number {
    return this.#rejected;
  }

  /** What the object of that name says. */
  said(namespace: string, name: string): T | undefined {
    return this.#said.get({ namespace, name });
  }

  /** Whether the first list of the present run is complete, and applied. */
  get complete(): boolean {
    return this.#complete;
  }

  /**
   * Where the next reflector hands its objects to. Earlier ones are not listened to any more. `onComplete` is called when
   * its first list has been applied, and what that lacked is gone.
   */
  begin(onComplete?: () => void): ResourceSink {
    const run = this.#end();
    this.#reader.begin?.();
    return {
      apply: (events) => {
        if (run !== this.#run) return;
        this.#batch(() => {
          for (const event of events) this.#apply(event);
        });
      },
      onListed: () => {
        if (run === this.#run) this.#sweep(run, onComplete);
      },
    };
  }

  /**
   * Takes back all that objects said, in steps, each a batch. The reflector is not listened to any more. Ended early by
   * {@link ObjectFeed.begin}, it leaves the rest, which goes when the list of that is complete.
   */
  withdrawSteps(): Generator<undefined, void, void> {
    return this.#removeSteps(this.#end());
  }

  #end(): number {
    this.#complete = false;
    this.#said.age();
    return ++this.#run;
  }

  #batch(changes: () => void): void {
    if (this.#reader.batch === undefined) changes();
    else this.#reader.batch(changes);
  }

  #apply({ type, object }: ResourceEvent): void {
    const { metadata } = object;
    const before = this.#said.get(metadata);
    const said = type === 'put' ? this.#read(object) : undefined;
    if (said === undefined) this.#remove(metadata, before);
    else if (before !== undefined && this.#reader.same?.(said, before) === true)
      this.#said.set(metadata, before);
    else {
      this.#said.set(metadata, said);
      this.#reader.change(said, before);
    }
  }

  #read(object: KubernetesObject): T | undefined {
    const { value, rejections } = parseObject(this.#reader.kind, object, {}, (fields) =>
      this.#reader.read(fields),
    );
    for (const rejected of rejections) this.#options.rejections.add(rejected);
    this.#rejected += rejections.length;
    return value;
  }

  #remove(name: ObjectName, said: T | undefined): void {
    if (said === undefined) return;
    this.#said.delete(name);
    this.#reader.change(undefined, said);
  }

  #sweep(run: number, onComplete: (() => void) | undefined): void {
    const steps = this.#sweepSteps(run, onComplete);
    if (this.#options.gate === undefined) for (const _ of steps);
    else void this.#options.gate.runSteps(steps);
  }

  *#sweepSteps(run: number, onComplete: (() => void) | undefined): Generator<undefined, void, void> {
    yield* this.#removeSteps(run);
    if (run !== this.#run) return;
    this.#complete = true;
    this.#reader.listed?.();
    onComplete?.();
  }

  /** Removes what this run has not seen, while it lasts. */
  *#removeSteps(run: number): Generator<undefined, void, void> {
    const objects = this.#said.old();
    for (let done = false; !done; ) {
      if (run !== this.#run) return;
      this.#batch(() => {
        for (let count = 0; count < OBJECTS_PER_STEP && !done; count++) {
          const next = objects.next();
          done = next.done === true;
          if (next.done !== true) this.#remove(...next.value);
        }
      });
      yield;
    }
  }
}
