import { messageOf } from '../base/failure.ts';
import type { RateLimitOptions } from '../base/rate-limit.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import type { Agent } from './agent.ts';
import type { Logger } from './log.ts';
import type { LogLevel } from './log-options.ts';
import type { RunContext } from './run-context.ts';

/** Settings that were read anew. */
export interface ReloadedSettings {
  readonly logLevel: LogLevel;
  readonly manifests: readonly string[];
  /** As `AgentOptions` have it; without it etcds are asked as much as it takes. */
  readonly rateLimit: RateLimitOptions | undefined;
  /** Names of settings that have changed, too, and are fixed while an agent runs. */
  readonly fixed: readonly string[];
}

/** Where settings come from. */
export interface ReloadSource {
  /** Calls `listener` whenever they are to be read anew. */
  readonly subscribe: (listener: () => void) => Unsubscribe;
  /** Throws `InputError` when they cannot be read, or something is wrong with them. */
  readonly read: () => Promise<ReloadedSettings>;
}

/** Takes over settings while an agent runs: one reading after the other, and whatever is asked meanwhile is one more. */
export class Reloads {
  readonly #source: ReloadSource;
  readonly #log: Logger;
  readonly #signal: AbortSignal;
  readonly #unsubscribe: Unsubscribe;
  #reload: (() => Promise<void>) | undefined;
  #asked = false;
  #reading = false;

  /** What is asked for before {@link Reloads.begin} is done then. */
  constructor(source: ReloadSource, { log, signal }: RunContext) {
    this.#source = source;
    this.#log = log;
    this.#signal = signal;
    this.#unsubscribe = source.subscribe(() => {
      this.#asked = true;
      void this.#run();
    });
  }

  /** Begins to reload an agent that has been started; `say` tells a person that it was done. */
  begin(agent: Pick<Agent, 'readManifests' | 'changeRates'>, say: (text: string) => void): void {
    this.#reload = async () => {
      const { logLevel, manifests, rateLimit = {}, fixed } = await this.#source.read();
      this.#log.level = logLevel;
      agent.changeRates(rateLimit);
      for (const setting of fixed)
        this.#log.warn({ setting }, `${setting} has changed: that counts from the next start on`);
      await agent.readManifests(manifests, this.#signal);
      say('Settings and manifests were read anew.');
    };
    void this.#run();
  }

  [Symbol.dispose](): void {
    this.#unsubscribe();
    this.#reload = undefined;
  }

  async #run(): Promise<void> {
    if (this.#reading) return;
    this.#reading = true;
    while (this.#asked && this.#reload !== undefined) {
      this.#asked = false;
      await this.#reload().catch((error: unknown) => {
        this.#log.error(`settings cannot be taken over: ${messageOf(error)}`);
      });
    }
    this.#reading = false;
  }
}
