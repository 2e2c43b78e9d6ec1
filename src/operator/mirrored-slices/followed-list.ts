import { onAbort } from '../../base/follow-signal.ts';
import type { KindReader } from '../../k8s/feed/object-feed.ts';
import type { ResourceKind } from '../../k8s/resource.ts';
import { type FollowContext, type FollowedInputs, followKind } from '../publish/producer.ts';

/** The objects of one kind, followed by a source of slices. */
export class FollowedList {
  /** Name of the objects in the plural, for {@link FollowedList.notReadyReason}. */
  readonly #name: string;
  #inputs: FollowedInputs | undefined;

  constructor(name: string) {
    this.#name = name;
  }

  /** Follows the kind until the signal fires, then calls `leave`. If the signal has fired, only calls `leave`. */
  follow<T>(
    kind: ResourceKind,
    reader: KindReader<T>,
    context: Omit<FollowContext, 'onChange'>,
    { signal, leave }: { readonly signal: AbortSignal; readonly leave: () => void },
  ): void {
    if (signal.aborted) {
      leave();
      return;
    }
    const inputs = followKind(kind, reader, { ...context, onChange: () => {} });
    this.#inputs = inputs;
    onAbort(signal, () => {
      leave();
      void inputs.stop();
    });
  }

  /** Returns the reason why the list is not complete; undefined if it is. */
  notReadyReason(): string | undefined {
    if (this.#inputs?.complete === true) return undefined;
    const failure = this.#inputs?.kinds[0]?.resource?.lastFailure;
    return `the list of ${this.#name} is not complete${failure === undefined ? '' : `: ${failure.message}`}`;
  }
}
