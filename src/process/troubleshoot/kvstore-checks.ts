import type { Clock, Random } from '../../base/clock.ts';
import type { Rejection } from '../../base/rejection.ts';
import { counted, durationText } from '../../base/show-value.ts';
import {
  type ClusterConfig,
  decodeClusterConfig,
  exportsResource,
} from '../../kvstore/codec/cluster-config.ts';
import { type KeyRange, keyRange, prefixRange } from '../../kvstore/codec/key-range.ts';
import {
  CLUSTER_CONFIG_PREFIX,
  clusterConfigKey,
  HEARTBEAT_KEY,
  isServiceResource,
  type KeyLayout,
  MESH_RESOURCES,
  type MeshResource,
  resourcePrefix,
  syncedKey,
  syncedPrefix,
} from '../../kvstore/codec/keys.ts';
import { decodeTimestamp } from '../../kvstore/codec/timestamp.ts';
import type { EtcdConfig } from '../../kvstore/etcd/etcd-config.ts';
import { EtcdTransport } from '../../kvstore/etcd/etcd-transport.ts';
import { asKvstoreError, type KvstoreError } from '../../kvstore/session/errors.ts';
import { STALE_MS } from '../../kvstore/session/health.ts';
import type { RangeResponse } from '../../kvstore/session/transport.ts';
import { CHECK_TIMEOUT_MS, type CheckResult, NO_ANSWER } from './check.ts';

/** The cluster whose keys are checked. */
export interface CheckedCluster {
  readonly name: string;
  readonly config: EtcdConfig;
  /** True if it is the local cluster, whose agents need neither a cluster-config nor canaries. */
  readonly local: boolean;
}

export interface CheckContext {
  readonly clock: Clock;
  readonly random: Random;
  readonly signal: AbortSignal;
}

const CHECK_SERVER = 'check that the endpoint is an etcd, that it has a quorum, and its log';
const CHECK_WRITER = 'check that the clustermesh-apiserver or the operator of the cluster runs, and its log';

/**
 * Returns the checks of the etcd behind endpoints that were reached: user, cluster id, heartbeat, cluster-config,
 * canaries, and the right to read each prefix that an agent reads. Writes nothing. Each list has at most one key,
 * without its value.
 */
export async function checkKvstore(
  cluster: CheckedCluster,
  endpoints: readonly string[],
  context: CheckContext,
): Promise<readonly CheckResult[]> {
  const readers = endpoints.map((endpoint) => new EndpointReader(cluster.config, endpoint, context));
  try {
    const logins = await Promise.all(readers.map((reader) => checkLogin(cluster, reader)));
    const checks = logins.map(({ check }) => check);
    const ids = logins.flatMap(({ check, clusterID }) =>
      clusterID === undefined ? [] : [{ clusterID, endpoint: check.subject }],
    );
    checks.push(...checkClusterIDs(ids));
    const reader = readers.find((_, index) => logins[index]?.check.status === 'ok');
    if (reader === undefined) return checks;
    return [...checks, ...(await checkKeys(cluster, reader, context))];
  } finally {
    await Promise.all(readers.map((reader) => reader.close()));
  }
}

/** Reads from one endpoint, within the time limit of a check. */
class EndpointReader {
  readonly endpoint: string;
  readonly #transport: EtcdTransport;
  readonly #signal: AbortSignal;

  constructor(config: EtcdConfig, endpoint: string, { random, signal }: CheckContext) {
    this.endpoint = endpoint;
    this.#signal = signal;
    this.#transport = new EtcdTransport(
      { ...config, endpoints: [endpoint], deadlineMs: CHECK_TIMEOUT_MS },
      random,
    );
  }

  /** Returns the answer, or the error of the kvstore. */
  async read(
    range: KeyRange,
    { keysOnly = false }: { readonly keysOnly?: boolean } = {},
  ): Promise<RangeResponse | KvstoreError> {
    const limits = { signal: this.#signal, deadlineMs: CHECK_TIMEOUT_MS };
    try {
      return await this.#transport.range({ ...range, limit: 1, keysOnly }, limits);
    } catch (error) {
      return asKvstoreError(error);
    }
  }

  close(): Promise<void> {
    return this.#transport.close();
  }
}

function isError(answer: RangeResponse | KvstoreError): answer is KvstoreError {
  return answer instanceof Error;
}

/** Returns true if the server knows the user, but the user may not read the key. */
function lacksRight({ code, message }: KvstoreError): boolean {
  return code === 'forbidden' && message.includes('permission denied');
}

interface Login {
  /** Its subject is the endpoint. */
  readonly check: CheckResult;
  /** Undefined if no answer had one. */
  readonly clusterID?: string;
}

function userOf({ auth }: EtcdConfig): string {
  return auth === undefined ? 'without a user' : `as user ${auth.username}`;
}

async function checkLogin({ name, config }: CheckedCluster, reader: EndpointReader): Promise<Login> {
  const check = { step: 'auth', subject: reader.endpoint } as const;
  const accepted = { ...check, status: 'ok', text: `accepted ${userOf(config)}` } as const;
  for (const key of [HEARTBEAT_KEY, clusterConfigKey(name)]) {
    const answer = await reader.read(keyRange(key));
    if (!isError(answer)) return { check: accepted, clusterID: answer.header.clusterID };
    if (!lacksRight(answer)) return { check: failedCheck(check, answer, loginRemedy(answer)) };
  }
  return { check: accepted };
}

function loginRemedy({ code }: KvstoreError): string {
  return code === 'forbidden' || code === 'invalid-token'
    ? 'check username and password of the configuration'
    : CHECK_SERVER;
}

/**
 * Returns the check for an error. If its message ends with a remedy, as in `etcd-errors.ts`, this remedy replaces
 * `defaultRemedy`.
 */
function failedCheck(
  check: Pick<CheckResult, 'step' | 'subject'>,
  { code, message }: KvstoreError,
  defaultRemedy: string,
): CheckResult {
  if (code === 'deadline') return { ...check, status: 'failed', text: NO_ANSWER, remedy: defaultRemedy };
  const at = message.lastIndexOf('; ');
  const [text, remedy] = at < 0 ? [message, defaultRemedy] : [message.slice(0, at), message.slice(at + 2)];
  return { ...check, status: 'failed', text, remedy };
}

/** Returns the check of a key or prefix that cannot be read. */
function unreadableCheck(
  check: Pick<CheckResult, 'step' | 'subject'>,
  error: KvstoreError,
  { config }: CheckedCluster,
  right: string = check.subject,
): CheckResult {
  const user = config.auth === undefined ? 'the user' : `user ${config.auth.username}`;
  const remedy = lacksRight(error) ? `grant read on ${right} to ${user}` : CHECK_SERVER;
  return failedCheck(check, error, remedy);
}

/** Returns the check of a key with an invalid value. The subject of the check is the key, so its text omits it. */
function invalidCheck(check: Pick<CheckResult, 'step' | 'subject'>, { message }: Rejection): CheckResult {
  const text = message.replace(`${check.subject}: `, '');
  return { ...check, status: 'failed', text, remedy: CHECK_WRITER };
}

function checkClusterIDs(
  logins: readonly { readonly endpoint: string; readonly clusterID: string }[],
): readonly CheckResult[] {
  const [first] = logins;
  if (first === undefined) return [];
  const hex = (id: string): string => BigInt(id).toString(16);
  if (logins.every(({ clusterID }) => clusterID === first.clusterID))
    return [{ step: 'cluster-id', subject: 'etcd', status: 'ok', text: hex(first.clusterID) }];
  const text = logins.map(({ endpoint, clusterID }) => `${endpoint} has ${hex(clusterID)}`).join(', ');
  const remedy = 'name only the members of one etcd cluster in endpoints';
  return [{ step: 'cluster-id', subject: 'etcd', status: 'failed', text: `several etcds: ${text}`, remedy }];
}

async function checkKeys(
  cluster: CheckedCluster,
  reader: EndpointReader,
  { clock }: CheckContext,
): Promise<readonly CheckResult[]> {
  const heartbeat = checkHeartbeat(cluster, reader, clock.wallTime());
  const { check, config } = await checkConfig(cluster, reader);
  const layout = config?.capabilities.cached === true ? 'cache' : 'state';
  const resources = MESH_RESOURCES.filter((resource) => isRead(resource, cluster, config));
  const canaries = config?.capabilities.syncedCanaries === true && !cluster.local;
  const prefixes = [
    CLUSTER_CONFIG_PREFIX,
    ...(canaries ? [syncedPrefix(cluster.name)] : []),
    ...resources.map((resource) => resourcePrefix(resource, cluster.name, layout)),
  ];
  return [
    await heartbeat,
    check,
    ...(canaries ? await checkCanaries(cluster, reader, resources, layout) : []),
    ...(await Promise.all(prefixes.map((prefix) => checkRight(cluster, reader, prefix)))),
  ];
}

/**
 * Returns true if an agent reads a resource: slices only if the cluster does not export `services`. Services of the
 * local cluster are not read, because Kubernetes provides them.
 */
function isRead(
  resource: MeshResource,
  { local }: CheckedCluster,
  config: ClusterConfig | undefined,
): boolean {
  const capabilities = config?.capabilities ?? {};
  if (local && isServiceResource(resource)) return false;
  if (resource === 'endpointslices') return !exportsResource('services', capabilities);
  return exportsResource(resource, capabilities);
}

async function checkHeartbeat(
  cluster: CheckedCluster,
  reader: EndpointReader,
  now: number,
): Promise<CheckResult> {
  const check = { step: 'heartbeat', subject: HEARTBEAT_KEY } as const;
  const answer = await reader.read(keyRange(HEARTBEAT_KEY));
  if (isError(answer)) return unreadableCheck(check, answer, cluster);
  const [kv] = answer.kvs;
  if (kv === undefined) return { ...check, status: 'failed', text: 'does not exist', remedy: CHECK_WRITER };
  const decoded = decodeTimestamp(kv.value, HEARTBEAT_KEY);
  if (!decoded.ok) return invalidCheck(check, decoded.rejection);
  const ageMs = now - decoded.value;
  const age = durationText(Math.abs(ageMs));
  if (ageMs > STALE_MS) return { ...check, status: 'failed', text: `${age} old`, remedy: CHECK_WRITER };
  if (ageMs >= -STALE_MS)
    return { ...check, status: 'ok', text: ageMs < 0 ? `${age} in the future` : `${age} old` };
  const remedy = 'check the clocks of this host and of the cluster';
  return { ...check, status: 'warning', text: `${age} in the future`, remedy };
}

async function checkConfig(
  cluster: CheckedCluster,
  reader: EndpointReader,
): Promise<{ readonly check: CheckResult; readonly config?: ClusterConfig }> {
  const key = clusterConfigKey(cluster.name);
  const check = { step: 'cluster-config', subject: key } as const;
  const answer = await reader.read(keyRange(key));
  if (isError(answer)) return { check: unreadableCheck(check, answer, cluster) };
  const [kv] = answer.kvs;
  if (kv === undefined) {
    const status = cluster.local ? 'warning' : 'failed';
    const remedy = cluster.local
      ? 'check the name of --cluster; --cluster-id is needed without it'
      : `check that the cluster is named ${cluster.name}, like this file; ${CHECK_WRITER}`;
    return { check: { ...check, status, text: 'does not exist', remedy } };
  }
  const decoded = decodeClusterConfig(kv.value, key);
  if (!decoded.ok) return { check: invalidCheck(check, decoded.rejection) };
  const { id, capabilities } = decoded.value;
  const { syncedCanaries, cached } = capabilities;
  const text = `id ${id}${syncedCanaries ? ', with canaries' : ''}${cached ? ', cached by kvstoremesh' : ''}`;
  return { check: { ...check, status: 'ok', text }, config: decoded.value };
}

async function checkCanaries(
  cluster: CheckedCluster,
  reader: EndpointReader,
  resources: readonly MeshResource[],
  layout: KeyLayout,
): Promise<readonly CheckResult[]> {
  const check = { step: 'canaries', subject: syncedPrefix(cluster.name) } as const;
  const keys = resources.map((resource) => syncedKey(cluster.name, resource, layout));
  const answers = await Promise.all(keys.map((key) => reader.read(keyRange(key), { keysOnly: true })));
  const error = answers.find(isError);
  if (error !== undefined) return [unreadableCheck(check, error, cluster)];
  const missing = resources.filter((_, index) => {
    const answer = answers[index];
    return answer !== undefined && !isError(answer) && answer.count === 0;
  });
  if (missing.length === 0) return [{ ...check, status: 'ok', text: `complete: ${resources.join(', ')}` }];
  return [{ ...check, status: 'failed', text: `missing: ${missing.join(', ')}`, remedy: CHECK_WRITER }];
}

async function checkRight(
  cluster: CheckedCluster,
  reader: EndpointReader,
  prefix: string,
): Promise<CheckResult> {
  const check = { step: 'read', subject: prefix } as const;
  const answer = await reader.read(prefixRange(prefix), { keysOnly: true });
  if (isError(answer)) return unreadableCheck(check, answer, cluster, `the prefix ${prefix}`);
  return { ...check, status: 'ok', text: counted(answer.count, 'key') };
}
