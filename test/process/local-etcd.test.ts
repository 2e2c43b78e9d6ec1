import { execFileSync } from 'node:child_process';
import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { Agent } from '../../src/agent/agent.ts';
import { TurnGate } from '../../src/base/turn-gate.ts';
import { EtcdBackend } from '../../src/kvstore/etcd/etcd-backend.ts';
import type { KvstoreBackend } from '../../src/kvstore/session/backend.ts';
import { type LocalEtcdContext, openLocalEtcd, readClusterID } from '../../src/process/local-etcd.ts';
import { createLog } from '../../src/process/log.ts';
import { NO_INPUTS } from '../agent/support/agent-under-test.ts';
import { FakeClock } from '../agent/support/fake-clock.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { until } from '../base/support/until.ts';

it('a local kvstore that does not answer is reported immediately, once, and ends the start after half a minute', async () => {
  const clock = new FakeClock();
  const logged: string[] = [];
  const log = createLog('warn', 'text', { write: (line) => logged.push(line.trimEnd()) });
  const kvstoreConfig = join(temporaryFolder({ own: 'endpoints: ["http://127.0.0.1:1"]\n' }), 'own');
  const options = { ...NO_INPUTS, kvstore: 'etcd', kvstoreConfig } as const;
  const agent = new Agent(options, { log, clock, random: () => 0.5 });
  onTestFinished(() => agent.stop());
  const rejected = expect(agent.start(new AbortController().signal)).rejects.toThrow(
    /^local kvstore: no progress for 30 s: the kvstore of cluster own does not answer: .*; check the endpoints and certificates of --kvstore-config$/,
  );
  await until('it is logged', () => logged.length === 1);
  expect(agent.status().steps).toContainEqual({
    name: 'local kvstore',
    state: 'running',
    ms: 0,
    idleMs: 0,
    failure: undefined,
    waitsFor: [expect.stringMatching(/^the kvstore of cluster own does not answer: /)],
  });
  await clock.advance(60_000);
  await rejected;
  expect(logged).toEqual([
    expect.stringMatching(/^warn {2}the kvstore of cluster own does not answer: .*; retrying for 30 s$/),
    expect.stringMatching(/^warn {2}local kvstore: no progress for 15 s: the kvstore of cluster own /),
  ]);
});

const REACH = {
  clock: new FakeClock(),
  random: () => 0.5,
};

it('a configuration of the local etcd that breaks is reported, and again when it is valid (freeze: silence)', async () => {
  const path = join(temporaryFolder({ own: 'endpoints: ["http://127.0.0.1:1"]\n' }), 'own');
  const clock = new FakeClock();
  const problems: unknown[] = [];
  const { signal } = new AbortController();
  const backend = await openLocalEtcd(path, undefined, {
    ...REACH,
    clock,
    signal,
    onProblem: (why: string | undefined) => problems.push(why),
  });
  onTestFinished(() => backend.close());
  const look = async (content: string, seen: number): Promise<void> => {
    // It is read continuously, so it must never be half written.
    writeFileSync(`${path}.new`, content);
    renameSync(`${path}.new`, path);
    await until('it is told', async () => {
      await clock.advance(10_000);
      return problems.length === seen;
    });
  };
  await look('endpoints: [', 1);
  await look('endpoints: []', 2);
  await look('endpoints: ["http://127.0.0.1:1"]\n', 3);
  expect(problems).toEqual([
    expect.stringContaining('is not YAML'),
    expect.stringContaining('must contain at least one URL'),
    undefined,
  ]);
});

it('each option reaches the backend unchanged, and no other option does', async () => {
  const path = join(temporaryFolder({ own: 'endpoints: ["http://127.0.0.1:1"]\n' }), 'own');
  const opened: unknown[] = [];
  vi.spyOn(EtcdBackend, 'open').mockImplementation(async (...given) => {
    opened.push(given);
    return undefined as never; // `openLocalEtcd` only returns it
  });
  const clock = new FakeClock();
  const random = (): number => 0.25;
  const { signal } = new AbortController();
  const options = {
    leaseSeconds: 61,
    mayWrite: () => true,
    writeTimeoutMs: 62_000,
    witnessLeases: true,
    gate: new TurnGate({ clock, nextTurn: queueMicrotask }),
  };
  const rateLimit = { qps: 63, bootstrapQps: 64 };
  const onProblem = vi.fn();
  const absent = { ...Object.fromEntries(Object.keys(options).map((name) => [name, undefined])) };
  const callbacks = { onUsable: expect.any(Function), onUnusable: expect.any(Function) };
  const open = async (
    limit: typeof rateLimit | undefined,
    change: Partial<LocalEtcdContext>,
  ): Promise<unknown> => {
    await openLocalEtcd(path, limit, { clock, random, signal, onFailure: () => {}, ...change });
    return opened.pop();
  };
  for (const [name, value] of Object.entries(options))
    expect(await open(undefined, { [name]: value })).toEqual([
      path,
      { clock, random, rateLimit: undefined, ...absent, [name]: value, ...callbacks },
    ]);
  expect(await open(rateLimit, { ...options, onProblem })).toEqual([
    path,
    { clock, random, rateLimit, ...options, ...callbacks },
  ]);
  const [call] = vi.mocked(EtcdBackend.open).mock.calls.slice(-1);
  expect(call?.[1]).toMatchObject({ clock: expect.toSatisfy((it) => it === clock), random });
  call?.[1]?.onUnusable?.('no endpoints');
  call?.[1]?.onUsable?.();
  expect(onProblem.mock.calls).toEqual([
    [`--kvstore-config ${path}: no endpoints`, 'no endpoints'],
    [undefined],
  ]);
});

it('an entry that is not a file in place of that configuration ends the start with a reason, and does not block it', async () => {
  const folder = temporaryFolder({});
  execFileSync('mkfifo', [join(folder, 'fifo')]);
  const { signal } = new AbortController();
  for (const [name, why] of [
    ['fifo', 'is a FIFO, not a file'],
    ['', 'is a folder, not a file'],
    ['nothing', 'no such file or folder'],
  ] as const) {
    const opened = openLocalEtcd(join(folder, name), undefined, { ...REACH, signal });
    await expect(opened).rejects.toThrow(`--kvstore-config ${join(folder, name)}: ${why}`);
  }
});

it('an interrupted read of the cluster id is no failure', async () => {
  const stop = new AbortController();
  const failures: string[] = [];
  const backend = {
    get: (_key: string, { signal }: { readonly signal?: AbortSignal } = {}) =>
      new Promise<never>((_resolve, reject) => {
        signal?.addEventListener('abort', () => reject(new Error('aborted')));
      }),
  } as unknown as KvstoreBackend;
  const context = { ...REACH, signal: stop.signal, onFailure: (why: string) => failures.push(why) };
  const read = readClusterID(backend, 'own', context);
  stop.abort();
  expect([await read, failures]).toEqual([0, []]);
});
