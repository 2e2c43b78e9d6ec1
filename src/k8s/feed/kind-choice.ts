import { backoffDelay } from '../../base/backoff.ts';
import { messageOf } from '../../base/failure.ts';
import { sleep } from '../../base/sleep.ts';
import type { Runtime } from '../../base/system-clock.ts';
import type { ResourceKind, ResourceSource } from '../resource.ts';
import type { FollowedKind } from './followed-kind.ts';

export interface KindChoiceOptions extends Runtime {
  readonly source: ResourceSource;
  /** The name of the kind whose status shows the discovery. */
  readonly name: string;
  /** In order of preference. */
  readonly candidates: readonly ResourceKind[];
  readonly kinds: ReadonlyMap<string, FollowedKind>;
  /** If it fires, nothing is followed any more. */
  readonly signal: AbortSignal;
}

/** Backoff of discovery, as for lists (KUBERNETES 3). */
const BACKOFF = { baseMs: 800, capMs: 30_000 };

/** Kinds of which an API server may serve only some. Only the first served one is followed (KUBERNETES 13). */
export class KindChoice {
  readonly #options: KindChoiceOptions;
  #followed: ResourceKind | undefined;
  #isDiscovering = false;

  constructor(options: KindChoiceOptions) {
    this.#options = options;
  }

  /** The plural of the followed kind; undefined before the first discovery. */
  get followed(): string | undefined {
    return this.#followed?.plural;
  }

  start(): void {
    const { name, kinds } = this.#options;
    const shown = kinds.get(name);
    if (shown === undefined) return;
    shown.expect();
    void this.#choose();
  }

  /** Chooses again if the kind is followed and missing, because an upgraded API server may serve another version. */
  kindChanged(name: string): void {
    if (this.followed === name && this.#options.kinds.get(name)?.state === 'missing') void this.#choose();
  }

  /** Follows the first served kind. Records each failure in the kind that shows the discovery. */
  async #choose(): Promise<void> {
    if (this.#isDiscovering) return;
    this.#isDiscovering = true;
    const { source, name, candidates, kinds, clock, random, signal } = this.#options;
    for (let failures = 1; !signal.aborted; failures++) {
      try {
        const served = (await source.firstServed(candidates, signal)) ?? candidates[0];
        if (served !== undefined && !signal.aborted) this.#follow(served);
        break;
      } catch (error) {
        if (!signal.aborted) kinds.get(name)?.recordDiscoveryFailure(messageOf(error));
        await sleep(clock, backoffDelay(failures, BACKOFF, random), signal);
      }
    }
    this.#isDiscovering = false;
  }

  /** Follows a kind. The objects of the previous kind stay until the new ones are listed. */
  #follow(kind: ResourceKind): void {
    const { candidates, kinds } = this.#options;
    const { plural: name, version } = this.#followed ?? {};
    if (name === kind.plural && version === kind.version) return; // the reflector retries by itself
    this.#followed = kind;
    for (const { plural } of candidates) if (plural !== kind.plural) kinds.get(plural)?.rest();
    kinds.get(kind.plural)?.follow(kind);
  }
}
