import { messageOf } from '../base/failure.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import type { LogLevel } from './log-options.ts';
import type { RunContext } from './run-context.ts';

/** Settings of a running process after reading its configuration file again. */
export interface ReloadedSettings {
  readonly logLevel: LogLevel;
  /** Keys of changed settings which take effect only at the next start. */
  readonly needRestart: readonly string[];
  /** Called when the settings are in use. */
  readonly onApplied?: () => void;
}

export interface ReloadSource<S extends ReloadedSettings> {
  /** Calls `listener` for each request: SIGHUP. */
  readonly subscribe: (listener: () => void) => Unsubscribe;
  /** Returns the settings. Throws `InputError` if they cannot be read or are invalid. */
  readonly read: () => Promise<S>;
}

/**
 * Reloads the settings of a running process. Only one reload runs at a time; requests during a reload cause one more.
 */
export class Reloads<S extends ReloadedSettings> {
  readonly #source: ReloadSource<S>;
  readonly #context: RunContext;
  readonly #unsubscribe: Unsubscribe;
  #reload: (() => Promise<void>) | undefined;
  #isRequested = false;
  #isReloading = false;

  /** Subscribes to requests. Earlier ones are handled after {@link Reloads.begin}. */
  constructor(source: ReloadSource<S>, context: RunContext) {
    this.#source = source;
    this.#context = context;
    this.#unsubscribe = source.subscribe(() => {
      this.#isRequested = true;
      void this.#run();
    });
  }

  /**
   * Starts to handle requests. A reload is all or nothing: if `apply` rejects, it must have changed nothing, and no
   * setting changes. `onDone` is called after each successful reload.
   */
  begin(apply: (settings: S) => void | Promise<void>, onDone: () => void): void {
    const { log } = this.#context;
    this.#reload = async () => {
      const settings = await this.#source.read();
      await apply(settings);
      const { logLevel, needRestart, onApplied } = settings;
      log.level = logLevel;
      onApplied?.();
      for (const setting of needRestart) log.warn({ setting }, `${setting} has changed: restart to apply it`);
      onDone();
    };
    void this.#run();
  }

  [Symbol.dispose](): void {
    this.#unsubscribe();
    this.#reload = undefined;
  }

  async #run(): Promise<void> {
    if (this.#isReloading) return;
    this.#isReloading = true;
    while (this.#isRequested && this.#reload !== undefined) {
      this.#isRequested = false;
      await this.#reload().catch((error: unknown) => {
        this.#context.log.error(`cannot reload settings: ${messageOf(error)}`);
      });
    }
    this.#isReloading = false;
  }
}
