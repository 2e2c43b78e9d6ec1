import type { Clock } from '../../base/clock.ts';
import { type Failure, failureOf } from '../../base/failure.ts';
import { CallbackGuard } from '../../base/guard.ts';
import { sleep } from '../../base/sleep.ts';
import { OPEN_GATE, type TurnGate } from '../../base/turn-gate.ts';
import type { ObjectReader } from '../../k8s/client/object-reader.ts';
import type { ObjectPlace, ObjectWrite, ObjectWriter, WriteOutcome } from '../../k8s/client/object-writer.ts';
import { CILIUM_ENDPOINT_SLICES } from '../../k8s/feed/kinds.ts';
import type { KubernetesObject, ResourceEvent } from '../../k8s/resource.ts';
import { type ObservedKind, objectKey } from '../collect/observed-kind.ts';
import { CollectError } from '../collect/reaper.ts';
import type { Duty, DutyState, DutyStatus } from '../duty.ts';
import {
  type CoreEndpoint,
  coreEndpoint,
  EndpointSlices,
  type EndpointSlicesOptions,
} from './endpoint-slices.ts';

/** A kind that is followed event by event. */
type Listened = Pick<ObservedKind, 'objects' | 'blocked' | 'use' | 'listen'>;

/** What a {@link SliceDuty} works with. */
export interface SliceDutyOptions extends EndpointSlicesOptions {
  /** With identity, networking, encryption and named ports. */
  readonly endpoints: Listened;
  /** With all that they have. */
  readonly slices: Listened;
  readonly reader: ObjectReader;
  /** 10 writes a second. */
  readonly writer: ObjectWriter;
  readonly clock: Clock;
  /** Shares out the start over turns of the event loop. Default: all at once. */
  readonly gate?: TurnGate | undefined;
  readonly onFailure?: ((error: unknown, duty: string) => void) | undefined;
}

/** Changes are gathered so long. */
const GATHER_MS = 500;
const BACKOFF_MS = { first: 1000, cap: 100_000 };
const LOOK_MS = 1000;
/** Endpoints that are put in one step of taking over: about a ms. */
const STEP_WEIGHT = 256;
/** A slice of 100 endpoints is compared in the time in which so many are put. */
const SLICE_WEIGHT = 16;

/**
 * Keeps CiliumEndpointSlices equal to the CiliumEndpoints (OPERATOR 34): changes are gathered, and a slice that cannot be
 * written is tried again for as long as it is needed. At its start it takes over the slices that are there, and moves nothing.
 */
export class SliceDuty implements Duty {
  readonly name = 'endpoint-slices';
  readonly #options: SliceDutyOptions;
  readonly #guard = new CallbackGuard();
  #slices: EndpointSlices;
  #state: DutyState = 'waiting';
  /** Whether all slices have been taken over that were there at first. */
  #isTaken = false;
  /** As the server has them, as far as is known. */
  readonly #known = new Map<string, KubernetesObject>();
  /** Versions that we have written and not been shown yet. */
  readonly #echoes = new Map<string, Set<string>>();
  /** When a slice that has failed may be tried again, and how often it has failed in a row. */
  readonly #failed = new Map<string, { readonly at: number; readonly times: number }>();
  #wake: (() => void) | undefined;
  #writes = 0;
  #failures = 0;
  #lastFailure: Failure | undefined;

  constructor(options: SliceDutyOptions) {
    this.#options = options;
    this.#slices = new EndpointSlices(options);
  }

  async run(signal: AbortSignal): Promise<void> {
    const { endpoints, slices, clock } = this.#options;
    endpoints.use(signal);
    slices.use(signal);
    this.#state = 'waiting';
    await this.#begin(signal);
    if (!signal.aborted) this.#state = 'running';
    while (!signal.aborted) {
      await this.#flush(signal);
      await this.#awaitWork(signal);
      await sleep(clock, GATHER_MS, signal);
    }
    this.#state = 'ended';
  }

  status(): DutyStatus {
    const { size: pending } = this.#slices.dirty;
    const refused = [...this.#options.endpoints.objects.values()].filter(
      (one) => coreEndpoint(one) === undefined,
    );
    return {
      name: this.name,
      state: this.#state,
      failures: this.#failures,
      lastFailure: this.#lastFailure,
      published: {
        synced: this.#state === 'running' && pending === 0,
        keys: this.#slices.size,
        pending,
        writes: this.#writes,
        refused: refused.length,
      },
    };
  }

  /** Once both kinds are known completely, takes over what is there. */
  async #begin(signal: AbortSignal): Promise<void> {
    const { endpoints, slices, clock, gate = OPEN_GATE } = this.#options;
    for (;;) {
      const why = endpoints.blocked() ?? slices.blocked();
      if (signal.aborted) return;
      if (why === undefined) break;
      if (this.#lastFailure?.message !== why) this.#failure(new CollectError('not-ready', why));
      await sleep(clock, LOOK_MS, signal);
    }
    this.#slices = new EndpointSlices(this.#options);
    this.#known.clear();
    this.#failed.clear();
    this.#echoes.clear();
    this.#isTaken = false;
    endpoints.listen((events) => this.#endpointEvents(events), signal);
    slices.listen((events) => this.#sliceEvents(events), signal);
    await gate.runSteps(this.#takeOver(), signal);
  }

  /** All slices before any endpoint, which would get a new one otherwise. */
  *#takeOver(): Generator<undefined, void, void> {
    const { endpoints, slices } = this.#options;
    let weight = 0;
    for (const slice of slices.objects.values()) {
      this.#adopt(slice);
      weight += SLICE_WEIGHT;
      if (weight % STEP_WEIGHT === 0) yield;
    }
    this.#isTaken = true;
    for (const endpoint of endpoints.objects.values()) {
      this.#put(endpoint);
      if (++weight % STEP_WEIGHT === 0) yield;
    }
  }

  #adopt(slice: KubernetesObject): void {
    const { objects } = this.#options.endpoints;
    this.#known.set(slice.metadata.name, slice);
    this.#slices.adopt(slice, (key) => {
      const endpoint = objects.get(key);
      return endpoint && coreEndpoint(endpoint);
    });
  }

  #put(endpoint: KubernetesObject): void {
    const { namespace = '', name } = endpoint.metadata;
    const core = coreEndpoint(endpoint);
    if (core === undefined) this.#slices.remove(namespace, name);
    else this.#slices.put(namespace, core);
  }

  #endpointEvents(events: readonly ResourceEvent[]): void {
    for (const { object } of events) {
      const { namespace = '', name } = object.metadata;
      const now = this.#options.endpoints.objects.get(objectKey(object));
      if (now === undefined) this.#slices.remove(namespace, name);
      else if (this.#isTaken) this.#put(now); // else it is put when all slices have been taken over
    }
    this.#wake?.();
  }

  /** What others, or we, have done to slices. */
  #sliceEvents(events: readonly ResourceEvent[]): void {
    for (const { type, object } of events) {
      const { name, uid } = object.metadata;
      if (type === 'put') {
        if (!this.#isEcho(object)) this.#adopt(object);
      } else if (this.#known.get(name)?.metadata.uid === uid) {
        this.#known.delete(name);
        this.#slices.lost(name);
      }
    }
    this.#wake?.();
  }

  #isEcho({ metadata: { name, resourceVersion } }: KubernetesObject): boolean {
    const own = this.#echoes.get(name);
    if (own === undefined || !own.has(resourceVersion)) return false;
    if (this.#known.get(name)?.metadata.resourceVersion === resourceVersion) this.#echoes.delete(name);
    return true;
  }

  /** Until something is to be written, at the time at which it may be. */
  async #awaitWork(signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    const woken = new AbortController();
    this.#wake = () => woken.abort();
    const times = [...this.#slices.dirty].map((name) => this.#failed.get(name)?.at ?? 0);
    const waitMs = Math.min(BACKOFF_MS.cap, ...times.map((at) => at - clock.now()));
    await sleep(clock, Math.max(0, waitMs), AbortSignal.any([signal, woken.signal]));
    this.#wake = undefined;
  }

  /** Writes what is dirty, those first that others wait for. */
  async #flush(signal: AbortSignal): Promise<void> {
    for (let progress = true; progress; ) {
      progress = false;
      for (const name of [...this.#slices.dirty]) {
        const slice = this.#slices.get(name);
        const isDue = (this.#failed.get(name)?.at ?? 0) <= this.#options.clock.now();
        if (slice === undefined || slice.after.size > 0 || !isDue || signal.aborted) continue;
        progress = (await this.#write(name, signal)) || progress;
      }
    }
  }

  async #write(name: string, signal: AbortSignal): Promise<boolean> {
    const { writer, clock } = this.#options;
    const slice = this.#slices.get(name);
    if (slice === undefined) return false;
    const written = new Map(slice.endpoints);
    const write = this.#writeOf(name, slice.namespace, written);
    const why = `the slice is to have ${written.size} endpoints of ${slice.namespace}`;
    const answer: WriteOutcome =
      write === undefined ? { outcome: 'done', object: undefined } : await writer.write(write, why, signal);
    const isGone = write?.verb === 'delete' && answer.outcome === 'not-found';
    if (answer.outcome === 'done' || answer.outcome === 'dry-run' || isGone) {
      if (answer.outcome === 'done' && answer.object !== undefined) this.#hold(answer.object);
      if (written.size === 0) {
        this.#known.delete(name);
        this.#echoes.delete(name);
      }
      this.#writes++;
      this.#failed.delete(name);
      this.#slices.wrote(name, written);
      return true;
    }
    if (signal.aborted) return false;
    const times = (this.#failed.get(name)?.times ?? 0) + 1;
    const delay = Math.min(BACKOFF_MS.cap, BACKOFF_MS.first * 2 ** (times - 1));
    this.#failed.set(name, { at: clock.now() + delay, times });
    if (answer.outcome === 'conflict' || answer.outcome === 'not-found') await this.#look(name, signal);
    else if (answer.outcome === 'failed') this.#failure(answer.error);
    else {
      const said = 'message' in answer ? answer.message : 'this operator does not hold the lease';
      this.#failure(new CollectError(answer.outcome, `cannot write slice ${name}: ${said}`));
    }
    return false;
  }

  #hold(slice: KubernetesObject): void {
    const { name, resourceVersion } = slice.metadata;
    this.#known.set(name, slice);
    this.#echoes.set(name, (this.#echoes.get(name) ?? new Set()).add(resourceVersion));
  }

  #writeOf(
    name: string,
    namespace: string,
    endpoints: ReadonlyMap<string, CoreEndpoint>,
  ): ObjectWrite | undefined {
    const known = this.#known.get(name);
    const place: ObjectPlace = { kind: CILIUM_ENDPOINT_SLICES, name };
    const content = {
      ...{ apiVersion: 'cilium.io/v2alpha1', kind: 'CiliumEndpointSlice' },
      ...{ namespace, endpoints: [...endpoints.values()] },
    };
    if (known === undefined)
      return endpoints.size === 0
        ? undefined
        : { verb: 'create', kind: CILIUM_ENDPOINT_SLICES, object: { ...content, metadata: { name } } };
    const { uid, resourceVersion } = known.metadata;
    if (endpoints.size === 0) return { verb: 'delete', place, uid, resourceVersion };
    return { verb: 'update', place, object: { ...content, metadata: known.metadata } };
  }

  /** Somebody else has written the slice: what is there is looked at before the next try. */
  async #look(name: string, signal: AbortSignal): Promise<void> {
    try {
      const found = await this.#options.reader.get({ kind: CILIUM_ENDPOINT_SLICES, name }, signal);
      if (found === undefined) this.#known.delete(name);
      else this.#known.set(name, found);
    } catch (error) {
      if (!signal.aborted) this.#failure(error);
    }
  }

  #failure(error: unknown): void {
    const { clock, onFailure } = this.#options;
    if (!(error instanceof CollectError && error.code === 'not-ready')) this.#failures++;
    this.#lastFailure = failureOf(error, clock);
    this.#guard.call(onFailure, error, this.name);
  }
}
