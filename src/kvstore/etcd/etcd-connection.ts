import type { Socket } from 'node:net';
import {
  type ChannelInterface,
  Client,
  type ClientOptions,
  type Metadata,
  type StatusObject,
  status,
} from '@grpc/grpc-js';
import { assert } from '../../base/assert.ts';
import { onAbort } from '../../base/follow-signal.ts';
import { cutText } from '../../base/show-value.ts';
import { withoutBrackets } from '../../net/url-host.ts';
import { abortedError, KvstoreError, UNREACHABLE } from '../session/errors.ts';
import type { CallOptions } from '../session/transport.ts';
import { STREAM_ENDED } from './connection-failure.ts';
import { DEADLINE_MS, type EtcdConfig } from './etcd-config.ts';
import { EtcdCredentials, tlsOptions } from './etcd-credentials.ts';
import {
  etcdDeadlineError,
  etcdError,
  foreignAnswerError,
  isTooManyPings,
  MAX_SERVER_TEXT,
} from './etcd-errors.ts';

/**
 * Maximum number of bytes which a server may send before they are read. A larger window makes turns longer, because the
 * event loop reads what all connections have sent in one turn. A smaller one slows down far servers: with the 64 KiB
 * default of HTTP/2, a link of 50 ms carries 2,700 keys/s (ETCD, "Listing").
 */
const WINDOW_BYTES = 1 << 18;
const MAX_MESSAGE_BYTES = 64 << 20;
const KEEPALIVE_TIME_MS = 15_000;
const KEEPALIVE_TIMEOUT_MS = 10_000;
// Interval of pings that every gRPC server in Go accepts by default.
const ACCEPTED_KEEPALIVE_TIME_MS = 300_000;
// Number of silent checks in a row before a connection is closed.
const SILENT_CHECKS = 4;
// Maximum of all times, because a Node timer of more than 24 days fires immediately. Also the ping timeout of grpc-js:
// a shorter timeout would close a connection whose ping waits behind data on a slow link. `EtcdConnection` detects
// silent connections instead.
const ONE_DAY_MS = 86_400_000;

// Minimum rate that counts as progress: 1 kB/s. Answers to pings and keepalives are below this rate, so they extend no
// deadline.
const PROGRESS_BYTES_PER_MS = 1;
// Maximum number of extensions of a deadline, each by its full length: 5 min in total by default. A limit is needed
// because other calls may keep the connection busy.
const MAX_EXTENSIONS = 30;

/**
 * Calls `cancel` in a later turn. Node (20.20) does not reset a stream that is cancelled while its session receives
 * data; both ends would keep it.
 */
const inLaterTurn = (cancel: () => void): void => void setImmediate(cancel);

function clientOptions(config: EtcdConfig, keepAliveTimeMs: number): ClientOptions {
  return {
    'grpc.max_receive_message_length': config.maxMessageBytes ?? MAX_MESSAGE_BYTES,
    'grpc.max_send_message_length': -1,
    'grpc-node.flow_control_window': WINDOW_BYTES,
    'grpc.keepalive_time_ms': Math.min(keepAliveTimeMs, ONE_DAY_MS),
    'grpc.keepalive_timeout_ms': ONE_DAY_MS,
    // etcd treats pings on a connection without a call as abuse and closes the connection.
    'grpc.keepalive_permit_without_calls': 0,
    'grpc.initial_reconnect_backoff_ms': 100,
    // Callers wait between their retries. A wait of the channel would be added to that.
    'grpc.max_reconnect_backoff_ms': 1000,
    'grpc.enable_http_proxy': 0,
    // A TXT record of the host name could make grpc-js retry calls, including transactions.
    'grpc.service_config_disable_resolution': 1,
    'grpc.use_local_subchannel_pool': 1, // a closed client closes its connections
  };
}

/** The texts of grpc-js 1.14, and of `EtcdCredentials`, for a connection that either side has closed. */
const CLOSED = /Connection dropped|Failed to connect|the connection was closed|Socket closed/;

/**
 * Returns the error of a failed call.
 *
 * @param contentType see {@link foreignType}
 */
type ToCallError = (thrown: Error, contentType: string | undefined) => KvstoreError;

/** A call that is ready to be sent. */
export interface UnaryCall {
  readonly path: string;
  readonly request: Buffer;
}

/** The private parts of a call of grpc-js 1.14 that lead to its decoder. */
interface NestedCall {
  readonly child?: NestedCall | null;
  readonly underlyingCalls?: readonly { readonly call: NestedCall }[];
  readonly decoder?: { readPartialMessage: readonly Buffer[] };
}

/**
 * Releases the chunks of the answer, which the decoder of an ended call keeps. Node keeps the HTTP/2 stream of the
 * call, and with it the decoder, until the next collection of the old generation. The chunks are external memory, of
 * which V8 permits little between two of these collections: a list of 300,000 keys needed 14 collections instead of
 * 6, and 15 % more CPU.
 */
function releaseChunks({ child, underlyingCalls = [], decoder }: NestedCall): void {
  if (decoder !== undefined) decoder.readPartialMessage = [];
  if (child) releaseChunks(child);
  for (const { call } of underlyingCalls) releaseChunks(call);
}

/** Time limit of an operation. */
export interface Deadline {
  /** Start time, by `performance.now`. */
  readonly startedAt: number;
  /** Fixed time limit. Default: the deadline of the configuration, extended while there is progress. */
  readonly deadlineMs: number | undefined;
  /** Returns true if the deadline may be extended. */
  readonly isExtendable: () => boolean;
}

/** Receives the messages and the end of an {@link EtcdStream}. Nothing is called after `cancel`. */
export interface StreamObserver {
  /** Called once for each `read`, unless the stream ends first. */
  onMessage(message: Buffer): void;
  /** Called once, last, with the reason of the end. */
  onEnd(error: KvstoreError): void;
}

/**
 * A bidirectional stream that reads one message per call of `read`. Other messages stay on the server, except those in
 * the window of HTTP/2. (The streams of grpc-js buffer sixteen messages of any size.)
 */
export class EtcdStream {
  readonly #call: ReturnType<ChannelInterface['createCall']>;
  /** Undefined after `cancel`, and after the end. */
  #observer: StreamObserver | undefined;

  /**
   * @param onStatus called once, at the end. `failure` is undefined if this side has cancelled a stream that had an
   *   answer
   */
  constructor(
    call: ReturnType<ChannelInterface['createCall']>,
    toCallError: ToCallError,
    metadata: Metadata,
    observer: StreamObserver,
    onStatus: (failure: KvstoreError | undefined) => void,
  ) {
    this.#call = call;
    this.#observer = observer;
    let isAnswered = false;
    let contentType: string | undefined;
    call.start(metadata, {
      onReceiveMetadata: (received) => {
        contentType = foreignType(received);
      },
      onReceiveMessage: (message: Buffer) => {
        isAnswered = true;
        this.#observer?.onMessage(message);
      },
      onReceiveStatus: (end) => {
        const error = endError(end, contentType, toCallError);
        const ended = this.#observer;
        this.#observer = undefined;
        const isCancelled = ended === undefined;
        // Without an answer, nothing proves that the server is reachable.
        onStatus(isCancelled && isAnswered ? undefined : error);
        ended?.onEnd(error);
      },
    });
  }

  write(message: Buffer): void {
    this.#call.sendMessageWithContext({}, message);
  }

  /** Requests the next message. Call it again after that message. */
  read(): void {
    this.#call.startRead();
  }

  /** Cancels the stream without a call of the observer. Idempotent. */
  cancel(): void {
    this.#observer = undefined;
    this.break();
  }

  /** Ends the stream like a lost connection. */
  break(): void {
    inLaterTurn(() => this.#call.cancelWithStatus(status.CANCELLED, 'cancelled'));
  }
}

/** Returns the content type of an answer with these headers; undefined if it is gRPC. */
function foreignType(headers: Metadata): string | undefined {
  const type = headers.get('content-type')[0]?.toString();
  return type?.startsWith('application/grpc') === true ? undefined : type && cutText(type, MAX_SERVER_TEXT);
}

function endError(
  { code, details }: StatusObject,
  contentType: string | undefined,
  toCallError: ToCallError,
): KvstoreError {
  const end = code === status.OK ? { code: status.UNAVAILABLE, details: STREAM_ENDED } : { code, details };
  return toCallError(statusError(end), contentType);
}

function statusError({ code, details }: Pick<StatusObject, 'code' | 'details'>): Error {
  // If grpc-js cannot decompress an answer, the status has no details.
  return Object.assign(new Error(details && cutText(details, MAX_SERVER_TEXT)), { code });
}

/**
 * The single connection to an endpoint, over grpc-js.
 *
 * - The first call opens the connection. If the connection broke, the next call opens it again.
 * - If the server is unreachable and no call is active, the connection is closed until the next call, because grpc-js
 *   would otherwise retry every second.
 * - Received bytes distinguish a slow connection from a dead one. While bytes arrive, deadlines are extended and the
 *   connection is kept, even if a ping waits behind data. A connection without bytes during a ping interval and its
 *   timeout is closed.
 * - If the server closes the connection because of too many pings, the interval of pings doubles, as in gRPC for Go.
 */
export class EtcdConnection {
  /** The endpoint without its scheme. */
  readonly host: string;
  readonly #config: EtcdConfig;
  readonly #newClient: () => Client;
  #client: Client | undefined;
  readonly #streams = new Set<EtcdStream>();
  /** Open sockets. For a name with several addresses, two may be open at a time. */
  readonly #sockets = new Set<Socket>();
  /** Bytes received on closed sockets. */
  #closedBytes = 0;
  #keepAliveTimeMs: number;
  /** Number of active calls and streams. */
  #activeCalls = 0;
  #watchdog: NodeJS.Timeout | undefined;
  /** True if `#watchdog` found the connection silent, and has closed it. */
  #isSilent = false;

  /** @param ip address of the host; if undefined, the host is looked up */
  constructor(config: EtcdConfig, address: string, ip?: string) {
    this.#config = config;
    this.#keepAliveTimeMs = config.keepAliveTimeMs ?? KEEPALIVE_TIME_MS;
    this.host = address.replace(/^https?:\/\//, '');
    const port = this.host.slice(this.host.lastIndexOf(':'));
    const target = ip === undefined ? this.host : `${ip.includes(':') ? `[${ip}]` : ip}${port}`;
    const tls = address.startsWith('https:')
      ? tlsOptions(withoutBrackets(new URL(address).hostname), config.tls ?? {})
      : undefined;
    this.#newClient = () => {
      const credentials = new EtcdCredentials(tls, (socket) => {
        if (this.#client === client) this.#trackSocket(socket);
        else socket.destroy(); // the client was closed during the attempt
      });
      const client = new Client(target, credentials, {
        ...clientOptions(config, this.#keepAliveTimeMs),
        'grpc.default_authority': this.host,
      });
      return client;
    };
  }

  get streams(): number {
    return this.#streams.size;
  }

  stream(path: string, metadata: Metadata, observer: StreamObserver): EtcdStream {
    const client = this.#acquireClient();
    const call = client.getChannel().createCall(path, Number.POSITIVE_INFINITY, null, null, null);
    const stream = new EtcdStream(call, this.#toCallError, metadata, observer, (error) => {
      if (this.#streams.delete(stream)) this.#releaseClient(client, error);
    });
    this.#streams.add(stream);
    return stream;
  }

  /** Makes a call and returns its answer. Rejects with a `KvstoreError`. */
  async unary(
    call: UnaryCall,
    metadata: Metadata,
    limits: Deadline & Pick<CallOptions, 'signal'>,
  ): Promise<Buffer> {
    // Node keeps the HTTP/2 stream of a call, with the objects of grpc-js and the promise of the request, until the
    // next collection of the old generation. None of them must therefore refer to the answer.
    const received: { answer?: Buffer | undefined } = {};
    await this.#request(call, metadata, limits, received);
    const { answer } = received;
    received.answer = undefined;
    assert(answer !== undefined, 'a call without an error has an answer');
    return answer;
  }

  /**
   * Sends a call. Resolves when it has succeeded and `received` has the answer. Does not use `makeUnaryRequest`,
   * because its interceptors, events and stack traces take a sixth of the time of a call.
   */
  #request(
    { path, request }: UnaryCall,
    metadata: Metadata,
    limits: Deadline & Pick<CallOptions, 'signal'>,
    received: { answer?: Buffer | undefined },
  ): Promise<void> {
    const { signal } = limits;
    const client = this.#acquireClient();
    const sent = client.getChannel().createCall(path, Number.POSITIVE_INFINITY, null, null, null);
    const cancel = (): void => sent.cancelWithStatus(status.CANCELLED, 'cancelled');
    return new Promise((resolve, reject) => {
      let isLate = false;
      let contentType: string | undefined;
      const errorOf = (end: StatusObject): KvstoreError | undefined => {
        if (signal?.aborted === true) return abortedError();
        const isOK = end.code === status.OK;
        if (isOK && received.answer !== undefined) return undefined;
        if (isLate) return etcdDeadlineError(this.host);
        return this.#toCallError(isOK ? new Error('the response is empty') : statusError(end), contentType);
      };
      const settle = (end: StatusObject): void => {
        const error = errorOf(end);
        releaseChunks(sent as NestedCall);
        this.#releaseClient(client, error);
        cancelDeadline();
        leaveSignal();
        if (error === undefined) resolve();
        else reject(error);
      };
      sent.start(metadata, {
        onReceiveMetadata: (headers) => {
          contentType = foreignType(headers);
        },
        onReceiveMessage: (answer: Buffer) => {
          received.answer = answer;
        },
        onReceiveStatus: settle,
      });
      sent.startRead();
      sent.sendMessageWithContext({}, request);
      sent.halfClose();
      const cancelDeadline = this.startDeadline(limits, () => {
        isLate = true;
        cancel();
      });
      const leaveSignal = onAbort(signal, () => inLaterTurn(cancel));
    });
  }

  /**
   * Calls `onExpired` when the deadline expires. Returns a function that cancels the deadline. The deadlines of grpc-js
   * are not used because they are dates: if the system's time is set, a call would end immediately or hours late.
   */
  startDeadline({ startedAt, deadlineMs, isExtendable }: Deadline, onExpired: () => void): () => void {
    const limitMs = Math.min(deadlineMs ?? this.#config.deadlineMs ?? DEADLINE_MS, ONE_DAY_MS);
    let remainingExtensions = deadlineMs === undefined ? MAX_EXTENSIONS : 0;
    let lastBytes = this.#bytes;
    const check = (): void => {
      const received = this.#bytes - lastBytes;
      const hasProgress = received >= limitMs * PROGRESS_BYTES_PER_MS;
      if (remainingExtensions === 0 || !hasProgress || !isExtendable()) {
        onExpired();
        return;
      }
      remainingExtensions--;
      lastBytes += received;
      timer = setTimeout(checkAfterReads, limitMs);
    };
    // After a long turn, the answer may have arrived and wait to be read.
    let immediate: NodeJS.Immediate | undefined;
    const checkAfterReads = (): void => {
      immediate = setImmediate(check);
    };
    let timer = setTimeout(checkAfterReads, Math.max(0, startedAt + limitMs - performance.now()));
    return () => {
      clearTimeout(timer);
      clearImmediate(immediate);
    };
  }

  close(): void {
    for (const stream of this.#streams) stream.break();
    this.#closeClient();
  }

  readonly #toCallError: ToCallError = (thrown, contentType) => {
    const error = etcdError(thrown, this.host);
    // grpc-js decodes a proxy's HTML page as a message, whose declared size is then too large.
    if (error.code !== 'unavailable' && contentType !== undefined)
      return foreignAnswerError(this.host, contentType);
    const isClosedBySilence = this.#isSilent && CLOSED.test(thrown.message);
    if (!isClosedBySilence) return error;
    return new KvstoreError(error.code, etcdDeadlineError(this.host).message, { cause: thrown });
  };

  /** Number of bytes received so far. */
  get #bytes(): number {
    return [...this.#sockets].reduce((sum, { bytesRead }) => sum + bytesRead, this.#closedBytes);
  }

  #trackSocket(socket: Socket): void {
    this.#sockets.add(socket);
    socket.once('close', () => {
      this.#sockets.delete(socket);
      this.#closedBytes += socket.bytesRead;
    });
  }

  #acquireClient(): Client {
    if (this.#activeCalls++ === 0) this.#startWatchdog();
    this.#client ??= this.#newClient();
    return this.#client;
  }

  /** Called when a call or stream of the client has ended. */
  #releaseClient(client: Client, error: KvstoreError | undefined): void {
    if (client === this.#client && isTooManyPings(error)) {
      const doubled = Math.min(2 * this.#keepAliveTimeMs, ACCEPTED_KEEPALIVE_TIME_MS);
      this.#keepAliveTimeMs = Math.max(this.#keepAliveTimeMs, doubled);
      this.#closeClient(); // the next client uses the longer interval
      this.#startWatchdog();
    }
    if (--this.#activeCalls > 0) return;
    clearInterval(this.#watchdog);
    this.#watchdog = undefined;
    // An aborted call does not prove that the server is reachable.
    if (error?.code === 'aborted' || (error !== undefined && UNREACHABLE.has(error.code)))
      this.#closeClient();
  }

  /**
   * Closes the client and its sockets, because grpc-js keeps a socket open if the server is silent, with or without
   * TLS.
   */
  #closeClient(): void {
    this.#client?.close();
    this.#client = undefined;
    const sockets = [...this.#sockets];
    inLaterTurn(() => {
      for (const socket of sockets) socket.destroy();
    });
  }

  /** Breaks the connection if nothing arrives during a ping interval and the timeout of the ping. */
  #startWatchdog(): void {
    clearInterval(this.#watchdog);
    this.#isSilent = false;
    const { keepAliveTimeoutMs = KEEPALIVE_TIMEOUT_MS } = this.#config;
    let lastBytes = -1; // the first check is never silent
    let silentChecks = 0;
    const check = (): void => {
      silentChecks = lastBytes === this.#bytes ? silentChecks + 1 : 0;
      lastBytes = this.#bytes;
      this.#isSilent = silentChecks >= SILENT_CHECKS;
      if (this.#isSilent) for (const socket of this.#sockets) socket.destroy();
    };
    this.#watchdog = setInterval(
      check,
      Math.min(this.#keepAliveTimeMs + keepAliveTimeoutMs, ONE_DAY_MS) / SILENT_CHECKS,
    );
    this.#watchdog.unref();
  }
}
