import { backoffDelay } from '../base/backoff.ts';
import { messageOf } from '../base/failure.ts';
import type { RateLimitOptions } from '../base/rate-limit.ts';
import { sleep } from '../base/sleep.ts';
import type { Runtime } from '../base/system-clock.ts';
import { decodeClusterConfig } from '../kvstore/codec/cluster-config.ts';
import { clusterConfigKey } from '../kvstore/codec/keys.ts';
import { EtcdBackend, type EtcdBackendOptions } from '../kvstore/etcd/etcd-backend.ts';
import { EtcdConfigError } from '../kvstore/etcd/etcd-config.ts';
import type { KvstoreBackend } from '../kvstore/session/backend.ts';
import { InputError, unreadable } from './input-error.ts';

export interface LocalEtcdContext
  extends Runtime,
    Pick<EtcdBackendOptions, 'leaseSeconds' | 'mayWrite' | 'writeTimeoutMs' | 'witnessLeases' | 'gate'> {
  /** Ends the attempts to connect. */
  readonly signal: AbortSignal;
  /**
   * Receives the problem, as a text for users, and its reason when the configuration becomes unusable, once for each
   * reason; `undefined` when it is usable again.
   */
  readonly onProblem?: ((problem: string | undefined, reason?: string) => void) | undefined;
  /** Receives the reason of each failed request. */
  readonly onFailure?: ((reason: string) => void) | undefined;
}

const BACKOFF = { baseMs: 500, capMs: 5_000 };

/** Returns a client of the etcd of `--kvstore-config`. Throws `InputError`. */
export async function openLocalEtcd(
  path: string,
  rateLimit: RateLimitOptions | undefined,
  { clock, random, onProblem, leaseSeconds, mayWrite, writeTimeoutMs, witnessLeases, gate }: LocalEtcdContext,
): Promise<EtcdBackend> {
  try {
    const onUsable = (): void => onProblem?.(undefined);
    const onUnusable = (reason: string): void => onProblem?.(localEtcdProblem(path, reason), reason);
    const options = { clock, random, rateLimit, leaseSeconds, mayWrite, writeTimeoutMs, witnessLeases, gate };
    return await EtcdBackend.open(path, { ...options, onUnusable, onUsable });
  } catch (error) {
    if (!(error instanceof EtcdConfigError)) throw unreadable('--kvstore-config', path, error);
    throw new InputError(localEtcdProblem(path, error.message), { cause: error });
  }
}

/** Returns the problem of the configuration of the local etcd as a text. */
function localEtcdProblem(path: string, reason: string): string {
  return `--kvstore-config ${path}: ${reason}`;
}

/**
 * Returns the id of a cluster from its kvstore; 0 if there is none, if it is invalid, or if the signal fires. Retries
 * until the kvstore answers.
 */
export async function readClusterID(
  backend: KvstoreBackend,
  cluster: string,
  { clock, random, signal, onFailure }: LocalEtcdContext,
): Promise<number> {
  const key = clusterConfigKey(cluster);
  for (let failures = 1; !signal.aborted; failures++) {
    try {
      const kv = await backend.get(key, { signal });
      const decoded = kv && decodeClusterConfig(kv.value, key);
      return decoded?.ok === true ? decoded.value.id : 0;
    } catch (error) {
      if (signal.aborted) break;
      onFailure?.(messageOf(error));
      await sleep(clock, backoffDelay(failures, BACKOFF, random), signal);
    }
  }
  return 0;
}
