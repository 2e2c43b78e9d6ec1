import { Metadata } from '@grpc/grpc-js';
import { onAbort } from '../../base/follow-signal.ts';
import { abortedError, asKvstoreError, KvstoreError } from '../session/errors.ts';
import type { CallOptions } from '../session/transport.ts';
import type { EtcdConfig } from './etcd-config.ts';
import {
  type Deadline,
  EtcdConnection,
  type EtcdStream,
  type StreamObserver,
  type UnaryCall,
} from './etcd-connection.ts';
import type { EncodedCall, EtcdService } from './etcd-definitions.ts';
import { etcdDeadlineError } from './etcd-errors.ts';

const NO_USERS = 'authentication is not enabled';

/**
 * Returns a call in the encoding of etcd3. Loads etcd3 on demand, because this takes 150 ms and a client without a user
 * does not need it.
 */
async function encoded<T>(service: EtcdService, method: string, payload: object): Promise<EncodedCall<T>> {
  const { definitions } = await import('./etcd-definitions.ts');
  return definitions.call<T>(service, method, payload);
}

/**
 * One endpoint of an etcd cluster: its connection, and the token of the user, which is fetched over this connection.
 * Every call has a deadline and can be aborted. All errors are `KvstoreError`s. Nothing is retried here.
 */
export class EtcdEndpoint {
  readonly address: string;
  readonly #auth: EtcdConfig['auth'];
  readonly #hasCertificate: boolean;
  readonly #connection: EtcdConnection;
  /** The metadata of every call, with the token. Pending while the token is being fetched. */
  #metadata: Promise<Metadata> | undefined;
  /** Time of the request for the token, by `performance.now`. */
  #fetchedAt = 0;
  #invalidations = 0;
  #isClosed = false;

  /** @param ip address of the host; if undefined, the host is looked up */
  constructor(config: EtcdConfig, address: string, ip?: string) {
    this.address = address;
    this.#auth = config.auth;
    this.#hasCertificate = config.tls?.certificate !== undefined;
    this.#connection = new EtcdConnection(config, address, ip);
  }

  /** The address without its scheme. */
  get host(): string {
    return this.#connection.host;
  }

  get streams(): number {
    return this.#connection.streams;
  }

  /** Calls a method in the encoding of etcd3, for rare calls. Longs are decimal text. */
  async call<T>(service: EtcdService, method: string, payload: object, options?: CallOptions): Promise<T> {
    const call = await encoded<T>(service, method, payload);
    return call.decode(await this.#unary(call, options));
  }

  /**
   * Calls a method and returns the undecoded answer.
   *
   * @param startedAt start of the call, by `performance.now`; its deadline counts from there
   */
  raw(
    service: EtcdService,
    method: string,
    request: Buffer,
    options?: CallOptions,
    startedAt?: number,
  ): Promise<Buffer> {
    return this.#unary({ path: `/etcdserverpb.${service}/${method}`, request }, options, startedAt);
  }

  /** Opens a stream. Closing the endpoint cancels it. */
  async stream(service: EtcdService, method: string, observer: StreamObserver): Promise<EtcdStream> {
    const metadata = await this.#sharedMetadata();
    if (this.#isClosed) throw disconnectedError();
    return this.#connection.stream(`/etcdserverpb.${service}/${method}`, metadata, {
      onMessage: (message) => observer.onMessage(message),
      onEnd: (error) => observer.onEnd(this.#failure(error)),
    });
  }

  /**
   * Calls `onExpired` if an operation that starts now takes too long. Returns a function that cancels the deadline. See
   * `EtcdConnection.startDeadline`.
   */
  startDeadline(deadlineMs: number | undefined, onExpired: () => void): () => void {
    return this.#connection.startDeadline(this.#deadline(deadlineMs), onExpired);
  }

  /** Returns the error of an operation without an answer in time. */
  deadlineError(): KvstoreError {
    return etcdDeadlineError(this.host);
  }

  /**
   * Invalidates the token, so that the next call fetches a new token. A token that was fetched after `failedCallAt` (by
   * `performance.now`) is kept, because the failed call used an older token.
   */
  invalidateToken(failedCallAt: number): void {
    if (this.#metadata === undefined || this.#fetchedAt > failedCallAt) return;
    this.#metadata = undefined;
    this.#invalidations++;
  }

  /**
   * Returns the error to report for a failure. etcd 3.4 answers a watch without a valid token with "permission denied".
   * This error is therefore reported as `forbidden` only if the token was fetched after `startedAt`, the start of the
   * watch.
   */
  reportedError(error: KvstoreError, startedAt: number = Number.NEGATIVE_INFINITY): KvstoreError {
    if (error.code !== 'invalid-token' && error.code !== 'forbidden') return error;
    if (this.#auth === undefined) {
      // etcd authenticates the client by its certificate.
      if (this.#hasCertificate && error.code === 'forbidden') return error;
      const message = `${error.message}: the configuration has no user; set username and password`;
      return new KvstoreError('forbidden', message, { cause: error });
    }
    if (this.#fetchedAt > startedAt) return error;
    return new KvstoreError('invalid-token', error.message, { cause: error });
  }

  close(): void {
    this.#isClosed = true;
    this.#connection.close();
  }

  /**
   * Returns the deadline of a call. The deadline is not extended after the token was invalidated, because a call with a
   * token from before a restore never returns.
   */
  #deadline(deadlineMs: number | undefined, startedAt: number = performance.now()): Deadline {
    const invalidations = this.#invalidations;
    return { startedAt, deadlineMs, isExtendable: () => this.#invalidations === invalidations };
  }

  /**
   * Returns the metadata of every call: a token, if there is a user. Concurrent callers share one request for a token.
   */
  #sharedMetadata(): Promise<Metadata> {
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
    // With this, a member that lost its cluster fails immediately instead of serving stale data.
    metadata.set('hasleader', 'true');
    if (this.#auth === undefined) return metadata;
    const payload = { name: this.#auth.username, password: this.#auth.password };
    const call = await encoded<{ readonly token: string }>('Auth', 'authenticate', payload);
    try {
      const { token } = call.decode(await this.#send(call, metadata));
      metadata.set('token', token);
    } catch (error) {
      // A cluster without users accepts every client and name. The clients of etcd behave the same.
      if (!(error instanceof KvstoreError && error.message.includes(NO_USERS))) throw error;
    }
    return metadata;
  }

  async #unary(
    call: UnaryCall,
    options: CallOptions = {},
    startedAt: number = performance.now(),
  ): Promise<Buffer> {
    if (options.signal?.aborted === true) throw abortedError();
    const metadata = await this.#metadataWithin(options, startedAt);
    return this.#send(call, metadata, options, startedAt);
  }

  /** Awaits {@link #sharedMetadata} within the limits of one call. Other callers keep waiting for the token. */
  #metadataWithin({ signal, deadlineMs }: CallOptions, startedAt: number): Promise<Metadata> {
    const metadata = this.#sharedMetadata();
    if (this.#auth === undefined) return metadata;
    return new Promise((resolve, reject) => {
      const deadline = this.#deadline(deadlineMs, startedAt);
      const cancelDeadline = this.#connection.startDeadline(deadline, () => reject(this.deadlineError()));
      const leaveSignal = onAbort(signal, () => reject(abortedError()));
      const release = (): void => {
        cancelDeadline();
        leaveSignal();
      };
      metadata.then(resolve, reject).finally(release);
    });
  }

  /** @param startedAt start of the call, by `performance.now`; its deadline counts from there */
  async #send(
    call: UnaryCall,
    metadata: Metadata,
    { signal, deadlineMs }: CallOptions = {},
    startedAt?: number,
  ): Promise<Buffer> {
    if (this.#isClosed) throw disconnectedError();
    try {
      return await this.#connection.unary(call, metadata, {
        ...this.#deadline(deadlineMs, startedAt),
        signal,
      });
    } catch (error) {
      throw this.reportedError(this.#failure(asKvstoreError(error)));
    }
  }

  /** Returns the error of a call or stream, or that of a closed endpoint. */
  #failure(error: KvstoreError): KvstoreError {
    return this.#isClosed && error.code !== 'aborted' ? disconnectedError() : error;
  }
}

/**
 * Returns the error of a closed endpoint. It is retryable, because a new configuration may have replaced the endpoint.
 */
function disconnectedError(): KvstoreError {
  return new KvstoreError('unavailable', 'the connection was closed');
}
