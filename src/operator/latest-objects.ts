import type { KubernetesObject, ResourceEvent } from '../k8s/resource.ts';
import type { ObjectReader } from '../k8s/rest/object-reader.ts';
import { type ObjectWrite, placeOf } from '../k8s/rest/object-writer.ts';
import { objectKey } from './collect/observed-kind.ts';
import { type UnsuccessfulWrite, writeError } from './collect/perform-write.ts';
import type { DutyReport } from './duty-report.ts';

interface Result<T> {
  /** The object after the request; undefined if it does not exist. */
  readonly object: T | undefined;
  readonly uid: string;
  /** Versions replaced by this process whose events may still arrive. */
  readonly replaced: ReadonlySet<string>;
}

/**
 * The latest known objects of a kind: as the watch delivered them, or as a request of this duty left them, until the
 * watch delivers that state or a later one. Without the results of requests, an object would be written again until its
 * event arrives. Versions are compared for equality only. One request at a time.
 */
export class LatestObjects<T extends KubernetesObject = KubernetesObject> {
  readonly #observed: () => ReadonlyMap<string, T>;
  readonly #results = new Map<string, Result<T>>();
  /** The last request, and whether the watch has delivered its result or a later state since it was sent. */
  #sent: { readonly key: string; readonly known: T | undefined; isOvertaken: boolean } | undefined;

  /** @param observed returns the objects as the watch delivered them last, by {@link objectKey} */
  constructor(observed: () => ReadonlyMap<string, T>) {
    this.#observed = observed;
  }

  get(key: string): T | undefined {
    const result = this.#results.get(key);
    return result === undefined ? this.#observed().get(key) : result.object;
  }

  /** Must be called immediately before a request is sent. */
  beginRequest(key: string): void {
    this.#sent = { key, known: this.get(key), isOvertaken: false };
  }

  /**
   * Records the object after the last request; undefined if it does not exist. Returns false, and records nothing, if
   * the watch has already delivered this state or a later one.
   */
  endRequest(object: T | undefined): boolean {
    if (this.#sent === undefined || this.#sent.isOvertaken) return false;
    const { key, known } = this.#sent;
    const replaced = new Set(this.#results.get(key)?.replaced);
    if (known !== undefined) replaced.add(known.metadata.resourceVersion);
    this.#results.set(key, { object, uid: (object ?? known)?.metadata.uid ?? '', replaced });
    return true;
  }

  /**
   * Must be called with the events of the watch, and without events after each list except the first. Returns the keys
   * of the objects whose latest state has changed.
   */
  changedBy(events: readonly ResourceEvent[]): readonly string[] {
    if (events.length === 0) return this.#forgetUnlisted();
    return events.flatMap((event) => (this.#isKnown(event) ? [] : [objectKey(event.object)]));
  }

  /** Receives an event. Returns true if its state was already known, or has been replaced. */
  #isKnown({ type, object }: ResourceEvent): boolean {
    const { uid, resourceVersion: version } = object.metadata;
    const key = objectKey(object);
    const result = this.#results.get(key);
    if (type === 'put' && result?.replaced.has(version) === true) return true;
    // The delete of an earlier object with the same name.
    if (type === 'delete' && result !== undefined && result.uid !== uid) return true;
    this.#results.delete(key);
    const isKnown =
      result !== undefined &&
      result.object?.metadata.resourceVersion === (type === 'put' ? version : undefined);
    if (!isKnown && this.#sent?.key === key) this.#sent.isOvertaken = true;
    return isKnown;
  }

  /**
   * Forgets, and returns, the objects that this process has created and the list does not contain: if they were deleted
   * before the list, no event arrives. Keeps objects without a version, which a dry run only printed.
   */
  #forgetUnlisted(): readonly string[] {
    const observed = this.#observed();
    const unlisted = [...this.#results].flatMap(([key, { object }]) => {
      const isCreated = object !== undefined && object.metadata.resourceVersion !== '';
      return isCreated && !observed.has(key) ? [key] : [];
    });
    for (const key of unlisted) this.#results.delete(key);
    return unlisted;
  }

  clear(): void {
    this.#results.clear();
    this.#sent = undefined;
  }
}

export interface FailedWrite {
  readonly key: string;
  readonly write: ObjectWrite;
  readonly answer: UnsuccessfulWrite;
  /** Number of unsuccessful writes in a row, including this one. */
  readonly failures: number;
}

/**
 * Reports an unsuccessful write. After a conflict, reads the object again, because the watch may be late; such a write
 * is reported only from the third one in a row on.
 */
export async function handleFailedWrite(
  { key, write, answer, failures }: FailedWrite,
  latest: LatestObjects,
  { reader, report }: { readonly reader: ObjectReader; readonly report: DutyReport },
  signal: AbortSignal,
): Promise<void> {
  const isOutdated = answer.outcome === 'conflict' || answer.outcome === 'not-found';
  if (!isOutdated || failures > 2) report.addError(writeError(write, answer));
  if (!isOutdated) return;
  latest.beginRequest(key);
  try {
    latest.endRequest(await reader.get(placeOf(write), signal));
  } catch (error) {
    if (!signal.aborted) report.addError(error);
  }
}
