/** Maximum length of the name of a published cluster (enforced by Cilium since 1.17). */
const MAX_LENGTH = 32;

/** The rule for the name of a published cluster. Keys and labels contain the name. */
export const CLUSTER_NAME_RULE: string = `must have at most ${MAX_LENGTH} characters of a-z, 0-9 and -, and begin and end with a letter or digit`;

/** Returns true if Cilium accepts the name of a published cluster. */
export function isClusterName(name: string): boolean {
  return name.length <= MAX_LENGTH && /^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/.test(name);
}

/** The error for a name that Cilium rejects for a published cluster. */
export class ClusterNameError extends Error {
  override readonly name = 'ClusterNameError';
  readonly code = 'invalid-cluster-name';
  readonly value: string;

  constructor(value: string) {
    super(`clusterName ${JSON.stringify(value)} ${CLUSTER_NAME_RULE}`);
    this.value = value;
  }
}
