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
import { isOffered, serviceValue } from './service-value.ts';

/**
 * The keys of the services of the local cluster, as a function of the existing objects, independent of their order. A
 * service has a key if its namespace is global, it is shared, and it has at least one slice, which may be empty.
 */
class ServiceKeys {
  readonly #context: InputContext;
  readonly #cache: ServiceCache;
  /** Names of the slices of each service, by `namespace/name` of the service. */
  readonly #slices = new SetMap<string>();
  /** Services to publish at the end of the batch. */
  readonly #changed = new Map<string, ServiceID>();
  /** The services that have a key if their namespace is global. */
  readonly #shared = new Map<string, ServiceID>();
  readonly exported: NamespacedValues<ServiceID>;

  constructor(context: InputContext) {
    this.#context = context;
    const namespaceOf = ({ namespace }: ServiceID): string => namespace;
    const change = (current: ServiceID | undefined, previous: ServiceID | undefined): void =>
      this.#write(current, previous);
    this.exported = exportedValues('others', { namespaceOf, change }, context);
    this.#cache = new ServiceCache({ clusterName: context.clusterName });
    this.#cache.markSynced(); // services are published as soon as they exist
  }

  /** The engine of the feed. */
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

  /** Marks a service to be published at the end of the batch. Returns its name. */
  #markChanged(id: ServiceID): string {
    const name = formatServiceID(id);
    this.#changed.set(name, id);
    return name;
  }

  #publish(name: string, id: ServiceID): void {
    const { version = '1.17' } = this.#context;
    const known = this.#cache.get(id);
    const hasSlices = this.#slices.get(name).size > 0;
    const previous = this.#shared.get(name);
    const current = known !== undefined && hasSlices && isOffered(known.service, version) ? id : undefined;
    if (current === undefined) this.#shared.delete(name);
    else this.#shared.set(name, current);
    this.exported.change(current, previous);
  }

  #write(current: ServiceID | undefined, previous: ServiceID | undefined): void {
    const { keys, version = '1.17' } = this.#context;
    const known = current && this.#cache.get(current);
    const value = known && serviceValue(known.service, known.endpoints.backends, this.#context, version);
    const id = current ?? previous;
    if (id === undefined) return;
    if (value === undefined) keys.delete(formatServiceID(id));
    else keys.upsert(formatServiceID(id), value);
  }
}

function follow(context: InputContext, objects: ServiceObjects): FollowedInputs {
  const services = new ServiceKeys(context);
  const inputs = objects.join({
    services: services.engine,
    onReject: (rejection) => context.rejections.add(rejection),
    onChange: context.onChange,
  });
  return withNamespaces(inputs, 'others', services.exported, context);
}

/**
 * Publishes shared services as `cilium/state/services/v1/<cluster>/<namespace>/<name>` (OPERATOR 6 to 9). Changed
 * annotations take effect immediately. The result does not depend on the names of slices, and keys of earlier runs are
 * deleted.
 */
export function serviceSync(options: ProducerOptions, objects: ServiceObjects): Producer {
  return new Producer(
    { name: 'service sync', resource: 'services', follow: (context) => follow(context, objects) },
    options,
  );
}
