import { join } from 'node:path';
import { messageOf } from '../../base/failure.ts';
import { counted, listText } from '../../base/show-value.ts';
import { isRemoteClusterName } from '../../clustermesh/cluster-set.ts';
import { INVALID_NAME } from '../../clustermesh/config-directory.ts';
import { clusterConfigKey } from '../../kvstore/codec/keys.ts';
import type { EtcdConfig } from '../../kvstore/etcd/etcd-config.ts';
import { loadEtcdConfigFile } from '../../kvstore/etcd/etcd-config-file.ts';
import { listConfigFolder } from '../config-folder.ts';
import { InputError } from '../input-error.ts';
import { printable } from '../terminal.ts';
import { Check, type CheckResult } from './check.ts';
import { checkClientCertificate, checkEndpoint, isPassed } from './endpoint-checks.ts';
import { type CheckContext, checkKvstore } from './kvstore-checks.ts';

/** The etcd configurations to check. */
export interface TroubleshootOptions {
  /** Name of the local cluster. Its file in the folder is not used by agents, so it is not checked. */
  readonly clusterName: string;
  /** Id of the local cluster; default: the id in its kvstore. */
  readonly clusterID?: number | undefined;
  readonly kvstoreConfig: string | undefined;
  readonly clustermeshConfig: string | undefined;
  /** The only cluster to check; default: all. */
  readonly only: string | undefined;
}

/** The checks of one etcd configuration. */
export interface ClusterChecks {
  readonly cluster: string;
  /** Path of the configuration. */
  readonly path: string;
  readonly local: boolean;
  /** True if no check has failed. */
  readonly passed: boolean;
  /** In the order of the steps of a connection. After a failure, dependent checks are omitted. */
  readonly checks: readonly CheckResult[];
}

interface Target {
  readonly cluster: string;
  readonly path: string;
  readonly local: boolean;
  /** The reason why the file cannot be used, if it is known. */
  readonly problem?: string;
}

/**
 * Checks the connection to each etcd and its contents, all clusters at the same time. The local cluster is first, the
 * others follow by name. Throws `InputError` if the folder cannot be read or has no configuration.
 */
export async function troubleshoot(
  options: TroubleshootOptions,
  context: CheckContext,
): Promise<readonly ClusterChecks[]> {
  const targets = await listTargets(options);
  const found = await Promise.all(
    targets.map(async (target) => ({ ...target, checks: await checkCluster(target, context) })),
  );
  const { clusterName, clusterID } = options;
  const namesByID = new Map<number, Set<string>>();
  if (clusterID !== undefined && clusterID !== 0) namesByID.set(clusterID, new Set([clusterName]));
  for (const { cluster, checks } of found) {
    const id = idOf(checks);
    if (id !== undefined) namesByID.set(id, (namesByID.get(id) ?? new Set()).add(cluster));
  }
  return found.map(({ cluster, path, local, checks }) => {
    const id = idOf(checks);
    const others = [...(id === undefined ? [] : (namesByID.get(id) ?? []))].filter(
      (name) => name !== cluster,
    );
    if (others.length === 0) return { cluster, path, local, passed: checks.every(isPassed), checks };
    const text = `id ${id} is also that of ${listText(others, MAX_OTHERS)}`;
    const duplicate = new Check('cluster-config', clusterConfigKey(cluster)).failed(text, UNIQUE_ID);
    return { cluster, path, local, passed: false, checks: [...checks, duplicate] };
  });
}

/** Maximum number of other clusters in a message. */
const MAX_OTHERS = 8;

const UNIQUE_ID = 'give each cluster an id of its own, because agents reject the keys of one of them';

/** Returns the id of a cluster in its kvstore; undefined for id 0, which several clusters may have. */
function idOf(checks: readonly CheckResult[]): number | undefined {
  return checks.find(({ clusterID = 0 }) => clusterID !== 0)?.clusterID;
}

async function listTargets(options: TroubleshootOptions): Promise<readonly Target[]> {
  const { clusterName, kvstoreConfig, clustermeshConfig, only } = options;
  const targets: Target[] = [];
  if (kvstoreConfig !== undefined) targets.push({ cluster: clusterName, path: kvstoreConfig, local: true });
  if (clustermeshConfig !== undefined) targets.push(...(await listFolder(clustermeshConfig, clusterName)));
  const chosen = targets.filter(({ cluster }) => only === undefined || cluster === only);
  if (chosen.length > 0) return chosen;
  if (only !== undefined && clustermeshConfig !== undefined && only !== clusterName) {
    const path = join(clustermeshConfig, only);
    return [
      { cluster: only, path, local: false, problem: 'does not exist, or is not an etcd configuration' },
    ];
  }
  throw new InputError(
    only === undefined
      ? `--clustermesh-config ${clustermeshConfig}: has no etcd configuration: check the folder`
      : `cluster ${only} has no etcd configuration: check the name, or add --kvstore-config or --clustermesh-config`,
  );
}

async function listFolder(folder: string, clusterName: string): Promise<readonly Target[]> {
  return [...(await listConfigFolder(folder))].flatMap(([cluster, file]) => {
    if (file.kind === 'other' || cluster === clusterName) return [];
    const target = { cluster, path: join(folder, cluster), local: false };
    if (!isRemoteClusterName(cluster)) return [{ ...target, problem: INVALID_NAME }];
    return [file.kind === 'unusable' ? { ...target, problem: file.reason } : target];
  });
}

function fileFailure(path: string, text: string): CheckResult {
  return new Check('file', path).failed(text, 'check the file, and the files that it names');
}

async function checkCluster(
  { cluster, path, local, problem }: Target,
  context: CheckContext,
): Promise<readonly CheckResult[]> {
  if (problem !== undefined) return [fileFailure(path, problem)];
  let config: EtcdConfig;
  try {
    ({ config } = await loadEtcdConfigFile(path));
  } catch (error) {
    return [fileFailure(path, messageOf(error))];
  }
  const now = context.clock.wallTime();
  const fileCheck = new Check('file', path).ok(counted(config.endpoints.length, 'endpoint'));
  const endpointChecks = await Promise.all(
    config.endpoints.map((endpoint) => checkEndpoint(endpoint, config.tls, now, config.hostAliases)),
  );
  const reachable = config.endpoints.filter((_, index) => endpointChecks[index]?.every(isPassed));
  const kvstore = await checkKvstore({ name: cluster, config, local }, reachable, context);
  return [fileCheck, ...checkClientCertificate(config.tls ?? {}, now), ...endpointChecks.flat(), ...kvstore];
}

const SIGNS: Readonly<Record<CheckResult['status'], string>> = { ok: '✓', warning: '!', failed: '✗' };

const STEPS: Readonly<Record<CheckResult['step'], string>> = {
  file: 'file',
  dns: 'DNS',
  tcp: 'TCP',
  tls: 'TLS',
  auth: 'auth',
  'cluster-id': 'cluster id of',
  heartbeat: 'heartbeat',
  'cluster-config': 'cluster-config',
  canaries: 'canaries',
  read: 'right to read',
};

/** Returns the checks as text: a title for each cluster, a line for each check. Control characters are escaped. */
export function checkLines(clusters: readonly ClusterChecks[]): readonly string[] {
  return clusters.flatMap(({ cluster, local, checks }) => [
    printable(`cluster ${cluster}${local ? ' (local)' : ''}`),
    ...checks.map(({ step, subject, status, text, remedy }) =>
      printable(
        `  ${SIGNS[status]} ${STEPS[step]} ${subject}: ${text}${remedy === undefined ? '' : `: ${remedy}`}`,
      ),
    ),
  ]);
}
