import type { Claim } from '../../ipcache/types.ts';
import type { EndpointClaim } from '../../k8s/endpoint-claim.ts';
import { AddressHolders, type FedIPCache } from '../../k8s/feed/address-holders.ts';
import { ciliumEndpointReader, SlicedEndpointReader } from '../../k8s/feed/endpoint-readers.ts';
import { CILIUM_ENDPOINT_SLICES, CILIUM_ENDPOINTS } from '../../k8s/feed/kinds.ts';
import { viewOfIPIdentityPair } from '../../kvstore/codec/ip-identity-pair.ts';
import { RESERVED_IDENTITIES } from '../../model/numeric-identity.ts';
import {
  exportedValues,
  type FollowedInputs,
  followKind,
  type InputContext,
  Producer,
  type ProducerOptions,
  withNamespaces,
} from './producer.ts';
import type { PublishedPrefix } from './published-prefix.ts';

export interface IPSyncOptions extends ProducerOptions {
  /** The kind with the addresses of endpoints (OPERATOR 42). Default `ciliumendpoints`. */
  readonly endpoints?: 'ciliumendpoints' | 'ciliumendpointslices' | undefined;
}

/** Returns the value of a claim. It is valid until the next call. */
function valueOfClaim(key: string, { identity, hostIP, encryptKey = 0, k8s }: Claim): Uint8Array {
  return viewOfIPIdentityPair({
    key,
    // The feed claims an endpoint without identity as `unmanaged`. In the kvstore its identity is 0 (OPERATOR 40).
    identity: identity === RESERVED_IDENTITIES.unmanaged ? 0 : identity,
    hostIP,
    encryptKey,
    k8s,
  });
}

/** Returns a sink in place of an `IPCache`: it publishes each claim as a key. */
function claimPublisher(keys: PublishedPrefix): FedIPCache {
  return {
    upsert: (key, claim) => {
      keys.upsert(key, valueOfClaim(key, claim));
      return 'applied';
    },
    delete: (key) => {
      keys.delete(key);
      return 'applied';
    },
    batch: (write) => write(),
  };
}

function follow(context: InputContext, endpoints: IPSyncOptions['endpoints']): FollowedInputs {
  const ipcache = claimPublisher(context.keys);
  const holders = new AddressHolders(ipcache);
  // The filter precedes `holders`, so that only endpoints of exported namespaces compete for an address.
  const exported = exportedValues<EndpointClaim>(
    {
      namespaceOf: ({ k8s }) => k8s?.namespace ?? '',
      change: (current, previous) => holders.change(current, previous),
    },
    context,
  );
  const sinks = { ipcache, holders: exported };
  const inputs =
    endpoints === 'ciliumendpointslices'
      ? followKind(CILIUM_ENDPOINT_SLICES, new SlicedEndpointReader(sinks), context)
      : followKind(CILIUM_ENDPOINTS, ciliumEndpointReader(sinks), context);
  return withNamespaces(inputs, exported, context);
}

/**
 * Publishes the addresses of CiliumEndpoints, or of the endpoints in CiliumEndpointSlices, as
 * `cilium/state/ip/v1/default/<ip>` (OPERATOR 40 to 42), with named ports. If several endpoints have the same address,
 * the first in the order of KUBERNETES 23 is published; when it is deleted, the next. Endpoints of namespaces that are
 * not exported are ignored.
 */
export function ipSync(options: IPSyncOptions): Producer {
  return new Producer(
    { name: 'IP sync', resource: 'ip', follow: (context) => follow(context, options.endpoints) },
    options,
  );
}
