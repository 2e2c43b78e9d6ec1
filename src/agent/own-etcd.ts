import { backoffDelay } from '../base/backoff.ts';
import type { Clock, Random } from '../base/clock.ts';
import { messageOf } from '../base/failure.ts';
import type { RateLimitOptions } from '../base/rate-limit.ts';
import { sleep } from '../base/sleep.ts';
import type { KvstoreBackend } from '../kvstore/backend.ts';
import { decodeClusterConfig } from '../kvstore/codec/cluster-config.ts';
import { clusterConfigKey } from '../kvstore/codec/keys.ts';
import { EtcdBackend, type EtcdBackendOptions } from '../kvstore/etcd/etcd-backend.ts';
import { EtcdConfigError } from '../kvstore/etcd/etcd-config.ts';
import { InputError, unreadable } from './input-error.ts';

/** What reaching a kvstore takes from its process. */
export interface ReachContext
  extends Pick<EtcdBackendOptions, 'mayWrite' | 'writeTimeoutMs' | 'witnessLeases'> {
  readonly clock: Clock;
  readonly random: Random;
  /** Ends the attempts. */
  readonly signal: AbortSignal;
  /** Receives why the configuration has become unusable, once for each reason; `undefined`: it is usable again. */
  readonly onProblem?: ((why: string | undefined) => void) | undefined;
  /** Life of leased keys after the last sign of life. Default 15 min. */
  readonly leaseSeconds?: number | undefined;
  /** Receives why the kvstore has not answered, each time. */
  readonly onFailure?: ((why: string) => void) | undefined;
}

const BACKOFF = { baseMs: 500, capMs: 5_000 };

/** A client of the etcd that the file of `--kvstore-config` describes. Throws `InputError`. */
export async function openOwnEtcd(
  path: string,
  rateLimit: RateLimitOptions | undefined,
  { clock, random, onProblem, leaseSeconds, mayWrite, writeTimeoutMs, witnessLeases }: ReachContext,
): Promise<EtcdBackend> {
  try {
    const onUsable = (): void => onProblem?.(undefined);
    const options = { clock, random, rateLimit, leaseSeconds, mayWrite, writeTimeoutMs, witnessLeases };
    return await EtcdBackend.open(path, { ...options, onUnusable: onProblem, onUsable });
  } catch (error) {
    if (!(error instanceof EtcdConfigError)) throw unreadable('--kvstore-config', path, error);
    throw new InputError(`--kvstore-config ${path}: ${error.message}`, { cause: error });
  }
}

/**
 * The id that the own cluster's kvstore gives to it; 0 when it says none that can be read. Waits for the kvstore
 * to answer, until the signal fires.
 */
export async function readClusterID(
  backend: KvstoreBackend,
  cluster: string,
  { clock, random, signal, onFailure }: ReachContext,
): Promise<number> {
  const key = clusterConfigKey(cluster);
  for (let failures = 1; !signal.aborted; failures++) {
    try {
      const found = await backend.get(key, { signal });
      const decoded = found && decodeClusterConfig(found.value, key);
      return decoded?.ok === true ? decoded.value.id : 0;
    } catch (error) {
      if (signal.aborted) break;
      onFailure?.(messageOf(error));
      await sleep(clock, backoffDelay(failures, BACKOFF, random), signal);
    }
  }
  return 0;
}
