import type { Socket } from 'node:net';
import {
  ChannelCredentials,
  type ChannelInterface,
  Client,
  type ClientOptions,
  type Metadata,
  type StatusObject,
  status,
} from '@grpc/grpc-js';
import { abortedError, deadlineError, KvstoreError, OUT_OF_REACH } from '../errors.ts';
import { sharedSignal } from '../shared-signal.ts';
import type { CallOptions } from '../transport.ts';
import { DEADLINE_MS, type EtcdConfig, type EtcdTLS } from './etcd-config.ts';
import { etcdError } from './etcd-errors.ts';

// A window of 4 MiB: with the 64 KiB that HTTP/2 begins with, a link of 50 ms carries 2,700 keys/s (ETCD, "Listing").
const WINDOW_BYTES = 4 << 20;
const MAX_MESSAGE_BYTES = 64 << 20;
const KEEPALIVE_TIME_MS = 15_000;
const KEEPALIVE_TIMEOUT_MS = 10_000;
// How often it is looked, within the time after which a silent connection is given up.
const LOOKS = 4;
// grpc-js would end a connection whose ping waits behind what a slow link carries; who is silent is decided here.
// And the longest time that is kept: a timer of Node's that is set to more than 24 days fires at once.
const NEVER_MS = 86_400_000;

// What counts as progress: 1 kB/s. Answers to pings and keepalives are less, and show nothing of a call.
const PROGRESS_BYTES_PER_MS = 1;
// So often a deadline is put off by as much again: 5 min by default. Others may keep the connection busy.
const RENEWALS = 30;

const asIs = (bytes: Buffer): Buffer => bytes;

/** Node (20.20) forgets to reset a stream that is cancelled while data of its session is being received: both ends keep it. */
const inLaterTurn = (cancel: () => void): void => void setImmediate(cancel);

function clientOptions(config: EtcdConfig): ClientOptions {
  return {
    'grpc.max_receive_message_length': config.maxMessageBytes ?? MAX_MESSAGE_BYTES,
    'grpc.max_send_message_length': -1,
    'grpc-node.flow_control_window': WINDOW_BYTES,
    'grpc.keepalive_time_ms': Math.min(config.keepAliveTimeMs ?? KEEPALIVE_TIME_MS, NEVER_MS),
    'grpc.keepalive_timeout_ms': NEVER_MS,
    // etcd takes pings of a connection that carries no call for abuse, and ends it.
    'grpc.keepalive_permit_without_calls': 0,
    'grpc.initial_reconnect_backoff_ms': 100,
    // Who calls waits and spreads its tries itself; a channel that waits as long again would double that.
    'grpc.max_reconnect_backoff_ms': 1000,
    'grpc.enable_http_proxy': 0,
    // A TXT record of the host's name could have calls retried, transactions too.
    'grpc.service_config_disable_resolution': 1,
    'grpc.use_local_subchannel_pool': 1, // a client that is closed takes its connections with it
  };
}

function tlsCredentials({ ca, key, certificate, insecureSkipVerify }: EtcdTLS): ChannelCredentials {
  const pem = (bytes: Uint8Array | undefined): Buffer | null => (bytes ? Buffer.from(bytes) : null);
  const verify = insecureSkipVerify
    ? { rejectUnauthorized: false, checkServerIdentity: () => undefined }
    : {};
  return ChannelCredentials.createSsl(pem(ca), pem(key), pem(certificate), verify);
}

type ConnectorArguments = Parameters<ChannelCredentials['_createSecureConnector']>;
type SecureConnector = ReturnType<ChannelCredentials['_createSecureConnector']>;

/**
 * Credentials that show the TCP socket of every connection made with them, before it is secured: nothing else in grpc-js
 * does. A socket that is closed meanwhile fails the attempt; by itself grpc-js would wait for it for ever.
 */
class ObservedCredentials extends ChannelCredentials {
  readonly #inner: ChannelCredentials;
  readonly #onSocket: (socket: Socket) => void;

  constructor(inner: ChannelCredentials, onSocket: (socket: Socket) => void) {
    super();
    this.#inner = inner;
    this.#onSocket = onSocket;
  }

  override _isSecure(): boolean {
    return this.#inner._isSecure();
  }

  override _equals(other: ChannelCredentials): boolean {
    return this === other;
  }

  override _createSecureConnector(...given: ConnectorArguments): SecureConnector {
    const connector = this.#inner._createSecureConnector(...given);
    return {
      connect: (tcp) => {
        const closed = new Promise<never>((_resolve, reject) => {
          tcp.once('close', () => reject(new Error('the connection was closed')));
        });
        this.#onSocket(tcp);
        return Promise.race([connector.connect(tcp), closed]);
      },
      waitForReady: () => connector.waitForReady(),
      getCallCredentials: () => connector.getCallCredentials(),
      destroy: () => connector.destroy(),
    };
  }
}

/** A call, ready to be sent. */
export interface UnaryCall<T> {
  readonly path: string;
  readonly request: Buffer;
  readonly decode: (answer: Buffer) => T;
}

/** How long something may take. */
export interface Deadline {
  /** When it began, by `performance.now`. */
  readonly begun: number;
  /** Ends it after so long, whatever arrives. Default: the configuration's, put off while there is progress. */
  readonly deadlineMs: number | undefined;
  /** Whether it may be put off. */
  readonly mayGoOn: () => boolean;
}

/** Receives what happens on an {@link EtcdStream}; nothing after `cancel`. */
export interface StreamObserver {
  /** One message for each `read`. */
  onMessage(message: Buffer): void;
  /** It has ended, and why. Called once, last. */
  onEnd(error: KvstoreError): void;
}

/**
 * A stream in both directions. Messages come one by one, as they are asked for: what was not asked for is held back by
 * HTTP/2 on the server, but for its window. (The streams of grpc-js take in sixteen messages, of any size, ahead.)
 */
export class EtcdStream {
  readonly #call: ReturnType<ChannelInterface['createCall']>;
  #observer: StreamObserver | undefined;

  constructor(
    call: ReturnType<ChannelInterface['createCall']>,
    metadata: Metadata,
    observer: StreamObserver,
    onStatus: (failure: KvstoreError | undefined) => void,
  ) {
    this.#call = call;
    this.#observer = observer;
    let isAnswered = false;
    call.start(metadata, {
      onReceiveMetadata: () => {},
      onReceiveMessage: (message: Buffer) => {
        isAnswered = true;
        this.#observer?.onMessage(message);
      },
      onReceiveStatus: (end) => {
        const error = endOf(end);
        const ended = this.#observer;
        this.#observer = undefined;
        const isOurs = ended === undefined && isAnswered; // before an answer, nothing shows that the server is there
        onStatus(isOurs ? undefined : error);
        ended?.onEnd(error);
      },
    });
  }

  write(message: Buffer): void {
    this.#call.sendMessageWithContext({}, message);
  }

  /** Asks for the next message; to be called again when that is there. */
  read(): void {
    this.#call.startRead();
  }

  /** Ends it without a call of the observer. Idempotent. */
  cancel(): void {
    this.#observer = undefined;
    this.break();
  }

  /** Ends it as a lost connection would. */
  break(): void {
    inLaterTurn(() => this.#call.cancelWithStatus(status.CANCELLED, 'cancelled'));
  }
}

function failureOf(
  signal: AbortSignal | undefined,
  isLate: boolean,
  thrown: Error | null,
  answer: unknown,
): KvstoreError | undefined {
  if (signal?.aborted === true) return abortedError();
  if (thrown === null && answer !== undefined) return undefined;
  return isLate ? deadlineError() : etcdError(thrown ?? new Error('an answer without content'));
}

function endOf({ code, details }: StatusObject): KvstoreError {
  if (code === status.OK) return new KvstoreError('unavailable', 'the server has ended the stream');
  return etcdError(Object.assign(new Error(details), { code }));
}

/**
 * The one connection to an endpoint, over grpc-js. It is made by the first call, and anew when it is broken. When the
 * server was not reached and nothing is under way, it is given up until the next call: grpc-js would try again every
 * second, whether anybody asks or not.
 *
 * Slow is distinguished from dead by the bytes that arrive: while they do, deadlines are put off and the
 * connection is kept, however long a ping waits behind them; one that is silent through a ping is given up.
 */
export class EtcdConnection {
  readonly #config: EtcdConfig;
  readonly #newClient: () => Client;
  #client: Client | undefined;
  readonly #streams = new Set<EtcdStream>();
  /** Open; a name with several addresses is tried at two at a time. */
  readonly #sockets = new Set<Socket>();
  /** Bytes of the sockets that are closed. */
  #before = 0;
  /** Calls and streams under way. */
  #active = 0;
  #watchdog: NodeJS.Timeout | undefined;

  constructor(config: EtcdConfig, address: string) {
    this.#config = config;
    const credentials = address.startsWith('https:')
      ? tlsCredentials(config.tls ?? {})
      : ChannelCredentials.createInsecure();
    const host = address.replace(/^https?:\/\//, '');
    this.#newClient = () => {
      const observed = new ObservedCredentials(credentials, (socket) => {
        if (this.#client === client) this.#connected(socket);
        else socket.destroy(); // it was given up meanwhile
      });
      const client = new Client(host, observed, clientOptions(config));
      return client;
    };
  }

  /** Streams that are open. */
  get streams(): number {
    return this.#streams.size;
  }

  stream(path: string, metadata: Metadata, observer: StreamObserver): EtcdStream {
    const channel = this.#begun().getChannel();
    const call = channel.createCall(path, Number.POSITIVE_INFINITY, null, null, null);
    const stream = new EtcdStream(call, metadata, observer, (error) => {
      if (this.#streams.delete(stream)) this.#ended(error);
    });
    this.#streams.add(stream);
    return stream;
  }

  unary<T>(
    call: UnaryCall<T>,
    metadata: Metadata,
    limits: Deadline & Pick<CallOptions, 'signal'>,
  ): Promise<T> {
    const { path, request, decode } = call;
    const signal = sharedSignal(limits.signal);
    const client = this.#begun();
    return new Promise<T>((resolve, reject) => {
      let isLate = false;
      const sent = client.makeUnaryRequest(path, asIs, decode, request, metadata, {}, (thrown, answer) => {
        const error = failureOf(signal, isLate, thrown, answer);
        this.#ended(error);
        cancelDeadline();
        signal?.removeEventListener('abort', abort);
        if (error === undefined && answer !== undefined) resolve(answer);
        else reject(error);
      });
      const abort = (): void => inLaterTurn(() => sent.cancel());
      const cancelDeadline = this.deadline(limits, () => {
        isLate = true;
        sent.cancel();
      });
      signal?.addEventListener('abort', abort, { once: true });
      if (signal?.aborted === true) abort();
    });
  }

  /**
   * Calls `late` when the time is over; returns what prevents that. The deadline is a timer of its own: grpc-js takes
   * deadlines as dates, and compares them with the system's time when the call is made and again when it is connected, so
   * setting the clock would end the call at once, or hours late.
   */
  deadline({ begun, deadlineMs, mayGoOn }: Deadline, late: () => void): () => void {
    const ms = Math.min(deadlineMs ?? this.#config.deadlineMs ?? DEADLINE_MS, NEVER_MS);
    let renewals = deadlineMs === undefined ? RENEWALS : 0;
    let seen = this.#bytes;
    const look = (): void => {
      const progress = this.#bytes - seen;
      if (renewals-- <= 0 || progress < ms * PROGRESS_BYTES_PER_MS || !mayGoOn()) {
        late();
        return;
      }
      seen += progress;
      timer = setTimeout(lookSoon, ms);
    };
    // After a turn that took long the answer may be there already, and has to be read first.
    let reading: NodeJS.Immediate | undefined;
    const lookSoon = (): void => {
      reading = setImmediate(look);
    };
    let timer = setTimeout(lookSoon, begun + ms - performance.now());
    return () => {
      clearTimeout(timer);
      clearImmediate(reading);
    };
  }

  close(): void {
    for (const stream of this.#streams) stream.break();
    this.#giveUp();
  }

  /** How many have arrived so far. */
  get #bytes(): number {
    return [...this.#sockets].reduce((sum, { bytesRead }) => sum + bytesRead, this.#before);
  }

  #connected(socket: Socket): void {
    this.#sockets.add(socket);
    socket.once('close', () => {
      this.#sockets.delete(socket);
      this.#before += socket.bytesRead;
    });
  }

  #begun(): Client {
    if (this.#active++ === 0) this.#watch();
    this.#client ??= this.#newClient();
    return this.#client;
  }

  #ended(error: KvstoreError | undefined): void {
    if (--this.#active > 0) return;
    clearInterval(this.#watchdog);
    this.#watchdog = undefined;
    // Nothing shows that an aborted call has reached the server.
    if (error?.code === 'aborted' || (error !== undefined && OUT_OF_REACH.has(error.code))) this.#giveUp();
  }

  /** With its socket: grpc-js leaves one open on which the server says nothing, secured or not yet. */
  #giveUp(): void {
    this.#client?.close();
    this.#client = undefined;
    const sockets = [...this.#sockets];
    inLaterTurn(() => {
      for (const socket of sockets) socket.destroy();
    });
  }

  /** Breaks the connection when nothing has arrived while a ping was sent and its answer waited for. */
  #watch(): void {
    const { keepAliveTimeMs = KEEPALIVE_TIME_MS, keepAliveTimeoutMs = KEEPALIVE_TIMEOUT_MS } = this.#config;
    let seen = -1;
    let silent = 0;
    const look = (): void => {
      silent = seen === this.#bytes ? silent + 1 : 0;
      seen = this.#bytes;
      if (silent >= LOOKS) for (const socket of this.#sockets) socket.destroy();
    };
    this.#watchdog = setInterval(look, Math.min(keepAliveTimeMs + keepAliveTimeoutMs, NEVER_MS) / LOOKS);
    this.#watchdog.unref();
  }
}
