import type { ServiceID } from '../servicecache/service-id.ts';
import {
  type EndpointClaim,
  endpointClaim,
  MAX_ADDRESSES,
  RANK_FIELDS,
  readListedIPs,
  readPortsByName,
  readRank,
  type SharedParts,
} from './endpoint-claim.ts';
import { type ObjectFields, readID, readStringMap } from './parse-object.ts';

const PHASES = ['Pending', 'Running', 'Succeeded', 'Failed', 'Unknown'] as const;

/** The content of a pod (KUBERNETES 16 to 19). */
export interface ParsedPod {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  /** Node of the pod; empty if it is not scheduled. */
  readonly nodeName: string;
  readonly serviceAccount: string;
  readonly labels: ReadonlyMap<string, string>;
  /**
   * The claim of the pod, with the rank of the pod among those that list the same address (KUBERNETES 23). Undefined if
   * the pod has no valid address or no valid host IP.
   */
  readonly claim: EndpointClaim | undefined;
}

function readIPs(status: ObjectFields): readonly string[] {
  const first = status.address('podIP');
  const ips = readListedIPs(status.list('podIPs', MAX_ADDRESSES), ['ip']);
  return first === undefined || ips.includes(first) ? ips : [first, ...ips];
}

/** Returns the claim of a pod. `encryptKey` is the key of the local node, because pods have none (KUBERNETES 18). */
function readClaim(
  fields: ObjectFields,
  id: ServiceID,
  encryptKey: number,
  shared: SharedParts,
): EndpointClaim | undefined {
  const spec = fields.map('spec');
  const status = fields.map('status');
  const ips = readIPs(status);
  const hostIP = status.address('hostIP');
  if (ips.length === 0 || hostIP === undefined) return undefined;
  const containers = spec.list('containers').items((list, index) => list.item(index)?.list('ports'));
  const ports = readPortsByName(containers, 'containerPort');
  return endpointClaim('k8s', id, readRank(fields), {
    ips,
    identity: undefined,
    hostIP: shared.host(hostIP),
    encryptKey,
    namedPorts: ports && shared.ports(ports),
  });
}

/** The fields read by {@link readPod}. */
export const POD_FIELDS: readonly string[] = [
  ...RANK_FIELDS,
  'metadata.labels',
  ...['spec.nodeName', 'spec.serviceAccountName', 'spec.hostNetwork', 'spec.containers.ports'],
  ...['status.phase', 'status.podIP', 'status.podIPs', 'status.hostIP'],
];

/**
 * Returns the content of a v1 `Pod`. Returns undefined if the pod uses the network of the host or has ended; it then
 * counts as deleted (KUBERNETES 17). Readiness and annotations are ignored.
 */
export function readPod(
  fields: ObjectFields,
  encryptKey: number,
  shared: SharedParts,
): ParsedPod | undefined {
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
    labels: readStringMap(metadata, 'labels'),
    claim: readClaim(fields, id, encryptKey, shared),
  };
}
