import type { Timer } from '../base/clock.ts';
import type { Failure } from '../base/failure.ts';
import type { Node } from './node.ts';

/** One call to make for a node. */
export type NodeStep =
  | { readonly call: 'add'; readonly node: Node }
  | { readonly call: 'update'; readonly old: Node; readonly node: Node }
  | { readonly call: 'delete'; readonly node: Node }
  | { readonly call: 'validate'; readonly node: Node };

/** The call that brings a handler from `applied` to `target`; undefined when there is none to make. */
export function stepBetween(applied: Node | undefined, target: Node | undefined): NodeStep | undefined {
  if (target === undefined) return applied === undefined ? undefined : { call: 'delete', node: applied };
  if (applied === undefined) return { call: 'add', node: target };
  return applied.equals(target) ? undefined : { call: 'update', old: applied, node: target };
}

/**
 * One node on its way to one handler: what the handler has, what it should have, and the call under way. There is
 * a lane only while something is left to do; it holds no queue, so that changes merge by themselves (I11): the
 * next call follows from `applied` and `target` alone.
 *
 *   change ──► waiting ──► running ──► settled (lane gone)
 *                ▲  ▲        │ │ changed meanwhile
 *                │  └────────┼─┘
 *                └─ timer ◄──┘ failed
 */
export class NodeLane {
  readonly node: string;
  /** What the handler has, by its last call that succeeded. */
  applied: Node | undefined;
  /** What it is to have. */
  target: Node | undefined;
  /** The node of the last `add` or `update` that failed: a part of it may be there. */
  residue: Node | undefined;
  validate = false;
  running: NodeStep | undefined;
  /** Set while waiting for the next attempt. */
  timer: Timer | undefined;
  failures = 0;
  error: Failure | undefined;
  /** Revision of the earliest change that is not applied; infinite when there is none. */
  since: number = Number.POSITIVE_INFINITY;
  /** What the handler was to have when the running call began. */
  #goal: Node | undefined;
  /** A delete of `applied` has failed: a part of it is gone, so it has to go whole before anything else. */
  #deleting = false;
  #changedMeanwhile = Number.POSITIVE_INFINITY;

  constructor(node: string, applied: Node | undefined) {
    this.node = node;
    this.applied = applied;
    this.target = applied;
  }

  /** A change of the given revision: from now on the handler is to have `target`. */
  retarget(target: Node | undefined, revision: number): void {
    this.target = target;
    if (this.running === undefined) this.since = Math.min(this.since, revision);
    else this.#changedMeanwhile = Math.min(this.#changedMeanwhile, revision);
  }

  /** The next call, or undefined when the handler has what it should have (rules: `NodeHandler`). */
  nextStep(): NodeStep | undefined {
    const { applied, target, residue } = this;
    if (applied !== undefined && this.#deleting) return { call: 'delete', node: applied };
    if (residue !== undefined && target?.equals(residue) !== true) {
      if (applied === undefined) return { call: 'delete', node: residue };
      if (target !== undefined) return { call: 'update', old: residue, node: applied };
    }
    const step = stepBetween(applied, target);
    if (step !== undefined) return step;
    return this.validate && applied !== undefined ? { call: 'validate', node: applied } : undefined;
  }

  begin(step: NodeStep): void {
    this.running = step;
    this.#goal = this.target;
  }

  succeeded(step: NodeStep): void {
    this.running = undefined;
    this.failures = 0;
    this.error = undefined;
    this.validate = false; // any successful call has just seen to the node
    if (step.call !== 'validate') {
      this.#deleting = false;
      if (this.#cleansUp(step) || this.residue?.equals(step.node) === true) this.residue = undefined;
      this.applied = step.call === 'delete' ? undefined : step.node;
    }
    this.#passed(this.applied === this.#goal);
  }

  /** The failure itself is counted by `HandlerCalls.retry`. */
  failed(step: NodeStep): void {
    this.running = undefined;
    this.#passed(false);
    if (step.call === 'validate' || this.#cleansUp(step)) return;
    if (step.call === 'delete') this.#deleting = true;
    else this.residue = step.node;
  }

  /** The lane is over: nothing of it is left to apply. */
  settled(): this {
    this.since = Number.POSITIVE_INFINITY;
    return this;
  }

  /** A call has ended; `reached` says whether the handler now has what it was to have when the call began. */
  #passed(reached: boolean): void {
    this.since = reached ? this.#changedMeanwhile : Math.min(this.since, this.#changedMeanwhile);
    this.#changedMeanwhile = Number.POSITIVE_INFINITY;
  }

  /** Whether the call removes what a failed one may have left. */
  #cleansUp(step: NodeStep): boolean {
    return this.residue !== undefined && (step.call === 'update' ? step.old : step.node) === this.residue;
  }
}
