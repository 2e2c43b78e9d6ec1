import type { Rejection } from '../../base/rejection.ts';
import type { ServiceSelection } from '../../k8s/feed/kinds.ts';
import { KubernetesFeed, type KubernetesFeedOptions } from '../../k8s/feed/kubernetes-feed.ts';
import type { FedServices } from '../../k8s/feed/service-readers.ts';
import type { FollowedInputs, ProducerOptions } from './producer.ts';

export interface ServiceObjectsOptions
  extends Pick<ProducerOptions, 'source' | 'clusterName' | 'clock' | 'random' | 'gate'> {
  /** The services to list. */
  readonly selection: ServiceSelection;
  /** Number of producers that must join before following begins. */
  readonly producers: number;
}

/** A producer whose objects are services and their endpoints. */
export interface ServiceObjectsReader {
  /** Receives services and slices. */
  readonly services?: FedServices | undefined;
  /** Receives the rejections of `services`. */
  readonly onReject?: ((rejection: Rejection) => void) | undefined;
  /** More feeds that receive the same objects, with separate rejections. */
  readonly moreFeeds?: KubernetesFeedOptions['moreFeeds'];
  /** Called when the objects may have become complete. */
  readonly onChange: () => void;
}

/** The readers of one feed. The feed is undefined until all producers have joined. */
interface SharedFeed {
  readonly readers: Set<ServiceObjectsReader>;
  feed: KubernetesFeed | undefined;
}

/**
 * The services of a cluster and their endpoints, listed and watched once for all producers that read them. The watch
 * begins when all producers have joined, and ends when all have left. A producer that joins again before all have left
 * waits for a new watch, which begins when all have joined again.
 */
export class ServiceObjects {
  readonly #options: ServiceObjectsOptions;
  #shared: SharedFeed = { readers: new Set(), feed: undefined };

  constructor(options: ServiceObjectsOptions) {
    this.#options = options;
  }

  /** Adds a reader. `complete` of the result is true if its objects are complete; `stop` removes the reader. */
  join(reader: ServiceObjectsReader): FollowedInputs {
    if (this.#shared.feed !== undefined) this.#shared = { readers: new Set(), feed: undefined };
    const shared = this.#shared;
    shared.readers.add(reader);
    if (shared.readers.size === this.#options.producers) this.#start(shared);
    return {
      get complete() {
        return shared.feed?.synced === true;
      },
      get kinds() {
        return shared.feed?.status().kinds ?? [];
      },
      stop: async () => {
        shared.readers.delete(reader);
        if (shared.readers.size === 0) await shared.feed?.stop();
      },
    };
  }

  #start(shared: SharedFeed): void {
    const { source, clusterName, clock, random, gate, selection } = this.#options;
    const readers = [...shared.readers];
    const main = readers.find(({ services }) => services !== undefined);
    const feed = new KubernetesFeed({
      source,
      clusterName,
      clock,
      random,
      gate,
      selection,
      services: main?.services,
      onReject: main?.onReject,
      moreFeeds: new Map(readers.flatMap(({ moreFeeds }) => [...(moreFeeds ?? [])])),
      nodeName: '',
      identities: 'none',
    });
    shared.feed = feed;
    feed.onChange(() => {
      for (const { onChange } of shared.readers) onChange();
    });
    feed.start();
  }
}
