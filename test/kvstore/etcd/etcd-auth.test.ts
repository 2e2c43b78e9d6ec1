import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { EtcdBackend } from '../../../src/kvstore/etcd/etcd-backend.ts';
import { asKvstoreError } from '../../../src/kvstore/session/errors.ts';
import { until } from '../../base/support/until.ts';
import { ChaosCluster } from '../chaos/support/chaos-cluster.ts';
import { WatchRecorder } from '../support/watch-recorder.ts';
import { startEtcd } from './support/etcd-process.ts';
import { TcpProxy } from './support/tcp-proxy.ts';

const P = 'auth/';
const TOKEN_SECONDS = 1;
const value = bytesOfText('value');

describe('an etcd with users', () => {
  let cluster: ChaosCluster;
  let link: TcpProxy;
  let backend: EtcdBackend;

  beforeAll(async () => {
    cluster = await ChaosCluster.start(P, { tokenSeconds: TOKEN_SECONDS });
    link = new TcpProxy(cluster.witness.clientPort);
    await link.start();
    const endpoints = [`http://127.0.0.1:${link.port}`];
    backend = new EtcdBackend({ endpoints, auth: cluster.auth, deadlineMs: 1000 });
  });

  afterAll(async () => {
    await backend.close();
    await link.close();
    await cluster.dispose();
  });

  const works = (): Promise<boolean> =>
    backend.update(`${P}a`, value).then(
      () => true,
      () => false,
    );

  it('a token that expired while unused is fetched again, and a watch resumes with it', async () => {
    const recorder = new WatchRecorder(backend.watch(P));
    await until('it watches', () => recorder.status().state === 'watching');
    link.mode = 'refuse';
    await until('it is cut off', () => recorder.status().state === 'waiting');
    const cutOff = performance.now();
    await until('the token has expired', () => performance.now() - cutOff > 2500 * TOKEN_SECONDS);
    link.mode = 'open';
    await until('it is written', works);
    await until('it is seen', () => recorder.content.has(`${P}a`));
    expect(recorder.breaches).toEqual([]);
  });

  it('a token that expired while its client only watched is fetched again immediately (regression: etcd 3.4 reports the watch as forbidden)', async () => {
    const only = new TcpProxy(cluster.witness.clientPort);
    await only.start();
    const watcher = new EtcdBackend({ endpoints: [`http://127.0.0.1:${only.port}`], auth: cluster.auth });
    const recorder = new WatchRecorder(watcher.watch(P));
    await until('it watches', () => recorder.status().state === 'watching');
    only.mode = 'refuse';
    const begun = performance.now();
    await until('the token has expired', () => performance.now() - begun > 2500 * TOKEN_SECONDS);
    const { failures } = recorder.status();
    const states: string[] = [];
    only.mode = 'open';
    await until('it watches again', () => {
      states.push(recorder.status().state);
      return recorder.status().state === 'watching';
    });
    expect(states).not.toContain('forbidden');
    expect(recorder.status().failures).toBeGreaterThan(failures);
    await watcher.close();
    await recorder.done;
    await only.close();
  });

  it('tokens cost no connections (trap: the etcd3 client opens one for each, and closes none)', async () => {
    for (let i = 0; i < 5; i++) {
      await cluster.expireTokens();
      await until('it is written', works);
    }
    expect(link.connections).toBe(1);
  });

  it('after an outage in which its token expired it is connected again immediately', async () => {
    await until('it is written', works);
    await cluster.expireTokens();
    link.mode = 'refuse';
    let refused = 0;
    await until('many calls are refused', async () => {
      if (!(await works())) refused++;
      return refused > 50;
    });
    link.mode = 'open';
    await until('it is written', works); // or after two minutes, which is longer than `until` waits
  });

  it('a token that blocks its calls after a restore is dropped (trap: etcd #11377)', async () => {
    const failures: string[] = [];
    // A background call may be refused first and get a new token: then the trap is set again.
    for (let round = 0; round < 4 && !failures.includes('deadline'); round++) {
      const backup = await cluster.backup();
      // The raft log of the restored store starts at zero; the token has a far higher index.
      for (let i = 0; i < 300; i++) await until('it is written', works);
      await cluster.expireTokens();
      await until('it is written', works);
      await cluster.restore(backup, { newClusterID: false });
      await until('it is written', () =>
        backend.update(`${P}a`, value).then(
          () => true,
          (error: unknown) => {
            failures.push(asKvstoreError(error).code);
            return false;
          },
        ),
      );
    }
    expect(failures).toContain('deadline');
  });

  it('a wrong password is forbidden, with a clear message', async () => {
    const auth = { username: 'root', password: 'wrong' };
    const stranger = new EtcdBackend({ endpoints: [cluster.witness.url], auth });
    await expect(stranger.get(`${P}a`)).rejects.toMatchObject({
      code: 'forbidden',
      message: `etcd at ${new URL(cluster.witness.url).host} rejects the user or the password; check username and password of the configuration`,
    });
    await stranger.close();
  });
});

it('an etcd without users accepts a user', async () => {
  const etcds = await startEtcd();
  const backend = new EtcdBackend({
    endpoints: etcds.map(({ url }) => url),
    auth: { username: 'somebody', password: 'something' },
  });
  expect(await backend.createOnly(`${P}a`, value)).toBe(true);
  await backend.close();
  for (const etcd of etcds) await etcd.dispose();
});
