import { checkArgument, ITERABLE, NUMBER, objectWith, TEXT } from '../../base/arguments.ts';
import type { BackendZone, ClusterService, ClusterServiceKey } from '../../model/cluster-service.ts';
import { type Decoded, type Fields, type RejectField, rejectInput } from '../../net/fields.ts';
import { canonicalAddress, MAX_CLUSTER_ID } from '../../net/prefix.ts';
import { isSpecialAddress, SPECIAL_ADDRESS_RULE } from '../../net/special-address.ts';
import { bytesOfText } from './bytes.ts';
import { jsonArray, jsonMap, jsonObject, jsonString, jsonStringMap } from './go-json.ts';
import { type PortConfiguration, readPortConfiguration, writePortConfiguration } from './ports.ts';
import {
  decodeJson,
  type EncodedValue,
  type FormatVersion,
  readKeyPart,
  VALUE_LIMITS,
  type ValueLimits,
} from './value.ts';

/** Reads the maps and lists of a service and enforces their common limit. */
class EntryReader {
  readonly #max: number;
  readonly #drop: RejectField<undefined>;
  /** Number of further permitted entries. */
  #remaining: number;

  constructor(max: number, drop: RejectField<undefined>) {
    this.#max = max;
    this.#drop = drop;
    this.#remaining = max;
  }

  /** Returns the nested map or list, and counts its entries. Rejects the service above the limit. */
  counted(nested: Fields<never>): Fields<never> {
    this.#remaining -= nested.size;
    if (this.#remaining < 0) {
      const reason = `must have at most ${this.#max} addresses, ports, host names and zones in total`;
      rejectInput('too-many', nested.path, `${nested.size} entries`, reason);
    }
    return nested;
  }

  /**
   * Returns a map by canonical address, with values from `read`. Drops refused addresses, and entries whose key is not
   * an address, because 1.8 writes the frontend of a headless service as `<nil>`.
   */
  byAddress<T>(
    map: Fields<never>,
    read: (map: Fields<never>, address: string) => T,
    isRefused?: (address: string) => boolean,
  ): ReadonlyMap<string, T> {
    const found = new Map<string, T>();
    for (const text of this.counted(map).names) {
      const address = canonicalAddress(text);
      if (address === undefined)
        this.#drop('invalid-address', map.pathOf(text), text, 'is not a valid IP address');
      else if (isRefused?.(address))
        this.#drop('special-address', map.pathOf(text), text, SPECIAL_ADDRESS_RULE);
      else if (found.has(address))
        map.reject(text, 'duplicate-address', 'is the same address as an earlier key', text);
      else found.set(address, read(map, text));
    }
    return found;
  }

  readonly ports = (map: Fields<never>, address: string): PortConfiguration =>
    readPortConfiguration(this.counted(map.map(address)), this.#drop);

  readonly zone = (map: Fields<never>, address: string): BackendZone => {
    const zone = map.item(address);
    const forZones = this.counted(zone.list('forZones')).items((list, index) =>
      list.item(index).string('name'),
    );
    return { zone: zone.string('zone') ?? '', forZones };
  };
}

function readHostname(map: Fields<never>, address: string): string {
  return map.string(address) ?? map.reject(address, 'wrong-type', 'must be a string', null);
}

/**
 * Decodes the value of `…/services/v1/<cluster>/<namespace>/<name>`. Reasons of rejection: `too-large`, `too-many`,
 * `missing-field`, `key-mismatch`, `invalid-json`, `wrong-type`, `out-of-range`, `duplicate-address`. Drops an entry if
 * its key is not an address, a backend with a special address, and a port if its protocol is unknown:
 * `invalid-address`, `special-address`, `unknown-protocol`.
 */
export function decodeClusterService(
  expected: ClusterServiceKey,
  value: EncodedValue,
  at: string,
  limits: ValueLimits = VALUE_LIMITS,
): Decoded<ClusterService> {
  return decodeJson(value, at, limits, (fields, drop) => {
    const entries = new EntryReader(limits.serviceEntries, drop);
    const has = (name: string): boolean => fields.value(name) !== undefined;
    // All objects have the same fields in the same order, because objects of one hidden class are read faster.
    return {
      cluster: readKeyPart(fields, 'cluster', expected.cluster),
      namespace: readKeyPart(fields, 'namespace', expected.namespace),
      name: readKeyPart(fields, 'name', expected.name),
      frontends: entries.byAddress(fields.map('frontends'), entries.ports),
      backends: entries.byAddress(fields.map('backends'), entries.ports, isSpecialAddress),
      labels: fields.strings('labels', limits.labels),
      selector: fields.strings('selector', limits.labels),
      hostnames: has('hostnames') ? entries.byAddress(fields.map('hostnames'), readHostname) : undefined,
      zones: has('zones') ? entries.byAddress(fields.map('zones'), entries.zone) : undefined,
      includeExternal: fields.boolean('includeExternal') ?? false,
      shared: fields.boolean('shared') ?? true,
      clusterID: fields.integer('clusterID', 0, MAX_CLUSTER_ID) ?? 0,
    };
  });
}

function writeZone({ zone, forZones = [] }: BackendZone): string {
  const names = jsonArray(forZones, (name) => jsonObject([['name', jsonString(name)]]));
  return jsonObject([
    ['zone', jsonString(zone)],
    ['forZones', names],
  ]);
}

const SERVICE = objectWith({
  cluster: TEXT,
  namespace: TEXT,
  name: TEXT,
  clusterID: NUMBER,
  frontends: ITERABLE,
  backends: ITERABLE,
  labels: ITERABLE,
  selector: ITERABLE,
});

/** Returns the same bytes as Cilium. */
export function encodeClusterService(service: ClusterService, version: FormatVersion = '1.17'): Uint8Array {
  checkArgument('encodeClusterService: service', service, SERVICE);
  const since117 = (json: string | undefined): string | undefined => (version === '1.8' ? undefined : json);
  return bytesOfText(
    jsonObject([
      ['cluster', jsonString(service.cluster)],
      ['namespace', jsonString(service.namespace)],
      ['name', jsonString(service.name)],
      ['frontends', jsonMap(service.frontends, writePortConfiguration)],
      ['backends', jsonMap(service.backends, writePortConfiguration)],
      ['hostnames', since117(service.hostnames && jsonStringMap(service.hostnames))],
      ['zones', since117(service.zones && jsonMap(service.zones, writeZone))],
      ['labels', jsonStringMap(service.labels)],
      ['selector', jsonStringMap(service.selector)],
      ['includeExternal', since117(String(service.includeExternal))],
      ['shared', since117(String(service.shared))],
      ['clusterID', since117(String(service.clusterID))],
    ]),
  );
}
