import { describe, expect, it } from 'vitest';
import { createLog } from '../../src/process/log.ts';
import type { Step } from '../../src/process/start-step.ts';
import { Startup } from '../../src/process/startup.ts';
import { openSteps } from '../../src/process/step-text.ts';
import { FakeClock, settle } from '../agent/support/fake-clock.ts';

const NEVER = new Promise<void>(() => {});

/** A promise that a test settles. */
function deferred(): { promise: Promise<void>; resolve: () => void; reject: (error: Error) => void } {
  let settle: [() => void, (error: Error) => void] = [() => {}, () => {}];
  const promise = new Promise<void>((resolve, reject) => {
    settle = [resolve, reject];
  });
  return { promise, resolve: () => settle[0](), reject: (error) => settle[1](error) };
}

/** A start that a test runs, with what happened in order. */
class Trial {
  readonly clock = new FakeClock();
  readonly logged: string[] = [];
  readonly happened: string[] = [];
  readonly startup: Startup;
  readonly #signal = new AbortController();

  constructor() {
    const log = createLog('warn', 'text', { write: (line) => this.logged.push(line.trimEnd()) });
    this.startup = new Startup({ log, clock: this.clock });
  }

  /** A step that says when it starts and stops. */
  step(name: string, step: Partial<Step> = {}): Step {
    const { start = () => {}, stop = () => {}, ...rest } = step;
    return {
      ...rest,
      name,
      start: (context) => {
        this.happened.push(`start ${name}`);
        return start(context);
      },
      stop: () => {
        this.happened.push(`stop ${name}`);
        return stop();
      },
    };
  }

  start(...stages: readonly (readonly Step[])[]): Promise<boolean> {
    return this.startup.start(stages, this.#signal.signal);
  }

  interrupt(): void {
    this.#signal.abort();
  }

  get states(): readonly string[] {
    return this.startup.status().map(({ name, state }) => `${name}: ${state}`);
  }
}

describe('a start', () => {
  it('runs its stages in order, and stops them in the reverse order', async () => {
    const trial = new Trial();
    const slow = deferred();
    const started = trial.start(
      [trial.step('one')],
      [trial.step('two', { start: () => slow.promise }), trial.step('beside')],
      [trial.step('three')],
    );
    await settle();
    expect(trial.states).toEqual(['one: done', 'two: running', 'beside: done', 'three: pending']);
    slow.resolve();
    expect(await started).toBe(true);
    expect(await trial.startup.stop()).toEqual([]);
    expect(trial.happened).toEqual([
      ...['start one', 'start two', 'start beside', 'start three'],
      ...['stop three', 'stop beside', 'stop two', 'stop one'],
    ]);
    expect(new Set(trial.startup.status().map(({ state }) => state))).toEqual(new Set(['stopped']));
    expect(trial.clock.pending).toBe(0);
  });

  it('reports its current step, its duration, and its reason to wait', async () => {
    const trial = new Trial();
    const waitsFor = (): readonly string[] => ['the disk'];
    void trial.start([trial.step('one')], [trial.step('two', { start: () => NEVER, waitsFor })]);
    await settle();
    await trial.clock.advance(12_000);
    expect(openSteps(trial.startup.status())).toEqual([
      { text: 'step 2 of 2, two: running for 12 s', waitsFor: ['the disk'] },
    ]);
  });

  it('that fails stops the started steps, including the failed one, and no others', async () => {
    const trial = new Trial();
    const fail = (): never => {
      throw new Error('no disk');
    };
    const started = trial.start(
      [trial.step('one')],
      [trial.step('two', { start: fail })],
      [trial.step('three')],
    );
    await expect(started).rejects.toThrow('no disk');
    expect(trial.clock.pending).toBe(0);
    expect(trial.states).toEqual(['one: done', 'two: failed', 'three: pending']);
    expect(trial.startup.status()[1]?.failure).toBe('no disk');
    await trial.startup.stop();
    expect(trial.happened).toEqual(['start one', 'start two', 'stop two', 'stop one']);
    expect(trial.startup.status().map(({ failure }) => failure)).toEqual([undefined, 'no disk', undefined]);
  });

  it('that is interrupted before its start starts nothing', async () => {
    const trial = new Trial();
    trial.interrupt();
    expect(await trial.start([trial.step('one')])).toBe(false);
    expect({ happened: trial.happened, states: trial.states }).toEqual({
      happened: [],
      states: ['one: pending'],
    });
  });

  it('that is done stays done if the process is interrupted later', async () => {
    const trial = new Trial();
    expect(await trial.start([trial.step('one')])).toBe(true);
    trial.interrupt();
    expect(trial.states).toEqual(['one: done']);
  });

  it('that is interrupted in its last step has failed', async () => {
    const trial = new Trial();
    const started = trial.start([trial.step('one', { start: () => NEVER })]);
    trial.interrupt();
    expect(await started).toBe(false);
  });

  it('that is interrupted ends immediately, even if the step ignores the signal, and starts no other', async () => {
    const trial = new Trial();
    let fired = false;
    const start: Step['start'] = ({ signal }) => {
      signal.addEventListener('abort', () => {
        fired = true;
      });
      return NEVER;
    };
    const started = trial.start([trial.step('one', { start })], [trial.step('two')]);
    trial.interrupt();
    expect(await started).toBe(false);
    expect({ fired, states: trial.states }).toEqual({ fired: true, states: ['one: failed', 'two: pending'] });
    expect(openSteps(trial.startup.status())[0]?.text).toBe('step 1 of 2, one: interrupted');
  });

  it('that is stopped is interrupted, and a step is not stopped before it has settled', async () => {
    const trial = new Trial();
    const start: Step['start'] = async ({ signal }) => {
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      await trial.clock.advance(100);
      trial.happened.push('one has settled');
    };
    const started = trial.start([trial.step('one', { start })], [trial.step('two')]);
    expect(await trial.startup.stop()).toEqual([]);
    expect(await started).toBe(false);
    expect(trial.happened).toEqual(['start one', 'one has settled', 'stop one']);
  });
});

describe('a step without progress', () => {
  it('ends the start with its name and its reason to wait, and its signal fires', async () => {
    const trial = new Trial();
    let signal: AbortSignal | undefined;
    const started = trial.start([
      trial.step('one', {
        progressTimeoutMs: 10_000,
        waitsFor: () => ['etcd'],
        start: (context) => {
          signal = context.signal;
          return NEVER;
        },
      }),
    ]);
    const rejected = expect(started).rejects.toThrow(/^one: no progress for 10 s: etcd$/);
    await trial.clock.advance(9_999);
    expect(trial.states).toEqual(['one: running']);
    await trial.clock.advance(1);
    await rejected;
    expect({ states: trial.states, aborted: signal?.aborted }).toEqual({
      states: ['one: failed'],
      aborted: true,
    });
  });

  it('is skipped if it allows it, and may complete later', async () => {
    const trial = new Trial();
    const late = deferred();
    const started = trial.start(
      [trial.step('lists', { progressTimeoutMs: 10_000, onTimeout: 'continue', start: () => late.promise })],
      [trial.step('two')],
    );
    await trial.clock.advance(12_000);
    expect(await started).toBe(true);
    expect(trial.states).toEqual(['lists: overdue', 'two: done']);
    expect(openSteps(trial.startup.status())[0]?.text).toBe(
      'step 1 of 2, lists: skipped, no progress for 12 s',
    );
    late.resolve();
    await settle();
    expect(trial.states).toEqual(['lists: done', 'two: done']);
    expect(trial.logged).toEqual([
      'warn  lists: no progress for 10 s; the start continues without it',
      'warn  lists: done after 12000 ms',
    ]);
  });

  it('is awaited while it progresses, however long that takes', async () => {
    const trial = new Trial();
    let progress = (): void => {};
    const start: Step['start'] = (context) => {
      progress = context.progress;
      return NEVER;
    };
    const started = trial.start([trial.step('one', { progressTimeoutMs: 10_000, start })]);
    const rejected = expect(started).rejects.toThrow('one: no progress for 10 s');
    for (let i = 0; i < 10; i++) {
      await trial.clock.advance(9_000);
      progress();
    }
    expect(trial.states).toEqual(['one: running']);
    await trial.clock.advance(10_000);
    await rejected;
  });

  it('is reported once as slow, with its reason to wait, and again when it is done', async () => {
    const trial = new Trial();
    const done = deferred();
    const step = trial.step('one', { start: () => done.promise, waitsFor: () => ['the disk'] });
    const started = trial.start([step]);
    await trial.clock.advance(60_000);
    done.resolve();
    await started;
    expect(trial.logged).toEqual([
      'warn  one: no progress for 15 s: the disk',
      'warn  one: done after 60000 ms',
    ]);
  });

  it('is not reported while the time of its last progress increases (regression: a long initial sync was)', async () => {
    const trial = new Trial();
    let progressAt = trial.clock.now();
    void trial.start([trial.step('one', { start: () => NEVER, progressAt: () => progressAt })]);
    for (let seconds = 0; seconds < 60; seconds += 10) {
      progressAt = trial.clock.now();
      await trial.clock.advance(10_000);
      expect(trial.startup.status()[0]?.idleMs).toBe(10_000);
    }
    expect(trial.logged).toEqual([]);
    await trial.clock.advance(5_000);
    expect(trial.logged).toEqual(['warn  one: no progress for 15 s']);
  });

  it('names at most ten inputs in a line of the log (regression: 249 unreachable clusters in one line)', async () => {
    const trial = new Trial();
    const inputs = Array.from({ length: 249 }, (_, i) => `c${i}`);
    void trial.start([trial.step('one', { start: () => NEVER, waitsFor: () => inputs })]);
    await trial.clock.advance(20_000);
    const ten = inputs.slice(0, 10).join('; ');
    expect(trial.logged).toEqual([`warn  one: no progress for 15 s: ${ten}; and 239 more`]);
  });

  it('is reported as slow at most once, even if it progresses and stops again', async () => {
    const trial = new Trial();
    let progress = (): void => {};
    const start: Step['start'] = (context) => {
      progress = context.progress;
      return NEVER;
    };
    void trial.start([trial.step('one', { progressTimeoutMs: 40_000, onTimeout: 'continue', start })]);
    await trial.clock.advance(20_000);
    progress();
    await trial.clock.advance(30_000);
    expect(trial.logged).toEqual(['warn  one: no progress for 15 s']);
  });

  it('has its time again if the whole process stood still', async () => {
    const trial = new Trial();
    const callbacks: (() => void)[] = [];
    let now = 0;
    const clock = {
      now: () => now,
      wallTime: () => now,
      after: (_: number, callback: () => void) => {
        callbacks.push(callback);
        return { cancel: () => {} };
      },
    };
    const log = createLog('silent', 'text', { write: () => {} });
    const startup = new Startup({ log, clock });
    void startup.start(
      [[trial.step('one', { progressTimeoutMs: 10_000, onTimeout: 'continue', start: () => NEVER })]],
      new AbortController().signal,
    );
    now = 3_600_000;
    callbacks[0]?.();
    expect(startup.status()[0]?.state).toBe('running');
    now += 10_000;
    callbacks[1]?.();
    expect(startup.status()[0]?.state).toBe('overdue');
  });

  it('fails late without ending a start that has continued, and is reported', async () => {
    const trial = new Trial();
    const late = deferred();
    const step = trial.step('lists', {
      progressTimeoutMs: 1_000,
      onTimeout: 'continue',
      start: () => late.promise,
    });
    const started = trial.start([step]);
    await trial.clock.advance(1_000);
    expect(await started).toBe(true);
    late.reject(new Error('forbidden'));
    await settle();
    expect(trial.states).toEqual(['lists: failed']);
    expect(trial.logged.at(-1)).toBe('error lists failed: forbidden');
  });
});

describe('a stop', () => {
  it('that hangs ends by a deadline, names the hanging step, and stops the others', async () => {
    const trial = new Trial();
    await trial.start([trial.step('one')], [trial.step('two', { stop: () => NEVER })], [trial.step('three')]);
    const stopped = trial.startup.stop();
    await settle();
    await trial.clock.advance(5_000);
    expect(await stopped).toEqual(['two']);
    expect(trial.states).toEqual(['one: stopped', 'two: hanging', 'three: stopped']);
    expect(trial.happened.slice(-3)).toEqual(['stop three', 'stop two', 'stop one']);
    expect(trial.logged).toEqual(['error two did not stop within 5 s: abandoned']);
  });

  it('does not wait for a start that never settles, and undoes it nevertheless', async () => {
    const trial = new Trial();
    void trial.start([trial.step('one')], [trial.step('two', { start: () => NEVER, stopMs: 1_000 })]);
    await settle();
    const stopped = trial.startup.stop();
    await settle();
    await trial.clock.advance(1_000);
    expect(await stopped).toEqual(['two']);
    expect(trial.happened).toEqual(['start one', 'start two', 'stop two', 'stop one']);
    await settle();
    expect(trial.states).toEqual(['one: stopped', 'two: hanging']);
  });

  it('that fails is reported, and the other steps are stopped', async () => {
    const trial = new Trial();
    const stop = (): never => {
      throw new Error('busy');
    };
    await trial.start([trial.step('one')], [trial.step('two', { stop })]);
    expect(await trial.startup.stop()).toEqual([]);
    expect(trial.happened.slice(-2)).toEqual(['stop two', 'stop one']);
    expect(trial.logged).toEqual(['error two: cannot stop: busy']);
    // A timer that is left keeps the process alive.
    expect(trial.clock.pending).toBe(0);
  });

  it('runs once, however often it is requested', async () => {
    const trial = new Trial();
    await trial.start([trial.step('one')]);
    await Promise.all([trial.startup.stop(), trial.startup.stop()]);
    await trial.startup.stop();
    expect(trial.happened).toEqual(['start one', 'stop one']);
  });

  it('before any start does nothing', async () => {
    expect(await new Trial().startup.stop()).toEqual([]);
  });
});
