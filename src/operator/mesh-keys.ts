import { clusterIDOf, type MaxConnectedClusters } from '../identity/numeric-identity.ts';
import { equalBytes, textOfBytes } from '../kvstore/bytes.ts';
import { parseIdentityText } from '../kvstore/codec/identity.ts';
import type { MeshResource } from '../kvstore/codec/keys.ts';
import { decodeNode, encodeNode } from '../kvstore/codec/node.ts';
import { isObject } from '../net/fields.ts';
import type { PublishedPrefixOptions } from './published-prefix.ts';

/** Whose keys. */
export interface KeyOwner {
  readonly clusterName: string;
  /** 0 in no mesh. */
  readonly clusterID: number;
  readonly maxConnectedClusters?: MaxConnectedClusters | undefined;
}

/** How the keys of a resource are bound, which of those that are there are a cluster's own, and what is as good as them. */
export type KeyRules = Pick<PublishedPrefixOptions, 'leased' | 'isOwn' | 'isAsGood'>;

function parseJson(value: Uint8Array): unknown {
  try {
    return JSON.parse(textOfBytes(value) ?? '');
  } catch {
    return undefined;
  }
}

/**
 * Nodes have no lease: a node lives on when the operator does not (OPERATOR 10). Its own agent may have registered it, and
 * what that says alike is left alone. A leftover is own if its value says so, too (OPERATOR 13).
 */
function nodeRules({ clusterName: cluster }: KeyOwner): KeyRules {
  return {
    leased: false,
    isOwn: (name, value) => {
      const said = parseJson(value);
      return isObject(said) && said['Cluster'] === cluster && said['Name'] === name && !name.includes('/');
    },
    isAsGood: (found, wanted) => {
      const [said, meant] = [parseJson(found), parseJson(wanted)];
      if (!isObject(said) || !isObject(meant) || said['Source'] !== 'local') return false;
      const expected = { cluster, name: String(meant['Name']) };
      const [here, there] = [decodeNode(expected, wanted, ''), decodeNode(expected, found, '')];
      return here.ok && there.ok && equalBytes(encodeNode(here.value), encodeNode(there.value));
    },
  };
}

/** Numbers of the own cluster, and those from before it had an id. */
function identityRules({ clusterID, maxConnectedClusters }: KeyOwner): KeyRules {
  return {
    isOwn: (name) => {
      const id = parseIdentityText(name);
      const owner = id === undefined ? undefined : clusterIDOf(id, maxConnectedClusters);
      return owner === 0 || owner === clusterID;
    },
  };
}

/** The rules of a resource. */
export function keyRules(resource: MeshResource, owner: KeyOwner): KeyRules {
  switch (resource) {
    case 'nodes':
      return nodeRules(owner);
    case 'identities':
      return identityRules(owner);
    case 'services':
      return { isOwn: (name) => /^[^/]+\/[^/]+$/.test(name) };
    case 'ip':
      return { isOwn: () => true };
  }
}
