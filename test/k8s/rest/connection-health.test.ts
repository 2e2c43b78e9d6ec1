import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ByteStream } from '../../../src/k8s/memory/byte-stream.ts';
import { ApiError } from '../../../src/k8s/rest/api-error.ts';
import type { ApiAnswer, ApiRequest, ApiTransport } from '../../../src/k8s/rest/api-transport.ts';
import { ConnectionHealth } from '../../../src/k8s/rest/connection-health.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';

const never = new AbortController().signal;

let clock: ManualClock;
let probes: { readonly path: string; readonly at: number }[];
let resets: number;
/** Answers `/healthz`. */
let answer: (request: ApiRequest) => Promise<ApiAnswer>;
let stream: ByteStream;
let health: ConnectionHealth;
let watching: Promise<void>;

const says = (status: number, text = ''): Promise<ApiAnswer> => {
  const body = new ByteStream(
    async () => {},
    () => {},
  );
  body.write(text);
  body.end();
  return Promise.resolve({ status, retryAfterMs: 0, body });
};

beforeEach(() => {
  clock = new ManualClock();
  clock.advance(1_000);
  probes = [];
  resets = 0;
  answer = () => says(200, 'ok');
  stream = new ByteStream(
    async () => {},
    () => {},
  );
  const transport: ApiTransport = {
    send: (request) => {
      if (request.path !== '/healthz') return Promise.resolve({ status: 200, retryAfterMs: 7, body: stream });
      probes.push({ path: request.path, at: clock.now() });
      return answer(request);
    },
    reset: () => void resets++,
    close: async () => {},
  };
  health = new ConnectionHealth(transport, clock);
  watching = health.runChecks();
});
afterEach(async () => {
  await health.close();
  await watching;
  expect(clock.pending).toBe(0);
});

describe('while a server is silent', () => {
  it('a probe is sent every 30 s (K 11)', async () => {
    await advance(clock, 29_999);
    expect(probes).toEqual([]);
    await advance(clock, 60_001);
    expect(probes.map(({ at }) => at)).toEqual([31_000, 61_000, 91_000]);
    expect(health.status()).toEqual({ probes: 3, resets: 0, lastFailure: undefined });
  });

  it('and the probe is not answered in 30 s, all connections are closed, and it is probed again 30 s later', async () => {
    answer = () => new Promise(() => {});
    await advance(clock, 59_999);
    expect(resets).toBe(0);
    await advance(clock, 1);
    expect(resets).toBe(1);
    expect(health.status()).toMatchObject({ probes: 1, resets: 1, lastFailure: { code: 'silent' } });
    await advance(clock, 30_000);
    expect(probes.map(({ at }) => at)).toEqual([31_000, 91_000]);
  });

  it.each([500, 503, 410])('and answers that with %i, all connections are closed', async (status) => {
    answer = () => says(status);
    await advance(clock, 30_000);
    expect(resets).toBe(1);
  });

  it.each([429, 401, 403, 404, 409, 422, 400])('and answers that with %i, it lives', async (status) => {
    answer = () => says(status);
    await advance(clock, 30_000);
    expect(health.status()).toEqual({ probes: 1, resets: 0, lastFailure: undefined });
  });

  it('and cannot be probed for lack of credentials, nothing is closed (regression: healthy watches were closed)', async () => {
    answer = () => Promise.reject(new ApiError('credentials', 'the plugin failed'));
    await advance(clock, 30_000);
    expect(health.status()).toEqual({ probes: 1, resets: 0, lastFailure: undefined });
  });

  it('and the answer breaks, all connections are closed', async () => {
    answer = async () => {
      const found = await says(200);
      const body = (async function* (): AsyncGenerator<Uint8Array, void, void> {
        yield new Uint8Array(1);
        throw new Error('cut');
      })();
      return { ...found, body };
    };
    await advance(clock, 30_000);
    expect(health.status()).toMatchObject({ resets: 1, lastFailure: { code: 'broken', message: 'cut' } });
  });
});

describe('data of a server', () => {
  it('is passed on, and delays the probe: an answer, and each piece of it', async () => {
    await advance(clock, 20_000);
    const { status, retryAfterMs, body } = await health.send({ path: '/watch', signal: never });
    expect({ status, retryAfterMs }).toEqual({ status: 200, retryAfterMs: 7 });
    const heard: string[] = [];
    const reading = (async (): Promise<void> => {
      for await (const bytes of body) heard.push(new TextDecoder().decode(bytes));
    })();
    await advance(clock, 20_000);
    expect(probes).toEqual([]);
    stream.write('piece');
    await settle();
    expect(heard).toEqual(['piece']);
    await advance(clock, 29_999);
    expect(probes).toEqual([]);
    await advance(clock, 1);
    expect(probes.map(({ at }) => at)).toEqual([71_000]);
    stream.end();
    await reading;
  });
});

it('after all connections were closed during a probe has no effect', async () => {
  answer = () => new Promise(() => {});
  await advance(clock, 30_000);
  await health.close();
  await watching;
  expect(health.status()).toEqual({ probes: 1, resets: 0, lastFailure: undefined });
  expect(resets).toBe(0);
});

it('closed connections are passed on', () => {
  health.reset();
  expect(resets).toBe(1);
});
