import type { BackendZone, ClusterService, ClusterServiceKey } from '../../net/cluster-service.ts';
import { bytesOfText } from '../bytes.ts';
import {
  asAddress,
  asObject,
  type Decoded,
  decodeWith,
  fieldOf,
  type JsonObject,
  readBoolean,
  readEntries,
  readInteger,
  readJsonObject,
  readName,
  readString,
  readStringMap,
  refuse,
} from './fields.ts';
import { jsonArray, jsonMap, jsonObject, jsonString, jsonStringMap, nullIfEmpty } from './go-json.ts';
import { readPortConfiguration, writePortConfiguration } from './ports.ts';

const MAX_CLUSTER_ID = 511;

function byAddress<T>(
  json: JsonObject,
  name: string,
  read: (value: unknown, path: string) => T,
): ReadonlyMap<string, T> {
  const map = new Map<string, T>();
  for (const [text, value] of readEntries(json, name)) {
    const path = `${name}.${text}`;
    const address = asAddress(text, path);
    if (map.has(address)) refuse('duplicate-address', path, text, 'is another spelling of an address above');
    map.set(address, read(value, path));
  }
  return map;
}

function readHostname(value: unknown, path: string): string {
  return typeof value === 'string' ? value : refuse('wrong-type', path, value, 'must be a string');
}

function readZone(value: unknown, path: string): BackendZone {
  const object = asObject(value, path);
  const forZones = fieldOf(object, 'ForZones') ?? [];
  if (!Array.isArray(forZones) || !forZones.every((zone) => typeof zone === 'string')) {
    return refuse('wrong-type', `${path}.ForZones`, forZones, 'must be an array of strings');
  }
  return { zone: readString(object, 'Zone', `${path}.Zone`), forZones };
}

function readKey(json: JsonObject, expected: ClusterServiceKey): ClusterServiceKey {
  for (const field of ['cluster', 'namespace', 'name'] as const) {
    const value = readName(json, field);
    if (value !== expected[field]) {
      return refuse('key-mismatch', field, value, `the key says ${expected[field]}`);
    }
  }
  return { cluster: expected.cluster, namespace: expected.namespace, name: expected.name };
}

/**
 * Decodes the value of `…/services/v1/<cluster>/<namespace>/<name>`. Reasons of refusal: `missing-field`,
 * `key-mismatch`, `invalid-json`, `wrong-type`, `out-of-range`, `invalid-address`, `duplicate-address`,
 * `unknown-protocol`.
 */
export function decodeClusterService(
  expected: ClusterServiceKey,
  value: Uint8Array,
  at: string,
): Decoded<ClusterService> {
  return decodeWith(at, () => {
    const json = readJsonObject(value);
    const known = (name: string): boolean => fieldOf(json, name) !== undefined;
    const { cluster, namespace, name } = readKey(json, expected);
    // One shape, whoever wrote it: the engine reads thousands of these.
    return {
      cluster,
      namespace,
      name,
      frontends: byAddress(json, 'frontends', readPortConfiguration),
      backends: byAddress(json, 'backends', readPortConfiguration),
      labels: readStringMap(json, 'labels'),
      selector: readStringMap(json, 'selector'),
      hostnames: known('hostnames') ? byAddress(json, 'hostnames', readHostname) : undefined,
      zones: known('zones') ? byAddress(json, 'zones', readZone) : undefined,
      includeExternal: readBoolean(json, 'includeExternal', false),
      shared: readBoolean(json, 'shared', true),
      clusterID: readInteger(json, 'clusterID', MAX_CLUSTER_ID),
    };
  });
}

function writeZone({ zone, forZones = [] }: BackendZone): string {
  return jsonObject([
    ['Zone', jsonString(zone)],
    ['ForZones', nullIfEmpty(forZones.length, jsonArray(forZones, jsonString))],
  ]);
}

/** The value as the original writes it. */
export function encodeClusterService(service: ClusterService): Uint8Array {
  return bytesOfText(
    jsonObject([
      ['cluster', jsonString(service.cluster)],
      ['namespace', jsonString(service.namespace)],
      ['name', jsonString(service.name)],
      ['frontends', jsonMap(service.frontends, writePortConfiguration)],
      ['backends', jsonMap(service.backends, writePortConfiguration)],
      ['hostnames', service.hostnames && jsonStringMap(service.hostnames)],
      ['zones', service.zones && jsonMap(service.zones, writeZone)],
      ['labels', jsonStringMap(service.labels)],
      ['selector', jsonStringMap(service.selector)],
      ['includeExternal', String(service.includeExternal)],
      ['shared', String(service.shared)],
      ['clusterID', String(service.clusterID)],
    ]),
  );
}
