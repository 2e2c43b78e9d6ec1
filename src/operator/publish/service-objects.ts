import type { Clock, Random } from '../../base/clock.ts';
import type { Rejection } from '../../base/rejection.ts';
import type { TurnGate } from '../../base/turn-gate.ts';
import type { ServiceSelection } from '../../k8s/feed/kinds.ts';
import { KubernetesFeed, type KubernetesFeedOptions } from '../../k8s/feed/kubernetes-feed.ts';
import type { FedServices } from '../../k8s/feed/service-readers.ts';
import type { ResourceSource } from '../../k8s/resource.ts';
import type { FollowedInputs } from './producer.ts';

/** Options of {@link ServiceObjects}. */
export interface ServiceObjectsOptions {
  readonly source: ResourceSource;
  readonly clusterName: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly gate?: TurnGate | undefined;
  /** The services to list. Default: services that have no proxy name and are not headless. */
  readonly selection?: ServiceSelection | undefined;
  /** Number of producers that must join before following begins. */
  readonly producers: number;
}

/** A producer that reads services and their endpoints. */
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

/** One run of the producers. */
interface Round {
  readonly readers: Set<ServiceObjectsReader>;
  feed: KubernetesFeed | undefined;
}

function newRound(): Round {
  return { readers: new Set(), feed: undefined };
}

/**
 * The services of a cluster and their endpoints, listed and watched once for all producers that read them. The watch begins when
 * all producers have joined, and ends when all have left. If a producer joins again before all have left, it waits until the
 * others have left.
 */
export class ServiceObjects {
  readonly #options: ServiceObjectsOptions;
  #round = newRound();

  constructor(options: ServiceObjectsOptions) {
    this.#options = options;
  }

  join(reader: ServiceObjectsReader): FollowedInputs {
    if (this.#round.feed !== undefined) this.#round = newRound();
    const round = this.#round;
    round.readers.add(reader);
    if (round.readers.size === this.#options.producers) this.#start(round);
    return {
      get complete() {
        return round.feed?.synced === true;
      },
      get kinds() {
        return round.feed?.status().kinds ?? [];
      },
      stop: async () => {
        round.readers.delete(reader);
        if (round.readers.size === 0) await round.feed?.stop();
      },
    };
  }

  #start(round: Round): void {
    const { source, clusterName, clock, random, gate, selection } = this.#options;
    const readers = [...round.readers];
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
    round.feed = feed;
    feed.onChange(() => {
      for (const { onChange } of round.readers) onChange();
    });
    feed.start();
  }
}
