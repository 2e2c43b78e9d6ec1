import type { KnownIdentity } from '../api/read-model.ts';
import type { ClusterMesh } from '../clustermesh/cluster-mesh.ts';
import type { IdentityResolver } from '../clustermesh/identity-resolver.ts';
import type { LocalCluster } from '../clustermesh/local-cluster.ts';
import type { Labels } from '../model/labels.ts';
import type { KubernetesFollower } from './kubernetes-follower.ts';

/** The sources of {@link ReportedIdentities}. Each is undefined before it is followed. */
export interface IdentitySources {
  readonly clusterName: string;
  readonly followed: () =>
    | {
        readonly local: Pick<LocalCluster, 'identities'>;
        readonly mesh: Pick<ClusterMesh, 'names' | 'identitiesOf'>;
        readonly identities: Pick<IdentityResolver, 'resolve'>;
      }
    | undefined;
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
    const { local, mesh } = followed() ?? {};
    const isLocal =
      local?.identities.lookupByID(identity) !== undefined || kubernetes()?.labelsOf(identity) !== undefined;
    if (isLocal) return clusterName;
    return mesh?.names.find((name) => mesh.identitiesOf(name)?.lookupByID(identity) !== undefined);
  }

  /** Yields all identities. An identity of the local kvstore hides the CiliumIdentity with the same number. */
  *entries(): Generator<KnownIdentity, void, void> {
    const { clusterName: cluster, followed, kubernetes } = this.#sources;
    const { local, mesh } = followed() ?? {};
    if (local === undefined || mesh === undefined) return;
    for (const [identity, labels] of local.identities.entries()) yield { identity, labels, cluster };
    for (const [identity, labels] of kubernetes()?.identities() ?? [])
      if (local.identities.lookupByID(identity) === undefined) yield { identity, labels, cluster };
    for (const name of mesh.names) {
      for (const [identity, labels] of mesh.identitiesOf(name)?.entries() ?? [])
        yield { identity, labels, cluster: name };
    }
  }

  /** A text that changes with {@link entries}, and when a cluster joins or leaves. */
  get version(): string {
    const { followed, kubernetes } = this.#sources;
    const { local, mesh } = followed() ?? {};
    const remote = mesh?.names.map((name) => `${name} ${mesh.identitiesOf(name)?.changes ?? 0}`) ?? [];
    return [local?.identities.changes ?? 0, kubernetes()?.identityChanges ?? 0, ...remote].join(' ');
  }
}
