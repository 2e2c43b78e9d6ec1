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

  /** Whether both claim the same address with the same attributes. */
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

/** A scan of so few claims is faster than an index of them. Nodes have a handful of addresses. */
const SCANNED = 16;

/** The claims of one node: one for each address, in the order in which the node lists them. */
export class NodeClaims implements Iterable<AddressClaim> {
  readonly #claims: AddressClaim[] = [];
  /** Position by address; only of many claims. */
  #index: Map<string, number> | undefined;

  get size(): number {
    return this.#claims.length;
  }

  /** The claim at a position. */
  at(position: number): AddressClaim | undefined {
    return this.#claims[position];
  }

  /** The claim on an address. O(1), whatever the number of claims. */
  on(ip: string): AddressClaim | undefined {
    const position = this.#positionOf(ip);
    return position < 0 ? undefined : this.#claims[position]; // JavaScript looks for -1 among an array's names: slow
  }

  /** Adds a claim, in place of an earlier one on the same address. */
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
    if (this.#claims.length > SCANNED) {
      this.#index ??= new Map(this.#claims.map((claim, position) => [claim.ip, position]));
      return this.#index.get(ip) ?? -1;
    }
    for (let i = 0; i < this.#claims.length; i++) if (this.#claims[i]?.ip === ip) return i;
    return -1;
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
 * and health before address (SEMANTICS 4). Cost: linear in the number of addresses.
 * - addresses: identity `host` or `remote-node`. Without encryption and remote-node identities only
 *   `CiliumInternalIP` addresses count. The tunnel endpoint is given for those, and for all when encryption or
 *   the host firewall is on; internal and external addresses have key 0 unless node encryption is on;
 * - health IPs: identity `health`, always with key and tunnel endpoint.
 * Ingress IPs are carried by the node but not claimed here: whoever terminates that traffic owns them.
 */
export function addressClaims(node: Node, configuration: NodeConfiguration): NodeClaims {
  const { remoteNodeIdentities, encryption, nodeEncryption, hostFirewall } = configuration;
  const claims = new NodeClaims();
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
    claims.put(new AddressClaim(node, ip, identity, endpoint, plain ? 0 : node.encryptionKey));
  }
  putInside(claims, node, node.ipv4HealthIP, RESERVED_IDENTITIES.health, tunnel);
  putInside(claims, node, node.ipv6HealthIP, RESERVED_IDENTITIES.health, tunnel);
  return claims;
}

/** Whether two versions of a node claim the same, whatever the switches: they share all that {@link addressClaims} asks. */
export function haveSameClaims({ fields: a }: Node, { fields: b }: Node): boolean {
  return (
    a.addresses === b.addresses &&
    a.source === b.source &&
    a.encryptionKey === b.encryptionKey &&
    a.ipv4HealthIP === b.ipv4HealthIP &&
    a.ipv6HealthIP === b.ipv6HealthIP
  );
}

function putInside(
  claims: NodeClaims,
  node: Node,
  ip: string | undefined,
  identity: NumericIdentity,
  tunnel: string | undefined,
): void {
  if (ip !== undefined) claims.put(new AddressClaim(node, ip, identity, tunnel, node.encryptionKey));
}
