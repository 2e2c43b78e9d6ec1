import {
  type Check,
  checkArgument,
  FUNCTION,
  OBJECT,
  objectWith,
  optionsWith,
  TEXT,
} from '../base/arguments.ts';
import type { Failure } from '../base/failure.ts';
import { EitherSignal } from '../base/follow-signal.ts';
import { CallbackGuard, type FaultListener } from '../base/guard.ts';
import { type RuntimeOptions, withRuntime } from '../base/system-clock.ts';
import { TurnGate } from '../base/turn-gate.ts';
import { Reflector, type ReflectorContext } from './reflector/reflector.ts';
import type {
  FollowedResource,
  FollowOptions,
  ResourceKind,
  ResourceSink,
  ResourceSource,
  ResourceStatus,
} from './resource.ts';
import type { ApiTransport } from './rest/api-transport.ts';
import type { ClusterAccess } from './rest/cluster-access.ts';
import { ConnectionHealth } from './rest/connection-health.ts';
import { firstServed } from './rest/discovery.ts';
import { HttpTransport } from './rest/http-transport.ts';
import { ApiObjectReader, type ObjectReader, type ObjectReaderOptions } from './rest/object-reader.ts';
import { ApiObjectWriter, type ObjectWriter, type ObjectWriterOptions } from './rest/object-writer.ts';

/** Options of {@link KubernetesClient}. */
export interface KubernetesClientOptions extends RuntimeOptions {
  /** Limits the work in one turn of the event loop. Default: no limit. */
  readonly gate?: TurnGate | undefined;
  /** Receives the errors of sinks and other callbacks. */
  readonly onFault?: FaultListener | undefined;
}

/** Status of a client. */
export interface KubernetesClientStatus {
  /** `https://host:port`; `memory` for a server in this process. */
  readonly server: string;
  /** The running reflectors in order of start. */
  readonly resources: readonly ResourceStatus[];
  /** Number of health checks, which are sent if no data arrives. */
  readonly probes: number;
  /** Number of times that all connections were closed because the health check failed. */
  readonly resets: number;
  readonly lastFailure: Failure | undefined;
  /** Number of errors of sinks and other callbacks. */
  readonly faults: number;
}

/**
 * A client of one API server with one connection pool, which lists and watches objects; `src/k8s/README.md` lists the
 * guarantees. Sends nothing before the first call.
 */
export class KubernetesClient implements ResourceSource, AsyncDisposable {
  readonly #server: string;
  readonly #transport: ConnectionHealth;
  readonly #context: ReflectorContext;
  readonly #guard: CallbackGuard;
  readonly #closed = new AbortController();
  readonly #followed = new Set<Reflector>();
  /** Resolves when the health checks have ended; undefined before the first reflector. */
  #healthChecks: Promise<void> | undefined;

  /** @param access address and credentials of the server, or a transport */
  constructor(access: ClusterAccess | ApiTransport, options: KubernetesClientOptions = {}) {
    checkArgument('new KubernetesClient: access', access, ACCESS);
    checkArgument('new KubernetesClient: options', options, optionsWith());
    const { clock, random, gate = new TurnGate({ clock, nextTurn: setImmediate }) } = withRuntime(options);
    const isTransport = 'send' in access;
    this.#server = isTransport ? 'memory' : access.server;
    this.#transport = new ConnectionHealth(isTransport ? access : new HttpTransport(access), clock);
    this.#guard = new CallbackGuard(options.onFault);
    this.#context = {
      transport: this.#transport,
      clock,
      random,
      gate,
      closed: this.#closed.signal,
      onFault: (error) => this.#guard.report(error),
    };
  }

  follow(kind: ResourceKind, sink: ResourceSink, options: FollowOptions = {}): FollowedResource {
    const reflector = new Reflector(kind, sink, options, this.#context);
    this.#followed.add(reflector);
    void reflector.stopped.then(() => this.#followed.delete(reflector));
    this.#healthChecks ??= this.#transport.runChecks();
    return reflector;
  }

  async firstServed(
    kinds: readonly ResourceKind[],
    signal: AbortSignal = this.#closed.signal,
  ): Promise<ResourceKind | undefined> {
    using either = new EitherSignal(signal, this.#closed.signal);
    return await firstServed(kinds, { ...this.#context, signal: either.signal });
  }

  /** Returns a reader of objects and lists by quorum, not from the watch cache. */
  reader(options?: ObjectReaderOptions): ObjectReader {
    return new ApiObjectReader(this.#transport, this.#context.clock, options);
  }

  /** Returns a writer of objects. Each writer has a separate rate limit and fence. */
  writer(options?: ObjectWriterOptions): ObjectWriter {
    return new ApiObjectWriter(this.#transport, this.#context.clock, options);
  }

  status(): KubernetesClientStatus {
    return {
      server: this.#server,
      resources: [...this.#followed].map((reflector) => reflector.status()),
      ...this.#transport.status(),
      faults: this.#guard.faults,
    };
  }

  /** Stops all reflectors and closes all connections. */
  async close(): Promise<void> {
    this.#closed.abort();
    await Promise.all([...this.#followed].map(({ stopped }) => stopped));
    await this.#transport.close();
    await this.#healthChecks;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

const ACCESS: Check = (value) =>
  objectWith({ send: FUNCTION })(value) === undefined
    ? undefined
    : objectWith({ server: TEXT, credentials: OBJECT })(value);
