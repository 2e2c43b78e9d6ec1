import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ApiClient } from '../../src/api/api-client.ts';
import { statusMetrics } from '../../src/api/metrics/metric.ts';
import { fired } from '../../src/base/follow-signal.ts';
import { deferred } from '../../src/base/sleep.ts';
import { type Unsubscribe, unsubscribeOnce } from '../../src/base/subscription.ts';
import { createLog } from '../../src/process/log.ts';
import type { ReloadedSettings } from '../../src/process/reload.ts';
import {
  type ProcessContext,
  type RunOptions,
  runProcess,
  type ServedProcess,
} from '../../src/process/served-process.ts';
import { version } from '../../src/process/version.ts';
import { type RunInTest, runInTest } from '../agent/support/run-in-test.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { freePort } from '../base/support/free-port.ts';
import { until } from '../base/support/until.ts';

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
    problemSource: () => ({}),
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
    const { promise: isStarted, resolve: started } = deferred();
    const { ended, stopped } = run(() => started(), stop.signal);
    await isStarted;
    expect(stopped).toEqual([]);
    stop.abort();
    await ended;
    expect(stopped).toEqual(['duties']);
  });
});

describe('the API of a process', () => {
  interface Running extends RunInTest {
    readonly context: ProcessContext;
    /** Ends the step that is running. */
    readonly release: () => void;
    /** Asks over the socket. */
    readonly ask: (path: string) => Promise<unknown>;
    readonly socket: string;
  }

  const PROBLEM = { severity: 'warning', subject: 'Lease', text: 'no leader' } as const;

  /** Runs a process with one step that waits, and a metric of the scrape. */
  function serve(changes: Partial<RunOptions> = {}, status: () => object = () => ({ leader: 'a' })): Running {
    const { promise: held, resolve: release } = deferred();
    let context: ProcessContext | undefined;
    const socket = join(temporaryFolder({}), 'dpcache.sock');
    const make = (made: ProcessContext): ServedProcess => {
      context = made;
      let reads = 0;
      return {
        stages: [
          [{ name: 'duties', start: ({ signal }) => Promise.race([held, fired(signal)]), stop: () => {} }],
        ],
        status,
        blockers: () => ['no leader'],
        problemSource: () => ({ configProblems: ['no such file'], problems: [PROBLEM] }),
        metrics: (scrape) => {
          const { gauge } = statusMetrics(scrape.once(() => ({ reads: ++reads })));
          return [{ reads_a: gauge('Reads.', 'reads'), reads_b: gauge('Reads.', 'reads') }];
        },
      };
    };
    const running = runInTest((run) => runProcess(make, { serve: { socket }, ...changes }, run));
    if (context === undefined) throw new Error('the process was not made');
    const { ask } = new ApiClient(socket, new AbortController().signal);
    return { ...running, context, release, ask, socket };
  }

  it('answers during the start, with the status, the steps and the reasons why it is not ready', async () => {
    const { ask, get, clock, context, logged, socket, stop, ended } = serve();
    await until('the socket exists', () => existsSync(socket));
    await until('the step of the API is done', async () =>
      JSON.stringify(await ask('/v1/status')).includes('done'),
    );
    const blockers = ['step 2 of 2, duties: running for 0 s', 'no leader'];
    expect(await ask('/v1/status')).toEqual({
      leader: 'a',
      steps: [
        { name: 'API', state: 'done', ms: 0, waitsFor: [] },
        { name: 'duties', state: 'running', ms: 0, idleMs: 0, waitsFor: [] },
      ],
      blockers,
    });
    expect(JSON.parse(await get('/readyz'))).toEqual({ ready: false, blockers });
    expect(await ask('/openapi.json')).toMatchObject({ info: { version: version() } });
    expect(context).toMatchObject({ clock, random: Math.random });
    context.log.info('from the duties');
    expect(logged).toContain('info  from the duties');
    stop.abort();
    await ended;
    expect(existsSync(socket)).toBe(false);
  });

  it('has each problem once: steps, blockers, and those of the process', async () => {
    const { get, release, socket } = serve();
    release();
    await until('the socket exists', () => existsSync(socket));
    await until('it has started', async () => !(await get('/v1/status')).includes('running'));
    const { ready, items } = JSON.parse(await get('/v1/problems'));
    expect(ready).toBe(false);
    // Regression: the remedy asked the agent of the machine.
    const remedy = `Correct it. Run dpcache clustermesh troubleshoot --socket ${socket}.`;
    expect(items).toMatchObject([{ subject: 'configuration', text: 'no such file', remedy }, PROBLEM]);
    expect(await get('/metrics')).toContain(
      'dpcache_problems{severity="error"} 1\ndpcache_problems{severity="warning"} 1\n',
    );
  });

  it('reads a value that several metrics share once per scrape', async () => {
    const { get } = serve();
    const values = async (): Promise<unknown> => (await get('/metrics')).match(/^reads_\w+ \d+$/gm);
    expect(await values()).toEqual(['reads_a 1', 'reads_b 1']);
    expect(await values()).toEqual(['reads_a 2', 'reads_b 2']);
  });

  it('logs failed requests twice a minute, and at the stop (regression: each one was logged)', async () => {
    const { get, logged, clock, stop, ended } = serve({}, () => {
      throw new Error('broken status');
    });
    const errors = (): readonly string[] => logged.filter((line) => line.startsWith('error'));
    const fail = async (): Promise<void> => expect(await get('/v1/status')).toContain('internal');
    for (let n = 0; n < 4; n++) await fail();
    expect(errors()).toEqual(['error an API request failed: broken status']);
    clock.advance(60_000);
    const more = expect.stringContaining('error an API request failed 3 more times; ');
    expect(errors().slice(1)).toEqual([more]);
    for (let n = 0; n < 4; n++) await fail();
    stop.abort();
    await ended;
    expect(errors().slice(3)).toEqual([more]);
    expect(clock.pending).toBe(0);
  });

  it('serves the settings, and the page over TCP without a token', async () => {
    const settings = { file: '/c.yaml', settings: {} };
    const page = [{ name: 'index.html', type: 'text/html', text: '<p>' }];
    const tcp = { host: '127.0.0.1', port: await freePort(), token: 'secret' };
    const { get } = serve({ serve: { tcp, page }, settings: () => settings });
    expect(JSON.parse(await get('/v1/settings'))).toEqual(settings);
    const origin = `http://127.0.0.1:${tcp.port}`;
    await until(
      'the page is served',
      async () => (await fetch(origin).catch(() => undefined))?.status === 200,
    );
    expect((await fetch(`${origin}/v1/status`)).status).toBe(401);
  });

  it('counts and logs credentials of TCP that cannot be read again', async () => {
    const tcp = { host: '127.0.0.1', port: await freePort(), token: 'secret' };
    const credentials = (): Promise<never> => Promise.reject(new Error('no such token'));
    const { clock, get, logged, release } = serve({ serve: { tcp, credentials } });
    release();
    await until('the failure is logged', () => {
      clock.advance(10_000);
      return logged.some((line) => line.includes('no such token'));
    });
    expect(await get('/metrics')).toMatch(/^dpcache_api_credential_failures_total [1-9]/m);
  });

  it('reloads settings at the first request after the start, and logs it', async () => {
    let hangup = (): void => {};
    const subscribe = (listener: () => void): Unsubscribe => {
      hangup = listener;
      return unsubscribeOnce(() => {});
    };
    const read = (): Promise<ReloadedSettings> =>
      Promise.resolve({ logLevel: 'info', needRestart: ['cluster'] });
    const { logged, release } = serve({ reload: { subscribe, read } });
    hangup();
    expect(logged).toEqual([]);
    release();
    await until('settings are reloaded', () => logged.includes('info  reloaded settings'));
    expect(logged).toContain('warn  cluster has changed: restart to apply it');
  });
});

it('a process with a step that waits ends without a use of its result', async () => {
  const stop = new AbortController();
  const { ended, stopped } = run(() => stop.abort(), stop.signal);
  await ended;
  expect(stopped).toEqual(['duties']);
});
