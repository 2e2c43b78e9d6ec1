import { bytesOfText } from '../../src/kvstore/codec/bytes.ts';
import { encodeIPIdentityPair } from '../../src/kvstore/codec/ip-identity-pair.ts';
import { ipKey, resourcePrefix } from '../../src/kvstore/codec/keys.ts';
import type { EtcdTransport } from '../../src/kvstore/etcd/etcd-transport.ts';
import { NO_LEASE, type WriteOperation } from '../../src/kvstore/session/transport.ts';
import { podAddress } from '../pod-address.ts';

/** The prefix of the IPs of a cluster. */
export const IP_PREFIX: string = resourcePrefix('ip', '');

/** Maximum of etcd for one transaction. */
const TXN_KEYS = 128;
const WRITERS = 8;

/** The IP with number `i`, as Cilium publishes it. Each round has another identity. */
function ipOf(i: number, round: number): WriteOperation {
  const key = podAddress(i);
  const value = encodeIPIdentityPair({
    key,
    identity: 65_536 + 256 + ((i + round) % 5000),
    hostIP: `192.168.${Math.floor(i / 110) >> 8}.${Math.floor(i / 110) & 255}`, // 110 pods per node
    encryptKey: 0,
    k8s: {
      namespace: `namespace-${i % 50}`,
      podName: `workload-${i % 977}-${i.toString(36)}`,
      namedPorts: new Map([
        ['http', { port: 8080, protocol: 6 }],
        ['metrics', { port: 9100, protocol: 6 }],
      ]),
    },
  });
  return { op: 'put', key: ipKey(key), value, lease: NO_LEASE };
}

/** Writes the IPs 0 … count - 1 in transactions, by several writers. */
export async function writeIPs(transport: EtcdTransport, count: number, round: number): Promise<void> {
  let next = 0;
  const writer = async (): Promise<void> => {
    while (next < count) {
      const from = next;
      next += TXN_KEYS;
      const size = Math.min(TXN_KEYS, count - from);
      const writes = Array.from({ length: size }, (_, i) => ipOf(from + i, round));
      await transport.txn({ compare: [], writes }, { deadlineMs: 60_000 });
    }
  };
  await Promise.all(Array.from({ length: WRITERS }, writer));
}

/** Writes the configuration of a cluster without canaries. */
export async function writeConfiguration(transport: EtcdTransport, name: string, id: number): Promise<void> {
  const value = bytesOfText(JSON.stringify({ id, capabilities: { maxConnectedClusters: 255 } }));
  const key = `cilium/cluster-config/${name}`;
  await transport.txn({ compare: [], writes: [{ op: 'put', key, value, lease: NO_LEASE }] });
}
