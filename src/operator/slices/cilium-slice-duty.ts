import { counted } from '../../base/show-value.ts';
import { sleep } from '../../base/sleep.ts';
import { forEachInSteps, OPEN_GATE } from '../../base/turn-gate.ts';
import { CILIUM_ENDPOINT_SLICES } from '../../k8s/feed/kinds.ts';
import type { KubernetesObject, ResourceEvent } from '../../k8s/resource.ts';
import type { ObjectReader } from '../../k8s/rest/object-reader.ts';
import { type ObjectWrite, type ObjectWriter, writeText } from '../../k8s/rest/object-writer.ts';
import { type ObservedKind, objectKey } from '../collect/observed-kind.ts';
import { isUnsuccessful } from '../collect/perform-write.ts';
import { DueKeys } from '../due-keys.ts';
import type { Duty, DutyStatus } from '../duty.ts';
import { type DutyContext, DutyReport } from '../duty-report.ts';
import { handleFailedWrite, LatestObjects } from '../latest-objects.ts';
import { CiliumSlices, type CiliumSlicesOptions, type CoreEndpoint, coreEndpoint } from './cilium-slices.ts';

/** A kind whose objects and events are read. */
type ListenedKind = Pick<ObservedKind, 'objects' | 'notReadyReason' | 'follow' | 'listen'>;

/** Options of {@link CiliumSliceDuty}. Updates are not reported to `onAction`, because every new pod causes one. */
export interface CiliumSliceDutyOptions extends CiliumSlicesOptions, DutyContext {
  /** The CiliumEndpoints, with the fields identity, networking, encryption and named ports of their status. */
  readonly endpoints: ListenedKind;
  /** The CiliumEndpointSlices, with all fields. */
  readonly slices: ListenedKind;
  readonly reader: ObjectReader;
  /** Must allow 10 writes a second. */
  readonly writer: ObjectWriter;
}

/** Time to collect changes before they are written. */
const GATHER_MS = 500;
const BACKOFF = { baseMs: 1000, capMs: 100_000 };
/** Number of endpoints added in one step at the start; a step takes about 1 ms. */
const ENDPOINTS_PER_STEP = 256;
/** Comparing a slice of 100 endpoints takes as long as adding 16 endpoints. */
const SLICES_PER_STEP = ENDPOINTS_PER_STEP / 16;

/**
 * Keeps CiliumEndpointSlices equal to the CiliumEndpoints (OPERATOR 34). Changes are collected before they are written.
 * If a slice cannot be written, the write is retried while it is needed. At its start, the duty adopts the existing
 * slices and moves only endpoints in a wrong slice.
 */
export class CiliumSliceDuty implements Duty {
  readonly name = 'endpoint-slices';
  readonly #options: CiliumSliceDutyOptions;
  #slices: CiliumSlices;
  /** True if all initially existing slices have been adopted. */
  #hasAdoptedAll = false;
  readonly #latest: LatestObjects;
  /** The slices whose write has failed. They are written again when they are due. */
  readonly #retries: DueKeys;
  /** Endpoints without a valid slice entry, by {@link objectKey}. */
  readonly #rejected = new Set<string>();
  readonly #report: DutyReport;
  #writes = 0;

  constructor(options: CiliumSliceDutyOptions) {
    this.#options = options;
    this.#slices = new CiliumSlices(options);
    const { clock, random } = options;
    this.#retries = new DueKeys({ clock, random, backoff: BACKOFF });
    this.#report = new DutyReport(this.name, options);
    this.#latest = new LatestObjects(() => options.slices.objects);
  }

  async run(signal: AbortSignal): Promise<void> {
    const { endpoints, slices, clock } = this.#options;
    endpoints.follow(signal);
    slices.follow(signal);
    this.#report.state = 'waiting';
    await this.#begin(signal);
    if (!signal.aborted) this.#report.state = 'running';
    while (!signal.aborted) {
      await this.#flush(signal);
      await this.#awaitWork(signal);
      await sleep(clock, GATHER_MS, signal);
    }
    this.#retries.clear();
    this.#report.state = 'ended';
  }

  status(): DutyStatus {
    const { size: pending } = this.#slices.dirty;
    return {
      ...this.#report.status(),
      published: {
        synced: this.#report.state === 'running' && pending === 0,
        keys: this.#slices.size,
        pending,
        writes: this.#writes,
        rejected: this.#rejected.size,
      },
    };
  }

  /** Waits until both kinds are complete, then adopts the existing slices. */
  async #begin(signal: AbortSignal): Promise<void> {
    const { endpoints, slices, gate = OPEN_GATE } = this.#options;
    await this.#report.whenReady(() => endpoints.notReadyReason() ?? slices.notReadyReason(), 0, signal);
    if (signal.aborted) return;
    this.#slices = new CiliumSlices(this.#options);
    for (const state of [this.#latest, this.#rejected]) state.clear();
    this.#hasAdoptedAll = false;
    endpoints.listen((events) => this.#endpointEvents(events), signal);
    slices.listen((events) => this.#sliceEvents(events), signal);
    await gate.runSteps(this.#adoptAll(), signal);
  }

  /**
   * Adopts all slices, and then adds the endpoints, because an endpoint without a known slice is assigned to a new
   * slice.
   */
  *#adoptAll(): Generator<undefined, void, void> {
    const { endpoints, slices } = this.#options;
    yield* forEachInSteps(slices.objects.values(), SLICES_PER_STEP, (slice) => this.#adopt(slice));
    this.#hasAdoptedAll = true;
    yield* forEachInSteps(endpoints.objects.values(), ENDPOINTS_PER_STEP, (endpoint) => this.#put(endpoint));
  }

  #adopt(slice: KubernetesObject): void {
    const { objects } = this.#options.endpoints;
    this.#slices.adopt(slice, (key) => {
      const endpoint = objects.get(key);
      return endpoint && coreEndpoint(endpoint);
    });
  }

  #put(endpoint: KubernetesObject): void {
    const { namespace = '', name } = endpoint.metadata;
    const core = coreEndpoint(endpoint);
    if (core === undefined) {
      this.#rejected.add(objectKey(endpoint));
      this.#slices.remove(namespace, name);
    } else {
      this.#rejected.delete(objectKey(endpoint));
      this.#slices.put(namespace, core);
    }
  }

  #endpointEvents(events: readonly ResourceEvent[]): void {
    for (const { object } of events) {
      const { namespace = '', name } = object.metadata;
      const endpoint = this.#options.endpoints.objects.get(objectKey(object));
      if (endpoint === undefined) {
        this.#rejected.delete(objectKey(object));
        this.#slices.remove(namespace, name);
      } else if (this.#hasAdoptedAll) this.#put(endpoint); // otherwise added when all slices have been adopted
    }
    this.#retries.wake();
  }

  /** Handles the events of slices, of other writers and of this process. */
  #sliceEvents(events: readonly ResourceEvent[]): void {
    for (const key of this.#latest.changedBy(events)) {
      const slice = this.#latest.get(key);
      if (slice === undefined) this.#slices.recordDelete(key.slice('/'.length));
      else this.#adopt(slice);
    }
    this.#retries.wake();
  }

  /** Resolves when a slice must and may be written. */
  async #awaitWork(signal: AbortSignal): Promise<void> {
    for (const name of this.#slices.dirty) if (this.#mayWrite(name)) return;
    await this.#retries.whenDue(signal);
  }

  /** Returns true if a slice waits neither for another slice nor for a retry. */
  #mayWrite(name: string): boolean {
    return this.#slices.get(name)?.waitsFor.size === 0 && !this.#retries.has(name);
  }

  /** Writes the changed slices. A slice that waits for another one is written after it, in the same call. */
  async #flush(signal: AbortSignal): Promise<void> {
    this.#endDueRetries();
    let hasWritten: boolean;
    do {
      hasWritten = false;
      for (const name of [...this.#slices.dirty]) {
        if (signal.aborted) return;
        if (this.#mayWrite(name) && (await this.#write(name, signal))) hasWritten = true;
      }
    } while (hasWritten);
  }

  /** Removes the slices whose delay has ended from the retries. They are still dirty. */
  #endDueRetries(): void {
    for (let name = this.#retries.get(); name !== undefined; name = this.#retries.get())
      this.#retries.done(name);
  }

  /** Writes a slice. Returns true if it is written; otherwise plans a retry. */
  async #write(name: string, signal: AbortSignal): Promise<boolean> {
    const { reader, writer } = this.#options;
    const slice = this.#slices.get(name);
    if (slice === undefined) return false;
    const written = new Map(slice.endpoints);
    const write = this.#writeOf(name, slice.namespace, written);
    if (write === undefined) {
      this.#retries.delete(name);
      this.#slices.recordWrite(name, written);
      return true;
    }
    const reason = `the desired slice has ${counted(written.size, 'endpoint')} of ${slice.namespace}`;
    const key = `/${name}`;
    const known = this.#latest.get(key);
    this.#latest.beginRequest(key);
    const answer = await writer.write(write, reason, signal);
    if (isUnsuccessful(write, answer)) {
      if (signal.aborted) return false;
      this.#retries.retry(name);
      const failed = { key, write, answer, failures: this.#retries.failures(name) };
      await handleFailedWrite(failed, this.#latest, { reader, report: this.#report }, signal);
      return false;
    }
    if (write.verb !== 'update')
      this.#report.addAction({ action: writeText(write), reason, outcome: answer.outcome });
    this.#writes++;
    this.#retries.delete(name);
    const object = answer.outcome === 'done' ? answer.object : known; // a dry run changes nothing
    const result = written.size === 0 ? undefined : object;
    this.#latest.endRequest(result);
    // If the watch has delivered a later version, that version was adopted.
    if (this.#latest.get(key)?.metadata.resourceVersion === result?.metadata.resourceVersion)
      this.#slices.recordWrite(name, written);
    return true;
  }

  /** Returns the write that gives a slice these endpoints; undefined if it does not exist and should have none. */
  #writeOf(
    name: string,
    namespace: string,
    endpoints: ReadonlyMap<string, CoreEndpoint>,
  ): ObjectWrite | undefined {
    const known = this.#latest.get(`/${name}`);
    const place = { kind: CILIUM_ENDPOINT_SLICES, name };
    const content = {
      apiVersion: 'cilium.io/v2alpha1',
      kind: 'CiliumEndpointSlice',
      namespace,
      endpoints: [...endpoints.values()],
    };
    if (known === undefined)
      return endpoints.size === 0
        ? undefined
        : { verb: 'create', kind: CILIUM_ENDPOINT_SLICES, object: { ...content, metadata: { name } } };
    const { uid, resourceVersion } = known.metadata;
    if (endpoints.size === 0) return { verb: 'delete', place, uid, resourceVersion };
    return { verb: 'update', place, object: { ...content, metadata: known.metadata } };
  }
}
