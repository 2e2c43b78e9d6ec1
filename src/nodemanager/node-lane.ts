import type { Failure } from '../base/failure.ts';
import type { Node } from './node.ts';

/** One call to make for a node. */
export type NodeStep =
  | { readonly call: 'add'; readonly node: Node }
  | { readonly call: 'update'; readonly old: Node; readonly node: Node }
  | { readonly call: 'delete'; readonly node: Node }
  | { readonly call: 'validate'; readonly node: Node };

/** Returns the call which brings a handler from `applied` to `target`; undefined if none is needed. */
export function stepBetween(applied: Node | undefined, target: Node | undefined): NodeStep | undefined {
  if (target === undefined) return applied === undefined ? undefined : { call: 'delete', node: applied };
  if (applied === undefined) return { call: 'add', node: target };
  return applied.equals(target) ? undefined : { call: 'update', old: applied, node: target };
}

/**
 * The state of one node for one handler: the applied version, the desired version, and the running call. A lane exists
 * only while work is left. It has no queue: the next call follows from `applied` and `target`, so that changes are
 * merged (I11).
 *
 *   change ──► waiting ──► running ──► settled (lane deleted)
 *                ▲  ▲        │ │ changed in between
 *                │  └────────┼─┘
 *                └─ timer ◄──┘ failed
 */
export class NodeLane {
  readonly fullName: string;
  /** The version of the last successful call. */
  applied: Node | undefined;
  /** The desired version. */
  target: Node | undefined;
  /** The version of the last failed `add` or `update`; a part of it may be applied. */
  residue: Node | undefined;
  /** True if the handler must validate the node when it is up to date. */
  needsValidation = false;
  running: NodeStep | undefined;
  failures = 0;
  /** The last failure; undefined after a success. */
  error: Failure | undefined;
  /** Revision of the earliest change which is not applied; infinite if there is none. */
  pendingSince: number = Number.POSITIVE_INFINITY;
  /** `target` when the running call began. */
  #targetAtBegin: Node | undefined;
  /** True if a delete of `applied` failed. The delete must be completed before any other call. */
  #mustDelete = false;
  /** Revision of the earliest change during the running call; infinite if there is none. */
  #changedWhileRunning = Number.POSITIVE_INFINITY;

  constructor(fullName: string, applied: Node | undefined) {
    this.fullName = fullName;
    this.applied = applied;
    this.target = applied;
  }

  /** Sets the desired version by a change of the given revision. */
  retarget(target: Node | undefined, revision: number): void {
    this.target = target;
    if (this.running === undefined) this.pendingSince = Math.min(this.pendingSince, revision);
    else this.#changedWhileRunning = Math.min(this.#changedWhileRunning, revision);
  }

  /** Returns the next call, or undefined if the handler is up to date (rules: `NodeHandler`). */
  nextStep(): NodeStep | undefined {
    const { applied, target, residue } = this;
    if (applied !== undefined && this.#mustDelete) return { call: 'delete', node: applied };
    if (residue !== undefined && target?.equals(residue) !== true) {
      if (applied === undefined) return { call: 'delete', node: residue };
      if (target !== undefined) return { call: 'update', old: residue, node: applied };
    }
    const step = stepBetween(applied, target);
    if (step !== undefined) return step;
    return this.needsValidation && applied !== undefined ? { call: 'validate', node: applied } : undefined;
  }

  /** Records a call as running. */
  begin(step: NodeStep): void {
    this.running = step;
    this.#targetAtBegin = this.target;
  }

  recordSuccess(step: NodeStep): void {
    this.running = undefined;
    this.failures = 0;
    this.error = undefined;
    this.needsValidation = false; // a successful call replaces a validation
    if (step.call !== 'validate') {
      this.#mustDelete = false;
      if (this.#undoesResidue(step) || this.residue?.equals(step.node) === true) this.residue = undefined;
      this.applied = step.call === 'delete' ? undefined : step.node;
    }
    this.#updatePendingSince(this.applied === this.#targetAtBegin);
  }

  /** Records a failed call, except `failures` and `error`, which `HandlerCalls.recordFailure` sets. */
  recordFailure(step: NodeStep): void {
    this.running = undefined;
    this.#updatePendingSince(false);
    if (step.call === 'validate' || this.#undoesResidue(step)) return;
    if (step.call === 'delete') this.#mustDelete = true;
    else this.residue = step.node;
  }

  /** Marks all changes as applied, before the lane is deleted. */
  settle(): void {
    this.pendingSince = Number.POSITIVE_INFINITY;
  }

  /** Updates `pendingSince` after a call. `isReached`: the handler has the version desired when the call began. */
  #updatePendingSince(isReached: boolean): void {
    this.pendingSince = isReached
      ? this.#changedWhileRunning
      : Math.min(this.pendingSince, this.#changedWhileRunning);
    this.#changedWhileRunning = Number.POSITIVE_INFINITY;
  }

  /** Returns true if the call undoes the residue. */
  #undoesResidue(step: NodeStep): boolean {
    return this.residue !== undefined && (step.call === 'update' ? step.old : step.node) === this.residue;
  }
}
