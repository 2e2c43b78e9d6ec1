import type { Claim } from '../../ipcache/types.ts';
import { AddressHolders, type FedIPCache } from '../../k8s/feed/address-holders.ts';
import { ciliumEndpointReader, SlicedEndpointReader } from '../../k8s/feed/endpoint-readers.ts';
import { CILIUM_ENDPOINT_SLICES, CILIUM_ENDPOINTS } from '../../k8s/feed/kinds.ts';
import { encodeIPIdentityPair } from '../../kvstore/codec/ip-identity-pair.ts';
import { RESERVED_IDENTITIES } from '../../model/numeric-identity.ts';
import { followKind, Producer, type ProducerOptions } from './producer.ts';
import type { PublishedPrefix } from './published-prefix.ts';

/** Options of {@link ipSync}. */
export interface IPSyncOptions extends ProducerOptions {
  /** The kind that holds the addresses of endpoints (OPERATOR 42). Default `ciliumendpoints`. */
  readonly endpoints?: 'ciliumendpoints' | 'ciliumendpointslices' | undefined;
}

function pairOf(key: string, { identity, hostIP, encryptKey = 0, k8s }: Claim): Uint8Array {
  return encodeIPIdentityPair({
    key,
    // The feed's identity `unmanaged` is no identity, which is 0 in the kvstore (OPERATOR 40).
    identity: identity === RESERVED_IDENTITIES.unmanaged ? 0 : identity,
    ...{ hostIP, encryptKey, k8s },
  });
}

/** Returns a sink for claims of an `IPCache` that publishes them as keys. */
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
 * Publishes the addresses of CiliumEndpoints, or of the endpoints in CiliumEndpointSlices, as `cilium/state/ip/v1/default/<ip>`
 * (OPERATOR 40 to 42), with named ports. If several endpoints have one address, one of them is published (K 23). When it is
 * deleted, the next one is published.
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
