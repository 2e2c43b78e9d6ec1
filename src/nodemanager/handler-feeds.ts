import type { Clock, Random } from '../base/clock.ts';
import { DeliveryQueue } from '../base/delivery-queue.ts';
import { type Unsubscribe, unsubscribeOnce } from '../base/subscription.ts';
import type { NodeConfiguration } from './address-claims.ts';
import { type AnnouncedNode, type FeedEnvironment, HandlerFeed } from './handler-feed.ts';
import type { HandlerStatus } from './handler-status.ts';
import type { Node } from './node.ts';
import type { HandlerFault, NodeHandler } from './node-handler.ts';
import type { NodeLane } from './node-lane.ts';

/** What the feeds need from around them. */
export interface HandlerFeedsOptions {
  readonly clock: Clock;
  readonly random: Random;
  onFault(fault: HandlerFault): void;
}

/** Somebody who waits until changes have been applied. */
interface Waiter {
  readonly revision: number;
  readonly lanes: Set<NodeLane>;
  readonly resolve: (outcome: AppliedOutcome) => void;
}

/** `applied`: every handler has it. `closed`: the manager was closed before. */
export type AppliedOutcome = 'applied' | 'closed';

/**
 * The handlers and their feeds. Deliveries run one after the other: what a handler changes while it is being told
 * something is told after that, to all of them, in the same order.
 */
export class HandlerFeeds {
  readonly #options: HandlerFeedsOptions;
  readonly #deliveries = new DeliveryQueue();
  readonly #waiters = new Set<Waiter>();
  /** Copy on write: a delivery goes to those who were there when it was asked for. */
  #feeds: readonly HandlerFeed[] = [];

  constructor(options: HandlerFeedsOptions) {
    this.#options = options;
  }

  /** Adds a handler: configuration first, then every node. A handler that is here already starts anew. */
  subscribe(
    handler: NodeHandler,
    concurrency: number,
    start: () => { configuration: NodeConfiguration; nodes: Iterable<AnnouncedNode>; revision: number },
  ): Unsubscribe {
    const env: FeedEnvironment = {
      clock: this.#options.clock,
      random: this.#options.random,
      deliveries: this.#deliveries,
      concurrency,
      onFault: (fault) => this.#options.onFault(fault),
      onProgress: (lane) => this.#progress(lane),
    };
    const feed = new HandlerFeed(handler, env);
    const earlier = this.#feeds.find((other) => other.handler === handler);
    if (earlier !== undefined) this.#remove(earlier);
    this.#deliveries.run(() => {
      if (feed.stopped) return;
      const { configuration, nodes, revision } = start();
      // As they are now: what the handler changes meanwhile is told after this, to this feed too.
      const known = Array.from(nodes, ({ fullName, announced }) => ({ fullName, announced }));
      this.#feeds = [...this.#feeds, feed];
      feed.configure(configuration);
      for (const { fullName, announced } of known) feed.tell(fullName, undefined, announced, revision);
    });
    return unsubscribeOnce(() => this.#remove(feed));
  }

  /**
   * Runs `work` whole before any handler is called: what it tells is told when it is through. So a handler that
   * changes nodes in turn finds nothing half done.
   */
  after(work: () => void): void {
    if (this.#deliveries.running) {
      work();
      return;
    }
    let failure: { readonly error: unknown } | undefined;
    this.#deliveries.run(() => {
      try {
        work();
      } catch (error) {
        failure = { error };
      }
    });
    if (failure !== undefined) throw failure.error;
  }

  tell(node: string, old: Node | undefined, next: Node | undefined, revision: number): void {
    const feeds = this.#feeds;
    this.#deliveries.run(() => {
      for (const feed of feeds) feed.tell(node, old, next, revision);
    });
  }

  configure(configuration: NodeConfiguration): void {
    const feeds = this.#feeds;
    this.#deliveries.run(() => {
      for (const feed of feeds) feed.configure(configuration);
    });
  }

  validate(node: string, announced: Node): void {
    this.#deliveries.run(() => {
      for (const feed of this.#feeds) feed.validate(node, announced);
    });
  }

  /** Resolves when everything up to `revision` (of `node`, if one is named) has been applied by every handler. */
  whenApplied(revision: number, node: string | undefined): Promise<AppliedOutcome> {
    return new Promise((resolve) => {
      // After what is being delivered right now: only then do its lanes exist.
      this.#deliveries.run(() => {
        const lanes = new Set<NodeLane>();
        for (const feed of this.#feeds) {
          for (const lane of feed.lanes) {
            if (lane.since <= revision && (node === undefined || lane.node === node)) lanes.add(lane);
          }
        }
        if (lanes.size === 0) resolve('applied');
        else this.#waiters.add({ revision, lanes, resolve });
      });
    });
  }

  /** Stops every feed; handlers are told to delete `remove` before. Those who wait are told that it is closed. */
  stop(remove: readonly AnnouncedNode[]): void {
    for (const waiter of this.#waiters) waiter.resolve('closed');
    this.#waiters.clear();
    const feeds = this.#feeds;
    this.#feeds = [];
    for (const feed of feeds) feed.stop(remove);
  }

  status(): readonly HandlerStatus[] {
    return this.#feeds.map((feed) => feed.status());
  }

  get current(): readonly HandlerFeed[] {
    return this.#feeds;
  }

  #remove(feed: HandlerFeed): void {
    this.#feeds = this.#feeds.filter((other) => other !== feed);
    feed.stop();
  }

  #progress(lane: NodeLane): void {
    for (const waiter of this.#waiters) {
      if (lane.since <= waiter.revision || !waiter.lanes.delete(lane) || waiter.lanes.size > 0) continue;
      this.#waiters.delete(waiter);
      waiter.resolve('applied');
    }
  }
}
