import { hash, type Map as ImmutableMap, type List, type ValueObject } from 'immutable';
import type { Source } from '../identity/source.ts';
import { sameNode } from './same-node.ts';

/** What an address is for, as nodes are announced (WIRE, "Node"). Other types are kept and treated like `Hostname`. */
export type NodeAddressType =
  | 'InternalIP'
  | 'ExternalIP'
  | 'CiliumInternalIP'
  | 'Hostname'
  | 'InternalDNS'
  | 'ExternalDNS';

/** One address of a node. */
export interface NodeAddress {
  /** A {@link NodeAddressType}, or a type that we don't know. */
  readonly type: string;
  /** Canonical text in a {@link Node}; any spelling in a {@link NodeSpec}. */
  readonly ip: string;
}

/** Whose node: the cluster's name and the node's. Names are compared whole; a cluster's name has no `/`. */
export interface NodeName {
  readonly cluster: string;
  readonly name: string;
}

/** Name of a node in the mesh: `cluster/name`. The owner of what the node claims in the IPCache. */
export function nodeFullName({ cluster, name }: NodeName): string {
  return `${cluster}/${name}`;
}

/**
 * A node as a source describes it: what the kvstore codec returns, and the source it came from. Only read, never
 * kept: the engine makes a {@link Node} of it. Absent fields have the zero value.
 */
export interface NodeSpec extends NodeName {
  readonly source: Source;
  /** 0 to 511; 0 for a cluster that is in no mesh. */
  readonly clusterID?: number | undefined;
  /** The order matters where several could be the tunnel endpoint. */
  readonly addresses?: readonly NodeAddress[] | undefined;
  readonly ipv4AllocCIDR?: string | undefined;
  readonly ipv6AllocCIDR?: string | undefined;
  readonly ipv4SecondaryAllocCIDRs?: readonly string[] | undefined;
  readonly ipv6SecondaryAllocCIDRs?: readonly string[] | undefined;
  readonly ipv4HealthIP?: string | undefined;
  readonly ipv6HealthIP?: string | undefined;
  readonly ipv4IngressIP?: string | undefined;
  readonly ipv6IngressIP?: string | undefined;
  /** 0 to 255; 0 means no encryption. */
  readonly encryptionKey?: number | undefined;
  readonly labels?: ReadonlyMap<string, string> | undefined;
  readonly annotations?: ReadonlyMap<string, string> | undefined;
  /** Security identity of the node itself; 0 when it has none of its own. */
  readonly nodeIdentity?: number | undefined;
  readonly wireguardPubKey?: string | undefined;
  readonly bootID?: string | undefined;
}

/** The fields of a {@link Node}, each canonical. Absent addresses and CIDRs are `undefined`. */
export interface NodeFields extends NodeName {
  readonly source: Source;
  readonly clusterID: number;
  readonly addresses: List<NodeAddress>;
  readonly ipv4AllocCIDR: string | undefined;
  readonly ipv6AllocCIDR: string | undefined;
  readonly ipv4SecondaryAllocCIDRs: List<string>;
  readonly ipv6SecondaryAllocCIDRs: List<string>;
  readonly ipv4HealthIP: string | undefined;
  readonly ipv6HealthIP: string | undefined;
  readonly ipv4IngressIP: string | undefined;
  readonly ipv6IngressIP: string | undefined;
  readonly encryptionKey: number;
  readonly labels: ImmutableMap<string, string>;
  readonly annotations: ImmutableMap<string, string>;
  readonly nodeIdentity: number;
  readonly wireguardPubKey: string;
  readonly bootID: string;
}

/**
 * A node (SEMANTICS 4): an immutable value, safe to keep. Equal when every field is, with the source and the
 * order of addresses; `is`, `Map` and `Set` of `immutable` know it by value.
 */
export class Node implements NodeFields, ValueObject {
  /** `cluster/name`. */
  readonly fullName: string;
  readonly name: string;
  readonly cluster: string;
  readonly source: Source;
  readonly clusterID: number;
  readonly addresses: List<NodeAddress>;
  readonly ipv4AllocCIDR: string | undefined;
  readonly ipv6AllocCIDR: string | undefined;
  readonly ipv4SecondaryAllocCIDRs: List<string>;
  readonly ipv6SecondaryAllocCIDRs: List<string>;
  readonly ipv4HealthIP: string | undefined;
  readonly ipv6HealthIP: string | undefined;
  readonly ipv4IngressIP: string | undefined;
  readonly ipv6IngressIP: string | undefined;
  readonly encryptionKey: number;
  readonly labels: ImmutableMap<string, string>;
  readonly annotations: ImmutableMap<string, string>;
  readonly nodeIdentity: number;
  readonly wireguardPubKey: string;
  readonly bootID: string;

  /** Trusts the fields to be canonical; use `parseNode` for what a source says. */
  constructor(fields: NodeFields) {
    this.fullName = nodeFullName(fields);
    this.name = fields.name;
    this.cluster = fields.cluster;
    this.source = fields.source;
    this.clusterID = fields.clusterID;
    this.addresses = fields.addresses;
    this.ipv4AllocCIDR = fields.ipv4AllocCIDR;
    this.ipv6AllocCIDR = fields.ipv6AllocCIDR;
    this.ipv4SecondaryAllocCIDRs = fields.ipv4SecondaryAllocCIDRs;
    this.ipv6SecondaryAllocCIDRs = fields.ipv6SecondaryAllocCIDRs;
    this.ipv4HealthIP = fields.ipv4HealthIP;
    this.ipv6HealthIP = fields.ipv6HealthIP;
    this.ipv4IngressIP = fields.ipv4IngressIP;
    this.ipv6IngressIP = fields.ipv6IngressIP;
    this.encryptionKey = fields.encryptionKey;
    this.labels = fields.labels;
    this.annotations = fields.annotations;
    this.nodeIdentity = fields.nodeIdentity;
    this.wireguardPubKey = fields.wireguardPubKey;
    this.bootID = fields.bootID;
  }

  equals(other: unknown): boolean {
    return this === other || (other instanceof Node && sameNode(this, other));
  }

  hashCode(): number {
    return hash(this.fullName);
  }
}
