import { expect, it } from 'vitest';
import { EtcdBackend } from '../../../src/kvstore/etcd/etcd-backend.ts';
import { until } from '../../base/support/until.ts';
import { WatchRecorder } from '../support/watch-recorder.ts';
import { EtcdAndWriter } from './support/etcd-and-writer.ts';
import { TcpProxy } from './support/tcp-proxy.ts';

/** The first list takes many times the deadline, and many times the ping timeout. */
const BYTES_PER_SECOND = 100_000;
const LIMITS = { deadlineMs: 1000, keepAliveTimeMs: 500, keepAliveTimeoutMs: 500 };
/** Factors of these times, for an etcd on a busy machine that is silent for longer. */
const SCALES = [2, 4];

const server = new EtcdAndWriter();

/** Runs a first list over a separate link. Returns the transferred bytes and the result of the watch. */
async function listed(
  prefix: string,
  bytesPerSecond: number,
  scale = 1,
): Promise<{ bytes: number; failures: number; keys: number }> {
  const link = new TcpProxy(server.etcd.clientPort);
  await link.start();
  link.bytesPerSecond = bytesPerSecond / scale;
  const backend = new EtcdBackend({
    endpoints: [`http://127.0.0.1:${link.port}`],
    deadlineMs: scale * LIMITS.deadlineMs,
    keepAliveTimeMs: scale * LIMITS.keepAliveTimeMs,
    keepAliveTimeoutMs: scale * LIMITS.keepAliveTimeoutMs,
  });
  const recorder = new WatchRecorder(backend.watch(prefix));
  await until('it is listed', () => recorder.listed);
  const { failures } = recorder.status();
  await backend.close();
  await recorder.done;
  await link.close();
  return { bytes: link.received, failures, keys: recorder.content.size };
}

it.each([
  ['many small values', 2000, 200],
  ['few large values', 60, 8000],
  ['values that take longer than the deadline each', 4, 120_000],
])(
  'a first list over a slow link of %s completes, with little more traffic than over a fast one (regression: never)',
  async (_what, keys, bytes) => {
    const prefix = `slow/${keys}/`;
    await server.write(prefix, keys, 'x'.repeat(bytes));
    const fast = await listed(prefix, Number.POSITIVE_INFINITY);
    let slow = await listed(prefix, BYTES_PER_SECOND);
    for (const scale of SCALES) if (slow.failures > 0) slow = await listed(prefix, BYTES_PER_SECOND, scale);
    expect(slow).toMatchObject({ keys, failures: 0 });
    expect(slow.bytes).toBeLessThan(1.2 * fast.bytes);
  },
);
