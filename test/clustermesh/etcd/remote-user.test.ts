import { afterAll, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/system-clock.ts';
import { ClusterMesh } from '../../../src/clustermesh/cluster-mesh.ts';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import { EtcdBackend } from '../../../src/kvstore/etcd/etcd-backend.ts';
import { until } from '../../base/support/until.ts';
import { type EtcdProcess, startEtcd } from '../../kvstore/etcd/support/etcd-process.ts';

let etcd: EtcdProcess | undefined;
afterAll(() => etcd?.dispose());

/** The ranges that the users of remote clusters may read in Cilium (pkg/kvstore/etcdinit, `rangesForRemoteRole`). */
const REMOTE_ROLE = [
  ['cilium/.heartbeat', '--prefix'],
  ['cilium/state/', '--prefix'],
  ['cilium/cluster-config/far'],
  ['cilium/synced/far/', '--prefix'],
];

it('a remote cluster is ready, and changes of its configuration apply, with the rights that Cilium gives to remote users (regression: no right to watch its configuration)', async () => {
  [etcd] = await startEtcd(1, { flags: ['--bcrypt-cost', '4'] });
  const { ctl, url } = { ctl: (words: string[], input?: string) => etcd?.ctl(words, input), url: etcd?.url };
  if (etcd === undefined || url === undefined) throw new Error('no etcd');
  const configure = (id: number): unknown =>
    ctl(['put', 'cilium/cluster-config/far'], JSON.stringify({ id, capabilities: { syncedCanaries: true } }));
  for (const resource of ['nodes', 'services', 'identities', 'ip'])
    await ctl(['put', `cilium/synced/far/cilium/state/${resource}/v1`, '2026-11-20T12:00:00Z']);
  await ctl(['put', 'cilium/state/ip/v1/default/10.7.0.1'], JSON.stringify({ IP: '10.7.0.1', ID: 7 << 16 }));
  await ctl(['user', 'add', 'root:root']);
  await ctl(['user', 'grant-role', 'root', 'root']);
  await ctl(['user', 'add', 'remote:secret']);
  await ctl(['role', 'add', 'remote']);
  for (const range of REMOTE_ROLE) await ctl(['role', 'grant-permission', 'remote', 'read', ...range]);
  await ctl(['user', 'grant-role', 'remote', 'remote']);
  await ctl(['auth', 'enable']);
  etcd.user = 'root:root';

  const ipcache = new IPCache();
  const mesh = new ClusterMesh({ ipcache, clusterName: 'own', clusterID: 1, clock: systemClock });
  const auth = { username: 'remote', password: 'secret' };
  await mesh.add('far', () => new EtcdBackend({ endpoints: [url], auth }));
  const state = (): string | undefined => mesh.status().clusters[0]?.state;
  await until('it has no configuration', () => state() === 'no-configuration');
  await configure(7);
  await until('it is ready', () => state() === 'ready');
  expect(ipcache.get('10.7.0.1')).toMatchObject({ identity: 7 << 16, owner: 'far' });
  // Another id: the identity is not one of the cluster any more.
  await configure(8);
  await until('it is withdrawn', () => ipcache.get('10.7.0.1') === undefined);
  await until('it is ready again', () => state() === 'ready');
  await mesh.stop();
});
