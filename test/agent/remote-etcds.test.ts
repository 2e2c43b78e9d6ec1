import { expect, it, onTestFinished, vi } from 'vitest';
import { TurnGate } from '../../src/base/turn-gate.ts';
import { bytesOfText } from '../../src/kvstore/codec/bytes.ts';
import { encodeClusterConfig } from '../../src/kvstore/codec/cluster-config.ts';
import { clusterConfigKey, resourcePrefix } from '../../src/kvstore/codec/keys.ts';
import { EtcdBackend } from '../../src/kvstore/etcd/etcd-backend.ts';
import { MAX_WRITES } from '../../src/kvstore/session/backend.ts';
import { WATCH_LIMITS } from '../../src/kvstore/watch/watch-limits.ts';
import { startEtcd } from '../kvstore/etcd/support/etcd-process.ts';
import { startAgent } from './support/agent-under-test.ts';
import { temporaryFolder } from './support/temporary-folder.ts';

/** The configuration and the IPs of a cluster, as kvstoremesh copies them. */
function* keysOf(
  cluster: string,
  id: number,
  ips: number,
): Generator<{ readonly key: string; readonly value: Uint8Array }> {
  const capabilities = { syncedCanaries: false, cached: true };
  yield { key: clusterConfigKey(cluster), value: encodeClusterConfig({ id, capabilities }) };
  for (let i = 0; i < ips; i++) {
    const ip = `10.${id}.${i >> 8}.${i & 255}`;
    const value = bytesOfText(JSON.stringify({ IP: ip, ID: (id << 16) + 256 }));
    yield { key: `${resourcePrefix('ip', cluster, 'cache')}${ip}`, value };
  }
}

it('an agent passes its gate to the clients of remote etcds (regression: only kvstoremesh did)', async () => {
  const IPS = 16 * MAX_WRITES;
  const [etcd] = await startEtcd();
  if (etcd === undefined) throw new Error('no etcd');
  onTestFinished(() => etcd.dispose());
  const backend = new EtcdBackend({ endpoints: [etcd.url] });
  const keys = [...keysOf('baltic', 7, IPS)];
  for (let at = 0; at < keys.length; at += MAX_WRITES)
    await backend.writeAll(keys.slice(at, at + MAX_WRITES));
  await backend.close();
  const clustermeshConfig = temporaryFolder({ baltic: `endpoints:\n- ${etcd.url}\n` });
  const pass = vi.spyOn(TurnGate.prototype, 'pass');
  const { agent } = await startAgent([], '', { clustermeshConfig });
  await expect.poll(() => agent.ipcache.size).toBe(IPS);
  const slices = pass.mock.calls.filter(([weight]) => weight === WATCH_LIMITS.sliceKeys);
  expect(slices.length).toBeGreaterThanOrEqual(IPS / WATCH_LIMITS.sliceKeys);
});
