import { afterEach, beforeEach, expect, it } from 'vitest';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { EtcdBackend } from '../../../src/kvstore/etcd/etcd-backend.ts';
import { until } from '../../base/support/until.ts';
import { WatchRecorder } from '../support/watch-recorder.ts';
import { type EtcdProcess, startEtcd } from './support/etcd-process.ts';
import { TcpProxy } from './support/tcp-proxy.ts';

const P = 'auth/';
const ROOT = 'root:root';
const USER = { username: 'client', password: 'secret' };
const value = bytesOfText('value');

let etcd: EtcdProcess;
let link: TcpProxy;
const open: { readonly backend: EtcdBackend; readonly recorder: WatchRecorder }[] = [];

beforeEach(async () => {
  const [started] = await startEtcd(1, { flags: ['--bcrypt-cost', '4'] });
  if (started === undefined) throw new Error('no etcd');
  etcd = started;
  link = new TcpProxy(etcd.clientPort);
  await link.start();
  await etcd.ctl(['user', 'add', ROOT]);
  await etcd.ctl(['user', 'grant-role', 'root', 'root']);
  await etcd.ctl(['role', 'add', 'all']);
  await etcd.ctl(['role', 'grant-permission', 'all', 'readwrite', '--prefix', '']);
  await addUser();
});

afterEach(async () => {
  for (const { backend, recorder } of open.splice(0)) {
    await backend.close();
    await recorder.done;
    expect(recorder.breaches).toEqual([]);
  }
  await link.close();
  await etcd.dispose();
});

async function addUser(): Promise<void> {
  await etcd.ctl(['user', 'add', `${USER.username}:${USER.password}`]);
  await etcd.ctl(['user', 'grant-role', USER.username, 'all']);
}

async function enable(): Promise<void> {
  await etcd.ctl(['auth', 'enable']);
  etcd.user = ROOT;
}

async function disable(): Promise<void> {
  await etcd.ctl(['auth', 'disable']);
  etcd.user = undefined;
}

/** Opens a client that watches. */
async function watching(auth?: typeof USER): Promise<(typeof open)[number]> {
  const backend = new EtcdBackend({ endpoints: [`http://127.0.0.1:${link.port}`], auth });
  const recorder = new WatchRecorder(backend.watch(P));
  open.push({ backend, recorder });
  await until('it watches', () => recorder.status().state === 'watching');
  return { backend, recorder };
}

/**
 * Writes with the client until it succeeds, and checks that the watch reports the write. Returns the number
 * of failures.
 */
async function works({ backend, recorder }: (typeof open)[number], key: string): Promise<number> {
  let failures = 0;
  await until(`${key} is written`, () =>
    backend.update(P + key, value).then(
      () => true,
      () => ++failures < 0,
    ),
  );
  await until(`${key} is seen`, () => recorder.content.has(P + key));
  return failures;
}

it('authentication that is enabled while connected fails no call (regression: failed one), and a token is fetched', async () => {
  const client = await watching(USER);
  await enable();
  expect(await works(client, 'a')).toBe(0);
  expect(client.recorder.status()).toMatchObject({ state: 'watching', failures: 0 });
});

it('a client that only watches fetches a token when it reopens its stream (regression: forbidden)', async () => {
  const { recorder } = await watching(USER);
  await enable();
  const states: string[] = [];
  link.cut();
  await until('it watches again', () => {
    const { state, failures } = recorder.status();
    states.push(state);
    return state === 'watching' && failures > 0;
  });
  expect(states).not.toContain('forbidden');
});

it('a client without name and password is forbidden, and the error names the missing settings', async () => {
  const { backend, recorder } = await watching();
  await enable();
  const lacks = /user name is empty.*set username and password/;
  await expect(backend.get(`${P}a`)).rejects.toMatchObject({ code: 'forbidden', message: lacks });
  await until('the watch is forbidden', () => recorder.status().state === 'forbidden');
  expect(recorder.status().lastFailure?.message).toMatch(lacks);
  expect(backend.status()).toMatchObject({ connected: true, lastFailure: { code: 'forbidden' } });
  await disable();
  await until('it watches again', () => recorder.status().state === 'watching');
  expect(await backend.get(`${P}a`)).toBeUndefined();
});

it('authentication that is disabled and enabled again fails no call', async () => {
  await enable();
  const client = await watching(USER);
  expect(await works(client, 'a')).toBe(0);
  await disable();
  expect(await works(client, 'b')).toBe(0);
  await enable();
  expect(await works(client, 'c')).toBe(0);
  await until('it watches again', () => client.recorder.status().state === 'watching');
});

it('a deleted user is forbidden its calls, which continue when a user of that name exists again', async () => {
  await enable();
  const client = await watching(USER);
  await works(client, 'a');
  await etcd.ctl(['user', 'delete', USER.username]);
  await until('it shows', () =>
    client.backend.get(`${P}a`).then(
      () => false,
      ({ code }) => code === 'forbidden',
    ),
  );
  await until('the watch is forbidden', () => client.recorder.status().state === 'forbidden');
  expect([...client.recorder.content.keys()]).toEqual([`${P}a`]);
  await addUser();
  await works(client, 'b');
  await until('it watches again', () => client.recorder.status().state === 'watching');
});
