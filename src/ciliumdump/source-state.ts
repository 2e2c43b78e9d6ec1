import type { Labels } from '../model/labels.ts';

/** Identity and host of a prefix. */
export interface PrefixValue {
  readonly identity: number;
  /** Undefined if the prefix has no host. */
  readonly hostIP: string | undefined;
}

/** A prefix in the sources. */
export interface KnownPrefix extends PrefixValue {
  /** `endpoint`: a pod. `node`: an address of a node. `other`: a CIDR, or an entry that the agent itself creates. */
  readonly kind: 'endpoint' | 'node' | 'other';
  /** `namespace/name` of the pod, or the name of the node; empty if there is neither. */
  readonly name: string;
  /** Values of all objects with this address; undefined if there is only one. */
  readonly claims?: readonly PrefixValue[] | undefined;
}

/** A node of the sources. */
export interface KnownNode {
  readonly cluster: string;
  readonly name: string;
  readonly addresses: readonly string[];
  readonly podCIDRs: readonly string[];
}

/** A frontend of a service: the cluster IP with a port. */
export interface KnownFrontend {
  /** `10.96.0.1:443/TCP`. */
  readonly frontend: string;
  /** `namespace/name`. */
  readonly service: string;
  /** Backends for new connections, sorted: `10.0.0.1:8080`. */
  readonly active: readonly string[];
  /** True if nodes may select different backends. Only an empty selection is then a fault. */
  readonly perNode: boolean;
  /** True if only some nodes have the frontend, as an annotation of the service demands. */
  readonly restricted: boolean;
  /** True if backends of other clusters are added. */
  readonly global: boolean;
}

/** A kind of objects of the sources. `backends`: EndpointSlices or Endpoints. */
export type SourceKind = 'endpoints' | 'nodes' | 'services' | 'backends' | 'identities';

/**
 * The content of the sources, in a form that can be compared with the tables of a node. "Sources" are Kubernetes
 * objects, or another agent.
 */
export interface SourceState {
  readonly clusterName: string;
  readonly clusterID: number;
  /** True if the sources contain all clusters of the mesh. If false, entries of other clusters are not compared. */
  readonly hasAllClusters: boolean;
  /** The kinds of objects in the sources. Missing kinds are not compared. */
  readonly kinds: {
    readonly endpoints: boolean;
    readonly nodes: boolean;
    readonly services: boolean;
    readonly identities: boolean;
  };
  /** Kinds with unreadable parts. The sources may have further objects of these kinds. */
  readonly incomplete: ReadonlySet<SourceKind>;
  /** By canonical prefix with a length. */
  readonly prefixes: ReadonlyMap<string, KnownPrefix>;
  /** By `cluster/name`. */
  readonly nodes: ReadonlyMap<string, KnownNode>;
  readonly frontends: ReadonlyMap<string, KnownFrontend>;
  /** Returns the labels of an identity; undefined if the sources do not have it. */
  readonly labelsOf: (identity: number) => Labels | undefined;
}
