import type { Clock, Random } from '../base/clock.ts';
import type { Failure } from '../base/failure.ts';
import { CallbackGuard, type FaultListener } from '../base/guard.ts';
import { systemClock } from '../base/system-clock.ts';
import { TurnGate } from '../base/turn-gate.ts';
import type { ApiTransport } from './client/api-transport.ts';
import type { ClusterAccess } from './client/cluster-access.ts';
import { ConnectionHealth } from './client/connection-health.ts';
import { firstServed } from './client/discovery.ts';
import { HttpTransport } from './client/http-transport.ts';
import { ApiObjectReader, type ObjectReader, type ObjectReaderOptions } from './client/object-reader.ts';
import { ApiObjectWriter, type ObjectWriter, type ObjectWriterOptions } from './client/object-writer.ts';
import { Reflector } from './reflector/reflector.ts';
import type {
  FollowedResource,
  FollowOptions,
  ResourceKind,
  ResourceSink,
  ResourceSource,
  ResourceStatus,
} from './resource.ts';

/** Options of {@link KubernetesClient}. */
export interface KubernetesClientOptions {
  readonly clock?: Clock | undefined;
  readonly random?: Random | undefined;
  /** Shared with others whose work must not hold up the event loop together. */
  readonly gate?: TurnGate | undefined;
  /** Receives what sinks and other callbacks throw. */
  readonly onFault?: FaultListener | undefined;
}

/** A client as data. */
export interface KubernetesClientStatus {
  /** `https://host:port`; `memory` for a server in this process. */
  readonly server: string;
  /** In order of start; one that has stopped is left out. */
  readonly resources: readonly ResourceStatus[];
  /** How often the server was asked whether it lives, as nothing came from it. */
  readonly probes: number;
  /** How often all connections were closed, as it did not answer. */
  readonly resets: number;
  readonly lastFailure: Failure | undefined;
  /** Faults of sinks and other callbacks. */
  readonly faults: number;
}

/**
 * One API server: follows its objects, over one pool of connections. See the README of this room for what that promises.
 * Begins nothing before it is asked to follow something.
 */
export class KubernetesClient implements ResourceSource {
  readonly #server: string;
  readonly #transport: ConnectionHealth;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #gate: TurnGate;
  readonly #guard: CallbackGuard;
  readonly #closed = new AbortController();
  readonly #followed = new Set<Reflector>();
  #watching: Promise<void> | undefined;

  /** @param way to the server: how it is reached and entered, or what already reaches it */
  constructor(way: ClusterAccess | ApiTransport, options: KubernetesClientOptions = {}) {
    const { clock = systemClock, random = Math.random, onFault } = options;
    const isTransport = 'send' in way;
    this.#server = isTransport ? 'memory' : way.server;
    this.#transport = new ConnectionHealth(isTransport ? way : new HttpTransport(way), clock);
    this.#clock = clock;
    this.#random = random;
    this.#gate = options.gate ?? new TurnGate({ clock, nextTurn: setImmediate });
    this.#guard = new CallbackGuard(onFault);
  }

  follow(kind: ResourceKind, sink: ResourceSink, options: FollowOptions = {}): FollowedResource {
    const reflector = new Reflector(kind, sink, options, {
      transport: this.#transport,
      clock: this.#clock,
      random: this.#random,
      gate: this.#gate,
      closed: this.#closed.signal,
      onFault: (error) => this.#guard.report(error),
    });
    this.#followed.add(reflector);
    void reflector.stopped.then(() => this.#followed.delete(reflector));
    this.#watching ??= this.#transport.watch();
    return reflector;
  }

  firstServed(kinds: readonly ResourceKind[], signal?: AbortSignal): Promise<ResourceKind | undefined> {
    const { signal: closed } = this.#closed;
    return firstServed(kinds, {
      transport: this.#transport,
      clock: this.#clock,
      signal: signal === undefined ? closed : AbortSignal.any([signal, closed]),
    });
  }

  /** Reads single objects and lists, from etcd. */
  reader(options?: ObjectReaderOptions): ObjectReader {
    return new ApiObjectReader(this.#transport, this.#clock, options);
  }

  /** Writes objects. Each writer has a rate and a fence of its own. */
  writer(options?: ObjectWriterOptions): ObjectWriter {
    return new ApiObjectWriter(this.#transport, this.#clock, options);
  }

  status(): KubernetesClientStatus {
    return {
      server: this.#server,
      resources: [...this.#followed].map((reflector) => reflector.status()),
      ...this.#transport.status(),
      faults: this.#guard.faults,
    };
  }

  /** Stops what is followed, and ends all connections. */
  async close(): Promise<void> {
    this.#closed.abort();
    await Promise.all([...this.#followed].map(({ stopped }) => stopped));
    await this.#transport.close();
    await this.#watching;
  }
}
