import { checkArgument, shaped } from '../base/arguments.ts';
import type { Claim } from '../ipcache/types.ts';
import { type NumericIdentity, RESERVED_IDENTITIES } from '../model/numeric-identity.ts';
import type { Source } from '../model/source.ts';
import type { Node } from './node.ts';

/** The settings that determine the claims of a node in the IPCache (SEMANTICS 4). */
export interface NodeConfiguration {
  /** If true, all nodes except the local one have identity `remote-node`. If false, all have `host`. */
  readonly remoteNodeIdentities: boolean;
  /** True if traffic between endpoints is encrypted. Every address is then reached through the tunnel. */
  readonly encryption: boolean;
  /** True if traffic between nodes is encrypted, too. Internal and external addresses then have the node's key. */
  readonly nodeEncryption: boolean;
  /**
   * True if the host firewall is on. It needs the sender's identity, so every address is then reached through the
   * tunnel.
   */
  readonly hostFirewall: boolean;
  /** Family of the network under the tunnel. */
  readonly underlay: 'ipv4' | 'ipv6';
}

/** The claim of a node on one of its addresses in the IPCache. */
export class AddressClaim implements Claim {
  readonly ip: string;
  readonly identity: NumericIdentity;
  readonly source: Source;
  /** The node's full name. */
  readonly owner: string;
  readonly hostIP: string | undefined;
  readonly encryptKey: number;

  constructor(
    node: Node,
    source: Source,
    ip: string,
    identity: NumericIdentity,
    hostIP: string | undefined,
    encryptKey: number,
  ) {
    this.ip = ip;
    this.identity = identity;
    this.source = source;
    this.owner = node.fullName;
    this.hostIP = hostIP;
    this.encryptKey = encryptKey;
  }

  /** Returns true if both claim the same address with the same attributes. */
  equals(other: AddressClaim): boolean {
    return (
      this.ip === other.ip &&
      this.identity === other.identity &&
      this.source === other.source &&
      this.hostIP === other.hostIP &&
      this.encryptKey === other.encryptKey
    );
  }
}

/** Maximum number of claims without an index. Up to it, a scan is faster. Most nodes have a few addresses. */
const MAX_SCANNED = 16;

/** The claims of one node, one for each address, in the order of the node's list. All have one source. */
export class NodeClaims implements Iterable<AddressClaim> {
  readonly #claims: AddressClaim[] = [];
  /** Position by address; undefined for few claims. */
  #index: Map<string, number> | undefined;

  get size(): number {
    return this.#claims.length;
  }

  at(position: number): AddressClaim | undefined {
    return this.#claims[position];
  }

  /** Returns the claim on an address. O(1). */
  find(ip: string): AddressClaim | undefined {
    const position = this.#positionOf(ip);
    return position < 0 ? undefined : this.#claims[position]; // an index of -1 would be a slow property lookup
  }

  /** Adds a claim. It replaces an earlier one on the same address. */
  put(claim: AddressClaim): void {
    const position = this.#positionOf(claim.ip);
    if (position >= 0) this.#claims[position] = claim;
    else {
      this.#index?.set(claim.ip, this.#claims.length);
      this.#claims.push(claim);
    }
  }

  [Symbol.iterator](): IterableIterator<AddressClaim> {
    return this.#claims.values();
  }

  #positionOf(ip: string): number {
    if (this.#claims.length > MAX_SCANNED) {
      this.#index ??= new Map(this.#claims.map((claim, position) => [claim.ip, position]));
      return this.#index.get(ip) ?? -1;
    }
    for (let i = 0; i < this.#claims.length; i++) if (this.#claims[i]?.ip === ip) return i;
    return -1;
  }
}

const HAS_ADDRESSES = shaped<Node>('must be a node', ({ fields }) => Array.isArray(fields?.addresses));

/**
 * Returns the tunnel endpoint of a node: its first internal address of the underlay's family, else its last external
 * one, else the first of any other type except `CiliumInternalIP`, which is inside the tunnel (`GetNodeIP` of Cilium
 * 1.8, pkg/node/types/node.go).
 */
export function tunnelEndpoint(node: Node, underlay: 'ipv4' | 'ipv6'): string | undefined {
  checkArgument('tunnelEndpoint: node', node, HAS_ADDRESSES);
  let external: string | undefined;
  let other: string | undefined;
  for (const { type, ip } of node.fields.addresses) {
    if (type === 'CiliumInternalIP' || ip.includes(':') !== (underlay === 'ipv6')) continue;
    if (type === 'InternalIP') return ip;
    if (type === 'ExternalIP') external = ip;
    else other ??= ip;
  }
  return external ?? other;
}

/**
 * Returns the source of a node's claims in the IPCache: that of the node, but `local` for the local node, so that no
 * other node can have its addresses.
 */
export function claimSource(node: Node, isLocal: boolean): Source {
  return isLocal ? 'local' : node.source;
}

/**
 * Returns the claims of a node in the IPCache, one for each address (SEMANTICS 4). If an address is listed twice, the
 * later entry is used. If an address is also a health IP, that claim is used; if it is an ingress IP, that of the
 * ingress IP. Linear in the addresses.
 * - Addresses have identity `host` or `remote-node`. If both encryption and remote-node identities are off, only
 *   `CiliumInternalIP` addresses are claimed. `CiliumInternalIP` addresses, and all others if encryption or the host
 *   firewall is on, have the tunnel endpoint as host. Internal and external addresses have key 0 unless node encryption
 *   is on.
 * - Health IPs (AGENT 18) have identity `health`, ingress IPs `ingress`, both with the key and the tunnel endpoint.
 */
export function addressClaims(
  node: Node,
  configuration: NodeConfiguration,
  isLocal: boolean = node.source === 'local',
): NodeClaims {
  const { remoteNodeIdentities, encryption, nodeEncryption, hostFirewall } = configuration;
  const claims = new NodeClaims();
  const source = claimSource(node, isLocal);
  const tunnel = tunnelEndpoint(node, configuration.underlay);
  const nodeIdentity =
    remoteNodeIdentities && !isLocal ? RESERVED_IDENTITIES['remote-node'] : RESERVED_IDENTITIES.host;
  const claimsAll = encryption || remoteNodeIdentities;
  for (const { type, ip } of node.fields.addresses) {
    const isInTunnel = type === 'CiliumInternalIP';
    if (!isInTunnel && !claimsAll) continue;
    const host = isInTunnel || encryption || hostFirewall ? tunnel : undefined;
    const isUnencrypted = !nodeEncryption && (type === 'InternalIP' || type === 'ExternalIP');
    const key = isUnencrypted ? 0 : node.encryptionKey;
    claims.put(new AddressClaim(node, source, ip, nodeIdentity, host, key));
  }
  const { health, ingress } = RESERVED_IDENTITIES;
  const put = (ip: string | undefined, identity: NumericIdentity): void => {
    if (ip === undefined) return;
    claims.put(new AddressClaim(node, source, ip, identity, tunnel, node.encryptionKey));
  };
  put(node.ipv4HealthIP, health);
  put(node.ipv6HealthIP, health);
  put(node.ipv4IngressIP, ingress);
  put(node.ipv6IngressIP, ingress);
  return claims;
}

/** Returns true if two versions of a node have the same claims under any settings. */
export function haveSameClaims({ fields: a }: Node, { fields: b }: Node): boolean {
  return (
    a.addresses === b.addresses &&
    a.source === b.source &&
    a.encryptionKey === b.encryptionKey &&
    a.ipv4HealthIP === b.ipv4HealthIP &&
    a.ipv6HealthIP === b.ipv6HealthIP &&
    a.ipv4IngressIP === b.ipv4IngressIP &&
    a.ipv6IngressIP === b.ipv6IngressIP
  );
}
