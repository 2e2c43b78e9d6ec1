import { Metadata } from '@grpc/grpc-js';
import { Etcd3 } from 'etcd3';
import { abortedError, asKvstoreError, deadlineError, KvstoreError } from '../errors.ts';
import { sharedSignal } from '../shared-signal.ts';
import type { CallOptions } from '../transport.ts';
import type { EtcdConfig } from './etcd-config.ts';
import {
  type Deadline,
  EtcdConnection,
  type EtcdStream,
  type StreamObserver,
  type UnaryCall,
} from './etcd-connection.ts';

/** The services that are called. */
export type EtcdService = 'KV' | 'Watch' | 'Lease' | 'Maintenance' | 'Auth';

/** A method as etcd3's service clients carry it: how its messages are written and read. */
interface MethodDefinition {
  readonly path: string;
  readonly requestSerialize: (payload: object) => Buffer;
  readonly responseDeserialize: (answer: Buffer) => unknown;
}

const NO_USERS = 'authentication is not enabled';

const asIs = (bytes: Buffer): Buffer => bytes;

/** etcd3's definitions of the services. Their clients are never called, so they make no connection. */
class EtcdDefinitions extends Etcd3 {
  /** A call in etcd3's own encoding. */
  async call<T>(service: EtcdService, method: string, payload: object): Promise<UnaryCall<T>> {
    const definition = await this.pool.withConnection('KV', ({ resource }) => {
      const client: object = resource.getServiceClient(service);
      return (client as Readonly<Record<string, MethodDefinition>>)[method]; // grpc-js puts it on the method
    });
    if (definition === undefined) throw new KvstoreError('internal', `no method ${service}.${method}`);
    const { path, requestSerialize, responseDeserialize } = definition;
    const decode = (answer: Buffer): T => responseDeserialize(answer) as T; // as its definition says
    return { path, request: requestSerialize(payload), decode };
  }
}

let loaded: EtcdDefinitions | undefined;

function definitions(): EtcdDefinitions {
  loaded ??= new EtcdDefinitions();
  return loaded;
}

/**
 * One endpoint of an etcd cluster: a connection of its own, so that who was asked is known, and the user's token. Calls
 * have a deadline each, and can be aborted. Errors are `KvstoreError`s. Nothing is retried here.
 *
 * Tokens are fetched over the same connection. etcd3 would open another for each, never close it, and after an
 * outage of some seconds wait for up to two minutes before it tries to connect again.
 */
export class EtcdEndpoint {
  readonly address: string;
  readonly #auth: EtcdConfig['auth'];
  readonly #connection: EtcdConnection;
  /** The token, or the call that fetches it. */
  #metadata: Promise<Metadata> | undefined;
  /** When that was asked for, by `performance.now`. */
  #fetchedAt = 0;
  /** How many tokens have been given up. */
  #givenUp = 0;
  #closed = false;

  constructor(config: EtcdConfig, address: string) {
    this.address = address;
    this.#auth = config.auth;
    this.#connection = new EtcdConnection(config, address);
  }

  /** Streams that are open. */
  get streams(): number {
    return this.#connection.streams;
  }

  /** Calls a method in etcd3's own encoding: for what is rare. Longs are decimal text. */
  async call<T>(service: EtcdService, method: string, payload: object, options?: CallOptions): Promise<T> {
    return this.#unary(await definitions().call<T>(service, method, payload), options);
  }

  /** Calls a method with bytes; the answer is the caller's to decode: for large answers. */
  raw(service: EtcdService, method: string, request: Buffer, options?: CallOptions): Promise<Buffer> {
    return this.#unary({ path: `/etcdserverpb.${service}/${method}`, request, decode: asIs }, options);
  }

  /** Opens a stream; closing the endpoint cancels it. */
  async stream(service: EtcdService, method: string, observer: StreamObserver): Promise<EtcdStream> {
    const metadata = await this.#authenticated();
    if (this.#closed) throw closedError();
    return this.#connection.stream(`/etcdserverpb.${service}/${method}`, metadata, {
      onMessage: (message) => observer.onMessage(message),
      onEnd: (error) => observer.onEnd(this.#failure(error)),
    });
  }

  /** Calls `late` when what began now takes too long; returns what prevents that. See `EtcdConnection.deadline`. */
  deadline(deadlineMs: number | undefined, late: () => void): () => void {
    return this.#connection.deadline(this.#limits(deadlineMs), late);
  }

  /**
   * The token is not valid any more: the next call fetches another. One that was fetched later than `before`, by
   * `performance.now`, is kept: who found out had an older one.
   */
  invalidateToken(before: number): void {
    if (this.#metadata === undefined || this.#fetchedAt > before) return;
    this.#metadata = undefined;
    this.#givenUp++;
  }

  /**
   * What a failure means here. To a watch that has no valid token etcd 3.4 says that it is not permitted: that counts
   * only with a token fetched since the watch has `begun`.
   */
  explain(error: KvstoreError, begun: number = Number.NEGATIVE_INFINITY): KvstoreError {
    if (error.code !== 'invalid-token' && error.code !== 'forbidden') return error;
    if (this.#auth === undefined) {
      const message = `${error.message}; the configuration names no user: set username and password`;
      return new KvstoreError('forbidden', message, { cause: error });
    }
    if (this.#fetchedAt > begun) return error;
    return new KvstoreError('invalid-token', error.message, { cause: error });
  }

  close(): void {
    this.#closed = true;
    this.#connection.close();
  }

  /** A call with a token from before a restore waits for ever: its deadline is not extended once the token is given up. */
  #limits(deadlineMs: number | undefined, begun: number = performance.now()): Deadline {
    const givenUp = this.#givenUp;
    return { begun, deadlineMs, mayGoOn: () => this.#givenUp === givenUp };
  }

  /** What every call carries: a token, if there is a user. Who asks while one is fetched shares it. */
  #authenticated(): Promise<Metadata> {
    if (this.#metadata === undefined) this.#fetchedAt = performance.now();
    const fetched = this.#metadata ?? this.#fetchToken();
    this.#metadata = fetched;
    fetched.catch(() => {
      if (this.#metadata === fetched) this.#metadata = undefined;
    });
    return fetched;
  }

  async #fetchToken(): Promise<Metadata> {
    const metadata = new Metadata();
    // With this, a member that has lost its cluster says so at once instead of serving what it remembers.
    metadata.set('hasleader', 'true');
    if (this.#auth === undefined) return metadata;
    const payload = { name: this.#auth.username, password: this.#auth.password };
    const call = await definitions().call<{ readonly token: string }>('Auth', 'authenticate', payload);
    try {
      const { token } = await this.#send(call, metadata);
      metadata.set('token', token);
    } catch (error) {
      // A cluster without users accepts every client, whatever its name; etcd's own clients do the same.
      if (!(error instanceof KvstoreError && error.message.includes(NO_USERS))) throw error;
    }
    return metadata;
  }

  async #unary<T>(call: UnaryCall<T>, options: CallOptions = {}): Promise<T> {
    if (options.signal?.aborted === true) throw abortedError();
    const begun = performance.now();
    const metadata = await this.#token(options, begun);
    return this.#send(call, metadata, options, begun);
  }

  /** {@link #authenticated} within the limits of one call; who shares it goes on waiting. */
  #token({ signal, deadlineMs }: CallOptions, begun: number): Promise<Metadata> {
    const token = this.#authenticated();
    if (this.#auth === undefined) return token;
    return new Promise((resolve, reject) => {
      const abort = (): void => reject(abortedError());
      const cancelDeadline = this.#connection.deadline(this.#limits(deadlineMs, begun), () =>
        reject(deadlineError()),
      );
      sharedSignal(signal)?.addEventListener('abort', abort);
      const over = (): void => {
        cancelDeadline();
        signal?.removeEventListener('abort', abort);
      };
      token.then(resolve, reject).finally(over);
    });
  }

  /** @param begun when the call was made, by `performance.now`: its deadline counts from there */
  async #send<T>(
    call: UnaryCall<T>,
    metadata: Metadata,
    { signal, deadlineMs }: CallOptions = {},
    begun?: number,
  ): Promise<T> {
    if (this.#closed) throw closedError();
    try {
      return await this.#connection.unary(call, metadata, { ...this.#limits(deadlineMs, begun), signal });
    } catch (error) {
      throw this.explain(this.#failure(asKvstoreError(error)));
    }
  }

  #failure(error: KvstoreError): KvstoreError {
    return this.#closed && error.code !== 'aborted' ? closedError() : error;
  }
}

/** The endpoint was given up, by the client's end or for another configuration: others may do. */
function closedError(): KvstoreError {
  return new KvstoreError('unavailable', 'the connection was closed');
}
