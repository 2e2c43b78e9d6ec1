import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EtcdBackend } from '../../../src/kvstore/etcd/etcd-backend.ts';
import { until } from '../../base/support/until.ts';
import { type EtcdProcess, startEtcd } from './support/etcd-process.ts';

let etcd: EtcdProcess;
let backend: EtcdBackend;

beforeAll(async () => {
  const [started] = await startEtcd();
  if (started === undefined) throw new Error('no etcd');
  etcd = started;
  backend = new EtcdBackend({ endpoints: [etcd.url] });
});

afterAll(async () => {
  await backend.close();
  await etcd.dispose();
});

/** Runs `etcdctl lock`, which prints its key when it has the lock, and releases it when it is ended. */
function goLock(path: string): { readonly held: Promise<string>; release(): Promise<void> } {
  const child = spawn('etcdctl', ['--endpoints', etcd.url, 'lock', path], {
    env: { ...process.env, ETCDCTL_API: '3' },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const held = once(child.stdout, 'data').then(([chunk]) => String(chunk).trim());
  const release = async (): Promise<void> => {
    child.kill('SIGINT');
    await once(child, 'exit');
  };
  return { held, release };
}

/**
 * Resolves when the queue of a lock, including its holder, has this length. `waiting` must still be pending.
 */
async function queued(path: string, count: number, waiting: Promise<unknown>): Promise<void> {
  await until(
    `${count} stand at ${path}`,
    async () => (await backend.listPrefix(`${path}/`)).length === count,
  );
  const later = new Promise((resolve) => setTimeout(resolve, 200, 'waits'));
  expect(await Promise.race([waiting.then(() => 'held'), later])).toBe('waits');
}

describe('locks and the Go client', () => {
  it('Go waits for a lock that we hold', async () => {
    const lock = await backend.lock('locks/ours');
    const go = goLock('locks/ours');
    await queued('locks/ours', 2, go.held);
    await lock.release();
    expect(await go.held).toMatch(/^locks\/ours\/[0-9a-f]+$/);
    await go.release();
  });

  it('we wait for a lock that Go holds', async () => {
    const go = goLock('locks/theirs');
    await go.held;
    const waiting = backend.lock('locks/theirs');
    await queued('locks/theirs', 2, waiting);
    await go.release();
    await (await waiting).release();
  });

  it('both use one queue', async () => {
    const first = await backend.lock('locks/queue');
    const go = goLock('locks/queue');
    await queued('locks/queue', 2, go.held);
    const other = new EtcdBackend({ endpoints: [etcd.url] });
    const last = other.lock('locks/queue');
    await queued('locks/queue', 3, last);
    await first.release();
    await go.held;
    await queued('locks/queue', 2, last);
    await go.release();
    await (await last).release();
    await other.close();
  });
});
