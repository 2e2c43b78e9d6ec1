import type { StatusDocument } from '../../src/api/status-document.ts';
import { clockText, counted, durationText } from '../format.ts';
import type { Feed } from './feed.ts';
import { isAgent, type ProcessStatus, processName } from './live.ts';

/** A problem that the user must know: `bad` if answers are missing or wrong, `warn` if they may become so. */
export interface HealthProblem {
  readonly tone: 'bad' | 'warn';
  /** What has the problem. */
  readonly subject: string;
  readonly text: string;
}

/** The answer of `/readyz`. */
export interface Readiness {
  readonly ready: boolean;
  readonly blockers: readonly string[];
}

function connectionProblems({ connection, heardAt }: Feed, name: string): readonly HealthProblem[] {
  const since = heardAt === 0 ? '' : ` The page shows the state of ${clockText(heardAt)}.`;
  if (connection === 'disconnected')
    return [{ tone: 'bad', subject: 'this page', text: `The ${name} is unreachable.${since}` }];
  if (connection === 'stale')
    return [
      {
        tone: 'warn',
        subject: 'this page',
        text: `The ${name} has sent no ${name === 'agent' ? 'heartbeat' : 'answer'}.${since}`,
      },
    ];
  return [];
}

function stepProblems({ steps }: Pick<StatusDocument, 'steps'>): readonly HealthProblem[] {
  return steps.flatMap(({ name, state, idleMs = 0, waitsFor, failure }): readonly HealthProblem[] => {
    const why = waitsFor.join('; ');
    if (state === 'failed' || state === 'overdue')
      return [{ tone: 'bad', subject: name, text: [state, failure, why].filter(Boolean).join(': ') }];
    const waiting = `running${idleMs > 1_000 ? `, no progress for ${durationText(idleMs)}` : ''}`;
    return state === 'running'
      ? [{ tone: 'warn', subject: name, text: [waiting, why].filter(Boolean).join(': ') }]
      : [];
  });
}

function agentProblems(status: StatusDocument): readonly HealthProblem[] {
  const found: HealthProblem[] = [];
  for (const { name, ready, connected, knownAt, missing, lastFailure, connectedSince } of status.clusters) {
    if (ready) continue;
    const served =
      knownAt === undefined
        ? ''
        : ` The state of ${durationText(Date.now() - Date.parse(knownAt))} ago is served.`;
    const why = connected || lastFailure === undefined ? '' : ` ${lastFailure}.`;
    const what = connected
      ? `Not complete${missing.length === 0 ? '' : `: ${missing.join(', ')} missing`}.`
      : `Kvstore unreachable for ${durationText(Date.now() - Date.parse(connectedSince))}.`;
    found.push({
      tone: connected || knownAt !== undefined ? 'warn' : 'bad',
      subject: name,
      text: `${what}${why}${served}`,
    });
  }
  for (const { cluster, ageSeconds } of status.checkpoint?.restored ?? [])
    found.push({
      tone: 'warn',
      subject: cluster || status.cluster,
      text: `Restored state that no source has confirmed, ${durationText(ageSeconds * 1_000)} old.`,
    });
  const checkpoint = status.checkpoint?.failure;
  if (checkpoint !== undefined) found.push({ tone: 'warn', subject: 'checkpoint', text: checkpoint });
  for (const text of status.configProblems) found.push({ tone: 'bad', subject: 'configuration', text });
  for (const { name, state, behindMs, lastFailure = '' } of status.kubernetes?.kinds ?? []) {
    if (state !== 'forbidden' && state !== 'stopped' && behindMs === undefined) continue;
    const behind = behindMs === undefined ? '' : `, behind for ${durationText(behindMs)}`;
    found.push({ tone: 'bad', subject: name, text: `${state}${behind}. ${lastFailure}` });
  }
  for (const text of status.datapath?.failures ?? []) found.push({ tone: 'bad', subject: 'datapath', text });
  for (const { name, state, failing, noRoom } of status.datapath?.tables ?? [])
    if (state === 'degraded')
      found.push({
        tone: 'bad',
        subject: `table ${name}`,
        text: `${failing} keys fail, ${noRoom} have no room.`,
      });
  for (const { name, state, missing } of status.datapath?.parts ?? [])
    if (state === 'unavailable')
      found.push({ tone: 'bad', subject: `datapath ${name}`, text: missing.join('; ') });
  const faults = status.ipcache.listenerFaults + status.services.listenerFaults;
  if (faults > 0)
    found.push({
      tone: 'warn',
      subject: 'listeners',
      text: `${counted(faults, 'call')} failed. See the log.`,
    });
  const { contested } = status.services;
  if (contested > 0)
    found.push({
      tone: 'warn',
      subject: 'services',
      text: `${counted(contested, 'frontend')} of several services.`,
    });
  return found;
}

function processProblems(status: ProcessStatus): readonly HealthProblem[] {
  const { duties = [], clusters = [], problems = [], configProblems = [] } = status;
  return [
    ...configProblems.map((text) => ({ tone: 'bad', subject: 'configuration', text }) as const),
    ...problems.map((text) => ({ tone: 'warn', subject: 'kvstoremesh', text }) as const),
    ...clusters
      .filter(({ ready }) => !ready)
      .map(({ name, connected, state, lastFailure }) => {
        const why = connected || lastFailure === undefined ? '' : ` ${lastFailure}.`;
        const what = connected ? `Not complete: ${state}.` : 'Kvstore unreachable.';
        return { tone: 'warn', subject: name, text: `${what}${why}` } as const;
      }),
    ...duties.flatMap(({ name, state, lastFailure }) =>
      state === 'waiting' && lastFailure !== undefined
        ? [{ tone: 'warn', subject: name, text: `waiting: ${lastFailure.message}` } as const]
        : [],
    ),
  ];
}

/** Returns all problems, the worst first. An empty list means that everything works. */
export function problemsOf(
  status: StatusDocument | ProcessStatus | undefined,
  readiness: Readiness | undefined,
  feed: Feed,
): readonly HealthProblem[] {
  const found: HealthProblem[] = [...connectionProblems(feed, processName(status))];
  if (status !== undefined) {
    found.push(...stepProblems(status));
    found.push(...(isAgent(status) ? agentProblems(status) : processProblems(status)));
  }
  const known = found.map(({ subject, text }) => `${subject} ${text}`);
  for (const text of readiness?.blockers ?? [])
    if (!known.some((other) => other.includes(text))) found.push({ tone: 'bad', subject: 'not ready', text });
  return found.sort((a, b) => Number(b.tone === 'bad') - Number(a.tone === 'bad'));
}
