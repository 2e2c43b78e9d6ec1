import { type Question, table } from './answer.ts';
import type { KvstoreMeshDocument } from './run-kvstoremesh.ts';
import type { OperatorDocument } from './run-operator.ts';
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
  return {
    json: status,
    lines: [...table([header, ...rows], view), ...lines],
    found: status.blockers.length === 0,
  };
};

/** `12:00:05` of today's clock; `-` where there is none. */
function timeCell(wallMs: number | undefined): string {
  return wallMs === undefined ? '-' : `${new Date(wallMs).toISOString().slice(0, 19)}Z`;
}

/** How an operator stands, for `dpcache operator status`. */
export const askOperator: Question = async (ask, view) => {
  const status = (await ask('/v1/status')) as OperatorDocument;
  const rows = status.duties.map(({ name, state, published, rounds, failures }) => [
    ...[name, state],
    ...(published === undefined ? ['-', '-'] : [String(published.keys), String(published.pending)]),
    ...(rounds === undefined
      ? ['-', '-', '-', '-', '-']
      : [
          ...[
            timeCell(rounds.lastRoundMs),
            String(rounds.marked),
            String(rounds.deleted),
            String(rounds.conflicts),
          ],
          timeCell(rounds.nextRoundMs),
        ]),
    String(failures),
  ]);
  const header = [
    'DUTY',
    'STATE',
    'KEYS',
    'PENDING',
    'LAST ROUND',
    'MARKED',
    'DELETED',
    'CONFLICTS',
    'NEXT ROUND',
    'FAILURES',
  ];
  const failed = status.duties.flatMap(({ name, lastFailure }) =>
    lastFailure === undefined ? [] : `${name}: ${lastFailure.message}`,
  );
  return {
    json: status,
    lines: [
      electionText(status),
      ...table([header, ...rows], view),
      ...processLines(status, [...failed, ...status.rejected.recent]),
    ],
    found: status.blockers.length === 0,
  };
};

function electionText({ cluster, election, dryRun }: OperatorDocument): string {
  if (dryRun) return `Cluster ${printable(cluster)}: a dry run, nothing is written.`;
  if (election === undefined) return `Cluster ${printable(cluster)}: this operator is alone.`;
  if (election.state === 'leader')
    return `Cluster ${printable(cluster)}: this operator leads, as ${printable(election.identity)}.`;
  return `Cluster ${printable(cluster)}: this operator waits for the lease, which ${printable(election.holder ?? 'no operator')} holds.`;
}
