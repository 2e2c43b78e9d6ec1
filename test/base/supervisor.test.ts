import { describe, expect, it } from 'vitest';
import { deferred } from '../../src/base/sleep.ts';
import { interruptible, Supervisor } from '../../src/base/supervisor.ts';
import { advance, settle } from '../kvstore/support/settle.ts';
import { ManualClock, WALL_TIME_AT_0 } from './support/manual-clock.ts';

function supervised(onFailure?: (error: unknown, task: string) => void): {
  readonly clock: ManualClock;
  readonly tasks: Supervisor;
} {
  const clock = new ManualClock();
  return { clock, tasks: new Supervisor({ clock, random: () => 1, onFailure }) };
}

const never = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));

describe('a task that is restarted', () => {
  it('restarts after a growing backoff, shown in the status, and each failure is counted and reported', async () => {
    const reported: unknown[] = [];
    const { clock, tasks } = supervised((error, task) => reported.push([task, String(error)]));
    const starts: number[] = [];
    const over = tasks.runWithRestart('loop', async () => {
      starts.push(clock.now());
      if (starts.length < 4) throw new Error(`fault ${starts.length}`);
    });
    await settle();
    expect(tasks.status()).toEqual({
      tasks: [
        {
          name: 'loop',
          state: 'waiting',
          failures: 1,
          lastFailure: { code: 'Error', message: 'fault 1', at: WALL_TIME_AT_0 },
        },
      ],
      failures: 1,
      lastFailure: { code: 'Error', message: 'fault 1', at: WALL_TIME_AT_0 },
    });
    await advance(clock, 10_000);
    await over;
    expect(starts).toEqual([0, 200, 600, 1400]);
    expect(reported).toEqual([1, 2, 3].map((i) => ['loop', `Error: fault ${i}`]));
    expect(tasks.status()).toMatchObject({ tasks: [], failures: 3 });
    expect(clock.pending).toBe(0);
  });

  it('restarts its backoff after a long run', async () => {
    const { clock, tasks } = supervised();
    const starts: number[] = [];
    void tasks.runWithRestart(
      'loop',
      async () => {
        starts.push(clock.now());
        if (starts.length === 3) await new Promise<void>((resolve) => void clock.after(5000, resolve));
        throw new Error('again');
      },
      { backoff: { baseMs: 100, capMs: 1000 } },
    );
    await advance(clock, 5900);
    expect(starts).toEqual([0, 100, 300, 5400, 5600]);
    await tasks.stop();
  });

  it('ends when it resolves: a loop that has ended is not restarted', async () => {
    const { clock, tasks } = supervised();
    let runs = 0;
    await tasks.runWithRestart('loop', () => void runs++);
    await advance(clock, 100_000);
    expect(runs).toBe(1);
  });
});

describe('stopping', () => {
  it('fires every signal at the same time, waits for tasks to end, and cancels a backoff', async () => {
    const { clock, tasks } = supervised();
    const release = deferred();
    const slow = tasks.run('slow', async (signal) => {
      await never(signal);
      await release.promise;
    });
    void tasks.runWithRestart('broken', () => Promise.reject(new Error('no')));
    await settle();
    let stopped = false;
    const stopping = tasks.stop().then(() => {
      stopped = true;
    });
    await settle();
    expect(stopped).toBe(false);
    expect(tasks.status().tasks).toEqual([
      { name: 'slow', state: 'stopping', failures: 0, lastFailure: undefined },
    ]);
    release.resolve();
    await Promise.all([stopping, slow]);
    expect([tasks.status().tasks, clock.pending]).toEqual([[], 0]);
  });

  it('does not affect tasks that start afterwards', async () => {
    const { tasks } = supervised();
    await tasks.stop();
    const later = tasks.run('later', never);
    await settle();
    expect(tasks.status().tasks).toHaveLength(1);
    await tasks.stop();
    await later;
  });

  it('counts no failure that is caused by the stop or by its own signal', async () => {
    const reported: unknown[] = [];
    const { tasks } = supervised((error) => reported.push(error));
    const ending = new AbortController();
    const work = async (signal: AbortSignal): Promise<void> => {
      await never(signal);
      throw new Error('aborted');
    };
    const results = [tasks.run('one', work, { signal: ending.signal }), tasks.runWithRestart('two', work)];
    ending.abort();
    await expect(results[0]).rejects.toThrow('aborted');
    expect(tasks.status().tasks.map(({ name }) => name)).toEqual(['two']);
    await tasks.stop();
    await results[1];
    expect([reported, tasks.status().failures]).toEqual([[], 0]);
  });
});

it('tasks leave nothing in a signal that outlives them (regression: 60 bytes each, with Node 20)', async () => {
  const { tasks } = supervised();
  const { signal } = new AbortController();
  // Node's own, for which it has no other name; 1 for the listeners that there are.
  const held = (): number =>
    Object.getOwnPropertySymbols(signal)
      .map((name) => Reflect.get(signal, name) as { readonly size?: number } | undefined)
      .reduce((sum, part) => sum + (part?.size ?? 0), 0);
  for (let run = 0; run < 100; run++) await tasks.run('look', () => {}, { signal });
  expect(held()).toBeLessThan(2);
});

it('one attempt returns its result, and its failure is counted even if the caller handles it', async () => {
  const { tasks } = supervised(() => {
    throw new Error('a broken report');
  });
  expect(await tasks.run('read', () => 42)).toBe(42);
  const failed = tasks.run('connect', () => {
    throw new Error('refused');
  });
  await expect(failed).rejects.toThrow('refused');
  expect(tasks.status()).toMatchObject({ failures: 1, lastFailure: { message: 'refused' }, tasks: [] });
});

describe('work that does not respect its signal', () => {
  it('is abandoned when the signal fires; a later result is discarded', async () => {
    const ending = new AbortController();
    const discarded: string[] = [];
    let give = (_late: string): void => {};
    const work = (): Promise<string> =>
      new Promise((resolve) => {
        give = resolve;
      });
    const result = interruptible(work, ending.signal, (late) => discarded.push(late));
    ending.abort(new Error('stopped'));
    await expect(result).rejects.toThrow('stopped');
    give('late');
    await settle();
    expect(discarded).toEqual(['late']);
  });

  it('is not started if the signal has fired, and a late failure is not an unhandled rejection', async () => {
    await expect(interruptible(() => 1, AbortSignal.abort(new Error('over')))).rejects.toThrow('over');
    const ending = new AbortController();
    const result = interruptible(async () => {
      await settle();
      throw new Error('late');
    }, ending.signal);
    ending.abort(new Error('over'));
    await expect(result).rejects.toThrow('over');
    await settle(4);
  });

  it('settles as the work does if nothing interrupts it', async () => {
    const { signal } = new AbortController();
    expect(await interruptible(() => 7, signal)).toBe(7);
    await expect(interruptible(() => Promise.reject(new Error('no')), signal)).rejects.toThrow('no');
  });
});
