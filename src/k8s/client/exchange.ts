import type { Clock, Timer } from '../../base/clock.ts';
import { interruptible } from '../../base/supervisor.ts';
import { ApiError, errorOfAnswer } from './api-error.ts';
import { type ApiAnswer, type ApiRequest, type ApiTransport, textOf } from './api-transport.ts';

/** What an {@link Exchange} needs. */
export interface ExchangeOptions {
  readonly transport: ApiTransport;
  readonly clock: Clock;
  /** Gives it up. */
  readonly signal: AbortSignal;
}

/**
 * One request and its answer under a deadline: a server that hangs says nothing, and no connection notices (TCP keepalive
 * is answered by its kernel). Whatever the transport does, nothing here waits longer than it allows.
 */
export class Exchange {
  readonly #options: ExchangeOptions;
  readonly #over = new AbortController();
  #timer: Timer | undefined;
  #deadline: Timer | undefined;

  constructor(options: ExchangeOptions) {
    this.#options = options;
    if (options.signal.aborted) this.#giveUp();
    else options.signal.addEventListener('abort', this.#giveUp, { once: true });
  }

  readonly #giveUp = (): void => this.#over.abort(new ApiError('broken', 'given up'));

  /** From now on, silence of so long ends it; `undefined` for any. */
  allowSilence(ms: number | undefined): void {
    this.#timer?.cancel();
    this.#timer = ms === undefined ? undefined : this.#failAfter(ms, `no word for ${ms / 1000} s`);
  }

  /** It ends so long from now, at the latest. */
  allowTime(ms: number): void {
    this.#deadline?.cancel();
    this.#deadline = this.#failAfter(ms, `not over after ${ms / 1000} s`);
  }

  /** Rejects with an ApiError where there is no answer, or one that is not of success. */
  async open(request: Omit<ApiRequest, 'signal'>): Promise<ApiAnswer> {
    const { signal } = this.#over;
    const { transport } = this.#options;
    const answer = await interruptible(() => transport.send({ ...request, signal }), signal);
    if (answer.status >= 200 && answer.status < 300) return answer;
    const text = await interruptible(() => textOf(answer.body), signal);
    throw errorOfAnswer(answer.status, text, answer.retryAfterMs);
  }

  /** The bytes of an answer as they come. */
  async *read({ body }: ApiAnswer): AsyncGenerator<Uint8Array, void, void> {
    const { signal } = this.#over;
    const chunks = body[Symbol.asyncIterator]();
    for (;;) {
      const { done, value } = await interruptible(() => chunks.next(), signal);
      if (done === true) return;
      yield value;
    }
  }

  /** To be called in any case: ends what is under way. */
  close(): void {
    this.#timer?.cancel();
    this.#deadline?.cancel();
    this.#options.signal.removeEventListener('abort', this.#giveUp);
    this.#giveUp();
  }

  #failAfter(ms: number, message: string): Timer {
    return this.#options.clock.after(ms, () => this.#over.abort(new ApiError('silent', message)));
  }
}
