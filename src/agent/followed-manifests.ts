import type { Clock } from '../base/clock.ts';
import type { Rejection } from '../base/rejection.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import type { ServiceCache } from '../servicecache/service-cache.ts';
import { type AppliedObject, applyManifest } from './apply-manifest.ts';
import type { Logger } from './log.ts';
import { readManifests } from './manifests.ts';

/** What parsing and applying an object weighs at the gate, in events: it is about 100 µs. */
const OBJECT_WEIGHT = 64;
/** How often a reading that takes long says how far it is. */
const PROGRESS_MS = 2_000;

/** What manifests are put into, and what that takes. */
export interface FollowedManifestsOptions {
  readonly services: ServiceCache;
  readonly gate: TurnGate;
  readonly clock: Clock;
  readonly log: Logger;
  readonly onReject: (rejection: Rejection) => void;
}

/** One reading of all manifests. */
interface Reading {
  readonly objects: Map<string, AppliedObject>;
  /** Something in them could not be read, so what is missing may be in there. */
  partial: boolean;
}

/** The objects of manifests in the service cache, as the latest reading has them. */
export class FollowedManifests {
  readonly #options: FollowedManifestsOptions;
  #applied: ReadonlyMap<string, AppliedObject> = new Map();
  #path: string | undefined;

  constructor(options: FollowedManifestsOptions) {
    this.#options = options;
  }

  /** What is being read. */
  get reading(): readonly string[] {
    return this.#path === undefined ? [] : [this.#path];
  }

  /**
   * Puts the objects of the manifests into the cache, in turns of the event loop, so that the signal ends it; calls
   * `onProgress` for each. Then takes out
   * what an earlier reading had and this one has not; nothing where a part of them cannot be read: a file that is half
   * written takes nothing away. Throws `InputError` when a file cannot be read. One reading at a time.
   */
  async read(paths: readonly string[], signal: AbortSignal, onProgress?: () => void): Promise<void> {
    const reading: Reading = { objects: new Map(), partial: true };
    try {
      reading.partial = false;
      for (const path of paths) {
        this.#path = path;
        await this.#readPath(path, reading, signal, onProgress);
      }
    } catch (error) {
      reading.partial = true;
      throw error;
    } finally {
      this.#path = undefined;
      this.#replace(reading);
    }
  }

  #replace({ objects, partial }: Reading): void {
    const gone = [...this.#applied.values()].filter(({ key }) => !objects.has(key));
    for (const object of gone) {
      if (partial) objects.set(object.key, object);
      else object.withdraw();
    }
    this.#applied = objects;
    if (partial && gone.length > 0)
      this.#options.log.warn(
        `--manifests: not all could be read; ${gone.length} objects are kept as they were`,
      );
  }

  async #readPath(
    path: string,
    reading: Reading,
    signal: AbortSignal,
    onProgress?: () => void,
  ): Promise<void> {
    const { clock, log, gate, services, onReject } = this.#options;
    let said = clock.now();
    const reject = (rejection: Rejection): void => {
      reading.partial = true;
      onReject(rejection);
    };
    for await (const manifest of readManifests(path, reject)) {
      onProgress?.();
      const applied = applyManifest(manifest, services);
      if (applied === 'unusable') reading.partial = true;
      else if (applied !== 'foreign') reading.objects.set(applied.key, applied);
      if (!(await gate.pass(OBJECT_WEIGHT, signal))) {
        reading.partial = true;
        return;
      }
      if (clock.now() - said < PROGRESS_MS) continue;
      said = clock.now();
      log.warn(`--manifests ${path}: still being read, ${reading.objects.size} objects so far`);
    }
  }
}
