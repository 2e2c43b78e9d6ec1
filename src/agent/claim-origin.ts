import type { OriginDocument } from '../api/documents.ts';
import { type ClusterCondition, clusterStateText } from '../client/cluster-text.ts';
import type { KeyVersion } from '../clustermesh/resource-stores.ts';
import type { ExplainedClaim } from '../ipcache/types.ts';
import { ownerCluster, type Source } from '../model/source.ts';

export interface OriginLookups {
  readonly clusterName: string;
  /** Returns true if the kvstore of a cluster is in the memory of this process. */
  readonly isInProcess: (cluster: string) => boolean;
  /**
   * Returns the kvstore key of an object of a cluster and its revision; `undefined` if the cluster has no such object.
   */
  readonly versionOf: (cluster: string, resource: 'ip' | 'nodes', name: string) => KeyVersion | undefined;
  /** Returns the condition of a cluster; `undefined` if it is not followed. */
  readonly conditionOf: (cluster: string) => ClusterCondition | undefined;
  /** Returns the source of a node (`cluster/name`); `undefined` if there is no such node. */
  readonly sourceOfNode: (fullName: string) => Source | undefined;
}

/** Returns the origin of a claim, with its current key and revision in the store. Costs two lookups. */
export function claimOrigin(
  { key, source, owner, k8s }: Pick<ExplainedClaim, 'key' | 'source' | 'owner' | 'k8s'>,
  lookups: OriginLookups,
): OriginDocument {
  const { clusterName } = lookups;
  // For these sources, the owner is empty or a cluster, or `cluster/node` on the address of a node (SEMANTICS 1, 4).
  // `metadata` and `host-ips` are owners of this agent's claims only.
  const clusterOfOwner = ownerCluster(owner);
  const cluster = clusterOfOwner || clusterName;
  const node = owner === clusterOfOwner ? undefined : owner.slice(clusterOfOwner.length + 1);
  // The addresses of the local node have source `local`, whichever source announces the node (SEMANTICS 4).
  const isOfLocalNode = source === 'local' && node !== undefined;
  switch (isOfLocalNode ? lookups.sourceOfNode(owner) : source) {
    case 'kvstore':
    case 'clustermesh':
      return node === undefined
        ? kvstoreOrigin(cluster, 'ip', key, lookups)
        : kvstoreOrigin(cluster, 'nodes', node, lookups);
    case 'k8s':
    case 'custom-resource': {
      const pod = k8s?.podName ? `pod ${k8s.namespace}/${k8s.podName}` : undefined;
      const object = node === undefined ? pod : `node ${node}`;
      const text = `Kubernetes of ${clusterName}${object === undefined ? '' : `, ${object}`}`;
      return {
        text,
        cluster: clusterName,
        store: 'kubernetes',
        ...(object !== undefined && { key: object }),
      };
    }
    case 'restored':
      return { text: `checkpoint of ${cluster}, not confirmed yet`, cluster, store: 'checkpoint' };
    default:
      return { text: `this agent (${owner === '' ? source : `${source}, ${owner}`})`, store: 'agent' };
  }
}

/** Returns the origin of a claim in the kvstore of a cluster. `name`: the name of the key within its resource. */
function kvstoreOrigin(
  cluster: string,
  resource: 'ip' | 'nodes',
  name: string,
  { isInProcess, versionOf, conditionOf }: OriginLookups,
): OriginDocument {
  const inProcess = isInProcess(cluster);
  const version = versionOf(cluster, resource, name);
  const place = version === undefined ? '' : `, ${version.key}, revision ${version.revision}`;
  const condition = conditionOf(cluster);
  const state = condition === undefined || condition.ready ? '' : ` (${clusterStateText(condition)})`;
  const knownAt = condition?.knownAt;
  return {
    text: `${cluster}'s ${inProcess ? 'kvstore in memory' : 'etcd'}${place}${state}`,
    cluster,
    store: inProcess ? 'memory' : 'etcd',
    ...version,
    ...(knownAt !== undefined && { knownAt }),
  };
}
