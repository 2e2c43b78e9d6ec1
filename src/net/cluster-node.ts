/** Whose node: the cluster's name and the node's. Names are compared whole; a cluster's name has no `/`. */
export interface NodeName {
  readonly cluster: string;
  readonly name: string;
}

/** One address of a node. */
export interface NodeAddress {
  /** `InternalIP`, `ExternalIP`, `CiliumInternalIP`, … as its writer says; unknown types are kept. */
  readonly type: string;
  /** Any spelling in what a source says; canonical text in what decoders and engines give. */
  readonly ip: string;
}

/** A node as its cluster announces it (WIRE, "Node"). Decoders give canonical addresses and CIDRs. */
export interface ClusterNode extends NodeName {
  /** 0 to 511; 0 for a cluster that is in no mesh. */
  readonly clusterID: number;
  /** The order matters where several could be the tunnel endpoint. */
  readonly addresses: readonly NodeAddress[];
  readonly ipv4AllocCIDR?: string | undefined;
  readonly ipv6AllocCIDR?: string | undefined;
  readonly ipv4SecondaryAllocCIDRs: readonly string[];
  readonly ipv6SecondaryAllocCIDRs: readonly string[];
  readonly ipv4HealthIP?: string | undefined;
  readonly ipv6HealthIP?: string | undefined;
  readonly ipv4IngressIP?: string | undefined;
  readonly ipv6IngressIP?: string | undefined;
  /** 0 to 255; 0 means no encryption. */
  readonly encryptionKey: number;
  readonly labels: ReadonlyMap<string, string>;
  readonly annotations: ReadonlyMap<string, string>;
  /** Security identity of the node itself; 0 when it has none of its own. */
  readonly nodeIdentity: number;
  readonly wireguardPubKey: string;
  readonly bootID: string;
}
