import { getEventListeners } from 'node:events';
import { afterEach, expect, it, vi } from 'vitest';
import { EtcdBackend } from '../../../src/kvstore/etcd/etcd-backend.ts';
import type { EtcdConfig } from '../../../src/kvstore/etcd/etcd-config.ts';
import { EtcdConnection } from '../../../src/kvstore/etcd/etcd-connection.ts';
import { EtcdEndpoint } from '../../../src/kvstore/etcd/etcd-endpoint.ts';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';

const ADDRESS = 'http://127.0.0.1:1'; // refuses connections
const AUTH = { username: 'remote', password: 'secret' };

const open: EtcdEndpoint[] = [];
afterEach(() => {
  vi.restoreAllMocks();
  for (const endpoint of open.splice(0)) endpoint.close();
});

function endpointWith(auth: typeof AUTH | undefined): EtcdEndpoint {
  const endpoint = new EtcdEndpoint({ endpoints: [ADDRESS], auth }, ADDRESS);
  open.push(endpoint);
  return endpoint;
}

/** Starts a call at a time, which fetches a token unless the endpoint has one. */
function callAt(endpoint: EtcdEndpoint, now: number): void {
  const clock = vi.spyOn(performance, 'now').mockReturnValue(now);
  void endpoint.raw('KV', 'Range', Buffer.alloc(0)).catch(() => {}); // the connection is refused
  clock.mockRestore();
}

const CODES = ['invalid-token', 'forbidden', 'unavailable', 'deadline', 'internal'] as const;
const isOfToken = (code: string): boolean => code === 'invalid-token' || code === 'forbidden';

it.each(CODES)(
  'the failure %s of a client without a user is forbidden if it is about rights or a token',
  (code) => {
    const error = new KvstoreError(code, 'denied');
    for (const startedAt of [undefined, -1, 1]) {
      const reported = endpointWith(undefined).reportedError(error, startedAt);
      if (!isOfToken(code)) expect(reported).toBe(error);
      else
        expect([reported.code, reported.message, reported.cause]).toEqual([
          'forbidden',
          'denied: the configuration has no user; set username and password',
          error,
        ]);
    }
  },
);

it('a client with a certificate is not asked for a user name if it lacks a right (regression)', () => {
  const tls = { certificate: Buffer.from('certificate'), key: Buffer.from('key') };
  const error = new KvstoreError('forbidden', 'permission denied');
  const endpoint = new EtcdEndpoint({ endpoints: [ADDRESS], tls }, ADDRESS);
  open.push(endpoint);
  expect(endpoint.reportedError(error)).toBe(error);
  expect(endpoint.reportedError(new KvstoreError('invalid-token', 'user name is empty')).message).toBe(
    'user name is empty: the configuration has no user; set username and password',
  );
});

it.each(CODES)(
  'the failure %s of a watch means an invalid token unless the token was fetched after its start',
  (code) => {
    const error = new KvstoreError(code, 'denied');
    const endpoint = endpointWith(AUTH);
    callAt(endpoint, 500);
    for (const [startedAt, isTokenOlder] of [
      [undefined, false],
      [499, false],
      [500, true],
      [501, true],
    ] as const) {
      const reported = endpoint.reportedError(error, startedAt);
      if (!isOfToken(code) || !isTokenOlder) expect(reported).toBe(error);
      else
        expect([reported.code, reported.message, reported.cause]).toEqual(['invalid-token', 'denied', error]);
    }
  },
);

it.each([
  [499, false],
  [500, true],
  [501, true],
])('a failed call that started at %i invalidates the token of 500: %s', (failedCallAt, isDropped) => {
  const limits: (() => boolean)[] = [];
  vi.spyOn(EtcdConnection.prototype, 'startDeadline').mockImplementation(({ isExtendable }) => {
    limits.push(isExtendable);
    return () => {};
  });
  const endpoint = endpointWith(AUTH);
  endpoint.invalidateToken(failedCallAt); // no token yet
  callAt(endpoint, 500);
  expect(limits.map((isExtendable) => isExtendable())).toEqual([true]);
  endpoint.invalidateToken(failedCallAt);
  callAt(endpoint, 600);
  // A call with the dropped token may not wait longer than its deadline.
  expect(limits.map((isExtendable) => isExtendable())).toEqual([!isDropped, true]);
  const error = new KvstoreError('forbidden', 'denied');
  expect(endpoint.reportedError(error, 550).code).toBe(isDropped ? 'forbidden' : 'invalid-token');
});

it('a call that waited for a token leaves no listener and no timer', async () => {
  const cancelDeadline = vi.fn();
  vi.spyOn(EtcdConnection.prototype, 'startDeadline').mockReturnValue(cancelDeadline);
  const failure = new KvstoreError('unavailable', 'refused');
  vi.spyOn(EtcdConnection.prototype, 'unary').mockRejectedValue(failure);
  const { signal } = new AbortController();
  const call = endpointWith(AUTH).raw('KV', 'Range', Buffer.alloc(0), { signal });
  await expect(call).rejects.toMatchObject({ code: 'unavailable' });
  await new Promise(setImmediate);
  expect(getEventListeners(signal, 'abort')).toEqual([]);
  expect(cancelDeadline).toHaveBeenCalledTimes(1);
});

it.each<[string, Partial<EtcdConfig>, string]>([
  ['no endpoint', { endpoints: [] }, 'endpoints must contain at least one URL'],
  [
    'no scheme',
    { endpoints: ['etcd:2379'] },
    'endpoint "etcd:2379" must be an http or https URL with a port',
  ],
  [
    'no port',
    { endpoints: ['http://etcd'] },
    'endpoint "http://etcd" must be an http or https URL with a port',
  ],
  ['a path', { endpoints: ['http://etcd:2379/'] }, 'endpoint "http://etcd:2379/" must be'],
  ['an invalid port', { endpoints: ['http://etcd:99999'] }, 'endpoint "http://etcd:99999" must be'],
  ['two schemes', { endpoints: ['http://a:1', 'https://b:1'] }, 'endpoints must use one scheme'],
  ['deadlineMs', { deadlineMs: 0 }, 'deadlineMs must be more than 0: 0'],
  ['keepAliveTimeMs', { keepAliveTimeMs: 0 }, 'keepAliveTimeMs must be more than 0: 0'],
  ['keepAliveTimeoutMs', { keepAliveTimeoutMs: -1 }, 'keepAliveTimeoutMs must be more than 0: -1'],
  ['maxMessageBytes', { maxMessageBytes: Number.NaN }, 'maxMessageBytes must be more than 0: NaN'],
])('a configuration in code is rejected (regression: used): %s', async (_, config, message) => {
  const valid = { endpoints: [ADDRESS], deadlineMs: Number.POSITIVE_INFINITY };
  expect(() => new EtcdBackend({ ...valid, ...config })).toThrow(message);
  const backend = new EtcdBackend(valid);
  expect(() => backend.reconfigure({ ...valid, ...config })).toThrow(message);
  await backend.close();
});

it('only tokens that exist are invalidated', () => {
  const limits: (() => boolean)[] = [];
  vi.spyOn(EtcdConnection.prototype, 'startDeadline').mockImplementation(({ isExtendable }) => {
    limits.push(isExtendable);
    return () => {};
  });
  const endpoint = endpointWith(AUTH);
  endpoint.startDeadline(5, () => {});
  endpoint.invalidateToken(1000);
  expect(limits.map((isExtendable) => isExtendable())).toEqual([true]);
});

it('a closed endpoint closes its connection, and rejects calls and streams as unavailable', async () => {
  const closed = vi.spyOn(EtcdConnection.prototype, 'close');
  const endpoint = endpointWith(undefined);
  endpoint.close();
  expect(closed).toHaveBeenCalledTimes(1);
  const observer = { onMessage: () => {}, onEnd: () => {} };
  const error = { code: 'unavailable', message: 'the connection was closed' };
  await expect(endpoint.raw('KV', 'Range', Buffer.alloc(0))).rejects.toMatchObject(error);
  await expect(endpoint.stream('Watch', 'Watch', observer)).rejects.toMatchObject(error);
});
