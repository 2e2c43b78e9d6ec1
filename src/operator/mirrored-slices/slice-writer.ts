import { sleep } from '../../base/sleep.ts';
import { forEachInSteps, OPEN_GATE } from '../../base/turn-gate.ts';
import type { KubernetesObject } from '../../k8s/resource.ts';
import { type ObjectWrite, type ObjectWriter, writeText } from '../../k8s/rest/object-writer.ts';
import { field, items } from '../collect/field.ts';
import type { ObservedKind } from '../collect/observed-kind.ts';
import { isUnsuccessful, writeError } from '../collect/perform-write.ts';
import { DueKeys } from '../due-keys.ts';
import type { Duty, DutyStatus } from '../duty.ts';
import { type DutyContext, DutyReport } from '../duty-report.ts';
import { LatestObjects } from '../latest-objects.ts';
import {
  digestOf,
  ENDPOINT_SLICES,
  FIELD_MANAGER,
  type ForeignMetadata,
  foreignMetadata,
  sliceBody,
  type WantedSlice,
} from './slice-content.ts';

/** The part of a slice of the server to keep in memory. */
export interface KnownSlice extends KubernetesObject {
  readonly labels: unknown;
  readonly digest: string;
  /** True if this program has written the slice. */
  readonly isManaged: boolean;
  readonly foreign?: ForeignMetadata | undefined;
}

/** Returns the part of a slice to keep in memory. */
export function knownSlice(slice: KubernetesObject): KnownSlice {
  const { name, namespace, uid, resourceVersion } = slice.metadata;
  const metadata = { name, uid, resourceVersion, ...(namespace === undefined ? {} : { namespace }) };
  const isManaged = items(slice, 'metadata', 'managedFields').some(
    (entry) => field(entry, 'manager') === FIELD_MANAGER,
  );
  const labels = field(slice, 'metadata', 'labels');
  return { metadata, labels, digest: digestOf(slice), isManaged, foreign: foreignMetadata(slice) };
}

/** The slices to be written by a {@link SliceWriter}. */
export interface SliceSource {
  readonly name: string;
  /** True if all slices with the label of the duty may be changed and deleted. Default: only those of this program. */
  readonly mayChangeAll?: boolean | undefined;
  /**
   * Starts to follow the inputs, until the signal fires. Calls `onChange` with the key of each slice whose wanted
   * content may have changed.
   */
  start(onChange: (key: string) => void, signal: AbortSignal): void;
  /** Returns why the inputs in this cluster are incomplete; undefined if they are complete. */
  notReadyReason(): string | undefined;
  /**
   * Returns the wanted slice for a key (`<namespace>/<name>`); undefined if there should be none, or if this is not
   * known yet.
   */
  wantedSlice(key: string): WantedSlice | undefined;
  /**
   * Returns the reason why a slice of the server is not wanted. If it is not known yet whether the slice is wanted,
   * returns undefined: the slice stays, and `onChange` is called when it is known.
   */
  unwantedReason(slice: KnownSlice): string | undefined;
  readonly rejected: number;
}

/** Options of {@link SliceWriter}. Updates are not reported to `onAction`, because every new pod causes one. */
export interface SliceWriterOptions extends DutyContext {
  readonly source: SliceSource;
  /** The slices with the label of this duty, trimmed by {@link knownSlice}. */
  readonly slices: Pick<ObservedKind<KnownSlice>, 'objects' | 'notReadyReason' | 'follow' | 'listen'>;
  /** Limits the writes a second. */
  readonly writer: ObjectWriter;
  /** Time to gather changes. Default 500 ms. */
  readonly batchMs?: number | undefined;
}

/** As Cilium's `clustermesh-endpoint-updates-batch-period`. */
export const BATCH_MS = 500;
const BACKOFF = { baseMs: 1000, capMs: 100_000 };
/** Time after which the reason of a wait is reported. */
const SLOW_MS = 5000;
/** Weight of one comparison at the gate: a slice of 100 endpoints takes about 0.3 ms. */
const COMPARE_WEIGHT = 128;

/**
 * Keeps EndpointSlices equal to those of a source:
 *
 *     source: wanted slice of a key ─┐
 *                                    ├─► difference ─► create, update, delete
 *     server: known slice of a key ──┘
 *
 * Writes only slices that differ, and no slice more than once a second. Slices of other programs are not changed.
 * Nothing is written before the inputs of this cluster and the slices on the server are complete.
 */
export class SliceWriter implements Duty {
  readonly name: string;
  readonly #options: SliceWriterOptions;
  readonly #queue: DueKeys;
  readonly #report: DutyReport;
  /** Keys whose difference is not written yet. */
  readonly #pending = new Set<string>();
  /** Keys whose delete was put to the end of the queue, so that the slices that replace it are written first. */
  readonly #deferred = new Set<string>();
  readonly #latest: LatestObjects<KnownSlice>;
  #writes = 0;

  constructor(options: SliceWriterOptions) {
    const { clock, random, source, slices } = options;
    this.name = source.name;
    this.#options = options;
    this.#queue = new DueKeys({ clock, random, backoff: BACKOFF });
    this.#report = new DutyReport(this.name, options);
    this.#latest = new LatestObjects(() => slices.objects);
  }

  async run(signal: AbortSignal): Promise<void> {
    const { slices, source, clock, batchMs = BATCH_MS, gate = OPEN_GATE } = this.#options;
    this.#report.state = 'waiting';
    this.#queue.clear();
    for (const keys of [this.#pending, this.#deferred, this.#latest]) keys.clear();
    slices.follow(signal);
    slices.listen((events) => {
      for (const key of this.#latest.changedBy(events)) this.#enqueue(key);
    }, signal);
    source.start((key) => this.#enqueue(key), signal);
    await this.#report.whenReady(() => slices.notReadyReason() ?? source.notReadyReason(), SLOW_MS, signal);
    await gate.runSteps(
      forEachInSteps(slices.objects.keys(), gate.slice, (key) => this.#enqueue(key)),
      signal,
    );
    if (!signal.aborted) this.#report.state = 'running';
    while (!signal.aborted) {
      await this.#queue.processDue(gate, COMPARE_WEIGHT, (key) => this.#reconcile(key, signal), signal);
      await this.#queue.whenDue(signal);
      await sleep(clock, batchMs, signal);
    }
    this.#queue.clear();
    this.#report.state = 'ended';
  }

  status(): DutyStatus {
    const { source, slices } = this.#options;
    return {
      ...this.#report.status(),
      published: {
        synced: this.#report.state === 'running' && this.#pending.size === 0,
        keys: slices.objects.size,
        pending: this.#pending.size,
        writes: this.#writes,
        rejected: source.rejected,
      },
    };
  }

  #enqueue(key: string): void {
    this.#pending.add(key);
    this.#queue.add(key);
  }

  /** Makes the write of a slice if one is needed, now or after the pause since the last write of the slice. */
  async #reconcile(key: string, signal: AbortSignal): Promise<void> {
    const planned = this.#writeOf(key);
    if (planned === undefined) this.#pending.delete(key);
    else this.#pending.add(key);
    if (this.#queue.delayAfterWrite(key)) return;
    if (planned === undefined) this.#queue.forget(key);
    else if (this.#mustDefer(key, planned)) this.#queue.add(key);
    else await this.#write(key, planned, signal);
  }

  /** Returns true if a write is a delete and other keys are due. Such a delete is deferred once. */
  #mustDefer(key: string, { write }: SliceWrite): boolean {
    const wasDeferred = this.#deferred.delete(key);
    if (wasDeferred || write.verb !== 'delete' || this.#queue.next === undefined) return false;
    this.#deferred.add(key);
    return true;
  }

  async #write(key: string, { write, reason, written }: SliceWrite, signal: AbortSignal): Promise<void> {
    const { writer } = this.#options;
    this.#latest.beginRequest(key);
    const answer = await writer.write(write, reason, signal);
    if (signal.aborted) return;
    if (isUnsuccessful(write, answer)) {
      this.#queue.retry(key);
      this.#report.addError(writeError(write, answer));
      return;
    }
    if (write.verb !== 'update')
      this.#report.addAction({ action: writeText(write), reason, outcome: answer.outcome });
    const object = answer.outcome === 'done' ? answer.object : undefined;
    // If the watch has delivered the result or a later state before the answer, that state is compared again.
    if (this.#latest.endRequest(object === undefined ? written : knownSlice(object)))
      this.#pending.delete(key);
    this.#writes++;
    this.#queue.recordWrite(key);
    this.#queue.forget(key);
    this.#queue.delayAfterWrite(key);
  }

  /** Returns the write that makes a slice equal to the wanted one; undefined if none is needed or possible. */
  #writeOf(key: string): SliceWrite | undefined {
    const { source } = this.#options;
    const known = this.#latest.get(key);
    const wanted = source.wantedSlice(key);
    if (known?.isManaged === false && source.mayChangeAll !== true) return undefined;
    if (wanted === undefined) {
      const reason = known && source.unwantedReason(known);
      if (known === undefined || reason === undefined) return undefined;
      const { name, namespace, uid, resourceVersion } = known.metadata;
      const place = { kind: ENDPOINT_SLICES, namespace, name };
      return { write: { verb: 'delete', place, uid, resourceVersion }, reason, written: undefined };
    }
    const foreign = known?.foreign;
    const body = sliceBody(wanted, foreign);
    const digest = digestOf(body);
    if (known?.digest === digest) return undefined;
    const { reason, namespace, name } = wanted;
    const { uid = '', resourceVersion = '' } = known?.metadata ?? {};
    const metadata = { ...body.metadata, uid, resourceVersion };
    const written = { metadata, labels: wanted.labels, digest, isManaged: true, foreign };
    const write: ObjectWrite =
      known === undefined
        ? { verb: 'create', kind: ENDPOINT_SLICES, namespace, object: body }
        : {
            verb: 'update',
            place: { kind: ENDPOINT_SLICES, namespace, name },
            object: { ...body, metadata },
          };
    return { write, reason, written };
  }
}

interface SliceWrite {
  readonly write: ObjectWrite;
  readonly reason: string;
  /** The slice after the write; undefined if it is deleted. */
  readonly written: KnownSlice | undefined;
}
