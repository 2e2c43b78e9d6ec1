import { RESERVED_IDENTITIES } from '../identity/numeric-identity.ts';
import type { Claim } from '../ipcache/types.ts';
import { AddressHolders, type FedIPCache } from '../k8s/feed/address-holders.ts';
import { ciliumEndpointReader, SlicedEndpointReader } from '../k8s/feed/endpoint-readers.ts';
import { CILIUM_ENDPOINT_SLICES, CILIUM_ENDPOINTS } from '../k8s/feed/kinds.ts';
import { encodeIPIdentityPair } from '../kvstore/codec/ip-identity-pair.ts';
import { followKind, Producer, type ProducerOptions } from './producer.ts';
import type { PublishedPrefix } from './published-prefix.ts';

/** Options of {@link ipSync}. */
export interface IPSyncOptions extends ProducerOptions {
  /** What says where endpoints are (OPERATOR 42). Default `ciliumendpoints`. */
  readonly endpoints?: 'ciliumendpoints' | 'ciliumendpointslices' | undefined;
}

function pairOf(key: string, { identity, hostIP, encryptKey = 0, k8s }: Claim): Uint8Array {
  return encodeIPIdentityPair({
    key,
    // What the feed calls unmanaged has no identity, which is 0 in the kvstore (OPERATOR 40).
    identity: identity === RESERVED_IDENTITIES.unmanaged ? 0 : identity,
    ...{ hostIP, encryptKey, k8s },
  });
}

/** Takes claims for an `IPCache`, and says them as keys. */
function claimKeys(keys: PublishedPrefix): FedIPCache {
  return {
    upsert: (key, claim) => {
      keys.upsert(key, pairOf(key, claim));
      return 'applied';
    },
    delete: (key) => {
      keys.delete(key);
      return 'applied';
    },
    batch: (write) => write(),
  };
}

/**
 * The addresses of CiliumEndpoints, or of the endpoints in CiliumEndpointSlices, as `cilium/state/ip/v1/default/<ip>` (OPERATOR
 * 40 to 42), with named ports. One address has one of its endpoints (K 23): when that goes, the next is written.
 */
export function ipSync(options: IPSyncOptions): Producer {
  const { endpoints = 'ciliumendpoints' } = options;
  return new Producer(
    {
      name: 'IP sync',
      resource: 'ip',
      follow: (context) => {
        const ipcache = claimKeys(context.keys);
        const engine = { ipcache, holders: new AddressHolders(ipcache) };
        return endpoints === 'ciliumendpoints'
          ? followKind(CILIUM_ENDPOINTS, ciliumEndpointReader(engine), context)
          : followKind(CILIUM_ENDPOINT_SLICES, new SlicedEndpointReader(engine), context);
      },
    },
    options,
  );
}
