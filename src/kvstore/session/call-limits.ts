import type { Clock } from '../../base/clock.ts';
import { EitherSignal } from '../../base/follow-signal.ts';
import type { RateLimit } from '../../base/rate-limit.ts';
import { asKvstoreError, closedError, KvstoreError } from './errors.ts';
import type { CallOptions } from './transport.ts';

/** The options of an operation. `endsAt` is the monotonic time of the deadline, if the caller has set one. */
export type Timed<O extends CallOptions = CallOptions> = O & { readonly endsAt?: number | undefined };

/** The deadlines of the calls of a client, and the limit of their rate. */
export class CallLimits {
  readonly #clock: Clock;
  readonly #rateLimit: RateLimit | undefined;
  readonly #closed: AbortSignal;

  /** @param closed fires when the client is closed */
  constructor(clock: Clock, rateLimit: RateLimit | undefined, closed: AbortSignal) {
    this.#clock = clock;
    this.#rateLimit = rateLimit;
    this.#closed = closed;
  }

  /**
   * Runs a call within the rate limit and the deadline of an operation. The call receives its signal, and the rest of
   * its time.
   */
  async call<T>(call: (limits: CallOptions) => Promise<T>, options: Timed = {}): Promise<T> {
    const rateLimit = this.#rateLimit;
    const { signal, endsAt } = this.timed(options);
    const run = (): Promise<T> =>
      call({ signal, deadlineMs: endsAt === undefined ? undefined : endsAt - this.#clock.now() });
    try {
      if (rateLimit === undefined) return await run();
      const wait = { signal: signal ?? this.#closed, endsAt };
      return await this.wait(wait, (until) => rateLimit.run(run, until));
    } catch (thrown) {
      throw this.failureOf(thrown, signal);
    }
  }

  /** Waits with a signal, which fires when the caller aborts the operation, and at its deadline. */
  async wait<T>(
    { signal, endsAt }: Timed,
    wait: (signal: AbortSignal | undefined) => Promise<T>,
  ): Promise<T> {
    if (endsAt === undefined) return wait(signal);
    const clock = this.#clock;
    const expired = new AbortController();
    const timer = clock.after(endsAt - clock.now(), () => expired.abort());
    using either = new EitherSignal(signal, expired.signal);
    try {
      return await wait(either.signal);
    } catch (thrown) {
      const isExpired = expired.signal.aborted && signal?.aborted !== true;
      if (!isExpired || asKvstoreError(thrown).code !== 'aborted') throw thrown;
      throw new KvstoreError('deadline', 'the call had to wait until its deadline');
    } finally {
      timer.cancel();
    }
  }

  /** Returns the options with the time of their deadline. */
  timed<O extends CallOptions>(options: Timed<O>): Timed<O> {
    const { deadlineMs, endsAt } = options;
    if (deadlineMs === undefined || endsAt !== undefined) return options;
    return { ...options, endsAt: this.#clock.now() + deadlineMs };
  }

  /**
   * Returns the error of a call. If the client was closed while a caller without a signal waited for its turn, the code
   * is `closed`.
   */
  failureOf(thrown: unknown, signal: AbortSignal | undefined): KvstoreError {
    const error = asKvstoreError(thrown);
    if (error.code !== 'aborted' || signal !== undefined) return error;
    return closedError();
  }
}
