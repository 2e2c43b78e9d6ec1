import type { RateLimitOptions } from '../base/rate-limit.ts';
import type { ServiceFormat } from '../clustermesh/service-format.ts';
import type { HostDatapathOptions } from '../datapath/linux/host-options.ts';
import type { MaxConnectedClusters } from '../model/numeric-identity.ts';
import type { NodeConfiguration } from '../nodemanager/address-claims.ts';
import type { Manifest } from '../recording/manifests.ts';
import type { RecordedKey } from '../recording/recorded-keys.ts';
import type { TapedKubernetes } from '../tape/tape-settings.ts';

/** The kvstore of an agent. `memory`: one in this process with recorded keys; `etcd`: a real one. */
export const KVSTORE_KINDS = ['memory', 'etcd'] as const;

export type KvstoreKind = (typeof KVSTORE_KINDS)[number];

/** Options for following Kubernetes. A tape records the inherited ones, because the state depends on them. */
export interface KubernetesOptions extends TapedKubernetes {
  /** If true, the API server is followed only if the process runs in a pod with a service account. */
  readonly ifInCluster: boolean;
  /** Path of a kubeconfig; `undefined`: use the pod's service account. */
  readonly kubeconfig?: string | undefined;
  /** Context of the kubeconfig; default: its current one. */
  readonly context?: string | undefined;
  /**
   * Files or folders with recorded objects. If not empty, an API server in this process serves them instead of a real
   * one.
   */
  readonly load: readonly string[];
  /**
   * Returns recorded objects from another source than files. If set, the API server in this process serves them in
   * addition to those of `load`.
   */
  readonly objects?: (() => AsyncIterable<Manifest>) | undefined;
  /** If true, the addresses of this machine get identity `host`, and all unknown addresses `world` (KUBERNETES 51). */
  readonly hostIPs: boolean;
  /** If true, the world has separate identities for IPv4 and IPv6 (KUBERNETES 50, 51). */
  readonly dualStack: boolean;
}

export interface AgentOptions {
  readonly kvstore: KvstoreKind;
  /**
   * Name of the local cluster. Recorded keys of the store with this name are put into the local kvstore; those of other
   * stores belong to remote clusters.
   */
  readonly clusterName: string;
  /** Id of the local cluster; `undefined`: the id in its kvstore, or 0. */
  readonly clusterID: number | undefined;
  readonly maxConnectedClusters: MaxConnectedClusters;
  /** Name of the node on which the agent runs. */
  readonly nodeName: string;
  /** The settings of SEMANTICS 4. */
  readonly network: NodeConfiguration;
  /** Path of the etcd configuration of the local kvstore, for kvstore `etcd`. */
  readonly kvstoreConfig?: string | undefined;
  /** Rates of requests to each etcd. `bootstrapQps` applies to the local one until the end of the initial sync. */
  readonly rateLimit?: RateLimitOptions | undefined;
  /** Folder with an etcd configuration for each remote cluster. */
  readonly clustermeshConfig?: string | undefined;
  /** See `ClusterMeshOptions`. */
  readonly serviceTTLMs?: number | undefined;
  /** The format of the services of remote clusters; default `auto`. */
  readonly serviceV2?: ServiceFormat | undefined;
  /**
   * If true, the local cluster's state is kept while the kvstore has lost the cluster's configuration. Default true.
   * See `LocalClusterOptions`.
   */
  readonly failStatic?: boolean | undefined;
  /** Maximum duration of the initial sync; default: unlimited while it makes progress. */
  readonly timeoutMs?: number | undefined;
  /** Folder of checkpoints, which are restored after a restart. Default: none. */
  readonly stateDir?: string | undefined;
  /** The state directory of a Cilium agent. Imported if `stateDir` has no usable checkpoint; requires `stateDir`. */
  readonly importCiliumState?: string | undefined;
  /** Memory of the history of changes in bytes; 0: no history. Default: 0. */
  readonly historyMemory?: number | undefined;
  /** Maximum size of the stored history in `stateDir` in bytes; 0: none. Default: 0. */
  readonly historyDisk?: number | undefined;
  /** Folder and maximum size in bytes of a tape of the input; default: none. */
  readonly tape?: { readonly path: string; readonly maxBytes: number } | undefined;
  /** Options of the datapath of this machine's kernel; default: none. */
  readonly datapath?: HostDatapathOptions | undefined;
  /** Options for following a Kubernetes API server; default: none. */
  readonly kubernetes?: KubernetesOptions | undefined;
  /** Files with recorded meshes, read in order; for kvstore `memory` only. */
  readonly load: readonly string[];
  /** Returns keys for the kvstores in memory, in addition to those of `load`. */
  readonly keys?: (() => AsyncIterable<RecordedKey>) | undefined;
  /** Files or folders with Kubernetes manifests, read in order. */
  readonly manifests: readonly string[];
}
