import { type NumericIdentity, RESERVED_IDENTITIES } from '../identity/numeric-identity.ts';
import type { Source } from '../identity/source.ts';
import type { Claim } from '../ipcache/types.ts';
import type { Node } from './node.ts';

/** How nodes reach each other: the switches that decide what a node claims in the IPCache (SEMANTICS 4). */
export interface NodeConfiguration {
  /** Nodes but the local one get identity `remote-node`; off: all get `host`. */
  readonly remoteNodeIdentities: boolean;
  /** Traffic between endpoints is encrypted: every address is reached through the tunnel. */
  readonly encryption: boolean;
  /** Traffic between nodes is encrypted too: internal and external addresses carry the node's key. */
  readonly nodeEncryption: boolean;
  /** The host firewall needs the sender's identity, so every address is reached through the tunnel. */
  readonly hostFirewall: boolean;
  /** Family of the network under the tunnel. */
  readonly underlay: 'ipv4' | 'ipv6';
}

/** What one address of a node claims in the IPCache. */
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
    ip: string,
    identity: NumericIdentity,
    hostIP: string | undefined,
    encryptKey: number,
  ) {
    this.ip = ip;
    this.identity = identity;
    this.source = node.source;
    this.owner = node.fullName;
    this.hostIP = hostIP;
    this.encryptKey = encryptKey;
  }

  /** Whether the two say the same of the same address. */
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

/**
 * The address under which a node's tunnel ends: its first internal address of the underlay's family, else its last
 * external one, else the first of any other type but `CiliumInternalIP`, which is inside the tunnel
 * (`GetNodeIP` of upstream 1.8, pkg/node/types/node.go).
 */
export function tunnelEndpoint(node: Node, underlay: 'ipv4' | 'ipv6'): string | undefined {
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
 * What a node claims in the IPCache, once for each address; of an address that it lists twice, the later one counts,
 * and health before address (SEMANTICS 4):
 * - addresses: identity `host` or `remote-node`. Without encryption and remote-node identities only
 *   `CiliumInternalIP` addresses count. The tunnel endpoint is given for those, and for all when encryption or
 *   the host firewall is on; internal and external addresses have key 0 unless node encryption is on;
 * - health IPs: identity `health`, always with key and tunnel endpoint.
 * Ingress IPs are carried by the node but claimed by nobody here: whoever terminates that traffic owns them.
 */
export function addressClaims(node: Node, configuration: NodeConfiguration): readonly AddressClaim[] {
  const { remoteNodeIdentities, encryption, nodeEncryption, hostFirewall } = configuration;
  const claims: AddressClaim[] = [];
  const tunnel = tunnelEndpoint(node, configuration.underlay);
  const identity =
    remoteNodeIdentities && node.source !== 'local'
      ? RESERVED_IDENTITIES['remote-node']
      : RESERVED_IDENTITIES.host;
  const allAddresses = encryption || remoteNodeIdentities;
  for (const { type, ip } of node.fields.addresses) {
    const inTunnel = type === 'CiliumInternalIP';
    if (!inTunnel && !allAddresses) continue;
    const endpoint = inTunnel || encryption || hostFirewall ? tunnel : undefined;
    const plain = !nodeEncryption && (type === 'InternalIP' || type === 'ExternalIP');
    put(claims, new AddressClaim(node, ip, identity, endpoint, plain ? 0 : node.encryptionKey));
  }
  putInside(claims, node, node.ipv4HealthIP, RESERVED_IDENTITIES.health, tunnel);
  putInside(claims, node, node.ipv6HealthIP, RESERVED_IDENTITIES.health, tunnel);
  return claims;
}

function putInside(
  claims: AddressClaim[],
  node: Node,
  ip: string | undefined,
  identity: NumericIdentity,
  tunnel: string | undefined,
): void {
  if (ip !== undefined) put(claims, new AddressClaim(node, ip, identity, tunnel, node.encryptionKey));
}

/** Adds a claim, in place of an earlier one on the same address. Nodes have a handful of addresses: a scan will do. */
function put(claims: AddressClaim[], claim: AddressClaim): void {
  for (let i = 0; i < claims.length; i++) {
    if (claims[i]?.ip !== claim.ip) continue;
    claims[i] = claim;
    return;
  }
  claims.push(claim);
}
