import { join } from 'node:path';
import type { RateLimitOptions } from '../base/rate-limit.ts';
import type { Runtime } from '../base/system-clock.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import type { ConfigFollower } from '../clustermesh/config-follower.ts';
import { EtcdBackend } from '../kvstore/etcd/etcd-backend.ts';
import { ConfigFolder } from './config-folder.ts';

export interface RemoteEtcdsContext extends Runtime {
  /** The gate of the process. The listings of all clusters share its turns. Default: none. */
  readonly gate?: TurnGate | undefined;
  /** For each etcd. Default: no limit. */
  readonly rateLimit?: RateLimitOptions | undefined;
}

/** Returns the folder of `--clustermesh-config`, with a client of its etcd for each configuration. */
export function remoteEtcds(path: string, context: RemoteEtcdsContext): ConfigFolder {
  return new ConfigFolder(path, (config) => new EtcdBackend(config, context));
}

/** Returns the problem of a file in the folder of `--clustermesh-config`, or of the folder if `name` is empty. */
export function remoteEtcdProblem(folder: string, name: string, reason: string): string {
  return `--clustermesh-config ${join(folder, name)}: ${reason}`;
}

/** Returns the current problems of the followed folder of `--clustermesh-config`. */
export function remoteEtcdProblems(
  folder: string,
  follower: Pick<ConfigFollower, 'status'> | undefined,
): readonly string[] {
  return Object.entries(follower?.status().problems ?? {}).map(([name, reason]) =>
    remoteEtcdProblem(folder, name, reason),
  );
}
