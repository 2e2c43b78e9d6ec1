import { runNowOrInBackground } from '../../base/turn-gate.ts';
import { WorkQueue } from '../../base/work-queue.ts';
import type { FedServices } from '../../k8s/feed/service-readers.ts';
import { ServiceCache } from '../../servicecache/service-cache.ts';
import { formatServiceID, type ServiceID } from '../../servicecache/service-id.ts';
import { SetMap } from '../set-map.ts';
import type { NamespacedValues } from './namespaced-values.ts';
import {
  exportedValues,
  type FollowedInputs,
  type InputContext,
  Producer,
  type ProducerOptions,
  withNamespaces,
} from './producer.ts';
import type { ServiceObjects } from './service-objects.ts';
import { isOffered, minimumBytes, serviceValue } from './service-value.ts';

/** Values above this size are paced. A service of 600 backends has about this size. */
const SMALL_BYTES = 64 * 1024;
/**
 * Maximum rate at which one service is written. Each change of a slice changes the whole value: 10,000 backends have 1
 * MB, and a rolling restart of their pods changes 10,000 slices.
 */
const BYTES_PER_MS = 1024;

/**
 * The keys of the services of the local cluster, as a function of the existing objects, independent of their order. A
 * service has a key if its namespace is global, it is shared, and it has at least one slice, which may be empty.
 */
class ServiceKeys {
  readonly #context: InputContext;
  readonly #cache: ServiceCache;
  /** Names of the slices of each service, by `namespace/name` of the service. */
  readonly #slices = new SetMap<string>();
  /** Services to publish at the end of the batch, by `namespace/name`. */
  readonly #changed = new Map<string, ServiceID>();
  /** When each service with a large value may be written again, by {@link Clock.now}. */
  readonly #pausedUntil = new Map<string, number>();
  /** Services waiting for the end of their pause. */
  readonly #waiting: WorkQueue<string>;
  /** The services that have a key if their namespace is global. */
  readonly #offered = new Map<string, ServiceID>();
  readonly exported: NamespacedValues<ServiceID>;
  #isFlushed = false;

  constructor(context: InputContext) {
    this.#context = context;
    const { clock, random } = context;
    const onDue = (): void => runNowOrInBackground(context.gate, this.#publishDue());
    this.#waiting = new WorkQueue({ clock, random, onDue });
    const namespaceOf = ({ namespace }: ServiceID): string => namespace;
    const change = (current: ServiceID | undefined, previous: ServiceID | undefined): void =>
      this.#write(current, previous);
    this.exported = exportedValues({ namespaceOf, change }, context);
    this.#cache = new ServiceCache({ clusterName: context.clusterName });
    this.#cache.markSynced(); // services are published as soon as they exist
  }

  get engine(): FedServices {
    const cache = this.#cache;
    return {
      updateService: (service) => {
        this.#markChanged(service.id);
        return cache.updateService(service);
      },
      deleteService: (id) => {
        this.#markChanged(id);
        return cache.deleteService(id);
      },
      updateEndpoints: (slice) => {
        this.#slices.add(this.#markChanged(slice.service), slice.name);
        return cache.updateEndpoints(slice);
      },
      deleteEndpoints: (id, name) => {
        this.#slices.delete(this.#markChanged(id), name);
        return cache.deleteEndpoints(id, name);
      },
      batch: (write) => {
        const result = cache.batch(write);
        for (const [name, id] of this.#changed) this.#publish(name, id);
        this.#changed.clear();
        return result;
      },
    };
  }

  /** True if {@link ServiceKeys.publishWaiting} has ended. */
  get isFlushed(): boolean {
    return this.#isFlushed;
  }

  /** Publishes the waiting services, one per step. */
  *publishWaiting(): Generator<undefined, void, void> {
    for (const name of [...this.#waiting.keys()]) {
      this.#waiting.delete(name);
      this.#pausedUntil.delete(name);
      this.#publishAgain(name);
      yield;
    }
    this.#isFlushed = true;
  }

  stop(): void {
    this.#waiting.clear();
  }

  /** Publishes the services whose pause has ended, one per step, because each value may have 1 MB. */
  *#publishDue(): Generator<undefined, void, void> {
    for (let name = this.#waiting.get(); name !== undefined; name = this.#waiting.get()) {
      this.#waiting.done(name);
      this.#publishAgain(name);
      yield;
    }
  }

  /** Publishes a service unless its key was deleted while it waited. */
  #publishAgain(name: string): void {
    const id = this.#offered.get(name);
    if (id !== undefined) this.#publish(name, id);
  }

  /** Marks a service to be published at the end of the batch. Returns its name. */
  #markChanged(id: ServiceID): string {
    const name = formatServiceID(id);
    this.#changed.set(name, id);
    return name;
  }

  #publish(name: string, id: ServiceID): void {
    const { version = '1.17', clock } = this.#context;
    const known = this.#cache.get(id);
    const hasSlices = this.#slices.get(name).size > 0;
    const previous = this.#offered.get(name);
    const current = known !== undefined && hasSlices && isOffered(known.service, version) ? id : undefined;
    const pauseMs = (this.#pausedUntil.get(name) ?? 0) - clock.now();
    if (current !== undefined && pauseMs > 0) {
      this.#waiting.addAfter(name, pauseMs);
      return;
    }
    this.#waiting.delete(name);
    if (current === undefined) this.#offered.delete(name);
    else this.#offered.set(name, current);
    this.exported.change(current, previous);
  }

  #write(current: ServiceID | undefined, previous: ServiceID | undefined): void {
    const { keys, version = '1.17', clock } = this.#context;
    const known = current && this.#cache.get(current);
    const id = current ?? previous;
    if (id === undefined) return;
    const name = formatServiceID(id);
    const atLeast = known === undefined ? 0 : minimumBytes(known.endpoints.backends);
    const isTooLarge = keys.rejectTooLarge(name, atLeast, `at least ${atLeast} bytes`);
    const value =
      known === undefined || isTooLarge
        ? undefined
        : serviceValue(known.service, known.endpoints.backends, this.#context, version);
    const size = value?.length ?? atLeast;
    if (size > SMALL_BYTES) this.#pausedUntil.set(name, clock.now() + size / BYTES_PER_MS);
    else this.#pausedUntil.delete(name);
    if (value === undefined) keys.delete(name);
    else keys.upsert(name, value);
  }
}

function follow(context: InputContext, objects: ServiceObjects): FollowedInputs {
  const services = new ServiceKeys(context);
  let joined: FollowedInputs | undefined; // undefined in `onChange` if `join` calls it
  let hasBegunToFlush = false;
  const onChange = (): void => {
    if (hasBegunToFlush || joined?.complete !== true) context.onChange();
    else {
      hasBegunToFlush = true;
      runNowOrInBackground(context.gate, services.publishWaiting(), { onEnd: context.onChange });
    }
  };
  joined = objects.join({
    services: services.engine,
    onReject: (rejection) => context.rejections.add(rejection),
    onChange,
  });
  const inputs: FollowedInputs = {
    get complete() {
      return joined?.complete === true && services.isFlushed;
    },
    get kinds() {
      return joined?.kinds ?? [];
    },
    stop: async () => {
      services.stop();
      await joined?.stop();
    },
  };
  return withNamespaces(inputs, services.exported, context);
}

/**
 * Publishes shared services as `cilium/state/services/v1/<cluster>/<namespace>/<name>` (OPERATOR 6 to 9). Changed
 * annotations take effect immediately, unless the value is large: see {@link BYTES_PER_MS}. The result does not depend
 * on the names of slices, and keys of earlier runs are deleted.
 */
export function serviceSync(options: ProducerOptions, objects: ServiceObjects): Producer {
  return new Producer(
    { name: 'service sync', resource: 'services', follow: (context) => follow(context, objects) },
    options,
  );
}
