import { type HealthProblem, healthProblems, SEVERITIES } from '../../src/api/problems.ts';
import type { StatusDocument } from '../../src/api/status-document.ts';
import { timeText } from '../format.ts';
import type { Answered } from './ask.ts';
import { agentNow } from './clock.ts';
import type { Feed } from './feed.ts';
import { isAgent, type ProcessStatus, processName } from './live.ts';

/** The answer of `/readyz`. */
export interface Readiness {
  readonly ready: boolean;
  readonly blockers: readonly string[];
}

/**
 * Returns the problem of the connection to a process. `name`: the kind of the process; `statusProblem`: why its status
 * cannot be read.
 */
function connectionProblems(
  { connection, lastDataAt, refusal }: Feed,
  name: string,
  statusProblem: string | undefined,
): readonly HealthProblem[] {
  const since = lastDataAt === 0 ? '' : ` The page shows the state of ${timeText(lastDataAt)}.`;
  if (connection === 'disconnected') {
    const why = refusal === undefined ? `The ${name} is unreachable.` : `Cannot receive changes: ${refusal}`;
    return [{ severity: 'error', subject: 'this page', text: `${why}${since}` }];
  }
  if (connection === 'stale')
    return [
      {
        severity: 'warning',
        subject: 'this page',
        text: `The ${name} has sent no ${name === 'agent' ? 'heartbeat' : 'answer'}.${since}`,
      },
    ];
  if (statusProblem === undefined) return [];
  return [{ severity: 'warning', subject: 'this page', text: `Cannot read the status: ${statusProblem}` }];
}

function processProblems(status: ProcessStatus): readonly HealthProblem[] {
  const { blockers, duties = [], clusters = [], problems = [], configProblems = [] } = status;
  return [
    ...configProblems.map((text) => ({ severity: 'error', subject: 'configuration', text }) as const),
    ...problems.map((text) => ({ severity: 'warning', subject: 'kvstoremesh', text }) as const),
    ...clusters
      .filter(({ ready }) => !ready)
      .map(({ name, connected, state, lastFailure }) => {
        const why = lastFailure === undefined ? '' : `: ${lastFailure.message}`;
        const text = connected === false ? `Kvstore unreachable${why}.` : `Not complete: ${state}${why}.`;
        const isNeeded = blockers.some((blocker) => blocker.startsWith(`cluster ${name} `));
        return { severity: isNeeded ? 'error' : 'warning', subject: `cluster ${name}`, text } as const;
      }),
    ...duties.flatMap(({ name, state, lastFailure }) =>
      state === 'waiting' && lastFailure !== undefined
        ? [{ severity: 'warning', subject: name, text: `waiting: ${lastFailure.message}` } as const]
        : [],
    ),
  ];
}

/**
 * Returns the problems of the process and of the connection to it, the worst first. If the list is empty, everything
 * works.
 */
export function problemsOf(
  { document: status, problem }: Answered<StatusDocument | ProcessStatus>,
  readiness: Readiness | undefined,
  feed: Feed,
): readonly HealthProblem[] {
  const ofProcess = status === undefined || isAgent(status) ? [] : processProblems(status);
  const isReported = (blocker: string): boolean =>
    ofProcess.some(
      ({ subject, text }) => blocker.startsWith(`${subject} `) || `${subject} ${text}`.includes(blocker),
    );
  const blockers = (readiness?.blockers ?? []).filter((blocker) => !isReported(blocker));
  const source = isAgent(status) ? status : { steps: status?.steps ?? [] };
  const found = [
    ...connectionProblems(feed, processName(status), problem),
    ...healthProblems(source, blockers, agentNow()),
    ...ofProcess,
  ];
  return SEVERITIES.flatMap((severity) => found.filter((problem) => problem.severity === severity));
}
