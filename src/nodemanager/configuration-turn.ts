import type { Clock, Timer } from '../base/clock.ts';
import { type Failure, failureOf } from '../base/failure.ts';
import type { NodeConfiguration } from './address-claims.ts';
import type { HandlerResult } from './node-handler.ts';

/** What a {@link ConfigurationTurn} needs of the feed that it belongs to. */
export interface ConfigurationTurnOptions {
  readonly clock: Clock;
  call(configuration: NodeConfiguration): HandlerResult;
  /** The call has failed `failures` times in a row; gives how long to wait, in milliseconds. */
  onFailure(error: unknown, failures: number): number;
  /** Something may go on: the call is through, or has waited long enough. */
  resume(): void;
}

/**
 * The configuration on its way to a handler: the newest one, told until it succeeds. Nodes wait while it is pending;
 * the feed starts it when no call runs.
 */
export class ConfigurationTurn {
  readonly #options: ConfigurationTurnOptions;
  #target: NodeConfiguration | undefined;
  #timer: Timer | undefined;
  #running = false;
  #stopped = false;
  #failures = 0;
  #error: Failure | undefined;

  constructor(options: ConfigurationTurnOptions) {
    this.#options = options;
  }

  get pending(): boolean {
    return this.#target !== undefined;
  }

  get running(): boolean {
    return this.#running;
  }

  /** The failures in a row and the last error, while there are any. */
  get failure(): { readonly failures: number; readonly error: Failure } | undefined {
    return this.#error === undefined ? undefined : { failures: this.#failures, error: this.#error };
  }

  /** Tells a new one, at once: it may be what makes the next try succeed. */
  set(configuration: NodeConfiguration): void {
    this.#target = configuration;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  stop(): void {
    this.#stopped = true;
    this.#timer?.cancel();
  }

  /** Makes the call if it is pending and neither running nor waiting. */
  start(): void {
    const told = this.#target;
    if (told === undefined || this.#running || this.#timer !== undefined || this.#stopped) return;
    let result: HandlerResult;
    try {
      result = this.#options.call(told);
    } catch (error) {
      this.#fail(error);
      return;
    }
    if (result === undefined) this.#succeed(told);
    else this.#await(told, result);
  }

  #await(told: NodeConfiguration, result: Promise<void>): void {
    this.#running = true;
    Promise.resolve(result).then(
      () => {
        this.#running = false;
        this.#succeed(told);
        this.#options.resume();
      },
      (error: unknown) => {
        this.#running = false;
        this.#fail(error);
      },
    );
  }

  #succeed(told: NodeConfiguration): void {
    this.#failures = 0;
    this.#error = undefined;
    if (this.#target === told) this.#target = undefined;
  }

  #fail(error: unknown): void {
    if (this.#stopped) return;
    this.#failures++;
    this.#error = failureOf(error, this.#options.clock);
    this.#timer = this.#options.clock.after(this.#options.onFailure(error, this.#failures), () => {
      this.#timer = undefined;
      this.#options.resume();
    });
  }
}
