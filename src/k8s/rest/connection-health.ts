import type { Clock } from '../../base/clock.ts';
import { type Failure, failureOf } from '../../base/failure.ts';
import { sleep } from '../../base/sleep.ts';
import { type ApiError, asApiError } from './api-error.ts';
import type { ApiAnswer, ApiRequest, ApiTransport } from './api-transport.ts';
import { Exchange } from './exchange.ts';

/** Time without data from the server before a health check, and timeout of the check (KUBERNETES 11). */
const QUIET_MS = 30_000;

/**
 * Retryable errors that do not show a dead connection: with `credentials`, no request was sent; with the others, the
 * server has responded.
 */
const NOT_DEAD: ReadonlySet<ApiError['code']> = new Set(['credentials', 'throttled', 'unauthorized']);

/**
 * A transport that detects dead connections: of a stopped server, or a network that drops packets. If no data arrives,
 * it requests `/healthz`, and closes all connections if this request fails.
 */
export class ConnectionHealth implements ApiTransport {
  readonly #transport: ApiTransport;
  readonly #clock: Clock;
  readonly #closed = new AbortController();
  #lastBytesAt: number;
  #probes = 0;
  #resets = 0;
  #lastFailure: Failure | undefined;

  constructor(transport: ApiTransport, clock: Clock) {
    this.#transport = transport;
    this.#clock = clock;
    this.#lastBytesAt = clock.now();
  }

  status(): { readonly probes: number; readonly resets: number; readonly lastFailure: Failure | undefined } {
    return { probes: this.#probes, resets: this.#resets, lastFailure: this.#lastFailure };
  }

  /** Checks the connections until the transport is closed. */
  async runChecks(): Promise<void> {
    const { signal } = this.#closed;
    while (!signal.aborted) {
      const quietMs = this.#clock.now() - this.#lastBytesAt;
      if (quietMs >= QUIET_MS) await this.#probe();
      await sleep(this.#clock, Math.max(1, this.#lastBytesAt + QUIET_MS - this.#clock.now()), signal);
    }
  }

  async send(request: ApiRequest): Promise<ApiAnswer> {
    const answer = await this.#transport.send(request);
    this.#onBytes();
    return { ...answer, body: this.#observe(answer.body) };
  }

  reset(): void {
    this.#transport.reset();
  }

  close(): Promise<void> {
    this.#closed.abort();
    return this.#transport.close();
  }

  async #probe(): Promise<void> {
    this.#probes++;
    const { signal } = this.#closed;
    using exchange = new Exchange({ transport: this.#transport, clock: this.#clock, signal });
    exchange.allowTime(QUIET_MS);
    try {
      await exchange.text({ path: '/healthz' });
    } catch (thrown) {
      this.#onFailedProbe(asApiError(thrown));
    }
    this.#onBytes(); // restarts the interval
  }

  /** Closes all connections if the check failed. A server that rejects the request is alive. */
  #onFailedProbe(error: ApiError): void {
    if (this.#closed.signal.aborted || !error.retryable || NOT_DEAD.has(error.code)) return;
    this.#lastFailure = failureOf(error, this.#clock);
    this.#resets++;
    this.#transport.reset();
  }

  #onBytes(): void {
    this.#lastBytesAt = this.#clock.now();
  }

  async *#observe(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, void> {
    for await (const bytes of body) {
      this.#onBytes();
      yield bytes;
    }
  }
}
