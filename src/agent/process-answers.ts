import { type Question, table } from './answer.ts';
import type { KvstoreMeshDocument } from './run-kvstoremesh.ts';
import type { ProcessDocument } from './served-process.ts';
import { openSteps } from './step-text.ts';
import { printable } from './terminal.ts';

/** What a process waits for, and what is not as it should be. */
function processLines({ steps, blockers }: ProcessDocument, problems: readonly string[]): readonly string[] {
  const open = openSteps(steps).map(({ text }) => text);
  return [...new Set([...open, ...blockers, ...problems])].map(printable);
}

/** How kvstoremesh stands, for `dpcache kvstoremesh status`. */
export const askKvstoreMesh: Question = async (ask, view) => {
  const status = (await ask('/v1/status')) as KvstoreMeshDocument;
  const rows = status.clusters.map(({ name, state, returns, config, copy, lastFailure }) => [
    name,
    String(config?.id ?? ''),
    returns ? `${state}, returns` : state,
    String(copy.keys),
    String(copy.pending),
    lastFailure ?? '',
  ]);
  const header = ['CLUSTER', 'ID', 'STATE', 'KEYS', 'PENDING', 'LAST FAILURE'];
  const lines = processLines(status, [...status.problems, ...status.configProblems]);
  return { json: status, lines: [...table([header, ...rows], view), ...lines], found: true };
};
