import { type Label, type Labels, sortLabels } from './labels.ts';

/** The key of the label that names the cluster of an identity. Its source is `k8s`. */
export const CLUSTER_LABEL = 'io.cilium.k8s.policy.cluster';

/** Returns the labels with the cluster label added; unchanged if they contain that key. */
export function withClusterLabel(labels: Labels, cluster: string): Labels {
  if (clusterLabelOf(labels) !== undefined) return labels;
  return sortLabels([...labels, { source: 'k8s', key: CLUSTER_LABEL, value: cluster }]);
}

/**
 * Returns a fault if the cluster label has another source than `k8s` or names another cluster; otherwise undefined.
 * Cilium (pkg/identity/cache, `clusterNameValidator`) also ignores identities without the label.
 */
export function clusterLabelFault(labels: Labels, cluster: string): string | undefined {
  const label = clusterLabelOf(labels);
  if (label === undefined || (label.source === 'k8s' && label.value === cluster)) return undefined;
  return `the label ${CLUSTER_LABEL} must be k8s:${CLUSTER_LABEL}=${cluster}`;
}

function clusterLabelOf(labels: Labels): Label | undefined {
  return labels.find(({ key }) => key === CLUSTER_LABEL);
}
