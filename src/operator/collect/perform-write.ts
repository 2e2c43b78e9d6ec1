import type { KubernetesObject, ResourceKind } from '../../k8s/resource.ts';
import type { ObjectReader } from '../../k8s/rest/object-reader.ts';
import {
  type ObjectPlace,
  type ObjectWrite,
  type ObjectWriter,
  type WriteOutcome,
  writeText,
} from '../../k8s/rest/object-writer.ts';
import type { RoundReport } from './rounds.ts';

/** Reads and writes the objects of an API server. */
export interface ObjectAccess {
  readonly reader: ObjectReader;
  readonly writer: ObjectWriter;
}

/** A write of a duty failed or was not made. `code` is the outcome of the write, or the code of its cause. */
export class DutyError extends Error {
  override readonly name = 'DutyError';
  readonly code: string;

  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

export function placeOfObject(
  kind: ResourceKind,
  { metadata: { namespace, name } }: KubernetesObject,
): ObjectPlace {
  return { kind, namespace, name };
}

/** The outcome of a write neither made nor printed by a dry run. */
export type UnsuccessfulWrite = Exclude<WriteOutcome, { readonly outcome: 'done' | 'dry-run' }>;

/** Returns true if a write was neither made nor printed. A delete of a missing object counts as made. */
export function isUnsuccessful({ verb }: ObjectWrite, answer: WriteOutcome): answer is UnsuccessfulWrite {
  const { outcome } = answer;
  return outcome !== 'done' && outcome !== 'dry-run' && !(verb === 'delete' && outcome === 'not-found');
}

export function writeError(write: ObjectWrite, answer: UnsuccessfulWrite): DutyError {
  const problem = `cannot ${writeText(write)}`;
  if (answer.outcome === 'failed') {
    const { error } = answer;
    return new DutyError(error.code, `${problem}: ${error.message}`, { cause: error });
  }
  const reason = answer.outcome === 'not-leader' ? 'this operator is not the leader' : answer.message;
  return new DutyError(answer.outcome, `${problem}: ${reason}`);
}

/**
 * Makes, counts and reports a write of a collector. Returns its outcome. After a `conflict`, the next round checks the
 * object again. `not-found` is ignored, and `invalid` is reported as an error of the round. Throws a `DutyError` after
 * any other unsuccessful write, which ends the round (OPERATOR 22, 23).
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
  if (!signal.aborted) report.addAction({ action: writeText(write), reason, outcome });
  if (outcome === 'done' && write.verb === 'delete') report.countDelete();
  if (outcome === 'conflict') report.countConflict();
  else if (outcome === 'invalid') report.addError(writeError(write, answer));
  else if (outcome !== 'not-found' && isUnsuccessful(write, answer)) throw writeError(write, answer);
  return outcome;
}
