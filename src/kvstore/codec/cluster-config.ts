import { MAX_CLUSTER_ID, type MaxConnectedClusters } from '../../model/numeric-identity.ts';
import type { Decoded, Fields } from '../../net/fields.ts';
import { bytesOfText } from './bytes.ts';
import { jsonObject } from './go-json.ts';
import { decodeJson, VALUE_LIMITS, type ValueLimits } from './value.ts';

/** The configuration of a cluster, at `cilium/cluster-config/<cluster>` (since 1.13). */
export interface ClusterConfig {
  /** 1 to 511; 0 if not set. */
  readonly id: number;
  readonly capabilities: ClusterCapabilities;
}

/** Optional features of the kvstore of a cluster. */
export interface ClusterCapabilities {
  /** True if it writes `cilium/synced/…` when a prefix is complete. */
  readonly syncedCanaries: boolean;
  /** True if its content is below `cilium/cache/` (kvstoremesh). */
  readonly cached: boolean;
  /** 255 or 511; undefined in old clusters, which means 255. */
  readonly maxConnectedClusters?: MaxConnectedClusters;
  /** True if it exports services of the multi-cluster API; undefined if not set. */
  readonly serviceExportsEnabled?: boolean;
}

/** The value has about 100 bytes and is decoded in one turn. */
const LIMITS: ValueLimits = { ...VALUE_LIMITS, bytes: 64 * 1024 };

function readMaxConnected(capabilities: Fields<never>): MaxConnectedClusters | undefined {
  const name = 'maxConnectedClusters';
  const value = capabilities.integer(name, 0, 0xffff) ?? 0;
  if (value === 0) return undefined;
  return value === 255 || value === 511
    ? value
    : capabilities.reject(name, 'out-of-range', 'must be 255 or 511');
}

function readCapabilities(fields: Fields<never>): ClusterCapabilities {
  const capabilities = fields.map('capabilities');
  const maxConnectedClusters = readMaxConnected(capabilities);
  const serviceExportsEnabled = capabilities.boolean('serviceExportsEnabled');
  return {
    syncedCanaries: capabilities.boolean('syncedCanaries') ?? false,
    cached: capabilities.boolean('cached') ?? false,
    ...(maxConnectedClusters === undefined ? {} : { maxConnectedClusters }),
    ...(serviceExportsEnabled === undefined ? {} : { serviceExportsEnabled }),
  };
}

/** Decodes a cluster config. Reasons of rejection: `too-large`, `invalid-json`, `wrong-type`, `out-of-range`. */
export function decodeClusterConfig(value: Uint8Array, at: string): Decoded<ClusterConfig> {
  return decodeJson(value, at, LIMITS, (fields) => ({
    id: fields.integer('id', 0, MAX_CLUSTER_ID) ?? 0,
    capabilities: readCapabilities(fields),
  }));
}

/** Returns the bytes that upstream writes. Fields that are false or unset are omitted. */
export function encodeClusterConfig({ id, capabilities }: ClusterConfig): Uint8Array {
  const flag = (on: boolean): string | undefined => (on ? 'true' : undefined);
  const { maxConnectedClusters, serviceExportsEnabled } = capabilities;
  return bytesOfText(
    jsonObject([
      ['id', id === 0 ? undefined : String(id)],
      [
        'capabilities',
        jsonObject([
          ['syncedCanaries', flag(capabilities.syncedCanaries)],
          ['cached', flag(capabilities.cached)],
          ['maxConnectedClusters', maxConnectedClusters && String(maxConnectedClusters)],
          [
            'serviceExportsEnabled',
            serviceExportsEnabled === undefined ? undefined : String(serviceExportsEnabled),
          ],
        ]),
      ],
    ]),
  );
}
