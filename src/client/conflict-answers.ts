import { CONFLICT_KINDS, type ConflictsDocument } from '../api/conflicts.ts';
import { type Question, table } from './answer.ts';

/**
 * Returns the conflicts between clusters, for `dpcache clustermesh conflicts`. `succeeded` is true if there are none.
 */
export const askConflicts: Question = async (ask, view) => {
  const conflicts = (await ask('/v1/conflicts')) as ConflictsDocument;
  const { counts, items } = conflicts;
  const rows = items.map(({ kind, subject, sides }) => [
    kind,
    subject,
    sides.map(({ cluster, claim }) => `${cluster}: ${claim}`).join('; '),
  ]);
  const more = CONFLICT_KINDS.flatMap((kind) => {
    const shown = items.filter((item) => item.kind === kind).length;
    return counts[kind] > shown ? `${counts[kind] - shown} more of kind ${kind}.` : [];
  });
  const lines =
    items.length === 0
      ? ['No conflicts.']
      : [...table([['KIND', 'SUBJECT', 'CLAIMS'], ...rows], view), ...more];
  return {
    json: conflicts,
    lines,
    succeeded: items.length === 0,
    names: items.map(({ subject }) => subject),
  };
};
