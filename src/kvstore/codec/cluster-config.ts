import { checkArgument, NUMBER, OBJECT, objectWith } from '../../base/arguments.ts';
import type { MaxConnectedClusters } from '../../model/numeric-identity.ts';
import type { Decoded, Fields, RejectField } from '../../net/fields.ts';
import { MAX_CLUSTER_ID } from '../../net/prefix.ts';
import { bytesOfText } from './bytes.ts';
import { jsonObject, jsonString } from './go-json.ts';
import type { CopiedResource } from './keys.ts';
import { decodeJson, VALUE_LIMITS, type ValueLimits } from './value.ts';

/** The configuration of a cluster, at `cilium/cluster-config/<cluster>` (since 1.13). */
export interface ClusterConfig {
  /** 1 to 511; 0 if not set. */
  readonly id: number;
  readonly capabilities: ClusterCapabilities;
}

/**
 * How a cluster exports its services (1.20): in both formats, or only as endpoint slices (service v2). A cluster
 * without the capability exports only `services/v1`.
 */
export type EndpointSlicesExportMode = (typeof EXPORT_MODES)[number];

const EXPORT_MODES = ['services-and-endpointslices', 'endpointslices-only'] as const;

/** Optional features of the kvstore of a cluster. */
export interface ClusterCapabilities {
  /** True if the cluster writes `cilium/synced/…` when a prefix is complete. */
  readonly syncedCanaries: boolean;
  /** True if the content of the cluster is below `cilium/cache/` (kvstoremesh). */
  readonly cached: boolean;
  /** 255 or 511; undefined in old clusters, which means 255. */
  readonly maxConnectedClusters?: MaxConnectedClusters;
  /** True if the cluster exports services by the multi-cluster services API; undefined if not set. */
  readonly serviceExportsEnabled?: boolean;
  /** Undefined if the cluster exports no endpoint slices. */
  readonly endpointSlicesExportMode?: EndpointSlicesExportMode;
  /** All other capabilities, by name, as JSON. Kvstoremesh copies them, because newer readers may need them. */
  readonly others?: Readonly<Record<string, string>>;
}

const EXPORT_MODE = 'endpointSlicesExportMode';

const KNOWN: ReadonlySet<string> = new Set([
  'syncedCanaries',
  'cached',
  'maxConnectedClusters',
  'serviceExportsEnabled',
  EXPORT_MODE,
]);

/**
 * Returns true if a cluster exports a resource. Services are exported in the formats of `endpointSlicesExportMode`,
 * service exports with `serviceExportsEnabled`, and all other resources always.
 */
export function exportsResource(
  resource: CopiedResource,
  { endpointSlicesExportMode: mode, serviceExportsEnabled }: Partial<ClusterCapabilities>,
): boolean {
  if (resource === 'serviceexports') return serviceExportsEnabled === true;
  if (resource === 'services') return mode !== 'endpointslices-only';
  return resource !== 'endpointslices' || mode !== undefined;
}

/** At most 64 KiB instead of 1.5 MiB, because the value is decoded in one turn. It usually has about 100 bytes. */
const LIMITS: ValueLimits = { ...VALUE_LIMITS, bytes: 64 * 1024 };

/** Returns the value of the field `maxConnectedClusters`; rejects it if it is neither 255 nor 511. */
export function checkMaxConnected(fields: Fields<never>, value: unknown): MaxConnectedClusters {
  return value === 255 || value === 511
    ? value
    : fields.reject('maxConnectedClusters', 'out-of-range', 'must be 255 or 511');
}

function readMaxConnected(capabilities: Fields<never>): MaxConnectedClusters | undefined {
  const value = capabilities.integer('maxConnectedClusters', 0, 0xffff) ?? 0;
  return value === 0 ? undefined : checkMaxConnected(capabilities, value);
}

/** Returns the mode. Drops an unknown word; readers then follow `services/v1`. */
function readExportMode(
  capabilities: Fields<never>,
  drop: RejectField<undefined>,
): EndpointSlicesExportMode | undefined {
  const word = capabilities.string(EXPORT_MODE) ?? '';
  const mode = EXPORT_MODES.find((known) => known === word);
  if (mode !== undefined || word === '') return mode;
  const path = capabilities.pathOf(EXPORT_MODE);
  return drop('unknown-value', path, word, `must be one of ${EXPORT_MODES.join(', ')}`);
}

/**
 * Returns the JSON of an unknown capability. Drops one that is nested too deeply for `JSON.stringify`, which is
 * recursive.
 */
function otherJson(
  capabilities: Fields<never>,
  name: string,
  drop: RejectField<undefined>,
): string | undefined {
  try {
    return JSON.stringify(capabilities.value(name) ?? null);
  } catch {
    return drop('too-deep', capabilities.pathOf(name), undefined, 'is nested too deeply');
  }
}

/** Returns the unknown capabilities, and an unknown export mode, as JSON. */
function readOthers(
  capabilities: Fields<never>,
  mode: EndpointSlicesExportMode | undefined,
  drop: RejectField<undefined>,
): Readonly<Record<string, string>> | undefined {
  const others: [string, string][] = [];
  for (const name of capabilities.names) {
    const json = KNOWN.has(name) ? undefined : otherJson(capabilities, name, drop);
    if (json !== undefined) others.push([name, json]);
  }
  const word = mode === undefined ? (capabilities.string(EXPORT_MODE) ?? '') : '';
  if (word !== '') others.push([EXPORT_MODE, JSON.stringify(word)]);
  return others.length === 0 ? undefined : Object.fromEntries(others);
}

function readCapabilities(fields: Fields<never>, drop: RejectField<undefined>): ClusterCapabilities {
  const capabilities = fields.map('capabilities');
  const maxConnectedClusters = readMaxConnected(capabilities);
  const serviceExportsEnabled = capabilities.boolean('serviceExportsEnabled');
  const endpointSlicesExportMode = readExportMode(capabilities, drop);
  const others = readOthers(capabilities, endpointSlicesExportMode, drop);
  return {
    syncedCanaries: capabilities.boolean('syncedCanaries') ?? false,
    cached: capabilities.boolean('cached') ?? false,
    ...(maxConnectedClusters === undefined ? {} : { maxConnectedClusters }),
    ...(serviceExportsEnabled === undefined ? {} : { serviceExportsEnabled }),
    ...(endpointSlicesExportMode === undefined ? {} : { endpointSlicesExportMode }),
    ...(others === undefined ? {} : { others }),
  };
}

/**
 * Decodes a cluster config. Reasons of rejection: `too-large`, `invalid-json`, `wrong-type`, `out-of-range`. Drops an
 * unknown export mode, `unknown-value`, and an unknown capability that is nested too deeply, `too-deep`.
 */
export function decodeClusterConfig(value: Uint8Array, at: string): Decoded<ClusterConfig> {
  return decodeJson(value, at, LIMITS, (fields, drop) => ({
    id: fields.integer('id', 0, MAX_CLUSTER_ID) ?? 0,
    capabilities: readCapabilities(fields, drop),
  }));
}

const CONFIG = objectWith({ id: NUMBER, capabilities: OBJECT });

/**
 * Returns the bytes that Cilium writes, then other capabilities. Omits unset and false fields, but writes a false
 * `serviceExportsEnabled`.
 */
export function encodeClusterConfig(config: ClusterConfig): Uint8Array {
  checkArgument('encodeClusterConfig: config', config, CONFIG);
  const { id, capabilities } = config;
  const flag = (on: boolean): string | undefined => (on ? 'true' : undefined);
  const { maxConnectedClusters, serviceExportsEnabled, endpointSlicesExportMode, others = {} } = capabilities;
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
          [EXPORT_MODE, endpointSlicesExportMode && jsonString(endpointSlicesExportMode)],
          ...Object.entries(others),
        ]),
      ],
    ]),
  );
}
