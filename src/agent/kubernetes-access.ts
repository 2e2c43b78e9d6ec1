import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/failure.ts';
import type { ClusterAccess } from '../k8s/rest/cluster-access.ts';
import { inClusterAccess } from '../k8s/rest/in-cluster.ts';
import { KubeconfigError, readKubeconfig } from '../k8s/rest/kubeconfig.ts';
import { InputError, unreadable } from '../process/input-error.ts';
import type { KubernetesOptions } from './options.ts';

/**
 * Returns the access to the API server of a kubeconfig, or of the pod's service account if there is none. Throws
 * `InputError`.
 */
export async function kubernetesAccess(
  { kubeconfig, context }: Pick<KubernetesOptions, 'kubeconfig' | 'context'>,
  clock: Clock,
): Promise<ClusterAccess> {
  try {
    return kubeconfig === undefined
      ? inClusterAccess({ clock })
      : await readKubeconfig(kubeconfig, { context, clock });
  } catch (error) {
    if (!(error instanceof KubeconfigError)) throw error;
    if (kubeconfig !== undefined && error.cause instanceof Error && 'syscall' in error.cause)
      throw unreadable('--kubeconfig', kubeconfig, error.cause);
    const advice = kubeconfig === undefined ? '; outside of a pod, set a kubeconfig with --kubeconfig' : '';
    throw new InputError(`${messageOf(error)}${advice}`, { cause: error });
  }
}
