import { laterFailure } from '../../base/failure.ts';
import { onAbort } from '../../base/follow-signal.ts';
import { CallbackGuard } from '../../base/guard.ts';
import { type Rejection, RejectionLog } from '../../base/rejection.ts';
import { counted } from '../../base/show-value.ts';
import { type Deferred, deferred } from '../../base/sleep.ts';
import { FollowedKind, type KindStatus } from '../../k8s/feed/followed-kind.ts';
import { type KindReader, ObjectFeed } from '../../k8s/feed/object-feed.ts';
import type { ResourceKind, ResourceSource } from '../../k8s/resource.ts';
import { type CopiedResource, resourcePrefix, syncedKey } from '../../kvstore/codec/keys.ts';
import type { FormatVersion } from '../../kvstore/codec/value.ts';
import type { KvstoreBackend } from '../../kvstore/session/backend.ts';
import type { Duty, DutyState, DutyStatus } from '../duty.ts';
import { type DutyContext, notServedText } from '../duty-report.ts';
import type { ExportStage, GlobalNamespaces } from './global-namespaces.ts';
import { type KeyOwner, keyRules } from './mesh-keys.ts';
import { NamespacedValues, type NamespacedValuesOptions } from './namespaced-values.ts';
import { PublishedPrefix, type PublishedPrefixOptions } from './published-prefix.ts';

/** Options of a {@link Producer}. Puts and deletes of single keys are not reported to `onAction`. */
export interface ProducerOptions extends KeyOwner, DutyContext {
  readonly source: ResourceSource;
  /** Destination of the keys. */
  readonly backend: KvstoreBackend;
  /** Version of the value format. Default `1.17`. */
  readonly version?: FormatVersion | undefined;
  /**
   * If true, a canary is written when a resource is complete. Default true; set it to false for 1.8, which has no
   * canaries.
   */
  readonly canaries?: boolean | undefined;
  /**
   * Selects the namespaces whose objects are exported (1.19). The caller must run this object, too. Default: all
   * namespaces.
   */
  readonly namespaces?: GlobalNamespaces | undefined;
  /** See {@link PublishedPrefixOptions.sweepAfter}. */
  readonly sweepAfter?: PublishedPrefixOptions['sweepAfter'];
  /** Receives every rejected object or field, after it was counted. */
  readonly onReject?: ((rejection: Rejection) => void) | undefined;
}

/** The Kubernetes objects followed by a producer. */
export interface FollowedInputs {
  /** True if all objects of the API server have been delivered. */
  readonly complete: boolean;
  readonly kinds: readonly KindStatus[];
  /** Stops following. Resolves when no object is delivered any more. */
  stop(): Promise<void>;
}

/** Options of `ProducerKind.follow`, with the destinations of keys and rejections. */
export interface InputContext extends ProducerOptions {
  readonly keys: PublishedPrefix;
  readonly rejections: RejectionLog;
  /** Must be called when the inputs may have become complete. */
  readonly onChange: () => void;
}

export interface ProducerKind {
  readonly name: string;
  readonly resource: CopiedResource;
  /**
   * True to keep the keys of earlier runs while there are no objects, because the objects may not have been created
   * yet. Default false.
   */
  readonly keepWhenEmpty?: boolean | undefined;
  /** Starts to follow the objects and to publish their keys. */
  follow(context: InputContext): FollowedInputs;
}

/** The state of one run. After the run it stays unchanged, for the status. */
interface ProducerRun {
  readonly keys: PublishedPrefix;
  readonly rejections: RejectionLog;
  inputs?: FollowedInputs;
}

/**
 * Keeps the keys of one resource equal to Kubernetes objects:
 *
 *     objects ─► desired value of each key (pure) ─► PublishedPrefix ─► kvstore
 *
 * A run does not use the state of earlier runs. Keys of earlier runs are kept until all objects are listed. Then keys
 * without an object are deleted, and the canary is written.
 */
export class Producer implements Duty {
  readonly name: string;
  readonly resource: CopiedResource;
  readonly #kind: ProducerKind;
  readonly #options: ProducerOptions;
  readonly #guard: CallbackGuard;
  #run: ProducerRun;
  #state: DutyState = 'waiting';
  /**
   * Resolves when the inputs are complete and their keys are written, in the current run or, between two runs, in the
   * next run.
   */
  #complete: Deferred = deferred();

  constructor(kind: ProducerKind, options: ProducerOptions) {
    this.name = kind.name;
    this.resource = kind.resource;
    this.#kind = kind;
    this.#options = options;
    this.#guard = new CallbackGuard((error) => options.onFailure?.(error, kind.name));
    this.#run = this.#newRun();
  }

  status(): DutyStatus {
    const { keys, inputs } = this.#run;
    const { failures, lastFailure, ...published } = keys.status();
    const followed = (inputs?.kinds ?? []).flatMap(({ resource }) => resource ?? []);
    const isWaiting = this.#state === 'running' && inputs?.complete !== true;
    const missing = isWaiting ? followed.find(({ state }) => state === 'missing') : undefined;
    return {
      name: this.name,
      state: isWaiting ? 'waiting' : this.#state,
      failures: followed.reduce((sum, { failures: more }) => sum + more, failures),
      lastFailure: followed.reduce((last, kind) => laterFailure(last, kind.lastFailure), lastFailure),
      waitsFor: missing && notServedText(missing.resource),
      published,
    };
  }

  /**
   * Resolves when everything published so far, and the canary, is in the kvstore. Waits for a run and for complete
   * inputs.
   */
  async synced(): Promise<void> {
    await this.#complete.promise;
    await this.#run.keys.markSynced();
  }

  async run(signal: AbortSignal): Promise<void> {
    const run = this.#newRun();
    const { keys, rejections } = run;
    this.#run = run;
    this.#state = 'running';
    let isMarked = false;
    let isSynced = false;
    const onChange = (): void => {
      if (isMarked || run.inputs?.complete !== true || signal.aborted) return;
      isMarked = true;
      this.#guard.call(async () => {
        await keys.markSynced();
        if (signal.aborted) return;
        isSynced = true;
        this.#complete.resolve();
      });
    };
    const inputs = this.#kind.follow({ ...this.#options, keys, rejections, onChange });
    run.inputs = inputs;
    onChange();
    onAbort(signal, () => void inputs.stop());
    await keys.run(signal);
    await inputs.stop();
    if (isSynced) this.#complete = deferred();
    this.#state = 'ended';
  }

  #newRun(): ProducerRun {
    const { clusterName, canaries = true, onReject, onAction } = this.#options;
    const { resource, keepWhenEmpty } = this.#kind;
    const prefix = resourcePrefix(resource, clusterName);
    const rejections = new RejectionLog(onReject);
    return {
      rejections,
      keys: new PublishedPrefix({
        ...this.#options,
        ...keyRules(resource, this.#options),
        rejections,
        keepWhenEmpty,
        prefix,
        onSweep: (keys) => {
          const reason = 'an earlier operator wrote them, and no object requires them';
          const action = `delete ${counted(keys, 'key')} of ${prefix}`;
          this.#guard.call(onAction, { duty: this.name, action, reason, outcome: 'queued' });
        },
        canary: canaries ? syncedKey(clusterName, resource) : undefined,
      }),
    };
  }
}

/** The part of an {@link InputContext} needed to follow a kind. */
export type FollowContext = Pick<InputContext, 'source' | 'clock' | 'gate' | 'rejections' | 'onChange'>;

/** Follows the objects of a kind with a reader. */
export function followKind<T>(
  kind: ResourceKind,
  reader: KindReader<T>,
  { source, clock, gate, rejections, onChange }: FollowContext,
): FollowedInputs {
  const feed = new ObjectFeed(reader, { rejections, gate });
  const followed = new FollowedKind(kind.plural, feed, { source, clock, gate, onChange });
  followed.follow(kind);
  return {
    get complete() {
      return followed.complete;
    },
    get kinds() {
      return [followed.status()];
    },
    stop: () => followed.stop(),
  };
}

/**
 * Returns inputs that are complete once the given inputs and the namespaces are complete. If a namespace changes,
 * `values` are reviewed.
 */
export function withNamespaces(
  inputs: FollowedInputs,
  values: Pick<NamespacedValues<object>, 'review' | 'count'>,
  { namespaces, keys, onChange: onComplete }: InputContext,
  stage: ExportStage = 'others',
): FollowedInputs {
  if (namespaces === undefined) return inputs;
  const leave = namespaces.join({
    stage,
    onComplete,
    review: (namespace) => values.review(namespace),
    count: (namespace) => values.count(namespace),
    whenFlushed: () => keys.whenFlushed(),
  });
  return {
    get complete() {
      return inputs.complete && namespaces.complete;
    },
    get kinds() {
      return inputs.kinds;
    },
    stop: () => {
      leave();
      return inputs.stop();
    },
  };
}

/**
 * Returns a filter for values in exported namespaces. If no namespaces are configured, it passes on all
 * values.
 */
export function exportedValues<T extends object>(
  { namespaceOf, change, valuesPerStep }: Omit<NamespacedValuesOptions<T>, 'isExported'>,
  { namespaces }: InputContext,
  stage: ExportStage = 'others',
): NamespacedValues<T> {
  if (namespaces === undefined)
    return new NamespacedValues({ namespaceOf: () => undefined, change, isExported: () => true });
  return new NamespacedValues({
    namespaceOf,
    change,
    valuesPerStep,
    isExported: (namespace) => namespaces.exports(stage, namespace),
  });
}

/** The key and value of one object. The name is relative to the prefix of the resource. */
export interface PublishedValue {
  readonly name: string;
  readonly value: Uint8Array;
}

/** Returns a function that puts or deletes the key of a changed value. */
export function publishTo({ keys }: Pick<InputContext, 'keys'>): KindReader<PublishedValue>['change'] {
  return (current, previous) => {
    if (current !== undefined) keys.upsert(current.name, current.value);
    else if (previous !== undefined) keys.delete(previous.name);
  };
}
