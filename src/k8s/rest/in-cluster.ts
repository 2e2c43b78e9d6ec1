import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { checkArgument, OBJECT, optional, optionsWith, TEXT } from '../../base/arguments.ts';
import type { Clock } from '../../base/clock.ts';
import { systemClock } from '../../base/system-clock.ts';
import type { ClusterAccess } from './cluster-access.ts';
import { KubeconfigError } from './kubeconfig.ts';
import { TokenFile } from './token-file.ts';

/** Options of {@link inClusterAccess}. */
export interface InClusterOptions {
  /** The mount of the service account. Set in tests only. */
  readonly folder?: string | undefined;
  /** Default: the environment of this process. Set in tests only. */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
  /** Default: the system clock. */
  readonly clock?: Clock | undefined;
}

/** The mount of a service account by the kubelet. */
const FOLDER = '/var/run/secrets/kubernetes.io/serviceaccount';

const OPTIONS = optionsWith({ folder: optional(TEXT), env: optional(OBJECT) });

/** Returns true if this process runs in a pod with a service account. */
export function isInCluster(options: InClusterOptions = {}): boolean {
  checkArgument('isInCluster: options', options, OPTIONS);
  const { folder = FOLDER, env = process.env } = options;
  return Boolean(env['KUBERNETES_SERVICE_HOST']) && existsSync(join(folder, 'token'));
}

/**
 * Returns the access to the API server of this pod. Throws {@link KubeconfigError} outside a pod, or if its address is
 * invalid.
 */
export function inClusterAccess(options: InClusterOptions = {}): ClusterAccess {
  checkArgument('inClusterAccess: options', options, OPTIONS);
  const { folder = FOLDER, env = process.env, clock = systemClock } = options;
  const { KUBERNETES_SERVICE_HOST: host = '', KUBERNETES_SERVICE_PORT: port = '443' } = env;
  if (!isInCluster(options))
    throw new KubeconfigError(
      `not in a pod with a service account: KUBERNETES_SERVICE_HOST must be set and ${join(folder, 'token')} must exist`,
    );
  const address = `https://${host.includes(':') ? `[${host}]` : host}:${port}`;
  if (!URL.canParse(address))
    throw new KubeconfigError(
      `KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not an address: ${host}:${port}`,
    );
  const server = new URL(address).href;
  return {
    server,
    serverName: undefined,
    insecureSkipVerify: false,
    ca: { file: join(folder, 'ca.crt') },
    credentials: new TokenFile(join(folder, 'token'), clock),
  };
}
