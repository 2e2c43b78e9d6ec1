import { getEventListeners } from 'node:events';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Clock } from '../../src/base/clock.ts';
import { type Unsubscribe, unsubscribeOnce } from '../../src/base/subscription.ts';
import {
  SYNC_DEADLINE,
  type SyncDeadline,
  type SyncMembers,
  type SyncProgress,
  waitForSync,
} from '../../src/clustermesh/sync-deadline.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { advance, settle } from '../kvstore/support/settle.ts';
import { Agent, newCluster } from './support/mesh-world.ts';

/** Clusters whose progress a test sets. */
class Waiting implements SyncMembers {
  readonly clock = new ManualClock();
  readonly #clusters = new Map<string, SyncProgress>();
  readonly #callbacks = new Set<(name: string) => void>();
  /** Number of reads of a cluster's progress. */
  looks = 0;
  missing: readonly string[] | undefined;

  get names(): readonly string[] {
    return [...this.#clusters.keys()];
  }

  progressOf(name: string): SyncProgress | undefined {
    this.looks++;
    return this.#clusters.get(name);
  }

  onChange(callback: (name: string) => void): Unsubscribe {
    this.#callbacks.add(callback);
    return unsubscribeOnce(() => this.#callbacks.delete(callback));
  }

  get listeners(): number {
    return this.#callbacks.size;
  }

  begin(deadline: Partial<SyncDeadline & { clock: Clock }> = {}): void {
    void waitForSync(this, { clock: this.clock, deadlineMs: 1000, ...deadline }).then((missing) => {
      this.missing = missing;
    });
  }

  /** Increases the progress without a notification. */
  arrive(name: string): void {
    this.#put(name, { progressAt: this.clock.now() });
  }

  set(name: string, progress: Partial<SyncProgress>): void {
    this.#put(name, progress);
    for (const callback of this.#callbacks) callback(name);
  }

  delete(name: string): void {
    this.#clusters.delete(name);
    for (const callback of this.#callbacks) callback(name);
  }

  #put(name: string, progress: Partial<SyncProgress>): void {
    const first = { name, synced: false, progressAt: 0, failures: 0, settled: false };
    this.#clusters.set(name, { ...(this.#clusters.get(name) ?? first), ...progress });
  }
}

describe('the deadline of a first sync', () => {
  it('restarts with each progress, for each cluster (trap: slow start, fixed timeouts)', async () => {
    const waiting = new Waiting();
    waiting.set('silent', {});
    waiting.set('slow', {});
    waiting.begin();
    for (let second = 1; second <= 60; second++) {
      await advance(waiting.clock, 900);
      waiting.arrive('slow');
    }
    expect(waiting.missing).toBeUndefined();
    waiting.set('slow', { synced: true });
    await settle();
    expect(waiting.missing).toEqual(['silent']);
  });

  it('ends the wait if nothing progresses, and names the missing resources', async () => {
    const waiting = new Waiting();
    waiting.set('a', { synced: true });
    waiting.set('b', {});
    waiting.begin();
    await advance(waiting.clock, 999);
    expect(waiting.missing).toBeUndefined();
    await advance(waiting.clock, 1);
    expect(waiting.missing).toEqual(['b']);
  });

  it('leaves nothing on its signal and the clusters when the wait has ended', async () => {
    const waiting = new Waiting();
    const { signal } = new AbortController();
    waiting.set('a', {});
    waiting.begin({ signal });
    expect([getEventListeners(signal, 'abort').length, waiting.listeners]).toEqual([1, 1]);
    waiting.set('a', { synced: true });
    await settle();
    expect(waiting.missing).toEqual([]);
    expect([getEventListeners(signal, 'abort').length, waiting.listeners]).toEqual([0, 0]);
  });

  it('starts with the wait for a cluster that made no progress before', async () => {
    const waiting = new Waiting();
    waiting.set('a', {});
    await advance(waiting.clock, 5000);
    waiting.begin();
    await advance(waiting.clock, 999);
    expect(waiting.missing).toBeUndefined();
    await advance(waiting.clock, 1);
    expect(waiting.missing).toEqual(['a']);
  });

  it('is extended for a cluster that makes progress again while another is awaited', async () => {
    const waiting = new Waiting();
    waiting.set('a', {});
    waiting.set('b', {});
    waiting.begin();
    await advance(waiting.clock, 900);
    waiting.arrive('b');
    await advance(waiting.clock, 500); // the deadline of a is over
    waiting.arrive('a');
    await advance(waiting.clock, 900); // that of b, too
    expect(waiting.missing).toBeUndefined();
    await advance(waiting.clock, 100);
    expect(waiting.missing).toEqual(['a', 'b']);
  });

  it('is not reached by a paused process, nor by a clock that is set', async () => {
    const waiting = new Waiting();
    let stood = 0;
    const clock = {
      now: () => waiting.clock.now() + stood,
      wallTime: () => 0,
      after: waiting.clock.after.bind(waiting.clock),
    };
    waiting.set('a', {});
    waiting.begin({ clock });
    await advance(waiting.clock, 500);
    stood = 3_600_000;
    await advance(waiting.clock, 500);
    expect(waiting.missing).toBeUndefined();
    await advance(waiting.clock, 999);
    expect(waiting.missing).toBeUndefined();
    await advance(waiting.clock, 1);
    expect(waiting.missing).toEqual(['a']);
  });

  it('does not apply to removed clusters, and applies to added ones', async () => {
    const waiting = new Waiting();
    waiting.set('a', {});
    waiting.begin();
    await advance(waiting.clock, 500);
    waiting.set('b', { progressAt: 500 });
    waiting.delete('a');
    await advance(waiting.clock, 999);
    expect(waiting.missing).toBeUndefined();
    await advance(waiting.clock, 1);
    expect(waiting.missing).toEqual(['b']);
  });

  it.each(['deadlineMs', 'failedDeadlineMs', 'failures'])('is rejected if its %s is no number', (name) => {
    expect(SYNC_DEADLINE({ deadlineMs: 1000, [name]: '3' })).toContain(name);
    expect(SYNC_DEADLINE({ deadlineMs: 1000, [name]: 3 })).toBeUndefined();
  });

  it('is earlier for a cluster that has failed, however long its next attempt takes (regression: 249 silent clusters, 3 min)', async () => {
    const waiting = new Waiting();
    waiting.set('slow', {});
    waiting.set('silent', {});
    waiting.begin({ deadlineMs: 3000, failedDeadlineMs: 1000, failures: 3 });
    await advance(waiting.clock, 500);
    waiting.set('silent', { failures: 1 });
    waiting.set('slow', { failures: 1 });
    waiting.set('slow', { failures: 0, progressAt: 500 });
    await advance(waiting.clock, 499);
    waiting.set('slow', { synced: true });
    expect(waiting.missing).toBeUndefined();
    await advance(waiting.clock, 1);
    expect(waiting.missing).toEqual(['silent']);
  });

  it('is skipped for clusters that have failed too often or have nothing to follow, when the signal fires, and when everything is complete', async () => {
    const failed = new Waiting();
    failed.set('a', { failures: 2 });
    failed.begin({ failures: 3 });
    await advance(failed.clock, 100);
    expect(failed.missing).toBeUndefined();
    failed.set('a', { failures: 3 });
    await settle();
    expect(failed.missing).toEqual(['a']);

    const settled = new Waiting();
    settled.set('a', { settled: true });
    settled.begin();
    await settle();
    expect(settled.missing).toEqual(['a']);

    const aborted = new Waiting();
    const ending = new AbortController();
    aborted.set('a', {});
    aborted.begin({ signal: ending.signal });
    await settle();
    expect(aborted.missing).toBeUndefined();
    ending.abort();
    await settle();
    expect(aborted.missing).toEqual(['a']);

    const synced = new Waiting();
    synced.set('a', {});
    synced.begin();
    synced.set('a', { synced: true });
    await settle();
    expect(synced.missing).toEqual([]);
    const over = [failed, settled, aborted, synced];
    expect(over.map(({ clock, listeners }) => [clock.pending, listeners])).toEqual(over.map(() => [0, 0]));
  });

  it('costs one check of each cluster, and one for each event (regression: 250 clusters every 20 ms)', async () => {
    const waiting = new Waiting();
    for (let i = 0; i < 250; i++) waiting.set(`c${i}`, {});
    waiting.begin({ deadlineMs: 180_000 });
    await advance(waiting.clock, 179_000);
    expect(waiting.looks).toBeLessThan(1000);
    expect(waiting.clock.pending).toBe(1);
    const before = waiting.looks;
    waiting.set('c0', { failures: 1 });
    expect(waiting.looks - before).toBe(1);
  });
});

describe('clustersSynced', () => {
  it('names the clusters without progress, and waits no longer than their deadline', async () => {
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

  it('resolves as soon as all are complete', async () => {
    const clock = new ManualClock();
    const agent = new Agent(clock);
    onTestFinished(() => agent.stop());
    await agent.add('c', newCluster(clock, 'c', 3));
    expect(await agent.mesh.clustersSynced({ deadlineMs: 10_000 })).toEqual([]);
  });
});
