import { expect, it, onTestFinished, vi } from 'vitest';
import { PacedTask } from '../../../../src/datapath/linux/paths/paced-task.ts';
import { ManualClock } from '../../../base/support/manual-clock.ts';

/** A task whose runs the test ends. */
function paced() {
  const clock = new ManualClock();
  const ends: (() => void)[] = [];
  const task = new PacedTask(
    clock,
    () => 1_000,
    () => new Promise((resolve) => ends.push(resolve)),
  );
  return { clock, ends, task };
}

it('a paced task answers many requests by one run, and those that arrive during the run by the next', async () => {
  const { clock, ends, task } = paced();
  const done: string[] = [];
  const ask = (name: string): void => void task.request().then(() => done.push(name));
  ask('a');
  ask('b');
  expect(ends).toHaveLength(0);
  clock.advance(0);
  expect(ends).toHaveLength(1);
  ask('c');
  clock.advance(5_000);
  expect(ends).toHaveLength(1);
  ends[0]?.();
  await new Promise((resolve) => setImmediate(resolve));
  expect(done).toEqual(['a', 'b']);
  clock.advance(0);
  ends[1]?.();
  await new Promise((resolve) => setImmediate(resolve));
  expect(done).toEqual(['a', 'b', 'c']);
});

it('a paced task that was disposed of during a run starts no other, whatever was requested', async () => {
  const { clock, ends, task } = paced();
  void task.request();
  clock.advance(0);
  const asked = task.request();
  task[Symbol.dispose]();
  ends[0]?.();
  await asked;
  await task.request();
  clock.advance(5_000);
  expect([ends.length, clock.pending]).toEqual([1, 0]);
});

it('a paced task does not start twice within its pace', async () => {
  const { clock, ends, task } = paced();
  void task.request();
  clock.advance(0);
  ends[0]?.();
  await new Promise((resolve) => setImmediate(resolve));
  void task.request();
  clock.advance(999);
  expect(ends).toHaveLength(1);
  clock.advance(1);
  expect(ends).toHaveLength(2);
});

it('no caller waits for a paced task that is disposed of', async () => {
  const { clock, task } = paced();
  const waiting = task.request();
  task[Symbol.dispose]();
  await waiting;
  expect(clock.pending).toBe(0);
});

it('a paced task runs again after its work has thrown (regression: never again)', async () => {
  const clock = new ManualClock();
  let runs = 0;
  const task = new PacedTask(
    clock,
    () => 1_000,
    async () => {
      if (++runs === 1) throw new Error('broken');
    },
  );
  const unhandled = vi.fn();
  process.on('unhandledRejection', unhandled);
  onTestFinished(() => void process.off('unhandledRejection', unhandled));
  const first = task.request();
  clock.advance(0);
  await first;
  await new Promise((resolve) => setImmediate(resolve));
  const second = task.request();
  clock.advance(1_000);
  await second;
  expect(runs).toBe(2);
});
