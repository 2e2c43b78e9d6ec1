import {
  type ClientDuplexStream,
  type Client as GrpcClient,
  credentials as grpcCredentials,
  Metadata,
  type ServiceError,
} from '@grpc/grpc-js';
import { noop } from 'cockatiel';
import { Etcd3, type IOptions } from 'etcd3';
import type { ConnectionPool } from 'etcd3/lib/connection-pool.js';
import { abortedError, deadlineError, KvstoreError } from '../errors.ts';
import { sharedSignal } from '../shared-signal.ts';
import type { CallOptions } from '../transport.ts';
import { DEADLINE_MS, type EtcdConfig, type EtcdTLS } from './etcd-config.ts';
import { etcdError } from './etcd-errors.ts';

/** The services that are called. */
export type EtcdService = 'KV' | 'Watch' | 'Lease' | 'Maintenance' | 'Auth';

/** A method as etcd3's service clients carry it: how its messages are written and read. */
interface MethodDefinition {
  readonly path: string;
  readonly requestSerialize: (payload: object) => Buffer;
  readonly responseDeserialize: (answer: Buffer) => unknown;
}

/** A call, ready to be sent. */
interface Call<T> {
  readonly path: string;
  readonly request: Buffer;
  readonly decode: (answer: Buffer) => T;
}

/** A stream whose messages are written as bytes and read by a decoder. */
export type EtcdStream<T> = ClientDuplexStream<Buffer, T>;

// A window of 4 MiB: with the 64 KiB that HTTP/2 begins with, a link of 50 ms carries 2,700 keys/s (ETCD, "Listing").
const WINDOW_BYTES = 4 << 20;
const MAX_MESSAGE_BYTES = 64 << 20;
const KEEPALIVE_TIME_MS = 15_000;
const KEEPALIVE_TIMEOUT_MS = 10_000;

const NO_USERS = 'authentication is not enabled';

const asIs = (bytes: Buffer): Buffer => bytes;

/** etcd3, with its connections in reach. */
class PooledEtcd extends Etcd3 {
  get connections(): ConnectionPool {
    return this.pool;
  }
}

/** The part of etcd3's pool that has no public name; its version is pinned. */
interface PoolInternals {
  readonly authenticator: { credentials: unknown };
  readonly hosts: readonly { channelCredentials: unknown }[];
}

function tlsCredentials({ ca, key, certificate }: EtcdTLS): IOptions['credentials'] {
  if (ca === undefined) return undefined;
  return {
    rootCertificate: Buffer.from(ca),
    ...(key === undefined ? {} : { privateKey: Buffer.from(key) }),
    ...(certificate === undefined ? {} : { certChain: Buffer.from(certificate) }),
  };
}

function clientOptions(config: EtcdConfig, endpoint: string): IOptions {
  const credentials = config.tls && tlsCredentials(config.tls);
  return {
    hosts: endpoint,
    ...(credentials === undefined ? {} : { credentials }),
    // One deadline exceeded would open its circuit breaker for five seconds; what is retried is decided above.
    faultHandling: { host: () => noop, global: noop },
    grpcOptions: {
      'grpc.max_receive_message_length': config.maxMessageBytes ?? MAX_MESSAGE_BYTES,
      'grpc.max_send_message_length': -1,
      'grpc-node.flow_control_window': WINDOW_BYTES,
      'grpc.keepalive_time_ms': config.keepAliveTimeMs ?? KEEPALIVE_TIME_MS,
      'grpc.keepalive_timeout_ms': config.keepAliveTimeoutMs ?? KEEPALIVE_TIMEOUT_MS,
      // etcd takes pings of a connection that carries no call for abuse, and ends it.
      'grpc.keepalive_permit_without_calls': 0,
      'grpc.initial_reconnect_backoff_ms': 100,
      // Who calls waits and spreads its tries itself; a channel that waits as long again would double that.
      'grpc.max_reconnect_backoff_ms': 1000,
      'grpc.enable_http_proxy': 0,
      'grpc.use_local_subchannel_pool': 1, // a client that is closed takes its connections with it
    },
  };
}

/**
 * One endpoint of an etcd cluster. Connections and TLS are etcd3's, one client for each endpoint, so that who was
 * asked is known; calls go over grpc-js directly, with a deadline each, and can be aborted. Errors are
 * `KvstoreError`s. Nothing is retried here.
 *
 * Tokens are fetched over the same connection. etcd3 would open another for each, never close it, and after an
 * outage of some seconds wait for up to two minutes before it tries to connect again.
 */
export class EtcdEndpoint {
  readonly address: string;
  readonly #config: EtcdConfig;
  readonly #client: PooledEtcd;
  /** The token, or the call that fetches it. */
  #metadata: Promise<Metadata> | undefined;
  /** When that was asked for, by `performance.now`. */
  #fetchedAt = 0;
  readonly #streams = new Set<EtcdStream<unknown>>();
  #closed = false;

  constructor(config: EtcdConfig, address: string) {
    this.address = address;
    this.#config = config;
    this.#client = new PooledEtcd(clientOptions(config, address));
    if (config.tls !== undefined) this.#refineCredentials(config.tls);
  }

  /** Streams that are open. */
  get streams(): number {
    return this.#streams.size;
  }

  /** Calls a method in etcd3's own encoding: for what is rare. Longs are decimal text. */
  async call<T>(service: EtcdService, method: string, payload: object, options?: CallOptions): Promise<T> {
    return this.#unary(await this.#encoded<T>(service, method, payload), options);
  }

  /** Calls a method with bytes; the answer is the caller's to decode: for what is much. */
  raw(service: EtcdService, method: string, request: Buffer, options?: CallOptions): Promise<Buffer> {
    return this.#unary({ path: `/etcdserverpb.${service}/${method}`, request, decode: asIs }, options);
  }

  /** Opens a stream. The caller handles its `error`; closing the endpoint cancels it. */
  async stream<T>(
    service: EtcdService,
    method: string,
    decode: (answer: Buffer) => T,
  ): Promise<EtcdStream<T>> {
    const metadata = await this.#authenticated();
    const client = await this.#connection();
    const path = `/etcdserverpb.${service}/${method}`;
    const stream = client.makeBidiStreamRequest(path, asIs, decode, metadata, {});
    this.#streams.add(stream);
    stream.once('status', () => this.#streams.delete(stream));
    return stream;
  }

  /**
   * The token is not valid any more: the next call fetches another. One that was fetched later than `before`, by
   * `performance.now`, is kept: who found out had an older one.
   */
  invalidateToken(before: number): void {
    if (this.#fetchedAt <= before) this.#metadata = undefined;
  }

  close(): void {
    this.#closed = true;
    for (const stream of this.#streams) stream.cancel();
    this.#client.close();
  }

  get #internals(): PoolInternals {
    return this.#client.connections as unknown as PoolInternals; // private names of the pinned version
  }

  /** What etcd3 has no option for: to accept any server, or to trust the system and still present a certificate. */
  #refineCredentials({ ca, key, certificate, insecureSkipVerify }: EtcdTLS): void {
    if (!insecureSkipVerify && (ca !== undefined || certificate === undefined)) return;
    const verify = insecureSkipVerify
      ? { rejectUnauthorized: false, checkServerIdentity: () => undefined }
      : {};
    const pem = (bytes: Uint8Array | undefined): Buffer | null => (bytes ? Buffer.from(bytes) : null);
    const refined = grpcCredentials.createSsl(pem(ca), pem(key), pem(certificate), verify);
    const { authenticator, hosts } = this.#internals;
    authenticator.credentials = refined;
    for (const host of hosts) host.channelCredentials = refined;
  }

  /**
   * The one channel that carries everything. etcd3 has a client for each service; that of `KV` serves for all, so
   * that an endpoint costs one connection.
   */
  async #connection(): Promise<GrpcClient> {
    if (this.#closed) throw closedError();
    try {
      return await this.#client.connections.withConnection('KV', ({ client }) => client);
    } catch (error) {
      throw etcdError(error);
    }
  }

  /** A service client that is made and never called makes no connection. */
  async #encoded<T>(service: EtcdService, method: string, payload: object): Promise<Call<T>> {
    const definition = await this.#client.connections.withConnection('KV', ({ resource }) => {
      const client: object = resource.getServiceClient(service);
      return (client as Readonly<Record<string, MethodDefinition>>)[method]; // grpc-js puts it on the method
    });
    if (definition === undefined) throw new KvstoreError('internal', `no method ${service}.${method}`);
    const { path, requestSerialize, responseDeserialize } = definition;
    const decode = (answer: Buffer): T => responseDeserialize(answer) as T; // as its definition says
    return { path, request: requestSerialize(payload), decode };
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
    const { auth } = this.#config;
    if (auth === undefined) return metadata;
    const payload = { name: auth.username, password: auth.password };
    const call = await this.#encoded<{ readonly token: string }>('Auth', 'authenticate', payload);
    try {
      const { token } = await this.#send(call, metadata);
      metadata.set('token', token);
    } catch (error) {
      // A cluster without users lets everybody in, whoever they say they are; etcd's own clients do the same.
      if (!(error instanceof KvstoreError && error.message.includes(NO_USERS))) throw error;
    }
    return metadata;
  }

  async #unary<T>(call: Call<T>, options: CallOptions = {}): Promise<T> {
    if (options.signal?.aborted === true) throw abortedError();
    const begun = performance.now();
    const metadata = await this.#authenticated();
    return this.#send(call, metadata, options, begun);
  }

  /**
   * The deadline is a timer of its own. grpc-js takes deadlines as dates, and compares them with the system's time when
   * the call is made and again when it is connected: setting the clock would end the call at once, or hours late.
   *
   * @param begun when the call was made, by `performance.now`: its deadline counts from there
   */
  async #send<T>(
    { path, request, decode }: Call<T>,
    metadata: Metadata,
    { signal: given, deadlineMs = this.#config.deadlineMs ?? DEADLINE_MS }: CallOptions = {},
    begun: number = performance.now(),
  ): Promise<T> {
    const signal = sharedSignal(given);
    const client = await this.#connection();
    return new Promise<T>((resolve, reject) => {
      let isLate = false;
      const call = client.makeUnaryRequest(path, asIs, decode, request, metadata, {}, (error, answer) => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', abort);
        if (signal?.aborted === true) reject(abortedError());
        else if (error === null && answer !== undefined) resolve(answer);
        else reject(isLate ? deadlineError() : this.#failure(error));
      });
      const abort = (): void => call.cancel();
      const timer = setTimeout(
        () => {
          isLate = true;
          call.cancel();
        },
        begun + deadlineMs - performance.now(),
      );
      signal?.addEventListener('abort', abort, { once: true });
      if (signal?.aborted === true) abort();
    });
  }

  #failure(error: ServiceError | null): KvstoreError {
    return this.#closed ? closedError() : etcdError(error ?? new Error('an answer without content'));
  }
}

/** The endpoint was given up, by the client's end or for another configuration: others may do. */
function closedError(): KvstoreError {
  return new KvstoreError('unavailable', 'the connection was closed');
}
