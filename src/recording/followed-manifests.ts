import type { Clock } from '../base/clock.ts';
import type { Rejection } from '../base/rejection.ts';
import { counted } from '../base/show-value.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import type { Logger } from '../process/log.ts';
import type { ServiceCache } from '../servicecache/service-cache.ts';
import { type ManifestObject, readManifestObject } from './manifest-object.ts';
import { readManifests } from './manifests.ts';

/** Weight of parsing an object at the gate, in events: about 80 µs. */
const READ_WEIGHT = 48;
/** Weight of storing or removing an object at the gate, in events: about 20 µs. */
const APPLY_WEIGHT = 16;
/** Interval of log lines while manifests are read. */
const PROGRESS_MS = 2_000;

/** Options of {@link FollowedManifests}. */
export interface FollowedManifestsOptions {
  readonly services: ServiceCache;
  readonly gate: TurnGate;
  readonly clock: Clock;
  readonly log: Logger;
  readonly onReject: (rejection: Rejection) => void;
}

interface ManifestReading {
  readonly objects: Map<string, ManifestObject>;
  /**
   * True if a part of the manifests is invalid. That part may contain objects of earlier reads, so no missing object is
   * removed.
   */
  hasInvalidPart: boolean;
  readonly signal: AbortSignal;
  readonly onProgress: () => void;
}

/** Keeps the objects of the last read of the manifests in the service cache. */
export class FollowedManifests {
  readonly #options: FollowedManifestsOptions;
  readonly #applied = new Map<string, ManifestObject>();
  #path: string | undefined;
  #isRead = false;

  constructor(options: FollowedManifestsOptions) {
    this.#options = options;
  }

  /** True after all valid objects of the manifests were stored. */
  get isRead(): boolean {
    return this.#isRead;
  }

  /** Paths that are being read. */
  get reading(): readonly string[] {
    return this.#path === undefined ? [] : [this.#path];
  }

  /**
   * Reads all manifests, stores their objects in the cache, then removes the objects of earlier reads that are missing.
   * If a part of the manifests is invalid, such as a half-written file, no object is removed. Throws `InputError` if a
   * file cannot be read. If it throws, or if the signal fires before all files were read, the cache is unchanged. Works
   * in turns of the event loop and calls `onProgress` for each object. Only one call may run at a time.
   */
  async read(
    paths: readonly string[],
    signal: AbortSignal,
    onProgress: () => void = () => {},
  ): Promise<void> {
    const reading: ManifestReading = { objects: new Map(), hasInvalidPart: false, signal, onProgress };
    try {
      for (const path of paths) {
        this.#path = path;
        if (!(await this.#readPath(path, reading))) return;
      }
    } finally {
      this.#path = undefined;
    }
    await this.#apply(reading);
  }

  async #apply({ objects, hasInvalidPart, signal, onProgress }: ManifestReading): Promise<void> {
    const { gate, log } = this.#options;
    const removed = [...this.#applied.values()].filter(({ key }) => !objects.has(key));
    for (const object of objects.values()) {
      object.apply();
      this.#applied.set(object.key, object);
      onProgress();
      if (!(await gate.pass(APPLY_WEIGHT, signal))) return;
    }
    this.#isRead = true;
    if (hasInvalidPart) {
      if (removed.length > 0)
        log.warn(`--manifests: kept ${counted(removed.length, 'missing object')}, because a part is invalid`);
      return;
    }
    for (const object of removed) {
      object.withdraw();
      this.#applied.delete(object.key);
      if (!(await gate.pass(APPLY_WEIGHT, signal))) return;
    }
  }

  /** Parses the manifests of a path. Resolves to false if the signal has fired. */
  async #readPath(path: string, reading: ManifestReading): Promise<boolean> {
    const { clock, log, gate, services, onReject } = this.#options;
    let reported = clock.now();
    const reject = (rejection: Rejection): void => {
      reading.hasInvalidPart = true;
      onReject(rejection);
    };
    for await (const manifest of readManifests(path, reject)) {
      reading.onProgress();
      const object = readManifestObject(manifest, services);
      if (object === 'unusable') reading.hasInvalidPart = true;
      else if (object !== 'other-kind') reading.objects.set(object.key, object);
      if (!(await gate.pass(READ_WEIGHT, reading.signal))) return false;
      if (clock.now() - reported < PROGRESS_MS) continue;
      reported = clock.now();
      log.warn(`reading --manifests ${path}: ${counted(reading.objects.size, 'object')} so far`);
    }
    return true;
  }
}
