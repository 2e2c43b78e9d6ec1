import { DryRunWriter, type ObjectWriter, type ObjectWriterOptions } from '../../k8s/rest/object-writer.ts';
import { type Leadership, SOLE_LEADER } from './leader-election.ts';

/** The parts of an operator which decide if a duty may write. */
export interface WriteContext {
  readonly kubernetes: { writer(options?: ObjectWriterOptions): ObjectWriter };
  /** Default: always the leader, because there are no other operators. */
  readonly election?: Leadership | undefined;
  /** If set, receives each write with its reason, and nothing is written. */
  readonly dryRun?: ((line: string) => void) | undefined;
}

/** Returns a writer that writes only while this operator is the leader. In a dry run, it only prints. */
export function fencedWriter(
  { kubernetes, election = SOLE_LEADER, dryRun }: WriteContext,
  limits: Pick<ObjectWriterOptions, 'perSecond' | 'burst' | 'fieldManager'>,
): ObjectWriter {
  if (dryRun !== undefined) return new DryRunWriter(dryRun);
  const mayWrite = (): boolean => election.mayWrite();
  return kubernetes.writer({ ...limits, timeoutMs: election.writeMs, mayWrite });
}
