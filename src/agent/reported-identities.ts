import type { ClusterIdentity } from '../model/identity-cache.ts';
import type { Labels } from '../model/labels.ts';
import type { FollowedClusters } from './followed-clusters.ts';
import type { KubernetesFollower } from './kubernetes-follower.ts';

/** The sources of {@link ReportedIdentities}. Each is undefined before it is followed. */
export interface IdentitySources {
  readonly clusterName: string;
  readonly followed: () => Pick<FollowedClusters, 'identities' | 'identitiesOf' | 'clusterOf'> | undefined;
  readonly kubernetes: () =>
    | Pick<KubernetesFollower, 'labelsOf' | 'identities' | 'identityChanges'>
    | undefined;
}

/** The identities of kvstores and Kubernetes, without those of a checkpoint. */
export class ReportedIdentities {
  readonly #sources: IdentitySources;

  constructor(sources: IdentitySources) {
    this.#sources = sources;
  }

  /** Returns the labels of an identity from the kvstore of its cluster or from a CiliumIdentity. */
  labelsOf(identity: number): Labels | undefined {
    const { followed, kubernetes } = this.#sources;
    return followed()?.identities.resolve(identity) ?? kubernetes()?.labelsOf(identity);
  }

  clusterOf(identity: number): string | undefined {
    const { clusterName, followed, kubernetes } = this.#sources;
    return kubernetes()?.labelsOf(identity) === undefined ? followed()?.clusterOf(identity) : clusterName;
  }

  /** Yields all identities. An identity of the local kvstore hides the CiliumIdentity with the same number. */
  *entries(): Generator<ClusterIdentity, void, void> {
    const { clusterName, followed, kubernetes } = this.#sources;
    const clusters = followed();
    if (clusters === undefined) return;
    yield* clusters.identities.entries();
    const local = clusters.identitiesOf(clusterName);
    for (const [identity, labels] of kubernetes()?.identities() ?? [])
      if (local?.lookupByID(identity) === undefined) yield { identity, labels, cluster: clusterName };
  }

  /** A text that changes with {@link entries}, and when a cluster joins or leaves. */
  get version(): string {
    const { followed, kubernetes } = this.#sources;
    return `${kubernetes()?.identityChanges ?? 0} ${followed()?.identities.version ?? ''}`;
  }
}
