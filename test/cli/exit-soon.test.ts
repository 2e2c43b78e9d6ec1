import { EventEmitter } from 'node:events';
import { afterEach, beforeEach, expect, it, onTestFinished, vi } from 'vitest';
import { exitSoon, ProcessOutput } from '../../src/cli/process-output.ts';

/** Fakes the resources of the process for each check, and records how it ends. */
function ending(...checks: readonly (readonly string[])[]): string[] {
  const ends: string[] = [];
  let at = 0;
  vi.spyOn(process, 'getActiveResourcesInfo').mockImplementation(() => [
    ...(checks[Math.min(at++, checks.length - 1)] ?? []),
  ]);
  vi.spyOn(process, 'removeAllListeners').mockReturnValue(process);
  vi.spyOn(process, 'kill').mockImplementation((_, signal) => {
    ends.push(String(signal));
    return true;
  });
  vi.spyOn(process, 'exit').mockImplementation(((status: number) => ends.push(`exit ${status}`)) as never);
  return ends;
}

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

it('keeps the status if a request of the thread pool ends in time (regression: 1 became 143)', () => {
  const ends = ending(['FSReqPromise'], ['GetAddrInfoReqWrap'], ['Timeout']);
  exitSoon(1);
  vi.advanceTimersByTime(1_000);
  expect(ends).toEqual([]);
  vi.advanceTimersByTime(100);
  expect(ends).toEqual(['exit 1']);
});

it('keeps the status of a failed output', () => {
  const ends = ending(['Timeout']);
  onTestFinished(() => {
    process.exitCode = undefined;
  });
  process.exitCode = 1;
  exitSoon();
  vi.advanceTimersByTime(1_000);
  expect(ends).toEqual(['exit 1']);
});

it('ends by SIGTERM if a thread stays blocked', () => {
  const ends = ending(['FSReqPromise']);
  exitSoon();
  vi.advanceTimersByTime(1_999);
  expect(ends).toEqual([]);
  vi.advanceTimersByTime(1);
  expect(ends[0]).toBe('SIGTERM');
});

it('neither waits for a reader nor writes more if the stream fails', async () => {
  const written: string[] = [];
  const write = (text: string): void => void written.push(text);
  const stream = Object.assign(new EventEmitter(), { writableNeedDrain: true, writableLength: 1, write });
  const failures: string[] = [];
  const output = new ProcessOutput(stream as unknown as NodeJS.WriteStream, {
    onClosed: () => {},
    onFailed: (why) => failures.push(why),
  });
  const drained = output.drained(new AbortController().signal);
  stream.emit('error', Object.assign(new Error('write'), { code: 'ENOSPC' }));
  await drained;
  output.write('more');
  expect(written).toEqual([]);
  expect([failures, stream.listenerCount('drain'), stream.listenerCount('error')]).toEqual([
    ...[['no space left on device'], 0, 1],
  ]);
});
