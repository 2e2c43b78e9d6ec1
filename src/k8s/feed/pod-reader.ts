import { sameStringMaps } from '../../nodemanager/node-spec.ts';
import { SharedParts, sameEndpointAddresses } from '../endpoint-addresses.ts';
import { type ParsedPod, POD_FIELDS, readPod } from '../parse-pod.ts';
import type { AddressSink, FedIPCache } from './address-holders.ts';
import type { EndpointLabels } from './endpoint-labels.ts';
import type { KindReader } from './object-feed.ts';

/** The engines and the local node of {@link podReader}. */
export interface PodEngine {
  readonly ipcache: FedIPCache;
  readonly holders: AddressSink;
  readonly labels?: Pick<EndpointLabels, 'podChanged'> | undefined;
  readonly nodeName: string;
  /** Encryption key of the local node (KUBERNETES 18). */
  readonly encryptKey: number;
}

function samePod(a: ParsedPod, b: ParsedPod): boolean {
  const sameClaims =
    a.addresses === undefined || b.addresses === undefined
      ? a.addresses === b.addresses
      : sameEndpointAddresses(a.addresses, b.addresses);
  return (
    sameClaims &&
    a.uid === b.uid &&
    a.nodeName === b.nodeName &&
    a.serviceAccount === b.serviceAccount &&
    sameStringMaps(a.labels, b.labels)
  );
}

/**
 * Returns a reader that writes pods to the IPCache (KUBERNETES 16 to 24). It passes the pods of this node to `labels`.
 */
export function podReader({
  ipcache,
  holders,
  labels,
  nodeName,
  encryptKey,
}: PodEngine): KindReader<ParsedPod> {
  const local = (pod: ParsedPod | undefined): ParsedPod | undefined =>
    pod?.nodeName === nodeName ? pod : undefined;
  const shared = new SharedParts();
  return {
    kind: 'Pod',
    fields: POD_FIELDS,
    read: (fields) => readPod(fields, encryptKey, shared),
    same: samePod,
    change: (current, previous) => {
      holders.change(current?.addresses, previous?.addresses);
      labels?.podChanged(local(current), local(previous));
    },
    batch: (changes) => ipcache.batch(changes),
  };
}
