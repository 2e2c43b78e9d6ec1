import { type Backends, NO_BACKENDS } from '../../../servicecache/backend.ts';
import type { ServiceEvent, ServiceListener } from '../../../servicecache/events.ts';
import { FrontendIndex, type FrontendMatch } from '../../../servicecache/frontend-index.ts';
import {
  type FrontendKind,
  formatFrontend,
  frontendsOf,
  type NodePortOptions,
} from '../../../servicecache/frontends.ts';
import { type BackendSelection, selectBackends } from '../../../servicecache/selection.ts';
import type { Service } from '../../../servicecache/service.ts';
import { formatServiceID, type ServiceID } from '../../../servicecache/service-id.ts';
import type { DesiredItems } from '../kernel-table.ts';

/** What the kernel is to do with traffic to a frontend. */
export interface ServiceItem {
  /** `10.0.0.1:8080/TCP`, `[fd00::1]:8080/TCP`: each once, sorted. None: traffic is refused. */
  readonly backends: readonly string[];
  /** How long a client stays with its backend; 0: no longer than its connection. */
  readonly affinitySeconds: number;
}

/** Where the services of a host are. */
export interface DesiredServicesOptions {
  /** Addresses that answer on node ports: those of this host. `0.0.0.0` and `::` stand for themselves here. */
  readonly nodePort: NodePortOptions;
  /** The own node, `''` when it has no name: for `Local` traffic policies. */
  readonly nodeName: string;
  readonly zone?: string | undefined;
  readonly selection?: BackendSelection | undefined;
}

const NO_ITEMS: readonly string[] = [];

/**
 * What is to be in the kernel: the frontends of services, by `formatFrontend`, each with the backends that take its
 * traffic on this node. Made of the events of a service cache; of two services that claim a frontend one has it, whichever
 * came first. Backends are selected when they are asked for.
 */
export class DesiredServices implements DesiredItems<ServiceItem> {
  readonly #options: DesiredServicesOptions;
  readonly #index: FrontendIndex;
  #nodePort: NodePortOptions;
  readonly #backends = new Map<string, Backends>();
  readonly #withAffinity = new Set<string>();

  constructor(options: DesiredServicesOptions) {
    this.#options = options;
    this.#nodePort = options.nodePort;
    this.#index = new FrontendIndex(options.nodePort);
  }

  /** Other addresses answer on node ports from here on. Gives the frontends that may have changed. */
  setNodePort(nodePort: NodePortOptions): ReadonlySet<string> {
    this.#nodePort = nodePort;
    return this.#index.setNodePort(nodePort);
  }

  get size(): number {
    return this.#index.size;
  }

  /** Names of services whose clients are to stay with their backend longer than a connection, `shop/web`; in no order. */
  get withAffinity(): ReadonlySet<string> {
    return this.#withAffinity;
  }

  get(key: string): ServiceItem | undefined {
    const match = this.#index.get(key);
    return match && this.#itemOf(match);
  }

  *entries(): Generator<readonly [string, ServiceItem], void, void> {
    for (const key of this.#index.keys()) {
      const item = this.get(key);
      if (item !== undefined) yield [key, item];
    }
  }

  /** Takes the events of a cache, and says which frontends may have changed. */
  listener(mark: (frontend: string) => void): ServiceListener {
    return {
      onEvents: (events) => {
        for (const event of events) this.#take(event, mark);
      },
    };
  }

  #take(
    { action, id, service, oldService, endpoints }: ServiceEvent,
    mark: (frontend: string) => void,
  ): void {
    const name = formatServiceID(id);
    const isGone = action === 'delete';
    this.#index.update(name, isGone ? undefined : service);
    if (isGone) this.#backends.delete(name);
    else this.#backends.set(name, endpoints.backends);
    if (!isGone && service.sessionAffinitySeconds > 0) this.#withAffinity.add(name);
    else this.#withAffinity.delete(name);
    const touched = new Set<string>();
    for (const one of new Set([service, oldService])) {
      if (one !== undefined) for (const frontend of this.#frontendsOf(one)) touched.add(frontend);
    }
    for (const frontend of touched) mark(frontend);
  }

  #frontendsOf(service: Service): readonly string[] {
    return frontendsOf(service, this.#nodePort).map(formatFrontend);
  }

  #itemOf({ id, service, frontend }: FrontendMatch): ServiceItem {
    const selected = this.#select(id, service, frontend.kind);
    const isIPv6 = frontend.ip.includes(':');
    const backends: string[] = [];
    for (const { address, ports } of selected.values()) {
      const at = ports.get(frontend.portName);
      if (at === undefined || at.protocol !== frontend.protocol || address.includes(':') !== isIPv6) continue;
      backends.push(formatFrontend({ ip: address, port: at.port, protocol: at.protocol }));
    }
    return {
      backends: backends.length === 0 ? NO_ITEMS : [...new Set(backends)].sort(),
      affinitySeconds: service.sessionAffinitySeconds,
    };
  }

  #select(id: ServiceID, service: Service, frontend: FrontendKind): Backends {
    const backends = this.#backends.get(formatServiceID(id)) ?? NO_BACKENDS;
    const { selection = selectBackends, nodeName, zone = '' } = this.#options;
    return selection(backends, { service, frontend, nodeName, zone });
  }
}
