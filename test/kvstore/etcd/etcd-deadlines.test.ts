import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { keyRange } from '../../../src/kvstore/codec/key-range.ts';
import { bytesField, message } from '../../../src/kvstore/codec/proto-writer.ts';
import type { EtcdConfig } from '../../../src/kvstore/etcd/etcd-config.ts';
import { EtcdTransport } from '../../../src/kvstore/etcd/etcd-transport.ts';
import type { CallOptions } from '../../../src/kvstore/session/transport.ts';
import { type FakeAnswers, FakeServer, NO_KEYS } from './support/fake-server.ts';

const HOUR_MS = 3_600_000;
const DEADLINE_MS = 300;
/** For calls that must be answered, even if this process is suspended. */
const PROGRESS_TIMEOUT_MS = 60_000;

const open: { stop(): void; close(): Promise<void> }[] = [];

async function connected(answers: FakeAnswers, config: Partial<EtcdConfig> = {}): Promise<EtcdTransport> {
  const server = new FakeServer(answers);
  const endpoints = [await server.start()];
  const transport = new EtcdTransport({ endpoints, deadlineMs: DEADLINE_MS, ...config }, () => 0);
  open.push({ stop: () => server.stop(), close: () => transport.close() });
  return transport;
}

/** Sets the system's time back (negative: forward) by `ms`, directly after it was first read. */
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
  const config = { deadlineMs: PROGRESS_TIMEOUT_MS };
  const transport = await connected({ keepAlive: (call) => void call.end() }, config);
  await expect(transport.keepLeaseAlive('1')).rejects.toMatchObject({ code: 'unavailable' });
});

it('a call whose token is refused is repeated within its deadline (regression: each attempt had one of its own)', async () => {
  let calls = 0;
  let passedMs = 0;
  const now = performance.now.bind(performance);
  vi.spyOn(performance, 'now').mockImplementation(() => now() + passedMs);
  const range = (): Buffer | { code: number; details: string } | undefined => {
    if (++calls === 1) return NO_KEYS;
    if (calls > 2) return undefined;
    passedMs = PROGRESS_TIMEOUT_MS - DEADLINE_MS;
    return { code: status.UNAUTHENTICATED, details: 'etcdserver: invalid auth token' };
  };
  const authenticate = (): Buffer => message(bytesField(2, Buffer.from('token')));
  const auth = { username: 'u', password: 'p' };
  const transport = await connected({ range, authenticate }, { auth, deadlineMs: PROGRESS_TIMEOUT_MS });
  await transport.range(keyRange('a')); // connects, and fetches a token
  const startedAt = now();
  const call = transport.range(keyRange('a'), { deadlineMs: PROGRESS_TIMEOUT_MS });
  await expect(call).rejects.toMatchObject({ code: 'deadline' });
  expect(calls).toBeGreaterThan(1);
  expect(now() - startedAt).toBeLessThan(PROGRESS_TIMEOUT_MS);
});

it('many keepalives with one signal cause no leak warning of Node (regression: one when leases were adopted)', async () => {
  const warnings: Error[] = [];
  const onWarning = (warning: Error): unknown => warnings.push(warning);
  process.on('warning', onWarning);
  const config = { deadlineMs: PROGRESS_TIMEOUT_MS };
  const transport = await connected({ keepAlive: (call) => void call.end() }, config);
  const { signal } = new AbortController();
  await Promise.allSettled(
    Array.from({ length: 20 }, (_, i) => transport.keepLeaseAlive(`${i}`, { signal })),
  );
  process.off('warning', onWarning);
  expect(warnings).toEqual([]);
});

it('setting the clock back does not delay a deadline (regression: it ended an hour late)', async () => {
  const transport = await connected({});
  for (const call of [() => transport.range(keyRange('a')), () => transport.keepLeaseAlive('1')]) {
    setBackAfterFirstLook(HOUR_MS);
    await expect(call()).rejects.toMatchObject({ code: 'deadline' });
  }
});

it('setting the clock forward does not end a call before its time (regression: it failed at once)', async () => {
  const transport = await connected({ range: () => NO_KEYS }, { deadlineMs: PROGRESS_TIMEOUT_MS });
  setBackAfterFirstLook(-HOUR_MS);
  expect(await transport.range(keyRange('a'))).toMatchObject({ kvs: [], count: 0 });
});

it('times of months, or without end, do not end immediately (regression: calls failed at once, and connections were broken)', async () => {
  const months = 2_000 * HOUR_MS;
  const config = {
    deadlineMs: months,
    keepAliveTimeMs: months,
    keepAliveTimeoutMs: Number.POSITIVE_INFINITY,
  };
  const transport = await connected({ range: () => NO_KEYS }, config);
  expect(await transport.range(keyRange('a'))).toMatchObject({ count: 0 });
  expect(await transport.range(keyRange('a'), { deadlineMs: Number.POSITIVE_INFINITY })).toMatchObject({
    count: 0,
  });
  const silent = await connected({}, config);
  const waiting = silent.range(keyRange('a')).catch(({ code }: { readonly code: string }) => code);
  const over = new Promise((resolve) => setTimeout(resolve, DEADLINE_MS, 'waits'));
  expect(await Promise.race([waiting, over])).toBe('waits');
});

describe('while only the test advances the time', () => {
  const ANSWER_BYTES = 4000;
  const kv = message(bytesField(1, Buffer.from('busy')), bytesField(5, Buffer.alloc(ANSWER_BYTES)));
  const answer = Buffer.concat([NO_KEYS, message(bytesField(2, kv))]);

  beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }));
  afterEach(() => void vi.useRealTimers());

  /** A shared connection, and a call on it that is not answered. */
  async function waiting(options: CallOptions, config: Partial<EtcdConfig> = {}) {
    const range = (request: Buffer): Buffer | undefined => (request.includes('busy') ? answer : undefined);
    const transport = await connected({ range }, config);
    const others = (): Promise<unknown> => transport.range(keyRange('busy'), { deadlineMs: HOUR_MS });
    await others();
    const call = { code: 'waits' };
    transport.range(keyRange('a'), options).catch(({ code }: typeof call) => {
      call.code = code;
    });
    const pass = async (ms: number): Promise<string> => {
      vi.advanceTimersByTime(ms);
      for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
      return call.code;
    };
    const ended = async (): Promise<string> => {
      while (call.code === 'waits') await new Promise((resolve) => setImmediate(resolve));
      return call.code;
    };
    return { others, pass, ended };
  }

  it('the deadline of a call without answer is extended while others keep its connection busy, and not for ever', async () => {
    const { others, pass, ended } = await waiting({});
    const codes = new Set<string>();
    for (let renewal = 0; renewal < 30; renewal++) {
      await others();
      codes.add(await pass(DEADLINE_MS));
    }
    expect([...codes]).toEqual(['waits']);
    await others();
    await pass(DEADLINE_MS);
    expect(await ended()).toBe('deadline');
  });

  it('the deadline of a caller holds, however busy its connection', async () => {
    const { others, pass, ended } = await waiting({ deadlineMs: DEADLINE_MS });
    await others();
    await pass(DEADLINE_MS);
    expect(await ended()).toBe('deadline');
  });

  it('answers to pings extend no deadline, because they do not concern the call', async () => {
    const { pass, ended } = await waiting({}, { keepAliveTimeMs: 50 });
    for (let pinged = 0; pinged < DEADLINE_MS; pinged += 50) await pass(50);
    expect(await ended()).toBe('deadline');
  });
});

describe('an answer of the maximum size', () => {
  /** Returns an answer of this number of bytes: no keys, and an unknown field. */
  function answerOf(bytes: number): Buffer {
    const HEAD_BYTES = 5; // tag and length of the unknown field
    const content = Buffer.alloc(bytes - NO_KEYS.length - HEAD_BYTES);
    const answer = Buffer.concat([NO_KEYS, message(bytesField(15, content))]);
    expect(answer).toHaveLength(bytes);
    return answer;
  }

  /** Returns the error code of a read whose answer has this number of bytes; undefined if it succeeds. */
  async function codeOfRead(bytes: number, config: Partial<EtcdConfig> = {}): Promise<string | undefined> {
    const options = { deadlineMs: PROGRESS_TIMEOUT_MS, ...config };
    const transport = await connected({ range: () => answerOf(bytes) }, options);
    const read = transport.range({ ...keyRange('p/'), limit: 10 });
    return read.then(
      () => undefined,
      ({ code }) => code,
    );
  }

  it('is read; one byte more is too large', async () => {
    const maxMessageBytes = 3 << 20;
    expect(await codeOfRead(maxMessageBytes, { maxMessageBytes })).toBeUndefined();
    expect(await codeOfRead(maxMessageBytes + 1, { maxMessageBytes })).toBe('too-large');
  });

  it('has 64 MiB by default', async () => {
    expect(await codeOfRead((64 << 20) + 1)).toBe('too-large');
  });
});
