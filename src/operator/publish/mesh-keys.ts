import { equalBytes, textOfBytes } from '../../kvstore/codec/bytes.ts';
import { parseIdentityText } from '../../kvstore/codec/identity.ts';
import { scanIdentity } from '../../kvstore/codec/ip-pair-scanner.ts';
import type { CopiedResource } from '../../kvstore/codec/keys.ts';
import { decodeNode, encodeNode } from '../../kvstore/codec/node.ts';
import { VALUE_LIMITS } from '../../kvstore/codec/value.ts';
import { clusterIDOf, type MaxConnectedClusters } from '../../model/numeric-identity.ts';
import { isObject, parseJson } from '../../net/fields.ts';
import type { PublishedPrefixOptions } from './published-prefix.ts';

/** The cluster that owns published keys. */
export interface KeyOwner {
  readonly clusterName: string;
  /** 0 if the cluster is in no mesh. */
  readonly clusterID: number;
  /** Default 255. */
  readonly maxConnectedClusters?: MaxConnectedClusters | undefined;
}

/**
 * The rules of a resource: the lease of its keys, which existing keys belong to the cluster, and which values of other
 * writers are equivalent.
 */
export type KeyRules = Pick<PublishedPrefixOptions, 'leased' | 'isOwned' | 'isEquivalent'>;

/**
 * Returns the rules of nodes. Nodes have no lease, because a node outlives the operator (OPERATOR 10). If the agent of
 * a node has written an equivalent value (its source is `local`), its value is kept. A leftover key belongs to the
 * cluster only if its value also contains the name of the cluster (OPERATOR 13).
 */
function nodeRules({ clusterName: cluster }: KeyOwner): KeyRules {
  return {
    leased: false,
    isOwned: (name, value) => {
      const current = parseJson(textOfBytes(value) ?? '');
      return (
        isObject(current) && current['Cluster'] === cluster && current['Name'] === name && !name.includes('/')
      );
    },
    isEquivalent: (found, wanted) => {
      const foundJson = parseJson(textOfBytes(found) ?? '');
      const wantedJson = parseJson(textOfBytes(wanted) ?? '');
      if (!isObject(foundJson) || !isObject(wantedJson) || foundJson['Source'] !== 'local') return false;
      const expected = { cluster, name: String(wantedJson['Name']) };
      const foundNode = decodeNode(expected, found, '');
      const wantedNode = decodeNode(expected, wanted, '');
      return (
        foundNode.ok && wantedNode.ok && equalBytes(encodeNode(foundNode.value), encodeNode(wantedNode.value))
      );
    },
  };
}

/** Returns true if the cluster may have allocated the identity: in its range, or before the cluster had an id. */
function mayHaveAllocated({ clusterID, maxConnectedClusters }: KeyOwner, identity: number): boolean {
  const allocator = clusterIDOf(identity, maxConnectedClusters);
  return allocator === 0 || allocator === clusterID;
}

export function keyRules(resource: CopiedResource, owner: KeyOwner): KeyRules {
  switch (resource) {
    case 'nodes':
      return nodeRules(owner);
    case 'identities':
      return {
        isOwned: (name) => {
          const id = parseIdentityText(name);
          return id !== undefined && mayHaveAllocated(owner, id);
        },
      };
    case 'services':
    case 'endpointslices':
    case 'serviceexports':
      return { isOwned: (name) => /^[^/]+\/[^/]+$/.test(name) };
    // The key does not name the cluster, so the identity shows whether the address is that of another cluster. A value
    // without a valid identity (-1) may be that of this cluster.
    case 'ip':
      return {
        isOwned: (name, value) => {
          const identity = scanIdentity(name, value, VALUE_LIMITS);
          return identity < 0 || mayHaveAllocated(owner, identity);
        },
      };
  }
}
