import { assert } from '../../base/assert.ts';
import type { Random } from '../../base/clock.ts';
import { onAbort } from '../../base/follow-signal.ts';
import { processGate } from '../../base/node/process-gate.ts';
import { cutText } from '../../base/show-value.ts';
import { systemClock } from '../../base/system-clock.ts';
import type { TurnGate } from '../../base/turn-gate.ts';
import { isOneKey } from '../codec/key-range.ts';
import { abortedError, asKvstoreError, closedError, KvstoreError, UNREACHABLE } from '../session/errors.ts';
import {
  type CallOptions,
  type EndpointStatus,
  type LeaseID,
  NO_LEASE,
  type RangeRequest,
  type RangeResponse,
  type Transport,
  type TxnRequest,
  type TxnResponse,
  type WatchObserver,
  type WatchRequest,
  type WatchStream,
} from '../session/transport.ts';
import { checkEtcdConfig, type EtcdConfig } from './etcd-config.ts';
import type { EtcdStream } from './etcd-connection.ts';
import { EtcdEndpoint } from './etcd-endpoint.ts';
import { etcdError, isTooManyRequests, MAX_SERVER_TEXT } from './etcd-errors.ts';
import { EtcdWatchStream } from './etcd-watch-stream.ts';
import { decodeLease, decodeRange, encodeLease, encodeLeaseGrant, encodeRange } from './messages.ts';
import { decodeTxn, encodeTxn } from './txn-messages.ts';

/** The answer of `Maintenance.Status`, as etcd3 decodes it. */
interface GeneratedStatus {
  readonly header: { readonly member_id: string } | null;
  readonly version: string;
  readonly leader: string;
  /** A missing leader, and active alarms. */
  readonly errors: readonly string[];
}

/** Errors which make the transport use the next endpoint. */
const TRY_NEXT_ENDPOINT: ReadonlySet<KvstoreError['code']> = new Set([...UNREACHABLE, 'internal']);

/**
 * Errors which make the transport fetch new tokens. A simple token of etcd contains the raft index at its creation, and
 * a call with this token waits until the server has applied that index. A restored store begins at a lower index, so
 * the call gets no answer before its deadline (etcd #11377).
 */
const TOKEN_IN_DOUBT: ReadonlySet<KvstoreError['code']> = new Set(['invalid-token', 'deadline']);

/**
 * Weights of the answer to a transaction at the gate: for each write, whose effects take about 5 µs, and for the call
 * itself, which takes 0.2 ms.
 */
const WEIGHT_OF_WRITE = 2;
const WEIGHT_OF_CALL = 64;

/**
 * The transport to an etcd cluster. Calls and streams use one endpoint until it fails, then the next endpoint. Failed
 * calls are not retried here, but by the callers. Only a call whose token is refused is repeated once with a new token.
 */
export class EtcdTransport implements Transport {
  #endpoints: readonly EtcdEndpoint[];
  /** Number of the endpoint in use, modulo the number of endpoints. */
  #endpointNumber: number;
  #isClosed = false;
  /** Prefixes whose watch received an answer that was too large. Their next watch lets the server split answers. */
  readonly #fragmented = new Set<string>();
  readonly #gate: TurnGate;

  /**
   * @param gate admits the answers, because those of many connections arrive in the same turn; default: a separate gate
   */
  constructor(config: EtcdConfig, random: Random, gate: TurnGate = processGate(systemClock)) {
    this.#endpoints = endpointsOf(config);
    this.#endpointNumber = Math.floor(random() * this.#endpoints.length);
    this.#gate = gate;
  }

  get streams(): number {
    return this.#endpoints.reduce((sum, endpoint) => sum + endpoint.streams, 0);
  }

  /**
   * Replaces the configuration: certificates, password or endpoints. Streams and calls on the old connections fail like
   * on any disconnect, and are resumed on the new ones.
   */
  reconfigure(config: EtcdConfig): void {
    const old = this.#endpoints;
    this.#endpoints = endpointsOf(config);
    for (const endpoint of old) endpoint.close();
  }

  range(request: RangeRequest, options?: CallOptions): Promise<RangeResponse> {
    return this.#range(request, options);
  }

  txn(request: TxnRequest, options?: CallOptions): Promise<TxnResponse> {
    const message = encodeTxn(request);
    const { writes, otherwise = [] } = request;
    const weight = WEIGHT_OF_CALL + WEIGHT_OF_WRITE * Math.max(writes.length, otherwise.length);
    return this.#call(async (endpoint, startedAt) => {
      const answer = await endpoint.raw('KV', 'Txn', message, options, startedAt);
      await this.#gate.pass(weight);
      return withHeader(decodeTxn(answer));
    });
  }

  watch(request: WatchRequest, observer: WatchObserver): WatchStream {
    const endpoint = this.#currentEndpoint();
    const startedAt = performance.now();
    return new EtcdWatchStream(endpoint, request, observer, {
      fragment: this.#fragmented.has(request.prefix),
      gate: this.#gate,
      range: (read, options) => this.#range(read, options, endpoint),
      onEnd: (ended) => {
        const error = endpoint.reportedError(ended, startedAt);
        if (error.code === 'too-large') this.#fragmented.add(request.prefix);
        this.#handleFailure(endpoint, error, performance.now());
        // If a new token is refused, invalidate it, so that the next attempt immediately fetches another token.
        if (error.code === 'forbidden') endpoint.invalidateToken(performance.now());
        return error;
      },
    });
  }

  async grantLease(ttlSeconds: number, options?: CallOptions): Promise<LeaseID> {
    const request = encodeLeaseGrant(ttlSeconds);
    return this.#call(async (endpoint, startedAt) => {
      const answer = await endpoint.raw('Lease', 'LeaseGrant', request, options, startedAt);
      const { lease, ttlSeconds: granted } = decodeLease(answer);
      if (lease === NO_LEASE) throw new Error('a lease without an id');
      // It would expire before its first keepalive. etcd grants at least the requested time.
      if (granted < ttlSeconds) throw new Error(`a lease of ${granted} s instead of ${ttlSeconds} s`);
      return lease;
    });
  }

  async keepLeaseAlive(lease: LeaseID, options?: CallOptions): Promise<number> {
    const ttlSeconds = await this.#call((endpoint) => this.#keepAlive(endpoint, lease, options));
    if (ttlSeconds > 0) return ttlSeconds;
    throw new KvstoreError('lease-not-found', `lease ${lease} not found`);
  }

  async revokeLease(lease: LeaseID, options?: CallOptions): Promise<void> {
    const request = encodeLease(lease);
    await this.#call((endpoint, startedAt) =>
      endpoint.raw('Lease', 'LeaseRevoke', request, options, startedAt),
    );
  }

  endpoints(options?: CallOptions): Promise<readonly EndpointStatus[]> {
    return Promise.all(this.#endpoints.map((endpoint) => endpointStatus(endpoint, options)));
  }

  close(): Promise<void> {
    this.#isClosed = true;
    for (const endpoint of this.#endpoints) endpoint.close();
    return Promise.resolve();
  }

  #currentEndpoint(): EtcdEndpoint {
    const endpoint = this.#endpoints[this.#endpointNumber % this.#endpoints.length];
    assert(endpoint, 'the client has an endpoint');
    return endpoint;
  }

  /**
   * Handles a failed call. Many calls may fail for one reason, so only the first failure switches to the next endpoint.
   * If the token of one endpoint is in doubt, for example after a restart, the tokens of all endpoints are invalidated,
   * because each would otherwise cost a refused call.
   *
   * @param startedAt start of the call, by `performance.now`; tokens fetched later are kept
   */
  #handleFailure(endpoint: EtcdEndpoint, error: KvstoreError, startedAt: number): void {
    if (TOKEN_IN_DOUBT.has(error.code)) for (const each of this.#endpoints) each.invalidateToken(startedAt);
    const mustSwitch = TRY_NEXT_ENDPOINT.has(error.code) || isTooManyRequests(error);
    if (mustSwitch && endpoint === this.#currentEndpoint()) this.#endpointNumber++;
  }

  #range(request: RangeRequest, options?: CallOptions, endpoint?: EtcdEndpoint): Promise<RangeResponse> {
    const message = encodeRange(request);
    return this.#call(async (chosen, startedAt) => {
      const answer = await chosen.raw('KV', 'Range', message, options, startedAt);
      return withHeader(await decodeRange(answer, this.#gate, maxKeysOf(request)));
    }, endpoint);
  }

  /**
   * Makes a call, and repeats it once if the token is refused. The deadline of the second attempt counts from the start
   * of the first.
   *
   * @param firstAt start of the first attempt, by `performance.now`, if this is the second
   */
  async #call<T>(
    call: (endpoint: EtcdEndpoint, startedAt: number) => Promise<T>,
    preferred?: EtcdEndpoint,
    firstAt?: number,
  ): Promise<T> {
    if (this.#isClosed) throw closedError();
    const endpoint = preferred ?? this.#currentEndpoint();
    const startedAt = performance.now();
    try {
      return await call(endpoint, firstAt ?? startedAt);
    } catch (thrown) {
      const error = etcdError(thrown, endpoint.host);
      if (this.#isClosed && error.code !== 'aborted') throw closedError();
      this.#handleFailure(endpoint, error, startedAt);
      if (error.code === 'invalid-token' && firstAt === undefined)
        return this.#call(call, preferred, startedAt);
      throw error;
    }
  }

  /** Sends one keepalive on its own stream, because keepalives are minutes apart. */
  async #keepAlive(
    endpoint: EtcdEndpoint,
    lease: LeaseID,
    { signal, deadlineMs }: CallOptions = {},
  ): Promise<number> {
    const ended = new AbortController();
    const atEnd = (act: () => void): (() => void) => onAbort(ended.signal, act);
    try {
      const answer = await new Promise<Buffer>((resolve, reject) => {
        atEnd(endpoint.startDeadline(deadlineMs, () => reject(endpoint.deadlineError())));
        atEnd(onAbort(signal, () => reject(abortedError())));
        const begin = (stream: EtcdStream): void => {
          if (ended.signal.aborted) {
            stream.cancel();
            return;
          }
          atEnd(() => stream.cancel());
          stream.write(encodeLease(lease));
          stream.read();
        };
        endpoint
          .stream('Lease', 'LeaseKeepAlive', { onMessage: resolve, onEnd: reject })
          .then(begin)
          .catch(reject);
      });
      const renewed = decodeLease(answer);
      if (renewed.lease === lease) return renewed.ttlSeconds;
      throw new Error(`an answer for lease ${renewed.lease}, not ${lease}`);
    } catch (error) {
      throw etcdError(error, endpoint.host);
    } finally {
      ended.abort();
    }
  }
}

function endpointsOf(config: EtcdConfig): readonly EtcdEndpoint[] {
  checkEtcdConfig(config);
  return config.endpoints.flatMap((address) => {
    const ips = config.hostAliases?.get(new URL(address).hostname) ?? [undefined];
    return ips.map((ip) => new EtcdEndpoint(config, address, ip));
  });
}

/** Returns the number of keys that a server may return. */
function maxKeysOf({ limit = 0, ...range }: RangeRequest): number {
  if (limit > 0) return limit;
  return isOneKey(range) ? 1 : Number.POSITIVE_INFINITY;
}

/** Throws if an answer has no header, because an empty message would be a store without keys. */
function withHeader<T extends Pick<RangeResponse, 'header'>>(answer: T): T {
  if (answer.header.revision > 0) return answer;
  throw new Error('an answer without a revision');
}

async function endpointStatus(endpoint: EtcdEndpoint, options?: CallOptions): Promise<EndpointStatus> {
  try {
    const answer = await endpoint.call<GeneratedStatus>('Maintenance', 'status', {}, options);
    return {
      endpoint: endpoint.address,
      healthy: answer.leader !== '0' && answer.errors.length === 0,
      version: cutText(answer.version, MAX_SERVER_TEXT),
      isLeader: answer.leader === answer.header?.member_id,
      ...(answer.errors.length > 0 && {
        error: cutText(answer.errors.map((error) => error.trim()).join(', '), MAX_SERVER_TEXT),
      }),
    };
  } catch (error) {
    return { endpoint: endpoint.address, healthy: false, error: asKvstoreError(error).message };
  }
}
