/** Maximum length of the name of a published cluster (enforced by Cilium since 1.17). */
const MAX_LENGTH = 32;

/** Requirement for the name of a published cluster, because it is a part of keys and labels. */
export const CLUSTER_NAME_RULE: string = `must have at most ${MAX_LENGTH} characters of a-z, 0-9 and -, and begin and end with a letter or digit`;

/** Returns true if Cilium accepts the name of a published cluster. */
export function isClusterName(name: string): boolean {
  return name.length <= MAX_LENGTH && /^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/.test(name);
}

/** The error for a cluster name that readers of Cilium reject. */
export class ClusterNameError extends Error {
  override readonly name = 'ClusterNameError';
  readonly code = 'invalid-cluster-name';
  readonly value: string;

  constructor(value: string) {
    super(`clusterName ${JSON.stringify(value)} ${CLUSTER_NAME_RULE}`);
    this.value = value;
  }
}
