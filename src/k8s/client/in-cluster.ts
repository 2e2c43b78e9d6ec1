import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { systemClock } from '../../base/system-clock.ts';
import type { ClusterAccess } from './cluster-access.ts';
import { KubeconfigError } from './kubeconfig.ts';
import { TokenFile } from './token-file.ts';

/** Where a pod looks, and in which environment; both are to be left out but in tests. */
export interface InClusterOptions {
  readonly folder?: string | undefined;
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
  readonly clock?: Clock | undefined;
}

/** Where a kubelet puts what a service account needs. */
const FOLDER = '/var/run/secrets/kubernetes.io/serviceaccount';

/** Whether this process runs in a pod that may ask its API server. */
export function isInCluster({ folder = FOLDER, env = process.env }: InClusterOptions = {}): boolean {
  return Boolean(env['KUBERNETES_SERVICE_HOST']) && existsSync(join(folder, 'token'));
}

/** The API server of the pod in which this process runs. Throws a {@link KubeconfigError} outside of one. */
export function inClusterAccess(options: InClusterOptions = {}): ClusterAccess {
  const { folder = FOLDER, env = process.env, clock = systemClock } = options;
  const { KUBERNETES_SERVICE_HOST: host = '', KUBERNETES_SERVICE_PORT: port = '443' } = env;
  if (!isInCluster(options))
    throw new KubeconfigError(
      `this is no pod with a service account: KUBERNETES_SERVICE_HOST must be set, and ${join(folder, 'token')} be there`,
    );
  const address = `https://${host.includes(':') ? `[${host}]` : host}:${port}`;
  if (!URL.canParse(address))
    throw new KubeconfigError(`KUBERNETES_SERVICE_HOST and _PORT are no address: ${host}:${port}`);
  const server = new URL(address).href;
  return {
    ...{ server, serverName: undefined, insecureSkipVerify: false },
    ca: { file: join(folder, 'ca.crt') },
    credentials: new TokenFile(join(folder, 'token'), clock),
  };
}
