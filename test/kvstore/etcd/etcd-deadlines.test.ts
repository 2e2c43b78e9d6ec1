import { afterEach, expect, it, vi } from 'vitest';
import { EtcdTransport } from '../../../src/kvstore/etcd/etcd-transport.ts';
import { keyRange } from '../../../src/kvstore/key-range.ts';
import { type FakeAnswers, FakeServer } from './support/fake-server.ts';

const HOUR_MS = 3_600_000;
const DEADLINE_MS = 300;
const PATIENCE_MS = 10_000;

const open: { stop(): void; close(): Promise<void> }[] = [];

async function connected(answers: FakeAnswers): Promise<EtcdTransport> {
  const server = new FakeServer(answers);
  const endpoints = [await server.start()];
  const transport = new EtcdTransport({ endpoints, deadlineMs: DEADLINE_MS }, () => 0);
  open.push({ stop: () => server.stop(), close: () => transport.close() });
  return transport;
}

/** The system's time is set back (or, negative, forward) by so much, right after it was looked at for the first time. */
function setBackAfterFirstLook(ms: number): void {
  vi.spyOn(Date, 'now').mockReturnValueOnce(Date.now() + ms);
}

afterEach(async () => {
  vi.restoreAllMocks();
  for (const { stop, close } of open.splice(0)) {
    await close();
    stop();
  }
});

it('a keepalive that the server ends without an answer fails, and does not wait for ever', async () => {
  const transport = await connected({ keepAlive: (call) => void call.end() });
  await expect(transport.keepLeaseAlive('1')).rejects.toMatchObject({ code: 'unavailable' });
});

it('setting the clock back does not put a deadline off (regression: it ended an hour late)', {
  timeout: PATIENCE_MS,
}, async () => {
  const transport = await connected({});
  for (const call of [() => transport.range(keyRange('a')), () => transport.keepLeaseAlive('1')]) {
    const begun = performance.now();
    setBackAfterFirstLook(HOUR_MS);
    await expect(call()).rejects.toMatchObject({ code: 'deadline' });
    expect(performance.now() - begun).toBeLessThan(10 * DEADLINE_MS);
  }
});

it('setting the clock forward does not end a call before its time (regression: it failed at once)', async () => {
  const transport = await connected({ range: () => Buffer.alloc(0) });
  setBackAfterFirstLook(-HOUR_MS);
  expect(await transport.range(keyRange('a'))).toMatchObject({ kvs: [], count: 0 });
});
