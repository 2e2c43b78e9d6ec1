import { type Backoff, backoffDelay } from '../base/backoff.ts';
import type { Clock, Random } from '../base/clock.ts';
import type { DeliveryQueue } from '../base/delivery-queue.ts';
import { failureOf } from '../base/failure.ts';
import type { NodeConfiguration } from './address-claims.ts';
import { ConfigurationTurn } from './configuration-turn.ts';
import type { HandlerFailure, HandlerStatus } from './handler-status.ts';
import type { Node } from './node.ts';
import type { HandlerFault, HandlerResult, NodeCall, NodeHandler } from './node-handler.ts';
import { NodeLane, type NodeStep, stepBetween } from './node-lane.ts';

/** Waits after failed calls: 100 ms doubles to a minute in ten steps, the interval of background validation. */
export const HANDLER_BACKOFF: Backoff = { baseMs: 100, capMs: 60_000 };

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

/** What a feed needs from around it. */
export interface FeedEnvironment {
  readonly clock: Clock;
  readonly random: Random;
  /** Every handler call runs in here, so that no call ever starts inside another one. */
  readonly deliveries: DeliveryQueue;
  readonly concurrency: number;
  onFault(fault: HandlerFault): void;
  /** The lane has applied something, or is gone. */
  onProgress(lane: NodeLane): void;
}

/**
 * Brings one handler up to date (contract: {@link NodeHandler}). A handler that is synchronous and up to date is
 * called at once and costs no memory; a {@link NodeLane} exists only for a node that is under way, waits for its
 * turn, or has failed.
 */
export class HandlerFeed {
  readonly handler: NodeHandler;
  readonly #env: FeedEnvironment;
  readonly #abort = new AbortController();
  readonly #lanes = new Map<string, NodeLane>();
  /** Lanes that wait for their turn, in order. */
  readonly #ready = new Set<NodeLane>();
  readonly #configuration: ConfigurationTurn;
  #running = 0;
  #faults = 0;

  constructor(handler: NodeHandler, env: FeedEnvironment) {
    this.handler = handler;
    this.#env = env;
    this.#configuration = new ConfigurationTurn({
      clock: env.clock,
      call: (configuration) => handler.nodeConfigurationChanged?.(configuration, this.#abort.signal),
      onFailure: (error, failures) => this.#report('configuration', undefined, error, failures),
      resume: () => this.#pump(),
    });
  }

  get stopped(): boolean {
    return this.#abort.signal.aborted;
  }

  /** What is under way, waits or has failed. */
  get lanes(): Iterable<NodeLane> {
    return this.#lanes.values();
  }

  lane(node: string): NodeLane | undefined {
    return this.#lanes.get(node);
  }

  // The next three are called within a delivery.

  /** Tells a change. `old` is what was told of the node before, by this very method. */
  tell(node: string, old: Node | undefined, target: Node | undefined, revision: number): void {
    if (this.stopped) return;
    const lane = this.#lanes.size === 0 ? undefined : this.#lanes.get(node);
    if (lane !== undefined) {
      lane.retarget(target, revision);
      this.#soon(lane);
      this.#startWhatMay();
      return;
    }
    const step = stepBetween(old, target);
    if (step === undefined) return;
    if (!this.#mayStart()) {
      const waiting = this.#addLane(node, old);
      waiting.retarget(target, revision);
      this.#ready.add(waiting);
      return;
    }
    this.#callDirectly(step, node, old, revision);
  }

  /** Asks the handler to validate what it was told of a node; nothing when it is being told of it anyway. */
  validate(node: string, told: Node): void {
    if (this.stopped || this.handler.nodeValidateImplementation === undefined || this.#lanes.has(node))
      return;
    const lane = this.#addLane(node, told);
    lane.validate = true;
    this.#ready.add(lane);
    this.#startWhatMay();
  }

  /** Tells the configuration once what runs has ended; nodes wait until that has succeeded. */
  configure(configuration: NodeConfiguration): void {
    if (this.stopped || this.handler.nodeConfigurationChanged === undefined) return;
    this.#configuration.set(configuration);
    this.#startWhatMay();
  }

  /**
   * Ends it: nothing is called any more, and what runs is told so by its signal. Before that, `nodeDelete` is
   * called for those of the nodes `remove` that the handler knows; once, as nobody is left to try again.
   */
  stop(remove: readonly AnnouncedNode[] = []): void {
    const known = remove.map(({ fullName, announced }) => {
      const lane = this.#lanes.get(fullName);
      return lane === undefined ? announced : (lane.told ?? lane.residue);
    });
    this.#abort.abort();
    this.#configuration.stop();
    const lanes = [...this.#lanes.values()];
    this.#lanes.clear();
    this.#ready.clear();
    for (const lane of lanes) {
      lane.timer?.cancel();
      lane.since = Number.POSITIVE_INFINITY;
      this.#env.onProgress(lane);
    }
    for (const node of known) if (node !== undefined) this.#deleteFinally(node);
  }

  status(): HandlerStatus {
    const failing: HandlerFailure[] = [];
    const { failure } = this.#configuration;
    if (failure !== undefined) failing.push({ call: 'configuration', node: undefined, ...failure });
    for (const lane of this.#lanes.values()) {
      const call = (lane.running ?? lane.nextStep())?.call;
      if (lane.error !== undefined && call !== undefined) {
        failing.push({ call, node: lane.node, error: lane.error, failures: lane.failures });
      }
    }
    return {
      name: this.handler.name,
      pending: this.#lanes.size,
      running: this.#running,
      faults: this.#faults,
      failing,
    };
  }

  #deleteFinally(node: Node): void {
    const failed = (error: unknown): void => {
      this.#faults++;
      this.#env.onFault({
        handler: this.handler,
        call: 'delete',
        node: node.fullName,
        error,
        failures: 1,
        retryInMs: undefined,
      });
    };
    try {
      Promise.resolve(this.handler.nodeDelete(node, new AbortController().signal)).catch(failed);
    } catch (error) {
      failed(error);
    }
  }

  #mayStart(): boolean {
    return !this.#configuration.pending && this.#running < this.#env.concurrency;
  }

  #addLane(node: string, told: Node | undefined): NodeLane {
    const lane = new NodeLane(node, told);
    this.#lanes.set(node, lane);
    return lane;
  }

  /** The common case: nothing is under way for this node. Only a call that does not end at once needs a lane. */
  #callDirectly(step: NodeStep, node: string, old: Node | undefined, revision: number): void {
    const underWay = (): NodeLane => {
      const lane = this.#addLane(node, old);
      lane.retarget(step.call === 'delete' ? undefined : step.node, revision);
      lane.begin(step);
      return lane;
    };
    let result: HandlerResult;
    try {
      result = this.#call(step);
    } catch (error) {
      if (!this.stopped) this.#fail(underWay(), step, error);
      return;
    }
    if (result !== undefined) this.#await(underWay(), step, result);
  }

  #call(step: NodeStep): HandlerResult {
    const { signal } = this.#abort;
    switch (step.call) {
      case 'add':
        return this.handler.nodeAdd(step.node, signal);
      case 'update':
        return this.handler.nodeUpdate(step.old, step.node, signal);
      case 'delete':
        return this.handler.nodeDelete(step.node, signal);
      case 'validate':
        return this.handler.nodeValidateImplementation?.(step.node, signal);
    }
  }

  /** Lets a lane that has something new to tell start without waiting for the rest of its backoff. */
  #soon(lane: NodeLane): void {
    if (lane.running !== undefined) return;
    lane.timer?.cancel();
    lane.timer = undefined;
    this.#ready.add(lane);
  }

  /** Goes on after a promise or a timer: as a delivery of its own. */
  #pump(): void {
    this.#env.deliveries.run(() => this.#startWhatMay());
  }

  /** Call within a delivery. */
  #startWhatMay(): void {
    if (this.#running === 0) this.#configuration.start();
    for (const lane of this.#ready) {
      if (this.stopped || !this.#mayStart()) return;
      this.#ready.delete(lane);
      this.#start(lane);
    }
  }

  #start(lane: NodeLane): void {
    const step = lane.nextStep();
    if (step === undefined) {
      this.#settle(lane);
      return;
    }
    lane.begin(step);
    let result: HandlerResult;
    try {
      result = this.#call(step);
    } catch (error) {
      this.#fail(lane, step, error);
      return;
    }
    if (result === undefined) this.#succeed(lane, step);
    else this.#await(lane, step, result);
  }

  #await(lane: NodeLane, step: NodeStep, result: Promise<void>): void {
    this.#running++;
    // Wrapped, as a handler may hand in anything that only looks like a promise.
    Promise.resolve(result).then(
      () => {
        this.#running--;
        this.#succeed(lane, step);
        this.#pump();
      },
      (error: unknown) => {
        this.#running--;
        this.#fail(lane, step, error);
        this.#pump();
      },
    );
  }

  #succeed(lane: NodeLane, step: NodeStep): void {
    if (this.stopped) return;
    lane.succeeded(step);
    if (lane.nextStep() === undefined) this.#settle(lane);
    else {
      this.#ready.add(lane);
      this.#env.onProgress(lane);
    }
  }

  #settle(lane: NodeLane): void {
    lane.since = Number.POSITIVE_INFINITY;
    this.#lanes.delete(lane.node);
    this.#env.onProgress(lane);
  }

  #fail(lane: NodeLane, step: NodeStep, error: unknown): void {
    if (this.stopped) return;
    lane.failed(step, failureOf(error, this.#env.clock));
    const retryInMs = this.#report(step.call, lane.node, error, lane.failures);
    lane.timer = this.#env.clock.after(retryInMs, () => {
      lane.timer = undefined;
      this.#ready.add(lane);
      this.#pump();
    });
  }

  /** Counts a failure and tells it; gives how long to wait before the next try. */
  #report(call: NodeCall, node: string | undefined, error: unknown, failures: number): number {
    const retryInMs = backoffDelay(failures, HANDLER_BACKOFF, this.#env.random);
    this.#faults++;
    this.#env.onFault({ handler: this.handler, call, node, error, failures, retryInMs });
    return retryInMs;
  }
}
