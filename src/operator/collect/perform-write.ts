import type { KubernetesObject, ResourceKind } from '../../k8s/resource.ts';
import {
  type ObjectPlace,
  type ObjectWrite,
  type ObjectWriter,
  type WriteOutcome,
  writeText,
} from '../../k8s/rest/object-writer.ts';
import type { RoundReport } from './rounds.ts';

/** Ends the round because a write was refused or failed. */
export class CollectError extends Error {
  override readonly name = 'CollectError';
  readonly code: string;

  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** Returns the place of an object, for a request. */
export function placeOfObject(
  kind: ResourceKind,
  { metadata: { namespace, name } }: KubernetesObject,
): ObjectPlace {
  return { kind, namespace, name };
}

/** The outcome of a write that was neither made nor printed by a dry run. */
export type UnsuccessfulWrite = Exclude<WriteOutcome, { readonly outcome: 'done' | 'dry-run' }>;

/** Returns true if a write was neither made nor printed. A delete of a missing object counts as made. */
export function isUnsuccessful({ verb }: ObjectWrite, answer: WriteOutcome): answer is UnsuccessfulWrite {
  const { outcome } = answer;
  return outcome !== 'done' && outcome !== 'dry-run' && !(verb === 'delete' && outcome === 'not-found');
}

/** Returns the error of a write that was not made. */
export function writeError(write: ObjectWrite, answer: UnsuccessfulWrite): Error {
  if (answer.outcome === 'failed') return answer.error;
  const reason = 'message' in answer ? answer.message : 'this operator is not the leader';
  return new CollectError(answer.outcome, `cannot ${writeText(write)}: ${reason}`);
}

/**
 * Makes, counts and reports a write of a collector. Returns its outcome. After a conflict, the next round checks the
 * object again. A missing object is ignored. Throws if the write is refused or fails, which ends the round (OPERATOR
 * 22, 23).
 */
export async function performWrite(
  writer: ObjectWriter,
  write: ObjectWrite,
  reason: string,
  report: RoundReport,
  signal: AbortSignal,
): Promise<WriteOutcome['outcome']> {
  const answer = await writer.write(write, reason, signal);
  const { outcome } = answer;
  const action = writeText(write);
  if (!signal.aborted) report.reportAction({ action, reason, outcome });
  switch (outcome) {
    case 'done':
      if (write.verb === 'delete') report.countDelete();
      break;
    case 'conflict':
      report.countConflict();
      break;
    case 'failed':
      throw new CollectError(answer.error.code, `cannot ${action}: ${answer.error.message}`, {
        cause: answer.error,
      });
    case 'not-leader':
    case 'refused':
    case 'invalid':
      throw writeError(write, answer);
  }
  return outcome;
}
