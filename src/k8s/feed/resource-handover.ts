import type { Timer } from '../../base/clock.ts';
import type { Runtime } from '../../base/system-clock.ts';
import type { ResourceKind } from '../resource.ts';
import type { FollowedKind } from './followed-kind.ts';
import { type HandoverEvent, type HandoverState, nextHandover } from './kvstore-handover.ts';

export interface ResourceHandoverOptions extends Runtime {
  /** The kinds that correspond to the resource. */
  readonly kinds: readonly ResourceKind[];
  readonly followed: ReadonlyMap<string, FollowedKind>;
  /** Returns true if the feed was started. Before that, nothing is followed. */
  readonly isStarted: () => boolean;
  /** Called when the resource is withdrawn or followed. */
  readonly onChange: () => void;
}

/**
 * Maximum delay before Kubernetes is followed again after a complete kvstore was lost. The delay is random, because the
 * agents of all nodes lose the kvstore together; the claims of the kvstore stay in the meantime (KUBERNETES 52).
 */
const HANDOVER_SPREAD_MS = 30_000;

/** One resource that Kubernetes or a kvstore provides: performs the actions of {@link nextHandover}. */
export class ResourceHandover {
  readonly #options: ResourceHandoverOptions;
  #state: HandoverState = 'following';
  /** Runs while the kinds of a lost kvstore are not followed yet. */
  #delay: Timer | undefined;

  constructor(options: ResourceHandoverOptions) {
    this.#options = options;
  }

  get state(): HandoverState {
    return this.#state;
  }

  get kinds(): readonly ResourceKind[] {
    return this.#options.kinds;
  }

  /** True if the kinds are followed, without a delay. */
  get isFollowed(): boolean {
    return this.#state === 'following' && this.#delay === undefined;
  }

  apply(event: HandoverEvent): void {
    const { isStarted, onChange } = this.#options;
    const previous = this.#state;
    const { state, action } = nextHandover(previous, event);
    this.#state = state;
    if (action === 'follow' && isStarted()) this.#followAgain(previous === 'resting');
    if (action === 'withdraw') this.#withdraw();
    if (action !== undefined && isStarted()) onChange();
  }

  stop(): void {
    this.#delay?.cancel();
    this.#delay = undefined;
  }

  #withdraw(): void {
    const { kinds, followed } = this.#options;
    this.stop();
    let remaining = kinds.length;
    if (remaining === 0) this.apply('withdrawn');
    for (const { plural } of kinds)
      followed.get(plural)?.withdraw(() => {
        remaining--;
        if (remaining === 0) this.apply('withdrawn');
      });
  }

  /** Follows the kinds again: after a random delay if their claims were withdrawn completely, otherwise immediately. */
  #followAgain(isWithdrawn: boolean): void {
    const { clock, random, kinds, followed, onChange } = this.#options;
    const follow = (): void => {
      this.#delay = undefined;
      for (const kind of kinds) followed.get(kind.plural)?.follow(kind);
      onChange();
    };
    const delay = isWithdrawn ? Math.floor(random() * HANDOVER_SPREAD_MS) : 0;
    if (delay === 0) follow();
    else {
      for (const { plural } of kinds) followed.get(plural)?.expect();
      this.#delay = clock.after(delay, follow);
    }
  }
}
