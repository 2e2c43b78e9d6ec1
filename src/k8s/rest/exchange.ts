import type { Clock, Timer } from '../../base/clock.ts';
import { onAbort } from '../../base/follow-signal.ts';
import { interruptible } from '../../base/supervisor.ts';
import { ApiError, errorOfAnswer } from './api-error.ts';
import { type ApiAnswer, type ApiRequest, type ApiTransport, textOf } from './api-transport.ts';

/** Options of {@link Exchange}. */
export interface ExchangeOptions {
  readonly transport: ApiTransport;
  readonly clock: Clock;
  /** Cancels the exchange. */
  readonly signal: AbortSignal;
}

/**
 * One request and its response, with deadlines, over any transport. Without a deadline, a server that hangs is not
 * detected, because its kernel still answers TCP keepalives. Must always be disposed of.
 */
export class Exchange implements Disposable {
  readonly #options: ExchangeOptions;
  readonly #end = new AbortController();
  readonly #leaveSignal: () => void;
  #silenceTimer: Timer | undefined;
  #deadlineTimer: Timer | undefined;
  #secret: string | undefined;

  constructor(options: ExchangeOptions) {
    this.#options = options;
    this.#leaveSignal = onAbort(options.signal, () => this.#abort());
  }

  #abort(): void {
    this.#end.abort(new ApiError('broken', 'the request was aborted'));
  }

  /** The credential of the answered request. A server may repeat it, so it is removed from errors. */
  get secret(): string | undefined {
    return this.#secret;
  }

  /** Sets the maximum time from now without data; call it again when data arrives. `undefined`: no limit. */
  allowSilence(ms: number | undefined): void {
    this.#silenceTimer?.cancel();
    this.#silenceTimer = ms === undefined ? undefined : this.#failAfter(ms, `no data for ${ms / 1000} s`);
  }

  /** Sets the maximum time from now to the end of the response. */
  allowTime(ms: number): void {
    this.#deadlineTimer?.cancel();
    this.#deadlineTimer = this.#failAfter(ms, `not complete after ${ms / 1000} s`);
  }

  /** Sends the request. Rejects with an ApiError if there is no response or if it is not successful. */
  async open(request: Omit<ApiRequest, 'signal'>): Promise<ApiAnswer> {
    const { signal } = this.#end;
    const { transport } = this.#options;
    const answer = await interruptible(() => transport.send({ ...request, signal }), signal);
    this.#secret = answer.secret;
    if (answer.status >= 200 && answer.status < 300) return answer;
    const text = await interruptible(() => textOf(answer.body), signal);
    const { status, secret, retryAfterMs } = answer;
    throw errorOfAnswer(status, text, retryAfterMs, secret);
  }

  /** Sends the request and resolves to the text of the response, at most `maxLength` characters. */
  async text(request: Omit<ApiRequest, 'signal'>, maxLength?: number): Promise<string> {
    return textOf(this.read(await this.open(request)), maxLength);
  }

  /** Yields the bytes of a response as they arrive. */
  read({ body }: ApiAnswer): AsyncIterable<Uint8Array> {
    return chunksUntil(body, this.#end.signal);
  }

  [Symbol.dispose](): void {
    this.#silenceTimer?.cancel();
    this.#deadlineTimer?.cancel();
    this.#leaveSignal();
    this.#abort();
  }

  #failAfter(ms: number, message: string): Timer {
    return this.#options.clock.after(ms, () => this.#end.abort(new ApiError('silent', message)));
  }
}

/** Yields the chunks of a body. Throws when the signal fires. */
export async function* chunksUntil(
  body: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array, void, void> {
  const chunks = body[Symbol.asyncIterator]();
  for (;;) {
    const { done, value } = await interruptible(() => chunks.next(), signal);
    if (done === true) return;
    yield value;
  }
}
