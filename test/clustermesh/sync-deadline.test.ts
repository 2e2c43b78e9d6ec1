import { describe, expect, it, onTestFinished } from 'vitest';
import type { Clock } from '../../src/base/clock.ts';
import {
  type SyncDeadline,
  type SyncProgress,
  waitForClusters,
} from '../../src/clustermesh/sync-deadline.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { advance, settle } from '../kvstore/support/settle.ts';
import { Agent, newCluster } from './support/mesh-world.ts';

/** Clusters whose progress the test makes. */
class Waiting {
  readonly clock = new ManualClock();
  readonly clusters = new Map<string, Omit<SyncProgress, 'name'>>();
  missing: readonly string[] | undefined;

  begin(
    deadline: Partial<SyncDeadline & { clock: Clock }> = {},
    all: Promise<unknown> = new Promise(() => {}),
  ): void {
    const look = (): SyncProgress[] => [...this.clusters].map(([name, cluster]) => ({ name, ...cluster }));
    void waitForClusters(look, all, { clock: this.clock, deadlineMs: 1000, ...deadline }).then((missing) => {
      this.missing = missing;
    });
  }

  set(name: string, progress: Partial<SyncProgress>): void {
    const before = this.clusters.get(name) ?? { synced: false, arrived: 0, failures: 0 };
    this.clusters.set(name, { ...before, ...progress });
  }
}

describe('the deadline of a first sync', () => {
  it('counts from the last progress, for each cluster (trap: slow start, fixed timeouts)', async () => {
    const waiting = new Waiting();
    waiting.set('silent', {});
    waiting.set('slow', {});
    waiting.begin();
    for (let second = 1; second <= 60; second++) {
      await advance(waiting.clock, 900);
      waiting.set('slow', { arrived: second });
    }
    expect(waiting.missing).toBeUndefined();
    waiting.set('slow', { synced: true });
    await advance(waiting.clock, 20);
    expect(waiting.missing).toEqual(['silent']);
  });

  it('ends the wait when everything stands still, and says what is missing', async () => {
    const waiting = new Waiting();
    waiting.set('a', { synced: true });
    waiting.set('b', { arrived: 5 });
    waiting.begin();
    await advance(waiting.clock, 980);
    expect(waiting.missing).toBeUndefined();
    await advance(waiting.clock, 20);
    expect(waiting.missing).toEqual(['b']);
  });

  it('is not put off by a cluster that reads the same again and again', async () => {
    const waiting = new Waiting();
    waiting.set('a', {});
    waiting.begin();
    for (let i = 0; i < 30; i++) {
      waiting.set('a', { arrived: i % 2 === 0 ? 100 : 0, failures: i });
      await advance(waiting.clock, 40);
    }
    expect(waiting.missing).toEqual(['a']);
  });

  it('is not reached by a clock that is set', async () => {
    const waiting = new Waiting();
    let setBy = 0;
    const clock = {
      now: () => waiting.clock.now() + setBy,
      wallTime: () => 0,
      after: waiting.clock.after.bind(waiting.clock),
    };
    waiting.set('a', {});
    waiting.begin({ clock });
    setBy = 3_600_000;
    await advance(waiting.clock, 500);
    expect(waiting.missing).toBeUndefined();
  });

  it('does not apply to clusters that have gone, and applies to those that have come', async () => {
    const waiting = new Waiting();
    waiting.set('a', {});
    waiting.begin();
    await advance(waiting.clock, 500);
    waiting.clusters.delete('a');
    waiting.set('b', {});
    await advance(waiting.clock, 900);
    expect(waiting.missing).toBeUndefined();
    await advance(waiting.clock, 200);
    expect(waiting.missing).toEqual(['b']);
  });

  it('is cut short for clusters that have failed too often, by the signal, and when all is there', async () => {
    const failed = new Waiting();
    failed.set('a', { failures: 2 });
    failed.begin({ failures: 3 });
    await advance(failed.clock, 100);
    expect(failed.missing).toBeUndefined();
    failed.set('a', { failures: 3 });
    await advance(failed.clock, 20);
    expect(failed.missing).toEqual(['a']);

    const aborted = new Waiting();
    const ending = new AbortController();
    aborted.set('a', {});
    aborted.begin({ signal: ending.signal });
    await settle();
    ending.abort();
    await settle();
    expect(aborted.missing).toEqual(['a']);

    const synced = new Waiting();
    synced.set('a', { synced: true });
    synced.begin({}, Promise.resolve());
    await settle();
    expect(synced.missing).toEqual([]);
    expect([failed, aborted, synced].map(({ clock }) => clock.pending)).toEqual([0, 0, 0]);
  });
});

describe('clustersSynced', () => {
  it('names the clusters that stand still, and does not wait for more than their deadline', async () => {
    const clock = new ManualClock();
    const agent = new Agent(clock);
    onTestFinished(() => agent.stop());
    await agent.add('c', newCluster(clock, 'c', 3));
    for (const name of ['b', 'a']) {
      const connect = (): Promise<never> => Promise.reject(new Error('no route'));
      await agent.mesh.add(name, connect);
    }
    let missing: readonly string[] | undefined;
    void agent.mesh.clustersSynced({ deadlineMs: 10_000 }).then((names) => {
      missing = names;
    });
    await advance(clock, 9_900);
    expect(missing).toBeUndefined();
    await advance(clock, 200);
    expect(missing).toEqual(['a', 'b']);
  });

  it('is over as soon as all are complete', async () => {
    const clock = new ManualClock();
    const agent = new Agent(clock);
    onTestFinished(() => agent.stop());
    await agent.add('c', newCluster(clock, 'c', 3));
    expect(await agent.mesh.clustersSynced({ deadlineMs: 10_000 })).toEqual([]);
  });
});
