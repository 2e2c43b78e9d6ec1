import { type Check, checkArgument, ITERABLE, LIST, NUMBER, objectWith, TEXT } from '../../base/arguments.ts';
import { parseTime } from '../../base/system-clock.ts';
import { SLICE_LIMITS } from '../../model/cluster-endpoint-slice.ts';
import type { ClusterServiceKey } from '../../model/cluster-service.ts';
import { isLabelKey, isLabelValue } from '../../model/label-selector.ts';
import {
  EXPORT_TYPES,
  type ExportedPort,
  IP_FAMILIES,
  SESSION_AFFINITIES,
  type ServiceExport,
  TRAFFIC_DISTRIBUTIONS,
  TRAFFIC_POLICIES,
} from '../../model/service-export.ts';
import type { Decoded, Fields, RejectField } from '../../net/fields.ts';
import { PORT_PROTOCOLS, PROTOCOL_NUMBERS, protocolName } from '../../net/port.ts';
import { bytesOfText } from './bytes.ts';
import { jsonArray, jsonObject, jsonString, jsonStringMap } from './go-json.ts';
import { timestampText } from './timestamp.ts';
import { decodeJson, type EncodedValue, readKeyPart, VALUE_LIMITS, type ValueLimits } from './value.ts';

/** The maximum of Kubernetes: one day. */
const MAX_AFFINITY_SECONDS = 86_400;
/** A ServiceExport has the name of its Service, a DNS label. */
const DNS_LABEL = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;
/** Maximum size of all annotations: 256 KiB in Kubernetes, minus 1 KiB for those of the import. */
const MAX_ANNOTATION_BYTES = 255 << 10;

/** Returns the name or namespace, which must equal the name in the key. */
function readName(fields: Fields<never>, field: 'namespace' | 'name', expected: string): string {
  const value = readKeyPart(fields, field, expected);
  return DNS_LABEL.test(value) ? value : fields.reject(field, 'invalid-name', 'must be a DNS label', value);
}

function readCreation(fields: Fields<never>): number {
  const field = 'exportCreationTimestamp';
  const text = fields.text(field);
  return parseTime(text) ?? fields.reject(field, 'invalid-time', 'is not an RFC 3339 time', text);
}

/** Returns the type, which is required. */
function readType(fields: Fields<never>): ServiceExport['type'] {
  fields.text('type'); // rejects a missing or empty one
  return fields.word('type', EXPORT_TYPES) ?? fields.reject('type', 'missing-field', 'is missing');
}

/** Returns a port. Drops a port with an invalid field, because a Service with such a port would be invalid. */
function readPort(fields: Fields<never>, drop: RejectField<undefined>): ExportedPort | undefined {
  const port = fields.value('port');
  if (typeof port !== 'number' || !Number.isInteger(port) || port < 1 || port > 0xffff)
    return drop('out-of-range', fields.pathOf('port'), port, 'must be an integer from 1 to 65535');
  const word = fields.string('protocol') || 'TCP';
  const protocol = PORT_PROTOCOLS.find((known) => known === word);
  if (protocol === undefined)
    return drop('unknown-protocol', fields.pathOf('protocol'), word, 'must be TCP, UDP or SCTP');
  const name = fields.string('name') ?? '';
  if (name !== '' && !DNS_LABEL.test(name))
    return drop('invalid-name', fields.pathOf('name'), name, 'must be a DNS label');
  const appProtocol = fields.string('appProtocol') || undefined;
  if (appProtocol !== undefined && !isLabelKey(appProtocol))
    return drop('invalid-name', fields.pathOf('appProtocol'), appProtocol, 'must be a qualified name');
  return { name, port, protocol: PROTOCOL_NUMBERS[protocol], appProtocol };
}

/**
 * Returns labels or annotations. Drops those that no object can have: with them, the API server of every cluster would
 * reject the import.
 */
function validTexts(
  field: 'labels' | 'annotations',
  texts: ReadonlyMap<string, string>,
  drop: RejectField<undefined>,
): ReadonlyMap<string, string> {
  const valid = new Map<string, string>();
  let bytes = 0;
  for (const [name, text] of texts) {
    const at = `${field}.${name}`;
    const total = bytes + Buffer.byteLength(name) + Buffer.byteLength(text);
    // Kubernetes ignores the case of the names of annotations.
    const key = field === 'annotations' ? name.toLowerCase() : name;
    if (!isLabelKey(key)) drop('invalid-name', at, name, 'must be a qualified name');
    else if (field === 'labels' && text !== '' && !isLabelValue(text))
      drop('invalid-value', at, text, 'must be a label value');
    else if (field === 'annotations' && total > MAX_ANNOTATION_BYTES)
      drop('too-large', at, `${total} bytes`, `all annotations may have ${MAX_ANNOTATION_BYTES} bytes`);
    else {
      valid.set(name, text);
      bytes = total;
    }
  }
  return valid;
}

/** Returns the families without duplicates. */
function readFamilies(fields: Fields<never>): ServiceExport['ipFamilies'] {
  const families = fields.list('ipFamilies', 2);
  return [...new Set(families.items((list, index) => list.word(index, IP_FAMILIES)))];
}

/**
 * Decodes the value of `…/serviceexports/v1/<cluster>/<namespace>/<name>`. Reasons of rejection: `too-large`,
 * `too-many`, `missing-field`, `key-mismatch`, `invalid-name`, `invalid-time`, `unknown-value`, `invalid-json`,
 * `wrong-type`, `out-of-range`. Drops ports, labels and annotations that no object of Kubernetes can have:
 * `out-of-range`, `unknown-protocol`, `invalid-name`, `invalid-value`, `too-large`.
 */
export function decodeServiceExport(
  expected: ClusterServiceKey,
  value: EncodedValue,
  at: string,
  limits: ValueLimits = VALUE_LIMITS,
): Decoded<ServiceExport> {
  return decodeJson(value, at, limits, (fields, drop) => {
    // Some versions of Cilium write the Go names of these fields, which begin with an upper-case letter.
    const texts = (field: string, goName: string): ReadonlyMap<string, string> => {
      const found = fields.strings(field, limits.labels);
      return found.size > 0 ? found : fields.strings(goName, limits.labels);
    };
    const clientIP = fields.map('sessionAffinityConfig').map('clientIP');
    return {
      cluster: readKeyPart(fields, 'cluster', expected.cluster),
      namespace: readName(fields, 'namespace', expected.namespace),
      name: readName(fields, 'name', expected.name),
      annotations: validTexts('annotations', texts('annotations', 'Annotations'), drop),
      labels: validTexts('labels', texts('labels', 'Labels'), drop),
      createdAt: readCreation(fields),
      ports: fields
        .list('ports', SLICE_LIMITS.ports)
        .items((list, index) => readPort(list.item(index), drop)),
      type: readType(fields),
      sessionAffinity: fields.word('sessionAffinity', SESSION_AFFINITIES),
      sessionAffinitySeconds: clientIP.integer('timeoutSeconds', 1, MAX_AFFINITY_SECONDS),
      ipFamilies: readFamilies(fields),
      internalTrafficPolicy: fields.word('internalTrafficPolicy', TRAFFIC_POLICIES),
      trafficDistribution: fields.word('trafficDistribution', TRAFFIC_DISTRIBUTIONS),
    };
  });
}

function writePort({ name, protocol, appProtocol, port }: ExportedPort): string {
  return jsonObject([
    ['name', name === '' ? undefined : jsonString(name)],
    ['protocol', jsonString(protocolName(protocol))],
    ['appProtocol', appProtocol && jsonString(appProtocol)],
    ['port', String(port)],
  ]);
}

/**
 * Returns the same bytes as Cilium, with two exceptions. Labels and annotations are written once: newer versions of
 * Cilium repeat them under their Go names for older ones, which ignore the case of names. If the service has no session
 * affinity, writes the default of Kubernetes: Cilium writes an empty text, which its readers reject.
 */
export function encodeServiceExport(service: ServiceExport): Uint8Array {
  checkArgument('encodeServiceExport: service', service, SERVICE_EXPORT);
  const texts = (map: ReadonlyMap<string, string>): string | undefined =>
    map.size === 0 ? undefined : jsonStringMap(map);
  const word = (text: string | undefined): string | undefined => text && jsonString(text);
  const { sessionAffinitySeconds: seconds, ipFamilies } = service;
  return bytesOfText(
    jsonObject([
      ['cluster', jsonString(service.cluster)],
      ['name', jsonString(service.name)],
      ['namespace', jsonString(service.namespace)],
      ['annotations', texts(service.annotations)],
      ['labels', texts(service.labels)],
      ['exportCreationTimestamp', jsonString(timestampText(service.createdAt))],
      ['ports', jsonArray(service.ports, writePort)],
      ['type', jsonString(service.type)],
      ['sessionAffinity', jsonString(service.sessionAffinity ?? 'None')],
      [
        'sessionAffinityConfig',
        seconds === undefined
          ? undefined
          : jsonObject([['clientIP', jsonObject([['timeoutSeconds', String(seconds)]])]]),
      ],
      ['ipFamilies', ipFamilies.length === 0 ? undefined : jsonArray(ipFamilies, jsonString)],
      ['internalTrafficPolicy', word(service.internalTrafficPolicy)],
      ['trafficDistribution', word(service.trafficDistribution)],
    ]),
  );
}

/** Accepts a service export, with or without its cluster. */
export const SERVICE_EXPORT: Check = objectWith({
  namespace: TEXT,
  name: TEXT,
  annotations: ITERABLE,
  labels: ITERABLE,
  createdAt: NUMBER,
  ports: LIST,
  type: TEXT,
  ipFamilies: LIST,
});
