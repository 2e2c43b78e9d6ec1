import type { RateLimitOptions } from '../base/rate-limit.ts';

import type { HostDatapathOptions } from '../datapath/linux/host-options.ts';

import type { MaxConnectedClusters } from '../identity/numeric-identity.ts';
import type { NodeConfiguration } from '../nodemanager/address-claims.ts';

/** Which kvstore the agent follows. `memory`: one in this process, filled with recorded keys; `etcd`: a real one. */
export const KVSTORE_KINDS = ['memory', 'etcd'] as const;

/** One of {@link KVSTORE_KINDS}. */
export type KvstoreKind = (typeof KVSTORE_KINDS)[number];

/** What an agent may follow of a Kubernetes API server. */
export const KUBERNETES_PARTS = ['services', 'endpoints', 'nodes', 'identities', 'policies'] as const;

/** One of {@link KUBERNETES_PARTS}. */
export type KubernetesPart = (typeof KUBERNETES_PARTS)[number];

/** What says where the endpoints of other nodes are. */
export const KUBERNETES_ENDPOINTS = ['ciliumendpoints', 'ciliumendpointslices', 'pods'] as const;

/** How an agent follows a Kubernetes API server. */
export interface KubernetesOptions {
  /** Follow it only in a pod that has a service account. */
  readonly ifInCluster: boolean;
  /** How it is reached; `undefined`: as the pod's service account. */
  readonly kubeconfig?: string | undefined;
  /** Of the kubeconfig; default its current one. */
  readonly context?: string | undefined;
  /** Recorded objects, files or folders: an API server in this process serves them in place of a real one. */
  readonly load: readonly string[];
  readonly watch: readonly KubernetesPart[];
  readonly endpoints: (typeof KUBERNETES_ENDPOINTS)[number];
  /** Whether CiliumIdentities count beside a kvstore (`crd`) or only without one. */
  readonly identities: 'kvstore' | 'crd';
  readonly serviceProxyName?: string | undefined;
  readonly headlessServices: boolean;
  /** The addresses of this machine are host, and what is not known is the world (K 51). */
  readonly ownAddresses: boolean;
  /** The world of IPv4 and that of IPv6 are two identities (K 50, 51). */
  readonly dualStack: boolean;
  /** What annotations of the own Node say of it counts (K 40). */
  readonly nodeAnnotations: boolean;
  /** Encryption key of the own node, for its pods (K 18); 0: none. */
  readonly encryptKey: number;
}

/** How an agent is configured. */
export interface AgentOptions {
  readonly kvstore: KvstoreKind;
  /** Name of the own cluster. The keys of its store are the own kvstore's; all others are remote clusters'. */
  readonly clusterName: string;
  /** Id of the own cluster; `undefined`: what its kvstore says, or 0. */
  readonly clusterID: number | undefined;
  readonly maxConnectedClusters: MaxConnectedClusters;
  /** Name of the node that the agent runs on. */
  readonly nodeName: string;
  /** The switches of SEMANTICS 4. */
  readonly network: NodeConfiguration;
  /** The etcd configuration of the own cluster's kvstore, when that is `etcd`. */
  readonly kvstoreConfig?: string | undefined;
  /** How much the agent asks of each etcd. `bootstrapQps` holds for the own one, until the first sync is over. */
  readonly rateLimit?: RateLimitOptions | undefined;
  /** Folder with an etcd configuration for each remote cluster. */
  readonly clustermeshConfig?: string | undefined;
  /** After so long out of reach a remote cluster loses its services; default: never. */
  readonly serviceTTLMs?: number | undefined;
  /** Keep what the own kvstore has said while it has lost its configuration; default true. See `OwnClusterOptions`. */
  readonly failStatic?: boolean | undefined;
  /** The first sync is waited for no longer than this; default: as long as it goes on. */
  readonly timeoutMs?: number | undefined;
  /** Folder of checkpoints: what the agent knew before it was restarted. Default: none. */
  readonly stateDir?: string | undefined;
  /** The state directory of a Cilium agent: taken where `stateDir` has no checkpoint to start from, and only with it. */
  readonly importCiliumState?: string | undefined;
  /** Steer the kernel of this machine; default: not. */
  readonly datapath?: HostDatapathOptions | undefined;
  /** Follow a Kubernetes API server; default: none. */
  readonly kubernetes?: KubernetesOptions | undefined;
  /** Recorded meshes, read in order; for kvstore `memory` only. */
  readonly load: readonly string[];
  /** Kubernetes manifests, files or folders, read in order. */
  readonly manifests: readonly string[];
}
