import { requireArgument } from '../base/arguments.ts';
import type { Timer } from '../base/clock.ts';
import type { DeliveryQueue } from '../base/delivery-queue.ts';
import { WorkQueue } from '../base/work-queue.ts';
import type { NodeConfiguration } from './address-claims.ts';
import {
  type CallOutcome,
  HandlerCalls,
  type HandlerCallsOptions,
  type RetryState,
} from './handler-calls.ts';
import { Node } from './node.ts';
import type { HandlerFailure, HandlerStatus, NodeHandler, SweepOutcome } from './node-handler.ts';
import { NodeLane, type NodeStep, stepBetween } from './node-lane.ts';

/**
 * Default limit of concurrent asynchronous calls of one handler: enough to keep a netlink socket or a remote API busy,
 * few enough that a replay of 20,000 nodes does not flood it.
 */
export const DEFAULT_CONCURRENCY = 16;

/** A node in its desired version for handlers. */
export interface AnnouncedNode {
  readonly fullName: string;
  readonly announced: Node | undefined;
}

export interface HandlerFeedOptions extends Omit<HandlerCallsOptions, 'resume'> {
  /** Runs every handler call, so that no call starts inside another one. */
  readonly deliveries: DeliveryQueue;
  readonly concurrency: number;
  /** The nodes of the handler at its subscription. */
  readonly previous?: Iterable<Node> | undefined;
  /** Called when a lane has applied a change or is deleted. */
  onProgress(lane: NodeLane): void;
}

/** A wait until a call for each of the lanes has ended, successfully or not. */
interface AttemptWaiter {
  readonly lanes: Set<NodeLane>;
  /** Called within a delivery, when the set of lanes is empty. */
  readonly done: (outcome: SweepOutcome) => unknown;
}

/**
 * Keeps one handler up to date (contract: {@link NodeHandler}). A synchronous handler that is up to date is called
 * directly and costs no memory. A {@link NodeLane}, the state of one node for this handler, exists only while a call
 * for the node is running, waiting or failed. Calls for nodes wait until the handler has accepted the configuration.
 */
export class HandlerFeed {
  readonly handler: NodeHandler;
  readonly #options: HandlerFeedOptions;
  readonly #calls: HandlerCalls;
  readonly #lanes = new Map<string, NodeLane>();
  /** Waiting lanes. Lanes whose last call failed are delayed. */
  readonly #ready: WorkQueue<NodeLane>;
  /** The nodes of the handler at its subscription, by full name, until their first change. */
  readonly #previous: Map<string, Node>;
  readonly #attemptWaiters = new Set<AttemptWaiter>();
  /** The configuration to deliver; undefined if the handler has accepted the latest one. */
  #configuration: NodeConfiguration | undefined;
  readonly #configurationAttempt: RetryState = { failures: 0, error: undefined };
  /** Set while the configuration waits for a retry. */
  #configurationTimer: Timer | undefined;
  /** True if the handler was stopped with a request to delete its nodes. */
  #deletesOnStop = false;

  constructor(handler: NodeHandler, options: HandlerFeedOptions) {
    this.handler = handler;
    this.#options = options;
    const { clock, random, onFault, previous = [] } = options;
    this.#previous = new Map(Array.from(previous, entryOfNode));
    this.#ready = new WorkQueue({ clock, random, onDue: () => this.#resume() });
    this.#calls = new HandlerCalls(handler, { clock, random, onFault, resume: () => this.#resume() });
  }

  get stopped(): boolean {
    return this.#calls.stopped;
  }

  /** The nodes whose calls are running, waiting or failed. */
  get lanes(): Iterable<NodeLane> {
    return this.#lanes.values();
  }

  lane(fullName: string): NodeLane | undefined {
    return this.#lanes.get(fullName);
  }

  // `change`, `replayed`, `sweep`, `validate` and `configure` must be called within a delivery.

  /** Handles a change. `old` is the `target` of the previous change of that node. */
  change(fullName: string, old: Node | undefined, target: Node | undefined, revision: number): void {
    if (this.stopped) return;
    const lane = this.#lanes.size === 0 ? undefined : this.#lanes.get(fullName);
    if (lane !== undefined) {
      lane.retarget(target, revision);
      if (lane.running === undefined) this.#ready.add(lane); // a change ends the backoff
      this.#startReady();
      return;
    }
    const applied = old ?? this.#previous.get(fullName);
    this.#previous.delete(fullName);
    const step = stepBetween(applied, target);
    if (step === undefined) return;
    if (!this.#mayStart()) {
      const waiting = this.#addLane(fullName, applied);
      waiting.retarget(target, revision);
      this.#ready.add(waiting);
      return;
    }
    this.#callDirectly(step, fullName, applied, revision);
  }

  /** Called at the end of the replay. Calls `onSynced` of the handler when a call of each current lane has ended. */
  replayed(): void {
    this.#whenAttempted((outcome) => {
      if (outcome === 'swept') this.#options.deliveries.guard.call(() => this.handler.onSynced?.());
    });
  }

  /** Deletes the previous nodes without a change. Calls `done` when a call of each current lane has ended. */
  sweep(revision: number, done: (outcome: SweepOutcome) => void): void {
    for (const [fullName, node] of this.#previous) this.change(fullName, node, undefined, revision);
    this.#whenAttempted(done);
  }

  /** Calls the handler to validate a node, unless a call for the node is running or waiting. */
  validate(node: Node): void {
    const { fullName } = node;
    const { nodeValidateImplementation } = this.handler;
    if (this.stopped || nodeValidateImplementation === undefined || this.#lanes.has(fullName)) return;
    const lane = this.#addLane(fullName, node);
    lane.needsValidation = true;
    this.#ready.add(lane);
    this.#startReady();
  }

  /** Sets a configuration. The handler is called after its running calls have ended, until it succeeds. */
  configure(configuration: NodeConfiguration): void {
    if (this.stopped || this.handler.nodeConfigurationChanged === undefined) return;
    this.#configuration = configuration;
    // Ends the backoff, because the new configuration may succeed.
    this.#configurationTimer?.cancel();
    this.#configurationTimer = undefined;
    this.#startReady();
  }

  /**
   * Aborts running calls and makes no further calls. With `announcedToDelete`, all announced nodes, calls `nodeDelete`
   * once for each node that the handler has: immediately, or, if a call for the node is running, when that call has
   * ended.
   */
  stop(announcedToDelete?: readonly AnnouncedNode[]): void {
    if (this.stopped) return;
    this.#deletesOnStop = announcedToDelete !== undefined;
    const known = announcedToDelete === undefined ? [] : this.#knownNodes(announcedToDelete);
    this.#calls.stop();
    this.#configurationTimer?.cancel();
    const lanes = [...this.#lanes.values()];
    this.#lanes.clear();
    this.#ready.clear();
    for (const lane of lanes) this.#settle(lane);
    for (const { done } of this.#attemptWaiters) done('ended');
    this.#attemptWaiters.clear();
    for (const node of known) this.#calls.deleteFinally(node);
  }

  status(): HandlerStatus {
    const failing: HandlerFailure[] = [];
    const add = (call: HandlerFailure['call'], node: string | undefined, attempt: RetryState): void => {
      const { error, failures } = attempt;
      if (error !== undefined) failing.push({ call, node, error, failures });
    };
    add('configuration', undefined, this.#configurationAttempt);
    for (const lane of this.#lanes.values()) {
      const call = (lane.running ?? lane.nextStep())?.call;
      if (call !== undefined) add(call, lane.fullName, lane);
    }
    const { running, faults, durations } = this.#calls;
    return { name: this.handler.name, pending: this.#lanes.size, running, faults, durations, failing };
  }

  /** Returns the nodes that the handler may have, in part or whole, except those with a running call. */
  #knownNodes(announced: readonly AnnouncedNode[]): Node[] {
    const known: Node[] = [];
    for (const { fullName, announced: node } of announced)
      if (node !== undefined && !this.#lanes.has(fullName)) known.push(node);
    for (const lane of this.#lanes.values()) {
      const node = lane.applied ?? lane.residue;
      if (node !== undefined && lane.running === undefined) known.push(node);
    }
    return known;
  }

  #mayStart(): boolean {
    return this.#configuration === undefined && this.#calls.running < this.#options.concurrency;
  }

  #addLane(fullName: string, applied: Node | undefined): NodeLane {
    const lane = new NodeLane(fullName, applied);
    this.#lanes.set(fullName, lane);
    return lane;
  }

  /** Calls the handler for a node without a lane. A lane is created only if the call does not succeed synchronously. */
  #callDirectly(step: NodeStep, fullName: string, old: Node | undefined, revision: number): void {
    const outcome = this.#calls.begin(step);
    if (outcome.state === 'succeeded') return;
    const lane = new NodeLane(fullName, old);
    if (!this.stopped) this.#lanes.set(fullName, lane);
    lane.retarget(step.call === 'delete' ? undefined : step.node, revision);
    lane.begin(step);
    this.#follow(lane, step, outcome);
  }

  /** Continues after a promise or a timer, as a new delivery. */
  #resume(): void {
    this.#options.deliveries.run(() => this.#startReady());
  }

  /** Starts waiting calls. Must be called within a delivery. */
  #startReady(): void {
    this.#endWaits(); // before new calls start, because the present waiters do not wait for these
    if (this.#calls.running === 0) this.#startConfiguration();
    while (!this.stopped && this.#mayStart()) {
      const lane = this.#ready.get();
      if (lane === undefined) break;
      this.#ready.done(lane);
      this.#start(lane);
    }
    this.#endWaits();
  }

  #startConfiguration(): void {
    const configuration = this.#configuration;
    if (configuration === undefined || this.#configurationTimer !== undefined || this.stopped) return;
    const attempt = this.#configurationAttempt;
    this.#calls.follow(
      this.#calls.begin({ call: 'configuration', configuration }),
      () => {
        attempt.failures = 0;
        attempt.error = undefined;
        if (this.#configuration === configuration) this.#configuration = undefined;
      },
      (error) =>
        this.#calls.recordFailure(attempt, 'configuration', undefined, error, (delayMs) => {
          this.#configurationTimer = this.#options.clock.after(delayMs, () => {
            this.#configurationTimer = undefined;
            this.#resume();
          });
        }),
    );
  }

  #start(lane: NodeLane): void {
    const step = lane.nextStep();
    if (step === undefined) {
      this.#deleteLane(lane);
      return;
    }
    lane.begin(step);
    this.#follow(lane, step, this.#calls.begin(step));
  }

  #follow(lane: NodeLane, step: NodeStep, outcome: CallOutcome): void {
    this.#calls.follow(
      outcome,
      () => this.#recordSuccess(lane, step),
      (error) => this.#recordFailure(lane, step, error),
      (isSuccess) => this.#endLate(lane, step, isSuccess),
    );
  }

  /** Handles the end of a call after `stop`: deletes the node if the handler may have it and `stop` deletes nodes. */
  #endLate(lane: NodeLane, step: NodeStep, isSuccess: boolean): void {
    if (isSuccess) lane.recordSuccess(step);
    else lane.recordFailure(step);
    const node = lane.applied ?? lane.residue;
    if (this.#deletesOnStop && node !== undefined) this.#calls.deleteFinally(node);
  }

  /** Calls `done` within a delivery, when a call of each current lane has ended, successfully or not. */
  #whenAttempted(done: AttemptWaiter['done']): void {
    if (this.stopped) {
      done('ended');
      return;
    }
    const lanes = new Set([...this.#lanes.values()].filter(({ failures }) => failures === 0));
    this.#attemptWaiters.add({ lanes, done });
    this.#endWaits();
  }

  /** Records for the waiters that a call of the lane has ended, or that none is needed. */
  #endAttempt(lane: NodeLane): void {
    for (const { lanes } of this.#attemptWaiters) lanes.delete(lane);
  }

  #endWaits(): void {
    for (const waiter of this.#attemptWaiters) {
      if (waiter.lanes.size > 0) continue;
      this.#attemptWaiters.delete(waiter);
      waiter.done('swept');
    }
  }

  #recordSuccess(lane: NodeLane, step: NodeStep): void {
    lane.recordSuccess(step);
    this.#endAttempt(lane);
    if (lane.nextStep() === undefined) this.#deleteLane(lane);
    else {
      this.#ready.add(lane);
      this.#options.onProgress(lane);
    }
  }

  #recordFailure(lane: NodeLane, step: NodeStep, error: unknown): void {
    lane.recordFailure(step);
    this.#endAttempt(lane);
    this.#calls.recordFailure(lane, step.call, lane.fullName, error, (ms) => this.#ready.addAfter(lane, ms));
  }

  /** Deletes a lane whose handler is up to date. */
  #deleteLane(lane: NodeLane): void {
    this.#lanes.delete(lane.fullName);
    this.#endAttempt(lane);
    this.#settle(lane);
  }

  /** Ends the waits for the changes of a deleted lane. */
  #settle(lane: NodeLane): void {
    lane.settle();
    this.#options.onProgress(lane);
  }
}

/** Returns the full name and the node. Rejects parsed JSON of a node, which has no full name. */
function entryOfNode(node: unknown): readonly [fullName: string, node: Node] {
  requireArgument(node instanceof Node, 'subscribe: options.previous must contain results of parseNode');
  return [node.fullName, node];
}
