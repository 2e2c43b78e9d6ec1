import { KubernetesClient } from '../../src/k8s/kubernetes-client.ts';
import { fixedCredentials } from '../../src/k8s/rest/cluster-access.ts';
import type { FollowerTask } from './protocol.ts';

/** Returns a client of the API server of a task, without compression, because the API server is on the same machine. */
export function clientOf({ server, ca, token }: FollowerTask): KubernetesClient {
  return new KubernetesClient({
    server,
    ca: { file: ca },
    serverName: undefined,
    insecureSkipVerify: false,
    disableCompression: true,
    credentials: fixedCredentials(`Bearer ${token}`, undefined),
  });
}
