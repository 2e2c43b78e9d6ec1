import type { DeliveryQueue } from '../base/delivery-queue.ts';
import type { NodeConfiguration } from './address-claims.ts';
import { type Attempt, type CallOutcome, HandlerCalls, type HandlerCallsOptions } from './handler-calls.ts';
import type { Node } from './node.ts';
import type { HandlerFailure, HandlerStatus, NodeHandler, SweepOutcome } from './node-handler.ts';
import { NodeLane, type NodeStep, stepBetween } from './node-lane.ts';

/**
 * Asynchronous calls of one handler that may run at a time unless it asks for another number: enough to keep a
 * netlink socket or a remote API busy, few enough that a replay of 20,000 nodes does not flood it.
 */
export const DEFAULT_CONCURRENCY = 16;

/** A node as handlers are to know it. */
export interface AnnouncedNode {
  readonly fullName: string;
  readonly announced: Node | undefined;
}

/** Options of {@link HandlerFeed}. */
export interface HandlerFeedOptions extends Omit<HandlerCallsOptions, 'resume'> {
  /** Every handler call runs in here, so that no call ever starts inside another one. */
  readonly deliveries: DeliveryQueue;
  readonly concurrency: number;
  /** What the handler has already. */
  readonly had?: Iterable<Node> | undefined;
  /** The lane has applied something, or is gone. */
  onProgress(lane: NodeLane): void;
}

/** Waits until a call for each of the lanes has ended, in whatever way. */
interface AttemptWaiter {
  readonly lanes: Set<NodeLane>;
  readonly done: (outcome: SweepOutcome) => unknown;
}

/**
 * Brings one handler up to date (contract: {@link NodeHandler}). A handler that is synchronous and up to date is
 * called at once and costs no memory; a {@link NodeLane} exists only for a node that is under way, waits for its
 * turn, or has failed. Nodes wait while the handler has not taken the configuration.
 */
export class HandlerFeed {
  readonly handler: NodeHandler;
  readonly #options: HandlerFeedOptions;
  readonly #calls: HandlerCalls;
  readonly #lanes = new Map<string, NodeLane>();
  /** Lanes that wait for their turn, in order. */
  readonly #ready = new Set<NodeLane>();
  /** What the handler had, by full name, as far as no change of it was taken yet. */
  readonly #had: Map<string, Node>;
  readonly #attemptWaiters = new Set<AttemptWaiter>();
  /** The configuration that the handler has not taken yet. */
  #configuration: NodeConfiguration | undefined;
  readonly #configuring: Attempt = { failures: 0, error: undefined, timer: undefined };

  constructor(handler: NodeHandler, options: HandlerFeedOptions) {
    this.handler = handler;
    this.#options = options;
    const { clock, random, onFault, had = [] } = options;
    this.#had = new Map(Array.from(had, (node) => [node.fullName, node]));
    this.#calls = new HandlerCalls(handler, { clock, random, onFault, resume: () => this.#resume() });
  }

  get stopped(): boolean {
    return this.#calls.stopped;
  }

  /** What is under way, waits or has failed. */
  get lanes(): Iterable<NodeLane> {
    return this.#lanes.values();
  }

  lane(node: string): NodeLane | undefined {
    return this.#lanes.get(node);
  }

  // The next five are called within a delivery.

  /** Takes a change. `old` is the `target` of the change of that node before. */
  change(node: string, old: Node | undefined, target: Node | undefined, revision: number): void {
    if (this.stopped) return;
    const lane = this.#lanes.size === 0 ? undefined : this.#lanes.get(node);
    if (lane !== undefined) {
      lane.retarget(target, revision);
      this.#soon(lane);
      this.#startWhatMay();
      return;
    }
    const has = old ?? this.#had.get(node);
    this.#had.delete(node);
    const step = stepBetween(has, target);
    if (step === undefined) return;
    if (!this.#mayStart()) {
      const waiting = this.#addLane(node, has);
      waiting.retarget(target, revision);
      this.#ready.add(waiting);
      return;
    }
    this.#callDirectly(step, node, has, revision);
  }

  /** The replay is through. */
  replayed(): void {
    this.#whenAttempted((outcome) => {
      if (outcome === 'swept') this.#options.deliveries.guard.call(() => this.handler.onSynced?.());
    });
  }

  /** Deletes what the handler had and no change has named; then calls `done` as {@link HandlerFeed.replayed} does. */
  sweep(revision: number, done: (outcome: SweepOutcome) => void): void {
    for (const [node, had] of this.#had) this.change(node, had, undefined, revision);
    this.#whenAttempted(done);
  }

  /** Asks the handler to validate what it has of a node; nothing while a call for the node is under way or waits. */
  validate(node: string, announced: Node): void {
    if (this.stopped || this.handler.nodeValidateImplementation === undefined || this.#lanes.has(node))
      return;
    const lane = this.#addLane(node, announced);
    lane.validate = true;
    this.#ready.add(lane);
    this.#startWhatMay();
  }

  /** Takes a configuration: the handler is called once what runs has ended, until it succeeds. */
  configure(configuration: NodeConfiguration): void {
    if (this.stopped || this.handler.nodeConfigurationChanged === undefined) return;
    this.#configuration = configuration;
    // Without waiting for the backoff: it may be what makes the next attempt succeed.
    this.#configuring.timer?.cancel();
    this.#configuring.timer = undefined;
    this.#startWhatMay();
  }

  /**
   * Ends it: no call is made any more, and the signal of those under way fires. After that, `nodeDelete` is called
   * once for those of the nodes `remove` that the handler has.
   */
  stop(remove: readonly AnnouncedNode[] = []): void {
    const known = remove.map(({ fullName, announced }) => {
      const lane = this.#lanes.get(fullName);
      return lane === undefined ? announced : (lane.applied ?? lane.residue);
    });
    this.#calls.stop();
    this.#configuring.timer?.cancel();
    const lanes = [...this.#lanes.values()];
    this.#lanes.clear();
    this.#ready.clear();
    for (const lane of lanes) {
      lane.timer?.cancel();
      this.#options.onProgress(lane.settled());
    }
    for (const { done } of this.#attemptWaiters) done('ended');
    this.#attemptWaiters.clear();
    for (const node of known) if (node !== undefined) this.#calls.deleteFinally(node);
  }

  status(): HandlerStatus {
    const failing: HandlerFailure[] = [];
    const add = (call: HandlerFailure['call'], node: string | undefined, attempt: Attempt): void => {
      const { error, failures } = attempt;
      if (error !== undefined) failing.push({ call, node, error, failures });
    };
    add('configuration', undefined, this.#configuring);
    for (const lane of this.#lanes.values()) {
      const call = (lane.running ?? lane.nextStep())?.call;
      if (call !== undefined) add(call, lane.node, lane);
    }
    const { running, faults, durations } = this.#calls;
    return { name: this.handler.name, pending: this.#lanes.size, running, faults, durations, failing };
  }

  #mayStart(): boolean {
    return this.#configuration === undefined && this.#calls.running < this.#options.concurrency;
  }

  #addLane(node: string, applied: Node | undefined): NodeLane {
    const lane = new NodeLane(node, applied);
    this.#lanes.set(node, lane);
    return lane;
  }

  /** The common case: nothing is under way for this node. Only a call that has not succeeded at once needs a lane. */
  #callDirectly(step: NodeStep, node: string, old: Node | undefined, revision: number): void {
    const outcome = this.#calls.begin(step);
    if (outcome.ended === 'succeeded') return;
    const lane = new NodeLane(node, old);
    if (!this.stopped) this.#lanes.set(node, lane);
    lane.retarget(step.call === 'delete' ? undefined : step.node, revision);
    lane.begin(step);
    this.#follow(lane, step, outcome);
  }

  /** Lets a lane with a new target start without waiting for the rest of its backoff. */
  #soon(lane: NodeLane): void {
    if (lane.running !== undefined) return;
    lane.timer?.cancel();
    lane.timer = undefined;
    this.#ready.add(lane);
  }

  /** Goes on after a promise or a timer: as a delivery of its own. */
  #resume(): void {
    this.#options.deliveries.run(() => this.#startWhatMay());
  }

  /** Call within a delivery. */
  #startWhatMay(): void {
    this.#endWaits(); // before others start, which they do not wait for
    this.#startNodes();
    this.#endWaits();
  }

  #startNodes(): void {
    if (this.#calls.running === 0) this.#startConfiguration();
    for (const lane of this.#ready) {
      if (this.stopped || !this.#mayStart()) return;
      this.#ready.delete(lane);
      this.#start(lane);
    }
  }

  #startConfiguration(): void {
    const configuration = this.#configuration;
    if (configuration === undefined || this.#configuring.timer !== undefined || this.stopped) return;
    const attempt = this.#configuring;
    this.#calls.follow(
      this.#calls.begin({ call: 'configuration', configuration }),
      () => {
        attempt.failures = 0;
        attempt.error = undefined;
        if (this.#configuration === configuration) this.#configuration = undefined;
      },
      (error) => this.#calls.retry(attempt, 'configuration', undefined, error),
    );
  }

  #start(lane: NodeLane): void {
    const step = lane.nextStep();
    if (step === undefined) {
      this.#settle(lane);
      return;
    }
    lane.begin(step);
    this.#follow(lane, step, this.#calls.begin(step));
  }

  #follow(lane: NodeLane, step: NodeStep, outcome: CallOutcome): void {
    this.#calls.follow(
      outcome,
      () => this.#succeeded(lane, step),
      (error) => this.#failed(lane, step, error),
    );
  }

  /** Calls `done` within a delivery, once each lane has made a call, or has none to make. One that failed has. */
  #whenAttempted(done: AttemptWaiter['done']): void {
    if (this.stopped) {
      done('ended');
      return;
    }
    const lanes = new Set([...this.#lanes.values()].filter(({ failures }) => failures === 0));
    this.#attemptWaiters.add({ lanes, done });
    this.#endWaits();
  }

  #attempted(lane: NodeLane): void {
    for (const { lanes } of this.#attemptWaiters) lanes.delete(lane);
  }

  #endWaits(): void {
    for (const waiter of this.#attemptWaiters) {
      if (waiter.lanes.size > 0 || !this.#attemptWaiters.delete(waiter)) continue;
      waiter.done('swept');
    }
  }

  #succeeded(lane: NodeLane, step: NodeStep): void {
    lane.succeeded(step);
    this.#attempted(lane);
    if (lane.nextStep() === undefined) this.#settle(lane);
    else {
      this.#ready.add(lane);
      this.#options.onProgress(lane);
    }
  }

  #failed(lane: NodeLane, step: NodeStep, error: unknown): void {
    lane.failed(step);
    this.#attempted(lane);
    this.#calls.retry(lane, step.call, lane.node, error, () => this.#ready.add(lane));
  }

  #settle(lane: NodeLane): void {
    this.#lanes.delete(lane.node);
    this.#attempted(lane);
    this.#options.onProgress(lane.settled());
  }
}
