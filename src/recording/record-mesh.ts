import { counted } from '../base/show-value.ts';
import type { Runtime } from '../base/system-clock.ts';
import type { KvstoreBackend } from '../kvstore/session/backend.ts';
import { asKvstoreError } from '../kvstore/session/errors.ts';
import { InputError, unreadable } from '../process/input-error.ts';
import { openLocalEtcd } from '../process/local-etcd.ts';
import type { Logger } from '../process/log.ts';
import { remoteEtcdProblem, remoteEtcds } from '../process/remote-etcds.ts';
import { recordKeys } from './record-keys.ts';

/** The kvstores to record. */
export interface RecordMeshOptions {
  /** Name of the local cluster. */
  readonly clusterName: string;
  /** Path of the etcd configuration of the local kvstore. If undefined, the local kvstore is not recorded. */
  readonly kvstoreConfig: string | undefined;
  /** Folder with an etcd configuration for each remote cluster. If undefined, no remote cluster is recorded. */
  readonly clustermeshConfig: string | undefined;
}

export interface RecordMeshContext extends Runtime {
  readonly log: Logger;
  readonly write: (lines: string) => Promise<void>;
  readonly signal: AbortSignal;
}

/** A kvstore to record. */
interface RecordedStore {
  readonly store: string;
  readonly backend: KvstoreBackend;
}

/**
 * Records the local kvstore, then those of the remote clusters by name: see `recordKeys`. Returns true if all were
 * recorded completely. A failure is logged, and the other kvstores are still recorded. Throws `InputError` if a
 * configuration cannot be read.
 */
export async function recordMesh(options: RecordMeshOptions, context: RecordMeshContext): Promise<boolean> {
  const { log, signal } = context;
  const stores: RecordedStore[] = [];
  try {
    const problems = await openStores(options, context, stores);
    for (const problem of problems) log.error(problem);
    let complete = problems.length === 0;
    for (const { store, backend } of stores) {
      try {
        const keys = await recordKeys(backend, { ...context, store });
        if (keys > 0) log.info(`cluster ${store}: recorded ${counted(keys, 'key')}`);
        else log.warn(`cluster ${store}: its kvstore has no keys`);
      } catch (error) {
        if (signal.aborted) return false;
        log.error(`cluster ${store}: the recording is incomplete: ${asKvstoreError(error).message}`);
        complete = false;
      }
    }
    return complete;
  } finally {
    await Promise.all(stores.map(({ backend }) => backend.close()));
  }
}

/** Adds the kvstores to `stores`. Returns the problems of those that cannot be opened. */
async function openStores(
  { clusterName, kvstoreConfig, clustermeshConfig }: RecordMeshOptions,
  context: RecordMeshContext,
  stores: RecordedStore[],
): Promise<readonly string[]> {
  const problems: string[] = [];
  if (clustermeshConfig !== undefined) {
    const { clock, random } = context;
    const files = await remoteEtcds(clustermeshConfig, { clock, random })
      .list()
      .catch((cause: unknown) => {
        throw unreadable('--clustermesh-config', clustermeshConfig, cause);
      });
    for (const [store, file] of files) {
      if (file.kind === 'unusable') problems.push(remoteEtcdProblem(clustermeshConfig, store, file.reason));
      if (file.kind === 'config' && store !== clusterName)
        stores.push({ store, backend: await file.connect(context.signal) });
    }
  }
  if (kvstoreConfig !== undefined)
    stores.unshift({ store: clusterName, backend: await openLocalEtcd(kvstoreConfig, undefined, context) });
  if (stores.length === 0 && problems.length === 0)
    throw new InputError('no kvstore to record: check the files of --clustermesh-config');
  return problems;
}
