import type { ServiceSelection } from '../../k8s/feed/kinds.ts';
import { KubernetesFeed } from '../../k8s/feed/kubernetes-feed.ts';
import type { FedServices } from '../../k8s/feed/service-readers.ts';
import { ServiceCache } from '../../servicecache/service-cache.ts';
import { formatServiceID, type ServiceID } from '../../servicecache/service-id.ts';
import { type FollowedInputs, type InputContext, Producer, type ProducerOptions } from './producer.ts';
import { serviceValue } from './service-value.ts';

/** Options of {@link serviceSync}. */
export interface ServiceSyncOptions extends ProducerOptions {
  /** The services to list. Default: all including headless ones, except for 1.8 (K 14). */
  readonly selection?: ServiceSelection | undefined;
}

/**
 * Publishes the services of the own cluster as a function of the existing objects, independent of their order. A service has a
 * key if it is shared and has at least one slice, which may be empty.
 */
class ServiceKeys {
  readonly #context: InputContext;
  readonly #cache: ServiceCache;
  /** Names of the slices of each service. */
  readonly #slices = new Map<string, Set<string>>();
  /** Services to publish at the end of the batch. */
  readonly #changed = new Map<string, ServiceID>();

  constructor(context: InputContext) {
    this.#context = context;
    this.#cache = new ServiceCache({ clusterName: context.clusterName });
    this.#cache.markSynced(); // services are published as soon as they exist
  }

  /** The sink of the feed. */
  get engine(): FedServices {
    const cache = this.#cache;
    return {
      updateService: (service) => {
        this.#changed.set(formatServiceID(service.id), service.id);
        return cache.updateService(service);
      },
      deleteService: (id) => {
        this.#changed.set(formatServiceID(id), id);
        return cache.deleteService(id);
      },
      updateEndpoints: (slice) => {
        this.#slicesOf(slice.service).add(slice.name);
        return cache.updateEndpoints(slice);
      },
      deleteEndpoints: (id, name) => {
        this.#slicesOf(id).delete(name);
        return cache.deleteEndpoints(id, name);
      },
      batch: (write) => {
        const result = cache.batch(write);
        for (const [name, id] of this.#changed) this.#say(name, id);
        this.#changed.clear();
        return result;
      },
    };
  }

  #slicesOf(id: ServiceID): Set<string> {
    const name = formatServiceID(id);
    this.#changed.set(name, id);
    const slices = this.#slices.get(name) ?? new Set();
    this.#slices.set(name, slices);
    return slices;
  }

  #say(name: string, id: ServiceID): void {
    const { keys, version = '1.17' } = this.#context;
    const known = this.#cache.get(id);
    const hasSlices = (this.#slices.get(name)?.size ?? 0) > 0;
    if (!hasSlices) this.#slices.delete(name);
    const value =
      known !== undefined && hasSlices
        ? serviceValue(known.service, known.endpoints.backends, this.#context, version)
        : undefined;
    if (value === undefined) keys.delete(name);
    else keys.upsert(name, value);
  }
}

function follow(context: InputContext, selection: ServiceSelection): FollowedInputs {
  const { source, clusterName, clock, random, gate } = context;
  const feed = new KubernetesFeed({
    ...{ source, clusterName, clock, random, gate, selection },
    onReject: (rejection) => context.rejections.add(rejection),
    services: new ServiceKeys(context).engine,
    ...{ nodeName: '', identities: 'none' },
  });
  feed.onChange(context.onChange);
  feed.start();
  return {
    get complete() {
      return feed.synced;
    },
    get kinds() {
      return feed.status().kinds;
    },
    stop: () => feed.stop(),
  };
}

/**
 * Publishes shared services as `cilium/state/services/v1/<cluster>/<namespace>/<name>` (OPERATOR 6 to 9). Changed annotations
 * take effect immediately. Names do not affect the result (bug 8), and keys of earlier runs are deleted (bug 9).
 */
export function serviceSync(options: ServiceSyncOptions): Producer {
  const { version = '1.17', selection = { headless: version !== '1.8' } } = options;
  return new Producer(
    {
      name: 'service sync',
      resource: 'services',
      follow: (context) => follow(context, selection),
    },
    options,
  );
}
