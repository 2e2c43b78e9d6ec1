import { sameStringMaps } from '../../nodemanager/node-spec.ts';
import { SharedParts, sameEndpointClaim } from '../endpoint-claim.ts';
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
  const isSameClaim =
    a.claim === undefined || b.claim === undefined
      ? a.claim === b.claim
      : sameEndpointClaim(a.claim, b.claim);
  return (
    isSameClaim &&
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
      holders.change(current?.claim, previous?.claim);
      labels?.podChanged(local(current), local(previous));
    },
    batch: (changes) => ipcache.batch(changes),
  };
}
