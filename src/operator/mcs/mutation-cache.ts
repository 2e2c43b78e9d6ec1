import type { Clock } from '../../base/clock.ts';
import type { KubernetesObject, ResourceEvent } from '../../k8s/resource.ts';
import { objectKey } from '../collect/observed-kind.ts';

interface Mutation {
  /** The object after the write; undefined if it was deleted. */
  readonly object: KubernetesObject | undefined;
  readonly uid: string;
  readonly until: number;
}

/** Time after which the watch has delivered the version of a write, or a later version. */
const ECHO_MS = 10_000;

/**
 * The results of writes of this process that the watch has not delivered yet. Without this cache, an object would be
 * written again until its event arrives. Events of earlier versions are ignored.
 */
export class MutationCache {
  readonly #clock: Pick<Clock, 'now'>;
  readonly #echoMs: number;
  readonly #writes = new Map<string, Mutation>();

  /** @param echoMs time after which the object of the watch is used again; infinite in a dry run */
  constructor(clock: Pick<Clock, 'now'>, echoMs: number = ECHO_MS) {
    this.#clock = clock;
    this.#echoMs = echoMs;
  }

  /**
   * Records the result of a write, unless the watch has already delivered it. The key must also contain the kind of the
   * object.
   *
   * @param observed the object as the watch delivered it last
   */
  set(
    key: string,
    uid: string,
    object: KubernetesObject | undefined,
    observed: KubernetesObject | undefined,
  ): void {
    this.#writes.delete(key);
    if (object?.metadata.resourceVersion === observed?.metadata.resourceVersion) return;
    this.#writes.set(key, { object, uid, until: this.#clock.now() + this.#echoMs });
  }

  /** Returns the latest known state of an object: the recorded result of a write, or the object of the watch. */
  latest(key: string, observed: KubernetesObject | undefined): KubernetesObject | undefined {
    const mutation = this.#writes.get(key);
    if (mutation === undefined) return observed;
    if (mutation.until > this.#clock.now()) return mutation.object;
    this.#writes.delete(key);
    return observed;
  }

  /** Returns the time until the object of the watch is used instead of the recorded result; 0 if it is already used. */
  waitMs(key: string): number {
    return Math.max(0, (this.#writes.get(key)?.until ?? 0) - this.#clock.now());
  }

  /** Forgets a write when its event arrives. */
  observe(kind: string, { type, object }: ResourceEvent): void {
    const key = `${kind} ${objectKey(object)}`;
    const mutation = this.#writes.get(key);
    if (mutation === undefined) return;
    const { uid, resourceVersion } = object.metadata;
    const isEcho =
      type === 'delete'
        ? uid === mutation.uid
        : resourceVersion === mutation.object?.metadata.resourceVersion;
    if (isEcho) this.#writes.delete(key);
  }

  clear(): void {
    this.#writes.clear();
  }
}
