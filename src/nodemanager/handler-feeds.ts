import { DeliveryQueue } from '../base/delivery-queue.ts';
import { onAbort } from '../base/follow-signal.ts';
import type { CallbackGuard } from '../base/guard.ts';
import { ListenerSet } from '../base/listener-set.ts';
import { type Unsubscribe, unsubscribeOnce } from '../base/subscription.ts';
import type { Runtime } from '../base/system-clock.ts';
import type { NodeConfiguration } from './address-claims.ts';
import { type AnnouncedNode, DEFAULT_CONCURRENCY, HandlerFeed } from './handler-feed.ts';
import type { Node } from './node.ts';
import type { HandlerFault, HandlerStatus, NodeHandler, SweepOutcome } from './node-handler.ts';
import type { NodeLane } from './node-lane.ts';
import type { NodeSubscribeOptions } from './node-manager-options.ts';

export interface HandlerFeedsOptions extends Runtime {
  readonly guard: CallbackGuard;
  onFault(fault: HandlerFault): void;
}

/** The state that the replay of a new handler delivers. */
export interface FeedStart {
  readonly configuration: NodeConfiguration;
  readonly nodes: Iterable<AnnouncedNode>;
  readonly revision: number;
}

export interface NodeChange {
  readonly fullName: string;
  readonly old: Node | undefined;
  readonly next: Node | undefined;
  readonly revision: number;
}

/** A pending call of `whenApplied`. `lanes` have not applied all changes up to `revision`. */
interface Waiter {
  readonly revision: number;
  readonly lanes: Set<NodeLane>;
  readonly resolve: (outcome: AppliedOutcome) => void;
}

/**
 * Outcome of waiting for handlers. `applied`: all handlers have applied the changes. `closed`: the manager was closed
 * first. `aborted`: the signal of the caller fired first.
 */
export type AppliedOutcome = 'applied' | 'closed' | 'aborted';

/** What a call of `whenApplied` waits for: the changes of one node, by default of all; at most until a signal fires. */
interface WaitOptions {
  readonly fullName?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** The handlers, each with its feed. All feeds share one delivery queue. */
export class HandlerFeeds {
  readonly #options: HandlerFeedsOptions;
  readonly #deliveries: DeliveryQueue;
  readonly #feeds: ListenerSet<HandlerFeed>;
  /** The subscription of each handler, even before its replay has started. */
  readonly #subscriptions = new Map<NodeHandler, Unsubscribe>();
  readonly #waiters = new Set<Waiter>();
  #isStopped = false;

  constructor(options: HandlerFeedsOptions) {
    this.#options = options;
    this.#deliveries = new DeliveryQueue(options.guard);
    this.#feeds = new ListenerSet(this.#deliveries);
  }

  /**
   * Adds a handler. It receives the configuration, then every node. A handler that is already subscribed is restarted.
   */
  subscribe(
    handler: NodeHandler,
    { concurrency = DEFAULT_CONCURRENCY, previous }: NodeSubscribeOptions,
    start: () => FeedStart,
  ): Unsubscribe {
    const { clock, random, onFault } = this.#options;
    const onProgress = (lane: NodeLane): void => this.#progress(lane);
    const feed = new HandlerFeed(handler, {
      clock,
      random,
      onFault,
      onProgress,
      concurrency,
      previous,
      deliveries: this.#deliveries,
    });
    this.#subscriptions.get(handler)?.();
    const end = this.#feeds.subscribe(feed, { steps: () => replay(start()), ended: () => {} });
    const unsubscribe = unsubscribeOnce(() => {
      end();
      feed.stop();
      if (this.#subscriptions.get(handler) === unsubscribe) this.#subscriptions.delete(handler);
    });
    this.#subscriptions.set(handler, unsubscribe);
    return unsubscribe;
  }

  /** Runs `work`, then calls handlers, which may change nodes and therefore need a consistent state. */
  deliverAfter(work: () => void): void {
    this.#deliveries.deliverAfter(work);
  }

  /** Delivers a change to all handlers. */
  change(change: NodeChange): void {
    this.#feeds.notify(deliverChange, change);
  }

  configure(configuration: NodeConfiguration): void {
    this.#feeds.notify((feed, next) => feed.configure(next), configuration);
  }

  validate(announced: Node): void {
    this.#feeds.notify((feed, node) => feed.validate(node), announced);
  }

  /** Resolves when every handler has applied the changes up to `revision`, or earlier with another outcome. */
  whenApplied(revision: number, { fullName, signal }: WaitOptions): Promise<AppliedOutcome> {
    return new Promise((resolve) => {
      // After the current delivery, because it may add lanes for these changes.
      this.#deliveries.run(() => {
        if (this.#isStopped) {
          resolve('closed');
          return;
        }
        if (signal?.aborted === true) {
          resolve('aborted');
          return;
        }
        const lanes = new Set<NodeLane>();
        for (const feed of this.#feeds.current) {
          for (const lane of feed.lanes) {
            if (lane.pendingSince <= revision && (fullName === undefined || lane.fullName === fullName))
              lanes.add(lane);
          }
        }
        if (lanes.size === 0) resolve('applied');
        else this.#addWaiter({ revision, lanes, resolve }, signal);
      });
    });
  }

  #addWaiter(waiter: Waiter, signal: AbortSignal | undefined): void {
    let leaveSignal = (): void => {};
    const resolve = (outcome: AppliedOutcome): void => {
      leaveSignal();
      waiter.resolve(outcome);
    };
    const added = { ...waiter, resolve };
    this.#waiters.add(added);
    leaveSignal = onAbort(signal, () => {
      this.#waiters.delete(added);
      resolve('aborted');
    });
  }

  /** After the replay of a handler, deletes those of its `previous` nodes that are not announced. */
  sweep(handler: NodeHandler, revision: number): Promise<SweepOutcome> {
    return new Promise((resolve) => {
      this.#deliveries.run(() => {
        const feed = this.#feeds.current.find((subscribed) => subscribed.handler === handler);
        if (feed === undefined) resolve('ended');
        else feed.sweep(revision, resolve);
      });
    });
  }

  /** Ends all subscriptions; waiters resolve to `closed`. With `announcedToDelete`, handlers delete nodes first. */
  stop(announcedToDelete?: readonly AnnouncedNode[]): void {
    this.#isStopped = true;
    for (const waiter of this.#waiters) waiter.resolve('closed');
    this.#waiters.clear();
    for (const feed of this.#feeds.current) feed.stop(announcedToDelete);
    for (const unsubscribe of [...this.#subscriptions.values()]) unsubscribe();
  }

  status(): readonly HandlerStatus[] {
    return this.current.map((feed) => feed.status());
  }

  /** The feeds of the handlers, in order of subscription. */
  get current(): readonly HandlerFeed[] {
    return this.#feeds.current;
  }

  #progress(lane: NodeLane): void {
    for (const waiter of this.#waiters) {
      if (lane.pendingSince > waiter.revision) waiter.lanes.delete(lane);
      if (waiter.lanes.size > 0) continue;
      this.#waiters.delete(waiter);
      waiter.resolve('applied');
    }
  }
}

function deliverChange(feed: HandlerFeed, { fullName, old, next, revision }: NodeChange): void {
  feed.change(fullName, old, next, revision);
}

/** Returns the steps of a replay of the current nodes. */
function replay({
  configuration,
  nodes,
  revision,
}: FeedStart): IterableIterator<(feed: HandlerFeed) => void> {
  const steps = [(feed: HandlerFeed): void => feed.configure(configuration)];
  for (const { fullName, announced } of nodes) {
    if (announced === undefined) continue; // held back: a `previous` version stays until the sweep
    steps.push((feed) => feed.change(fullName, undefined, announced, revision));
  }
  steps.push((feed) => feed.replayed());
  return steps.values();
}
