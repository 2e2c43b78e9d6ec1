import { expect, it } from 'vitest';
import { ClusterReport, type ReportedClusters } from '../../src/agent/cluster-report.ts';
import type { ClusterDocument } from '../../src/api/status-document.ts';
import { unsubscribeOnce } from '../../src/base/subscription.ts';
import { createLog } from '../../src/process/log.ts';
import { FakeClock } from './support/fake-clock.ts';

type Stand = Partial<
  Pick<ClusterDocument, 'connected' | 'ready' | 'state' | 'knownAt' | 'lastFailure' | 'missing'>
>;

const AT = '2026-11-20T12:00:00.000Z';

function cluster(name: string, stand: Stand = {}): ClusterDocument {
  return {
    name,
    local: false,
    id: 2,
    state: 'ready',
    ready: true,
    connected: true,
    connectionChangedAt: AT,
    keys: {},
    missing: [],
    rejected: 0,
    failures: 0,
    lastFailure: undefined,
    lastFailureAt: undefined,
    knownAt: undefined,
    ...stand,
  };
}

/**
 * Returns a report of these clusters. `after` changes them, advances the clock by seconds, and returns the
 * lines logged since.
 */
function reportOf(first: readonly ClusterDocument[]): {
  readonly after: (seconds: number, clusters: readonly ClusterDocument[]) => Promise<readonly string[]>;
  readonly stop: () => void;
  readonly clock: FakeClock;
} {
  const clock = new FakeClock();
  const logged: string[] = [];
  let clusters = first;
  let notify = (_name: string): void => {};
  const log = createLog('info', 'text', { write: (line) => logged.push(line.trimEnd()) });
  const reported: ReportedClusters = {
    names: first.map(({ name }) => name),
    statusOf: (name) => clusters.find((status) => status.name === name),
    onChange: (callback) => {
      notify = callback;
      return unsubscribeOnce(() => {
        notify = () => {};
      });
    },
  };
  const report = new ClusterReport(reported, log, clock);
  report.start();
  const after = async (seconds: number, now: readonly ClusterDocument[]): Promise<readonly string[]> => {
    const names = new Set([...clusters, ...now].map(({ name }) => name));
    clusters = now;
    for (const name of names) notify(name);
    await clock.advance(seconds * 1000);
    return logged.splice(0);
  };
  return { after, stop: () => report.stop(), clock };
}

const AWAY = cluster('far', {
  state: 'unreachable',
  connected: false,
  ready: false,
  knownAt: AT,
  lastFailure: 'connection refused',
});
const EMPTY = cluster('far', {
  state: 'no-configuration',
  ready: false,
  knownAt: AT,
  lastFailure: 'it is gone',
});

it('a lost kvstore is reported once with the reason and the time, and again when it is back', async () => {
  const { after } = reportOf([cluster('far')]);
  expect(await after(5, [cluster('far')])).toEqual([]);
  expect(await after(10, [AWAY])).toEqual([
    `warn  cluster far: unreachable, serving the state of ${AT}: connection refused`,
  ]);
  expect(await after(5, [AWAY])).toEqual([]);
  expect(await after(5, [cluster('far')])).toEqual(['warn  cluster far: connected and complete after 15 s']);
  expect(await after(5, [cluster('far')])).toEqual([]);
});

it('a lost configuration is reported even if the kvstore answers', async () => {
  const { after } = reportOf([cluster('far')]);
  expect(await after(10, [EMPTY])).toEqual([
    `warn  cluster far: no configuration in the kvstore, serving the state of ${AT}: it is gone`,
  ]);
  // Back, but not complete: its end is not reported yet.
  expect(await after(5, [cluster('far', { state: 'watching', ready: false, knownAt: AT })])).toEqual([]);
  expect(await after(5, [cluster('far')])).toEqual(['warn  cluster far: connected and complete after 15 s']);
});

it('a cluster that is connected again, but stays incomplete, is reported after a minute (regression: the log ended with "unreachable")', async () => {
  const incomplete = cluster('far', { state: 'watching', ready: false, knownAt: AT, missing: ['nodes'] });
  const lost = `warn  cluster far: unreachable, serving the state of ${AT}: connection refused`;
  const line = `warn  cluster far: connected, serving the state of ${AT}, nodes missing`;
  const { after } = reportOf([cluster('far')]);
  expect(await after(5, [AWAY])).toEqual([lost]);
  expect(await after(59, [incomplete])).toEqual([]);
  expect(await after(1, [incomplete])).toEqual([line]);
  expect(await after(600, [incomplete])).toEqual([]);
  expect(await after(600, [AWAY])).toEqual([]);
  expect(await after(5, [cluster('far')])).toEqual([
    'warn  cluster far: connected and complete after 1265 s',
  ]);

  // A failure ends the minute.
  expect(await after(5, [AWAY])).toEqual([lost]);
  expect(await after(50, [incomplete])).toEqual([]);
  const other = { ...AWAY, lastFailure: 'no route' };
  expect(await after(5, [other])).toEqual([lost.replace('connection refused', 'no route')]);
  expect(await after(5, [{ ...AWAY, lastFailure: 'expired' }])).toEqual([]);
  expect(await after(59, [incomplete])).toEqual([]);
  expect(await after(60, [incomplete])).toEqual([line]);
});

it('a reconnection within a second is not reported', async () => {
  const { after } = reportOf([cluster('far')]);
  await after(0.9, [AWAY]);
  expect(await after(5, [cluster('far', { state: 'watching', ready: false, knownAt: AT })])).toEqual([]);
});

it('a cluster that was missing in the first sync is reported when it is complete, not when it is connected', async () => {
  const { after } = reportOf([cluster('far', { connected: false, ready: false })]);
  expect(await after(5, [cluster('far', { connected: false, ready: false })])).toEqual([]);
  expect(await after(5, [cluster('far', { ready: false })])).toEqual([]);
  expect(await after(1, [cluster('far')])).toEqual(['warn  cluster far: connected and complete after 10 s']);
});

it('clusters that join and leave are reported at level info; a removed cluster is not reported again', async () => {
  const { after, clock } = reportOf([cluster('far')]);
  expect(await after(3, [cluster('far'), cluster('new', { ready: false })])).toEqual([
    'info  cluster new has joined the mesh',
  ]);
  expect(await after(0, [AWAY, cluster('new')])).toEqual([]);
  expect(await after(3, [cluster('new')])).toEqual(['info  cluster far has left the mesh']);
  expect(clock.pending).toBe(0);
});

it('a cluster whose state is being withdrawn is not unreachable (regression: kvstoremesh logged each removal as an outage)', async () => {
  const { after, clock } = reportOf([cluster('far')]);
  const leaving = { ...AWAY, state: 'draining' as const, lastFailure: undefined };
  expect(await after(180, [leaving])).toEqual([]);
  expect(clock.pending).toBe(0);
  expect(await after(2, [AWAY])).toHaveLength(1);
  expect(await after(180, [leaving])).toEqual([]);
  expect(await after(0, [])).toEqual(['info  cluster far has left the mesh']);
});

it('sets no timer if there is no problem, and none after stop', async () => {
  const { after, stop, clock } = reportOf([cluster('far')]);
  expect(clock.pending).toBe(0);
  await after(0, [AWAY]);
  expect(clock.pending).toBe(1);
  stop();
  expect(clock.pending).toBe(0);
  expect(await after(10, [AWAY])).toEqual([]);
});

it('the log names a new reason of the same outage (regression: only the first, never an expired certificate)', async () => {
  const { after } = reportOf([cluster('far')]);
  const failing = (lastFailure: string): ClusterDocument => ({ ...AWAY, lastFailure });
  const line = (why: string): string => `warn  cluster far: unreachable, serving the state of ${AT}: ${why}`;
  expect(await after(2, [failing('connection dropped')])).toEqual([line('connection dropped')]);
  expect(await after(8, [failing('certificate has expired')])).toEqual([]);
  expect(await after(2, [failing('certificate has expired')])).toEqual([line('certificate has expired')]);
  expect(await after(60, [failing('connection dropped')])).toEqual([]);
  expect(await after(60, [cluster('far')])).toEqual(['warn  cluster far: connected and complete after 72 s']);
  expect(await after(2, [failing('connection dropped')])).toEqual([line('connection dropped')]);
});

it('reasons that keep changing are logged at intervals that double, up to ten minutes', async () => {
  const { after } = reportOf([cluster('far')]);
  const at: number[] = [];
  for (let second = 0; second < 3600; second += 5) {
    const lines = await after(5, [{ ...AWAY, lastFailure: `failure ${second}` }]);
    for (const _ of lines) at.push(second);
  }
  expect(at).toEqual([0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030]);
});

it('a reason that appears after the first sync is logged', async () => {
  const missing = cluster('far', { connected: false, ready: false, state: 'failed' });
  const { after } = reportOf([missing]);
  expect(await after(5, [missing])).toEqual([]);
  expect(await after(5, [{ ...missing, lastFailure: 'no such host' }])).toEqual([
    expect.stringMatching(/^warn {2}cluster far: .*: no such host$/),
  ]);
});
