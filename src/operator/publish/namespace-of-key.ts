import { decodeIdentity } from '../../kvstore/codec/identity.ts';
import { decodeIPIdentityPair } from '../../kvstore/codec/ip-identity-pair.ts';
import { parseKvstoreKey } from '../../kvstore/codec/keys.ts';
import { namespaceOfLabels } from '../../model/namespace-label.ts';

/** Returns the namespace of the object of a published key; undefined if it has none, or the value is invalid. */
export function namespaceOfKey(key: string, value: Uint8Array): string | undefined {
  const parsed = parseKvstoreKey(key);
  switch (parsed?.kind) {
    case 'service':
    case 'endpointslice':
    case 'serviceexport':
      return parsed.namespace;
    case 'identity': {
      const identity = decodeIdentity(parsed.id, value, key);
      return identity.ok ? namespaceOfLabels(identity.value.labels) : undefined;
    }
    case 'ip': {
      const pair = decodeIPIdentityPair(parsed.prefix, value, key);
      return pair.ok ? pair.value.k8s?.namespace : undefined;
    }
    default:
      return undefined;
  }
}
