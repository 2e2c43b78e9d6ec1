import type { StepDocument } from '../api/status-document.ts';

function seconds(ms = 0): string {
  return `${Math.round(ms / 1000)} s`;
}

/** Maximum number of sentences in one line of the log, because a mesh can have 255 unreachable clusters. */
const MAX_SENTENCES = 10;

/**
 * Returns a sentence about a step without progress: `manifests: no progress for 15 s: reading --manifests a.yaml`.
 * Names at most ten inputs; the status has all of them.
 */
export function stalledText({ name, idleMs, waitsFor }: StepDocument): string {
  const named = waitsFor.slice(0, MAX_SENTENCES).join('; ');
  const more = waitsFor.length > MAX_SENTENCES ? `; and ${waitsFor.length - MAX_SENTENCES} more` : '';
  const reasons = waitsFor.length === 0 ? '' : `: ${named}${more}`;
  return `${name}: no progress for ${seconds(idleMs)}${reasons}`;
}

/** Returns the state of a step in words; undefined for a pending, done or stopped step. */
function stateText({ state, ms, idleMs, failure }: StepDocument): string | undefined {
  switch (state) {
    case 'running':
      return `running for ${seconds(ms)}`;
    case 'overdue':
      return `skipped, no progress for ${seconds(idleMs)}`;
    case 'failed':
      return failure;
    case 'stopping':
      return 'stopping';
    case 'hanging':
      return 'does not stop';
    default:
      return undefined;
  }
}

/** A running step, or one with a problem. */
export interface OpenStep {
  /** `step 3 of 8, manifests: running for 2 s`. */
  readonly text: string;
  readonly waitsFor: readonly string[];
}

/** Returns the running steps of a start and those with a problem. */
export function openSteps(steps: readonly StepDocument[]): readonly OpenStep[] {
  return steps.flatMap((step, index) => {
    const state = stateText(step);
    const { name, waitsFor } = step;
    return state === undefined
      ? []
      : [{ text: `step ${index + 1} of ${steps.length}, ${name}: ${state}`, waitsFor }];
  });
}
