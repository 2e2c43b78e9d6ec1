import { describe, expect, it } from 'vitest';
import { createLog } from '../../src/process/log.ts';
import { type ProcessContext, runProcess, type ServedProcess } from '../../src/process/served-process.ts';

/** Runs a process of one step, which `begin` starts; records when the step stops. */
function run(
  begin: (context: ProcessContext) => void,
  signal: AbortSignal,
): { readonly ended: Promise<void>; readonly stopped: readonly string[] } {
  const stopped: string[] = [];
  const make = (context: ProcessContext): ServedProcess => ({
    stages: [[{ name: 'duties', start: () => begin(context), stop: () => stopped.push('duties') }]],
    status: () => ({}),
    blockers: () => [],
    metrics: () => [],
  });
  const log = createLog('silent', 'text', { write: () => {} });
  return { ended: runProcess(make, {}, { log, signal }), stopped };
}

describe('a process', () => {
  it('that ends by itself stops its steps and fails with the reason', async () => {
    const end = ({ end }: ProcessContext): void => end('the lease was lost');
    const { ended, stopped } = run(end, new AbortController().signal);
    await expect(ended).rejects.toThrow('the lease was lost');
    expect(stopped).toEqual(['duties']);
  });

  it('that fails to start stops its steps and fails with the error', async () => {
    const fail = (): never => {
      throw new Error('no such file');
    };
    const { ended, stopped } = run(fail, new AbortController().signal);
    await expect(ended).rejects.toThrow('no such file');
    expect(stopped).toEqual(['duties']);
  });

  it('runs until its signal fires, and stops its steps', async () => {
    const stop = new AbortController();
    let started = (): void => {};
    const isStarted = new Promise<void>((resolve) => {
      started = resolve;
    });
    const { ended, stopped } = run(() => started(), stop.signal);
    await isStarted;
    expect(stopped).toEqual([]);
    stop.abort();
    await ended;
    expect(stopped).toEqual(['duties']);
  });
});
