import { bytesOfText } from '../bytes.ts';
import {
  asObject,
  type Decoded,
  decodeWith,
  fieldOf,
  type JsonObject,
  readBoolean,
  readInteger,
  readJsonObject,
  refuse,
} from './fields.ts';
import { jsonObject } from './go-json.ts';

/** What a cluster says of itself at `cilium/cluster-config/<cluster>` (since 1.13). */
export interface ClusterConfig {
  /** 1 to 511; 0 when it is not set. */
  readonly id: number;
  readonly capabilities: ClusterCapabilities;
}

/** What a cluster's kvstore offers beyond the first formats. */
export interface ClusterCapabilities {
  /** It writes `cilium/synced/…` once a prefix is complete. */
  readonly syncedCanaries: boolean;
  /** Its content lies under `cilium/cache/` (kvstoremesh). */
  readonly cached: boolean;
  /** 255 or 511; undefined in old clusters, which means 255. */
  readonly maxConnectedClusters?: 255 | 511;
  /** Whether it exports services of the multi-cluster API; undefined when it does not say. */
  readonly serviceExportsEnabled?: boolean;
}

const MAX_CLUSTER_ID = 511;

function readMaxConnected(json: JsonObject): 255 | 511 | undefined {
  const value = readInteger(json, 'maxConnectedClusters', 0xffff, 'capabilities.maxConnectedClusters');
  if (value === 0) return undefined;
  if (value === 255 || value === 511) return value;
  return refuse('out-of-range', 'capabilities.maxConnectedClusters', value, 'must be 255 or 511');
}

function readCapabilities(json: JsonObject): ClusterCapabilities {
  const value = fieldOf(json, 'capabilities');
  const object = value === undefined ? {} : asObject(value, 'capabilities');
  const maxConnectedClusters = readMaxConnected(object);
  const exportsKnown = fieldOf(object, 'serviceExportsEnabled') !== undefined;
  return {
    syncedCanaries: readBoolean(object, 'syncedCanaries', false),
    cached: readBoolean(object, 'cached', false),
    ...(maxConnectedClusters === undefined ? {} : { maxConnectedClusters }),
    ...(exportsKnown ? { serviceExportsEnabled: readBoolean(object, 'serviceExportsEnabled', false) } : {}),
  };
}

/** Decodes a cluster config. Reasons of refusal: `invalid-json`, `wrong-type`, `out-of-range`. */
export function decodeClusterConfig(value: Uint8Array, at: string): Decoded<ClusterConfig> {
  return decodeWith(at, () => {
    const json = readJsonObject(value);
    return { id: readInteger(json, 'id', MAX_CLUSTER_ID), capabilities: readCapabilities(json) };
  });
}

/** The value as the original writes it: fields that are false or unset are left out. */
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
