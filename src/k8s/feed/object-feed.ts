import type { RejectionLog } from '../../base/rejection.ts';
import { OPEN_GATE, runNowOrInBackground, type TurnGate } from '../../base/turn-gate.ts';
import { AgingTable } from '../aging-table.ts';
import type { ObjectName } from '../object-table.ts';
import { type ObjectFields, parseObject } from '../parse-object.ts';
import {
  type KubernetesObject,
  type ObjectScanner,
  type ResourceEvent,
  type ResourceSink,
  ScannedObject,
} from '../resource.ts';

/** Objects removed per step of a sweep or withdrawal. 256 endpoints take about 1 ms. */
const OBJECTS_PER_STEP = 256;

/** Duration after which a step ends early: 256 slices of 100 backends take 20 ms. */
const MS_PER_STEP = 2;

/** Objects between two reads of the clock, which take 0.2 µs each. */
const OBJECTS_PER_CHECK = 8;

/** Reads objects of one kind and writes their values to an engine. */
export interface KindReader<T> {
  /** Kind in rejections: `CiliumEndpoint`. */
  readonly kind: string;
  /** The fields read by {@link KindReader.read}, in the form of `FollowOptions`. Default: all. */
  readonly fields?: readonly string[];
  /** Reads values from bytes, equal to those of {@link KindReader.read}. Default: none. */
  readonly scanner?: ObjectScanner<T>;
  /** Returns the value of an object, or undefined if it has none. */
  read(fields: ObjectFields): T | undefined;
  /** Returns true if two values are equal, so that the change is ignored. Default: never equal. */
  same?(current: T, previous: T): boolean;
  /**
   * Applies a new value of an object. `current` is undefined if the object was deleted, `previous` if it is new; never
   * both.
   */
  change(current: T | undefined, previous: T | undefined): void;
  /** Runs changes as one batch of an engine. Default: no batch. */
  batch?(changes: () => void): void;
  /** Called when a reflector begins. Until {@link KindReader.listed}, puts are not in the order of the API server. */
  start?(): void;
  /**
   * Called when the first list is complete, before missing objects are deleted. Later puts are in the order
   * of the API server's writes.
   */
  listed?(): void;
  /** Returns the steps of the changes that are not applied yet. The feed is complete after them. Default: none. */
  pendingSteps?(): Iterable<unknown>;
}

/**
 * @internal Receives the events that a feed applies, in order, so that they can be recorded. Its methods must not
 * throw.
 */
export interface FeedTap {
  /**
   * Called when a reflector begins. When its list is complete, values of earlier reflectors that are not in the list
   * are removed.
   */
  onStart(): void;
  onEvent(event: ResourceEvent): void;
  /** Called before a value is removed, because the new list does not contain it or because all values are withdrawn. */
  onRemove(name: ObjectName): void;
  /** Called after the events and removals of the previous calls were applied. */
  onApplied(): void;
  /** Called when the first list is applied, before missing objects are deleted. */
  onReceived(): void;
  /** Called when the first list is applied and missing objects are deleted. */
  onListed(): void;
}

/** Options of {@link ObjectFeed}. */
export interface ObjectFeedOptions {
  /** @internal Default: none. */
  readonly tap?: FeedTap | undefined;
  readonly rejections: RejectionLog;
  /** Distributes large sweeps over turns of the event loop. Default: one turn. */
  readonly gate?: TurnGate | undefined;
  /** If it fires, no more objects are removed. */
  readonly signal?: AbortSignal | undefined;
  /** See `KubernetesFeedOptions`. */
  readonly onCause?: CauseListener | undefined;
}

/** Receives the kind and the resourceVersion of an object before it is applied, and undefined after the batch. */
export type CauseListener = (cause: { readonly kind: string; readonly revision: string } | undefined) => void;

/** An {@link ObjectFeed} of any kind. */
export interface AnyFeed {
  readonly size: number;
  readonly rejected: number;
  readonly complete: boolean;
  /** The fields read by the reader; undefined for all. */
  readonly fields: readonly string[] | undefined;
  /** The scanner of the objects that the sink receives; undefined if it needs whole objects. */
  readonly scanner?: ObjectScanner | undefined;
  start(onComplete?: () => void): ResourceSink;
  forgetSteps(): Iterable<unknown>;
  withdrawSteps(): Iterable<unknown>;
}

/**
 * Stores **the value of each object** of one kind, and applies only differences from these values (KUBERNETES 10). The
 * old objects of a reflector are not needed, so a reflector can be replaced ({@link ObjectFeed.start}): known values
 * stay, and when the new list is complete, the values of objects that it does not contain are deleted. An invalid
 * object has no value, even if it had one before, because a restart would give the same result (I9). The rejection is
 * counted, and other objects are not affected (I12).
 */
export class ObjectFeed<T> implements AnyFeed {
  readonly #reader: KindReader<T>;
  readonly #options: ObjectFeedOptions;
  /** Values of objects. Values that the current reflector has not delivered are old. */
  readonly #values = new AgingTable<T>();
  /** Number of the current reflector, or of the withdrawal after it. */
  #run = 0;
  #complete = false;
  #rejected = 0;

  constructor(reader: KindReader<T>, options: ObjectFeedOptions) {
    this.#reader = reader;
    this.#options = options;
  }

  get fields(): readonly string[] | undefined {
    return this.#reader.fields;
  }

  get scanner(): ObjectScanner<T> | undefined {
    return this.#options.tap === undefined ? this.#reader.scanner : undefined;
  }

  /** Returns the number of objects with a value. */
  get size(): number {
    return this.#values.size;
  }

  /** Returns the number of rejected objects and fields. */
  get rejected(): number {
    return this.#rejected;
  }

  /** Returns the value of an object. */
  value(namespace: string, name: string): T | undefined {
    return this.#values.get({ namespace, name });
  }

  /** Returns true if the first list of the current reflector is complete and applied. */
  get complete(): boolean {
    return this.#complete;
  }

  /**
   * Returns the sink for the next reflector. Sinks of earlier reflectors are ignored from now on. `onComplete` is
   * called when the first list is applied and missing objects are deleted.
   */
  start(onComplete?: () => void): ResourceSink {
    const run = this.#nextRun();
    this.#options.tap?.onStart();
    this.#reader.start?.();
    return {
      apply: (events) => {
        if (run !== this.#run) return;
        const { onCause, tap } = this.#options;
        try {
          this.#batch(() => {
            for (const event of events) {
              onCause?.({ kind: this.#reader.kind, revision: event.object.metadata.resourceVersion });
              tap?.onEvent(event);
              this.#apply(event);
            }
          });
        } finally {
          onCause?.(undefined);
          tap?.onApplied();
        }
      },
      onListed: () => {
        if (run !== this.#run) return;
        this.#options.tap?.onReceived();
        this.received();
        const { gate, signal } = this.#options;
        runNowOrInBackground(gate, this.#sweepSteps(run, onComplete), { signal });
      },
    };
  }

  /** Reports that the first list is applied. `onListed` calls it; a caller that delays `onListed` calls it before. */
  received(): void {
    this.#reader.listed?.();
  }

  /** Removes the values that the current reflector has not delivered, in steps, without waiting for its list. */
  forgetSteps(): Generator<undefined, void, void> {
    return this.#removeSteps(this.#run);
  }

  /**
   * Deletes all values, in steps of one batch each. The current reflector is ignored from now on. If
   * {@link ObjectFeed.start} is called before the last step, the steps end, and the remaining values stay until the new
   * list is complete.
   */
  withdrawSteps(): Generator<undefined, void, void> {
    return this.#removeSteps(this.#nextRun());
  }

  /** Marks all values as old. Returns the number of the run of the next reflector. */
  #nextRun(): number {
    this.#complete = false;
    this.#values.age();
    return ++this.#run;
  }

  #batch(changes: () => void): void {
    if (this.#reader.batch === undefined) changes();
    else this.#reader.batch(changes);
  }

  #apply({ type, object }: ResourceEvent): void {
    const { metadata } = object;
    const previous = this.#values.get(metadata);
    const value = type === 'put' ? this.#read(object) : undefined;
    if (value === undefined) this.#remove(metadata, previous);
    else if (previous !== undefined && this.#reader.same?.(value, previous) === true)
      this.#values.set(metadata, previous);
    else {
      this.#values.set(metadata, value);
      this.#reader.change(value, previous);
    }
  }

  #read(object: KubernetesObject): T | undefined {
    // Only the scanner of the reader creates scanned objects.
    if (object instanceof ScannedObject) return object.value as T;
    const { value, rejections } = parseObject(this.#reader.kind, object, {}, (fields) =>
      this.#reader.read(fields),
    );
    for (const rejected of rejections) this.#options.rejections.add(rejected);
    this.#rejected += rejections.length;
    return value;
  }

  #remove(name: ObjectName, value: T | undefined): void {
    if (value === undefined) return;
    this.#values.delete(name);
    this.#reader.change(undefined, value);
  }

  *#sweepSteps(run: number, onComplete: (() => void) | undefined): Generator<unknown, void, void> {
    yield* this.#removeSteps(run);
    yield* this.#reader.pendingSteps?.() ?? [];
    if (run !== this.#run) return;
    this.#complete = true;
    this.#options.tap?.onListed();
    onComplete?.();
  }

  /** Deletes old values. Ends if another run has started. */
  *#removeSteps(run: number): Generator<undefined, void, void> {
    const { gate = OPEN_GATE } = this.#options;
    const oldEntries = this.#values.oldEntries();
    for (let isDone = false; !isDone; ) {
      if (run !== this.#run) return;
      const endTime = gate.now() + MS_PER_STEP;
      this.#batch(() => {
        for (let count = 0; count < OBJECTS_PER_STEP; count++) {
          if (count % OBJECTS_PER_CHECK === 0 && gate.now() >= endTime) return;
          const next = oldEntries.next();
          if (next.done === true) {
            isDone = true;
            return;
          }
          const [name, value] = next.value;
          this.#options.tap?.onRemove(name);
          this.#remove(name, value);
        }
      });
      this.#options.tap?.onApplied();
      yield;
    }
  }
}
