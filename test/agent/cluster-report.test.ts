import { expect, it } from 'vitest';
import type { ClusterStatus } from '../../src/agent/agent-status.ts';
import { ClusterReport } from '../../src/agent/cluster-report.ts';
import { createLog } from '../../src/agent/log.ts';
import { FakeClock } from './support/fake-clock.ts';

type Stand = Partial<Pick<ClusterStatus, 'connected' | 'ready' | 'lastFailure'>>;

function cluster(name: string, stand: Stand = {}): ClusterStatus {
  return {
    ...{ name, own: false, id: 2, state: 'ready', ready: true, connected: true },
    ...{ keys: {}, missing: [], rejected: 0, failures: 0, lastFailure: undefined, ...stand },
  };
}

/** A report of these clusters; `after` looks at others for so many seconds and gives the lines of the log since. */
function reportOf(first: readonly ClusterStatus[]): {
  readonly after: (seconds: number, clusters: readonly ClusterStatus[]) => Promise<readonly string[]>;
  readonly stop: () => void;
  readonly clock: FakeClock;
} {
  const clock = new FakeClock();
  const logged: string[] = [];
  let clusters = first;
  const log = createLog('info', 'text', { write: (line) => logged.push(line.trimEnd()) });
  const report = new ClusterReport(() => clusters, log, clock);
  report.start();
  const after = async (seconds: number, now: readonly ClusterStatus[]): Promise<readonly string[]> => {
    clusters = now;
    await clock.advance(seconds * 1000);
    return logged.splice(0);
  };
  return { after, stop: () => report.stop(), clock };
}

const AWAY = cluster('far', { connected: false, lastFailure: 'connection refused' });

it('a kvstore that is lost is told once, with the reason, and when it is back', async () => {
  const { after } = reportOf([cluster('far')]);
  expect(await after(5, [cluster('far')])).toEqual([]);
  expect(await after(10, [AWAY])).toEqual([
    'warn  cluster far is out of reach, and what is known of it grows old: connection refused',
  ]);
  expect(await after(5, [cluster('far')])).toEqual([
    'warn  cluster far is in reach and complete, after 10 s',
  ]);
  expect(await after(5, [cluster('far')])).toEqual([]);
});

it('a reconnection within a second is no news', async () => {
  const { after } = reportOf([cluster('far')]);
  await after(1, [AWAY]);
  expect(await after(5, [cluster('far')])).toEqual([]);
});

it('a cluster that was missing in the first sync is told when it is complete, not when it is connected', async () => {
  const { after } = reportOf([cluster('far', { connected: false, ready: false })]);
  expect(await after(5, [cluster('far', { connected: false, ready: false })])).toEqual([]);
  expect(await after(5, [cluster('far', { ready: false })])).toEqual([]);
  expect(await after(1, [cluster('far')])).toEqual([
    'warn  cluster far is in reach and complete, after 11 s',
  ]);
});

it('clusters that join and leave are told at level info', async () => {
  const { after } = reportOf([cluster('far')]);
  expect(await after(3, [cluster('far'), cluster('new', { ready: false })])).toEqual([
    'info  cluster new has joined the mesh',
  ]);
  expect(await after(3, [cluster('new')])).toEqual(['info  cluster far has left the mesh']);
});

it('a report that has been stopped sets no timer', () => {
  const { stop, clock } = reportOf([cluster('far')]);
  expect(clock.pending).toBe(1);
  stop();
  expect(clock.pending).toBe(0);
});
