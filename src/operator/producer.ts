import type { Clock, Random } from '../base/clock.ts';
import { type Rejection, RejectionLog } from '../base/rejection.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import { FollowedKind, type KindStatus } from '../k8s/feed/followed-kind.ts';
import { ObjectFeed, type ObjectReader } from '../k8s/feed/object-feed.ts';
import type { ObjectFields } from '../k8s/parse-object.ts';
import type { ResourceKind, ResourceSource } from '../k8s/resource.ts';
import type { KvstoreBackend } from '../kvstore/backend.ts';
import { type MeshResource, resourcePrefix, syncedKey } from '../kvstore/codec/keys.ts';
import type { FormatVersion } from '../kvstore/codec/value.ts';
import type { Duty, DutyState, DutyStatus } from './duty.ts';
import { type KeyOwner, keyRules } from './mesh-keys.ts';
import { type Openable, openable } from './openable.ts';
import { latest, PublishedPrefix } from './published-prefix.ts';

/** What all producers take from their surroundings. */
export interface ProducerOptions extends KeyOwner {
  /** Where the objects come from. */
  readonly source: ResourceSource;
  /** Where the keys go. */
  readonly backend: KvstoreBackend;
  readonly clock: Clock;
  readonly random: Random;
  /** Shares large sweeps out over turns of the event loop. Default: all at once. */
  readonly gate?: TurnGate | undefined;
  /** Whose fields the values have. Default `1.17`. */
  readonly version?: FormatVersion | undefined;
  /** Write a canary when a resource is complete. Default true; 1.8 has none. */
  readonly canaries?: boolean | undefined;
  /** Receives every object or field that is refused, after it was counted. */
  readonly onReject?: ((rejection: Rejection) => void) | undefined;
  /** Receives what fails in the background, with the name of the task. */
  readonly onFailure?: ((error: unknown, task: string) => void) | undefined;
}

/** The objects of Kubernetes that a producer follows. */
export interface FollowedInputs {
  /** All that the API server has of them has been said. */
  readonly complete: boolean;
  readonly kinds: readonly KindStatus[];
  /** Resolves when nothing more is said. */
  stop(): Promise<void>;
}

/** What follows the objects, and where they go. */
export interface InputContext extends ProducerOptions {
  readonly keys: PublishedPrefix;
  readonly rejections: RejectionLog;
  /** The inputs have become complete, perhaps. */
  readonly onChange: () => void;
}

/** What one producer is. */
export interface ProducerKind {
  readonly name: string;
  readonly resource: MeshResource;
  /** What a former life has left stays while there are no objects: they may not have been made yet. Default false. */
  readonly keepWhenEmpty?: boolean | undefined;
  /** Begins to follow the objects, and to say what the keys are to be. */
  follow(context: InputContext): FollowedInputs;
}

/** A life of a producer: what it followed and wrote stays as it is when it has ended, for the status. */
interface Life {
  readonly keys: PublishedPrefix;
  readonly rejections: RejectionLog;
  inputs?: FollowedInputs;
}

/**
 * A duty that keeps the keys of one resource as the objects of Kubernetes say:
 *
 *     objects ─► what each key is to be (pure) ─► PublishedPrefix ─► kvstore
 *
 * Each run begins anew: what the one before has published stays until the objects have been listed, and what they do not say
 * goes then, before the canary is written.
 */
export class Producer implements Duty {
  readonly name: string;
  readonly #kind: ProducerKind;
  readonly #options: ProducerOptions;
  #life: Life;
  #state: DutyState = 'waiting';
  /** Of this run, or the next: the inputs are complete, and what they say has landed. */
  #complete: Openable = openable();

  constructor(kind: ProducerKind, options: ProducerOptions) {
    this.name = kind.name;
    this.#kind = kind;
    this.#options = options;
    this.#life = this.#newLife();
  }

  status(): DutyStatus {
    const { keys, inputs } = this.#life;
    const { failures, lastFailure, ...published } = keys.status();
    const followed = (inputs?.kinds ?? []).flatMap(({ resource }) => resource ?? []);
    const isWaiting = this.#state === 'running' && inputs?.complete !== true;
    return {
      name: this.name,
      state: isWaiting ? 'waiting' : this.#state,
      failures: followed.reduce((sum, { failures: more }) => sum + more, failures),
      lastFailure: followed.reduce((last, kind) => latest(last, kind.lastFailure), lastFailure),
      published,
    };
  }

  /** Resolves when all that was said so far is there, and the canary. Waits for the inputs to be complete, and for a run. */
  async synced(): Promise<void> {
    await this.#complete.opened;
    await this.#life.keys.markSynced();
  }

  async run(signal: AbortSignal): Promise<void> {
    const life = this.#newLife();
    const { keys, rejections } = life;
    this.#life = life;
    this.#state = 'running';
    let isMarked = false;
    const onChange = (): void => {
      if (isMarked || life.inputs?.complete !== true || signal.aborted) return;
      isMarked = true;
      void keys.markSynced().then(this.#complete.open);
    };
    const inputs = this.#kind.follow({ ...this.#options, keys, rejections, onChange });
    life.inputs = inputs;
    onChange();
    const stop = (): void => void inputs.stop();
    signal.addEventListener('abort', stop, { once: true });
    await keys.run(signal);
    signal.removeEventListener('abort', stop);
    await inputs.stop();
    this.#complete = openable();
    this.#state = 'ended';
  }

  #newLife(): Life {
    const { backend, clusterName, clock, random, canaries = true, onReject, onFailure } = this.#options;
    const { resource, keepWhenEmpty } = this.#kind;
    const rejections = new RejectionLog(onReject);
    return {
      rejections,
      keys: new PublishedPrefix({
        rejections,
        keepWhenEmpty,
        ...{ backend, clock, random, onFailure, ...keyRules(resource, this.#options) },
        prefix: resourcePrefix(resource, clusterName),
        canary: canaries ? syncedKey(clusterName, resource) : undefined,
      }),
    };
  }
}

/** Follows the objects of one kind. */
export function followKind<T>(
  kind: ResourceKind,
  reader: ObjectReader<T>,
  { source, clock, gate, rejections, onChange }: InputContext,
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

/** What one object says: the key of a name, below the prefix of the resource. */
export interface SaidKey {
  readonly name: string;
  readonly value: Uint8Array;
}

/** Objects of which each has a key of its own. */
export function keyReader(
  kind: string,
  { keys }: InputContext,
  read: (fields: ObjectFields) => SaidKey | undefined,
): ObjectReader<SaidKey> {
  return {
    kind,
    read,
    change: (now, before) => {
      if (now !== undefined) keys.upsert(now.name, now.value);
      else if (before !== undefined) keys.delete(before.name);
    },
  };
}
