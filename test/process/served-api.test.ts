import { join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { ApiServer } from '../../src/api/server/api-server.ts';
import { createLog } from '../../src/process/log.ts';
import { ServedApi } from '../../src/process/served-api.ts';
import { FakeClock, settle } from '../agent/support/fake-clock.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { testApp } from '../api/support/test-app.ts';

it('questions of the process itself have a body like those of a client', async () => {
  const { app } = testApp();
  const log = createLog('info', 'text', { write: () => {} });
  const api = new ServedApi(app, {
    log,
    clock: new FakeClock(),
    metrics: { countCredentialFailure: () => {}, countRefused: () => {} },
    faults: { flush: () => {} },
  });
  const answer = await api.ask('/v1/lookup', { ips: ['10.9.9.9'] });
  expect(answer).toMatchObject({ entries: [{ identity: 77 }] });
});

it('a default socket that is forbidden does not stop the credentials of TCP from being followed', async () => {
  const forbidden = Object.assign(new Error('read-only file system'), { code: 'EROFS' });
  vi.spyOn(ApiServer.prototype, 'start').mockRejectedValueOnce(forbidden);
  const clock = new FakeClock();
  const logged: string[] = [];
  const log = createLog('info', 'text', { write: (line) => logged.push(line) });
  const api = new ServedApi(testApp().app, {
    log,
    clock,
    metrics: { countCredentialFailure: () => {}, countRefused: () => {} },
    faults: { flush: () => {} },
  });
  onTestFinished(() => api.stop());
  await api.serve({
    socket: join(temporaryFolder({}), 'dpcache.sock'),
    socketIsDefault: true,
    tcp: { host: '127.0.0.1', port: 0, token: 'old' },
    credentials: async () => ({ token: 'new' }),
  });
  expect([api.socket, logged]).toEqual([
    undefined,
    [expect.stringContaining('read-only file system; set another socket')],
  ]);
  await clock.advance(10_000);
  expect(logged.slice(1)).toEqual(['info  reloaded the credentials of --listen\n']);
  const status = async (token: string): Promise<number> =>
    (await fetch(`${api.url}/healthz`, { headers: { authorization: `Bearer ${token}` } })).status;
  expect([await status('old'), await status('new')]).toEqual([401, 200]);
  await api.stop();
  await settle();
  expect(clock.pending).toBe(0);
});
