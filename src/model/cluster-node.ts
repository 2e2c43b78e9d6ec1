/** The full name of a node. Two names are equal if both parts are. A cluster name contains no `/`. */
export interface NodeName {
  readonly cluster: string;
  readonly name: string;
}

/** One address of a node. */
export interface NodeAddress {
  /** `InternalIP`, `ExternalIP`, `CiliumInternalIP`, … Unknown types are kept. */
  readonly type: string;
  /** Sources may pass any spelling. Decoders and engines return canonical text. */
  readonly ip: string;
}

/** A node as its cluster publishes it (WIRE, "Node"). Decoders return canonical addresses and CIDRs. */
export interface ClusterNode extends NodeName {
  /** 0 to 511. 0: the cluster is not part of a mesh. */
  readonly clusterID: number;
  /** The order matters if several addresses qualify as tunnel endpoint. */
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
  /** Security identity of the node itself; 0 if it has none. */
  readonly nodeIdentity: number;
  readonly wireguardPubKey: string;
  readonly bootID: string;
}
