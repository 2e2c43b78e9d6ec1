import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { EtcdConfig } from '../../../src/kvstore/etcd/etcd-config.ts';
import { EtcdTransport } from '../../../src/kvstore/etcd/etcd-transport.ts';
import { bytesField, message } from '../../../src/kvstore/etcd/proto-writer.ts';
import { keyRange } from '../../../src/kvstore/key-range.ts';
import { type FakeAnswers, FakeServer } from './support/fake-server.ts';

const HOUR_MS = 3_600_000;
const DEADLINE_MS = 300;
const PATIENCE_MS = 10_000;

const open: { stop(): void; close(): Promise<void> }[] = [];

async function connected(answers: FakeAnswers, config: Partial<EtcdConfig> = {}): Promise<EtcdTransport> {
  const server = new FakeServer(answers);
  const endpoints = [await server.start()];
  const transport = new EtcdTransport({ endpoints, deadlineMs: DEADLINE_MS, ...config }, () => 0);
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

it('times of months, or without end, do not end at once (regression: calls failed at once, and connections were broken)', async () => {
  const months = 2_000 * HOUR_MS;
  const config = {
    deadlineMs: months,
    keepAliveTimeMs: months,
    keepAliveTimeoutMs: Number.POSITIVE_INFINITY,
  };
  const transport = await connected({ range: () => Buffer.alloc(0) }, config);
  expect(await transport.range(keyRange('a'))).toMatchObject({ count: 0 });
  expect(await transport.range(keyRange('a'), { deadlineMs: Number.POSITIVE_INFINITY })).toMatchObject({
    count: 0,
  });
  const silent = await connected({}, config);
  const waiting = silent.range(keyRange('a')).catch(({ code }: { readonly code: string }) => code);
  const over = new Promise((resolve) => setTimeout(resolve, DEADLINE_MS, 'waits'));
  expect(await Promise.race([waiting, over])).toBe('waits');
});

it('answers to pings extend no deadline: they say nothing of the call', async () => {
  const transport = await connected({}, { keepAliveTimeMs: 50 });
  const begun = performance.now();
  await expect(transport.range(keyRange('a'))).rejects.toMatchObject({ code: 'deadline' });
  expect(performance.now() - begun).toBeLessThan(10 * DEADLINE_MS);
});

describe('on a connection that others keep busy', () => {
  // Longer than this process may be held up: what arrives meanwhile is seen only afterwards.
  const SHORT_MS = 100;
  const kv = message(bytesField(1, Buffer.from('busy')), bytesField(5, Buffer.alloc(4000)));
  const answer = message(bytesField(2, kv));
  let transport: EtcdTransport;
  let busy: Promise<void>;
  let isOver: boolean;

  beforeEach(async () => {
    isOver = false;
    const range = (request: Buffer): Buffer | undefined => (request.includes('busy') ? answer : undefined);
    transport = await connected({ range }, { deadlineMs: SHORT_MS });
    const read = (): Promise<unknown> => transport.range(keyRange('busy'), { deadlineMs: PATIENCE_MS });
    await read();
    busy = (async () => {
      while (!isOver) await read();
    })();
  });

  afterEach(async () => {
    isOver = true;
    await busy;
  });

  it('the deadline of a call without answer is extended, and not for ever', async () => {
    const begun = performance.now();
    await expect(transport.range(keyRange('a'))).rejects.toMatchObject({ code: 'deadline' });
    expect(performance.now() - begun).toBeGreaterThan(10 * SHORT_MS);
  });

  it('the deadline of a caller holds', async () => {
    const begun = performance.now();
    const call = transport.range(keyRange('a'), { deadlineMs: SHORT_MS });
    await expect(call).rejects.toMatchObject({ code: 'deadline' });
    expect(performance.now() - begun).toBeLessThan(10 * SHORT_MS);
  });
});
