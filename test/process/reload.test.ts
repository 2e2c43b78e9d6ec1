import { describe, expect, it, onTestFinished } from 'vitest';
import { unsubscribeOnce } from '../../src/base/subscription.ts';
import { createLog } from '../../src/process/log.ts';
import { type ReloadedSettings, Reloads } from '../../src/process/reload.ts';
import { settle } from '../agent/support/fake-clock.ts';

/** A source of settings whose reads a test completes one by one. */
function reloadable(): {
  readonly hangup: () => void;
  readonly reads: ((settings: Partial<ReloadedSettings> | Error) => void)[];
  readonly reloads: Reloads<ReloadedSettings>;
  readonly logged: string[];
} {
  let hangup = (): void => {};
  const reads: ((settings: Partial<ReloadedSettings> | Error) => void)[] = [];
  const logged: string[] = [];
  const log = createLog('warn', 'text', { write: (line) => logged.push(line.trimEnd()) });
  const source = {
    subscribe: (listener: () => void) => {
      hangup = listener;
      return unsubscribeOnce(() => {
        hangup = () => {};
      });
    },
    read: () =>
      new Promise<ReloadedSettings>((resolve, reject) => {
        reads.push((settings) => {
          if (settings instanceof Error) reject(settings);
          else resolve({ logLevel: 'warn', needRestart: [], ...settings });
        });
      }),
  };
  const reloads = new Reloads(source, { log, signal: new AbortController().signal });
  onTestFinished(() => reloads[Symbol.dispose]());
  return { hangup: () => hangup(), reads, reloads, logged };
}

describe('reloads', () => {
  it('that are requested while one runs cause one more, after it', async () => {
    const { hangup, reads, reloads } = reloadable();
    let done = 0;
    reloads.begin(
      () => {},
      () => done++,
    );
    hangup();
    for (let i = 0; i < 3; i++) hangup();
    await settle();
    expect([reads.length, done]).toEqual([1, 0]);
    reads[0]?.({});
    await settle();
    expect([reads.length, done]).toEqual([2, 1]);
    reads[1]?.({});
    await settle();
    expect([reads.length, done]).toEqual([2, 2]);
  });

  it('that are requested before the process handles them are handled then', async () => {
    const { hangup, reads, reloads } = reloadable();
    hangup();
    await settle();
    expect(reads.length).toBe(0);
    reloads.begin(
      () => {},
      () => {},
    );
    await settle();
    expect(reads.length).toBe(1);
  });

  it('change no setting if one cannot be applied, and the next one is handled', async () => {
    const { hangup, reads, reloads, logged } = reloadable();
    const calls: string[] = [];
    const settings = {
      logLevel: 'error',
      needRestart: ['cluster'],
      onApplied: () => calls.push('applied'),
    } as const;
    let failure: Error | undefined = new Error('no such file');
    const apply = async (): Promise<void> => {
      if (failure !== undefined) throw failure;
    };
    reloads.begin(apply, () => calls.push('done'));
    hangup();
    reads[0]?.(settings);
    await settle();
    expect(calls).toEqual([]);
    expect(logged).toEqual(['error cannot reload settings: no such file']);
    failure = undefined;
    hangup();
    reads[1]?.({ ...settings, logLevel: 'warn' });
    await settle();
    expect(calls).toEqual(['applied', 'done']);
    expect(logged.slice(1)).toEqual(['warn  cluster has changed: restart to apply it']);
    hangup();
    reads[2]?.(settings);
    await settle();
    expect(logged.slice(2)).toEqual([]); // the new level is error
  });

  it('end with their owner, also if one is requested while one runs', async () => {
    const { hangup, reads, reloads } = reloadable();
    reloads.begin(
      () => {},
      () => {},
    );
    hangup();
    hangup();
    reloads[Symbol.dispose]();
    reads[0]?.({});
    await settle();
    expect(reads.length).toBe(1);
  });
});
