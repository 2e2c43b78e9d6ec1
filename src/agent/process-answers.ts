import { AgentError, type Ask } from '../api/api-client.ts';
import { isUnknownPath } from '../api/problem.ts';
import type { HealthProblem, ProblemsDocument } from '../api/problems.ts';
import { counted } from '../base/show-value.ts';
import { checkedStatus, type Question, table } from '../client/answer.ts';
import { problemLines } from '../client/summary.ts';
import type { DutyStatus } from '../operator/duty.ts';
import type { ProcessDocument } from '../process/served-process.ts';
import { localTimeText, printable } from '../process/terminal.ts';
import type { OperatorDocument } from './operator/run-operator.ts';
import type { KvstoreMeshDocument } from './run-kvstoremesh.ts';

/**
 * Returns the current problems of a process, the worst first. For a process of an earlier version, returns a problem
 * for each blocker.
 */
async function problemsOf(
  ask: Ask,
  { blockers }: Pick<ProcessDocument, 'blockers'>,
): Promise<readonly HealthProblem[]> {
  try {
    return ((await ask('/v1/problems')) as ProblemsDocument).items;
  } catch (error) {
    if (!(error instanceof AgentError) || !isUnknownPath(error.problem ?? {})) throw error;
    return blockers.map((text) => ({ severity: 'error', subject: 'not ready', text }));
  }
}

/** Returns the status of kvstoremesh, for `dpcache kvstoremesh status`. */
export const askKvstoreMesh: Question = async (ask, view) => {
  const status = checkedStatus<KvstoreMeshDocument>(await ask('/v1/status'), 'problems', 'a kvstoremesh');
  const rows = status.clusters.map(({ name, state, rejoins, config, copy, lastFailure }) => [
    name,
    String(config?.id ?? ''),
    rejoins ? `${state}, rejoining` : state,
    String(copy.keys),
    String(copy.pending),
    lastFailure?.message ?? '',
  ]);
  const header = ['CLUSTER', 'ID', 'STATE', 'KEYS', 'PENDING', 'LAST FAILURE'];
  const problems = await problemsOf(ask, status);
  const standby = status.problems.filter((line) => line.startsWith('standby'));
  return {
    json: status,
    lines: [...problemLines(problems), ...table([header, ...rows], view), ...standby.map(printable)],
    succeeded: status.blockers.length === 0,
  };
};

function countCell(count: number | undefined): string {
  return count === undefined ? '-' : String(count);
}

/** Returns a time (ISO 8601, of earlier versions milliseconds) in the local time zone, or `-` if there is none. */
function timeCell(wallTime: number | string | undefined): string {
  return wallTime === undefined ? '-' : localTimeText(wallTime);
}

const DUTY_HEADER = [
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

function dutyRow({ name, state, published, rounds, failures }: DutyStatus): readonly string[] {
  return [
    name,
    state,
    countCell(published?.keys),
    countCell(published?.pending),
    timeCell(rounds?.lastRoundAt),
    countCell(rounds?.marked),
    countCell(rounds?.deleted),
    countCell(rounds?.conflicts),
    timeCell(rounds?.nextRoundAt),
    String(failures),
  ];
}

/** Returns the status of an operator, for `dpcache operator status`. */
export const askOperator: Question = async (ask, view) => {
  const status = checkedStatus<OperatorDocument>(await ask('/v1/status'), 'duties', 'an operator');
  const failed = status.duties.flatMap(({ name, lastFailure }) => {
    if (lastFailure === undefined) return [];
    const { code, message, at } = lastFailure;
    // An incomplete input is removed from the status when it is complete; a failure is not.
    return `${name}: ${message}${code === 'not-ready' ? '' : `; at ${timeCell(at)}`}`;
  });
  return {
    json: status,
    lines: [
      ...problemLines(await problemsOf(ask, status)),
      electionText(status),
      ...namespacesText(status),
      ...mcsText(status),
      ...table([DUTY_HEADER, ...status.duties.map(dutyRow)], view),
      ...failed.map(printable),
      ...rejectedLines(status),
    ],
    succeeded: status.blockers.length === 0,
  };
};

/** Returns the last rejected items below a heading; none if nothing was rejected. */
function rejectedLines({ rejected: { total, recent, lastAt } }: OperatorDocument): readonly string[] {
  if (total === 0) return [];
  const last = lastAt === undefined ? '' : `, the last at ${timeCell(lastAt)}`;
  return [
    `${counted(total, 'item was', 'items were')} rejected${last}:`,
    ...recent.map((message) => `  ${printable(message)}`),
  ];
}

function mcsText({ mcs }: OperatorDocument): readonly string[] {
  if (mcs === undefined) return [];
  const { version = 'not known yet', exports, imports, remoteExports, conflicts, waitingImports } = mcs;
  const remote = Object.entries(remoteExports).map(([cluster, count]) => `, ${printable(cluster)} ${count}`);
  const reasons = Object.entries(conflicts).map(([reason, count]) => `${reason} ${count}`);
  const waitingText =
    waitingImports === 0 ? '' : `; ${counted(waitingImports, 'import')} waiting for their clusters`;
  return [
    `Multi-cluster services (${version}): ${counted(exports, 'export')} here${remote.join('')}; ${counted(imports, 'import')}${waitingText}.`,
    ...(reasons.length === 0 ? [] : [`Conflicts of exports: ${reasons.join(', ')}.`]),
  ];
}

function namespacesText({ namespaces }: OperatorDocument): readonly string[] {
  if (namespaces === undefined) return [];
  const { global, known, complete, globalByDefault } = namespaces;
  const more = complete ? '' : ', not all known yet';
  return [
    `Namespaces: ${global} of ${known} global${more}; by default ${globalByDefault ? '' : 'not '}global.`,
  ];
}

function electionText({ cluster, election, dryRun }: OperatorDocument): string {
  if (dryRun) return `Cluster ${printable(cluster)}: dry run, nothing is written.`;
  if (election === undefined)
    return `Cluster ${printable(cluster)}: this operator runs without leader election.`;
  if (election.state === 'leader')
    return `Cluster ${printable(cluster)}: this operator is the leader, ${printable(election.identity)}.`;
  const { holder, freeInMs = 0 } = election;
  const owner = holder === undefined ? '' : ` of ${printable(holder)}`;
  const until = freeInMs === 0 ? '' : `; expires in ${Math.ceil(freeInMs / 1000)} s if it is not renewed`;
  return `Cluster ${printable(cluster)}: this operator waits for the Lease${owner}${until}.`;
}
