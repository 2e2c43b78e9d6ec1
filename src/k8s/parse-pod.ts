import {
  type EndpointAddresses,
  endpointAddresses,
  MOST_ADDRESSES,
  RANK_FIELDS,
  readListedIPs,
  readPortsByName,
  readRank,
  type SharedParts,
} from './endpoint-addresses.ts';
import { type ObjectFields, readID, readTexts } from './parse-object.ts';

const PHASES = ['Pending', 'Running', 'Succeeded', 'Failed', 'Unknown'] as const;

/** What a pod says (K 15 to 19). */
export interface PodSays {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  /** Where it runs; `''` while it is not scheduled. */
  readonly nodeName: string;
  readonly serviceAccount: string;
  readonly labels: ReadonlyMap<string, string>;
  /** What it claims, undefined where it has no address of its own, or not all that a claim needs. */
  readonly addresses: EndpointAddresses | undefined;
}

function readIPs(status: ObjectFields): readonly string[] {
  const first = status.address('podIP');
  const ips = readListedIPs(status.list('podIPs', MOST_ADDRESSES), ['ip']);
  return first === undefined || ips.includes(first) ? ips : [first, ...ips];
}

/** `encryptKey` is that of the own node: the pod does not say (K 18). */
function readAddresses(
  fields: ObjectFields,
  encryptKey: number,
  shared: SharedParts,
): EndpointAddresses | undefined {
  const id = readID(fields);
  const spec = fields.map('spec');
  const status = fields.map('status');
  const ips = readIPs(status);
  const hostIP = status.address('hostIP');
  if (id === undefined || ips.length === 0 || hostIP === undefined) return undefined;
  const containers = spec.list('containers').items((list, index) => list.item(index)?.list('ports'));
  const namedPorts = readPortsByName(containers, 'containerPort');
  const said = { ips, identity: undefined, hostIP, encryptKey, namedPorts };
  return endpointAddresses('k8s', id, readRank(fields), said, shared);
}

/** What {@link readPod} looks at. */
export const POD_FIELDS: readonly string[] = [
  ...RANK_FIELDS,
  'metadata.labels',
  ...['spec.nodeName', 'spec.serviceAccountName', 'spec.hostNetwork', 'spec.containers.ports'],
  ...['status.phase', 'status.podIP', 'status.podIPs', 'status.hostIP'],
];

/**
 * What a v1 `Pod` says. `undefined` for one that is on the host's network or has ended: it counts as deleted (K 17).
 * Neither `deletionTimestamp` nor readiness nor annotations matter.
 */
export function readPod(fields: ObjectFields, encryptKey: number, shared: SharedParts): PodSays | undefined {
  const id = readID(fields);
  if (id === undefined) return undefined;
  const metadata = fields.map('metadata');
  const spec = fields.map('spec');
  const phase = fields.map('status').word('phase', PHASES);
  if (spec.boolean('hostNetwork') === true || phase === 'Succeeded' || phase === 'Failed') return undefined;
  return {
    namespace: id.namespace,
    name: id.name,
    uid: metadata.string('uid') ?? '',
    nodeName: spec.string('nodeName') ?? '',
    serviceAccount: spec.string('serviceAccountName') ?? '',
    labels: readTexts(metadata, 'labels'),
    addresses: readAddresses(fields, encryptKey, shared),
  };
}
