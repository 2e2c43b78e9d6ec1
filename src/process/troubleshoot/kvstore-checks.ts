import type { Rejection } from '../../base/rejection.ts';
import { counted, durationText } from '../../base/show-value.ts';
import type { Runtime } from '../../base/system-clock.ts';
import {
  type ClusterConfig,
  decodeClusterConfig,
  exportsResource,
} from '../../kvstore/codec/cluster-config.ts';
import { type KeyRange, keyRange, prefixRange } from '../../kvstore/codec/key-range.ts';
import {
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
import { CHECK_TIMEOUT_MS, Check, type CheckResult, NO_ANSWER } from './check.ts';

export interface CheckedCluster {
  readonly name: string;
  readonly config: EtcdConfig;
  /** True if it is the local cluster, whose agents need neither a cluster-config nor canaries. */
  readonly local: boolean;
}

export interface CheckContext extends Runtime {
  readonly signal: AbortSignal;
}

const CHECK_SERVER = 'check that the endpoint is an etcd, that it has a quorum, and its log';
const CHECK_WRITER = 'check that the clustermesh-apiserver or the operator of the cluster runs, and its log';

/**
 * Returns the checks of the etcd behind reached endpoints: user, cluster id, heartbeat, cluster-config,
 * canaries, and the right to read each prefix of an agent. Writes nothing. Each list has at most one key,
 * without its value.
 */
export async function checkKvstore(
  cluster: CheckedCluster,
  endpoints: readonly string[],
  context: CheckContext,
): Promise<readonly CheckResult[]> {
  const checked = endpoints.map((endpoint) => new CheckedEndpoint(cluster, endpoint, context));
  try {
    const logins = await Promise.all(checked.map((endpoint) => endpoint.checkLogin()));
    const checks = logins.map(({ check }) => check);
    const ids = logins.flatMap(({ check, clusterID }) =>
      clusterID === undefined ? [] : [{ clusterID, endpoint: check.subject }],
    );
    checks.push(...checkClusterIDs(ids));
    const accepting = checked.find((_, index) => logins[index]?.check.status === 'ok');
    if (accepting === undefined) return checks;
    return [...checks, ...(await accepting.checkKeys())];
  } finally {
    await Promise.all(checked.map((endpoint) => endpoint.close()));
  }
}

interface Login {
  /** Its subject is the endpoint. */
  readonly check: CheckResult;
  /** Undefined if no answer had one. */
  readonly clusterID?: string;
}

class CheckedEndpoint {
  readonly #cluster: CheckedCluster;
  readonly #endpoint: string;
  readonly #context: CheckContext;
  readonly #transport: EtcdTransport;

  constructor(cluster: CheckedCluster, endpoint: string, context: CheckContext) {
    this.#cluster = cluster;
    this.#endpoint = endpoint;
    this.#context = context;
    this.#transport = new EtcdTransport(
      { ...cluster.config, endpoints: [endpoint], deadlineMs: CHECK_TIMEOUT_MS },
      context.random,
    );
  }

  close(): Promise<void> {
    return this.#transport.close();
  }

  /** Checks the user. A user who may read neither key is accepted, because it may have rights to other keys. */
  async checkLogin(): Promise<Login> {
    const { name, config } = this.#cluster;
    const check = new Check('auth', this.#endpoint);
    const accepted = check.ok(
      `accepted ${config.auth === undefined ? 'without a user' : `as user ${config.auth.username}`}`,
    );
    for (const key of [HEARTBEAT_KEY, clusterConfigKey(name)]) {
      const answer = await this.#read(keyRange(key));
      if (!isError(answer)) return { check: accepted, clusterID: answer.header.clusterID };
      if (!lacksRight(answer)) return { check: failedCheck(check, answer, loginRemedy(answer)) };
    }
    return { check: accepted };
  }

  async checkKeys(): Promise<readonly CheckResult[]> {
    const { name, local } = this.#cluster;
    const heartbeat = this.#checkHeartbeat();
    const { check, config } = await this.#checkConfig();
    const layout = config?.capabilities.cached === true ? 'cache' : 'state';
    const resources = MESH_RESOURCES.filter((resource) => isRead(resource, local, config));
    const canaries = config?.capabilities.syncedCanaries === true && !local;
    const prefixes = [
      ...(canaries ? [syncedPrefix(name)] : []),
      ...resources.map((resource) => resourcePrefix(resource, name, layout)),
    ];
    return [
      await heartbeat,
      check,
      ...(canaries ? [await this.#checkCanaries(resources, layout)] : []),
      ...(await Promise.all(prefixes.map((prefix) => this.#checkRight(prefix)))),
    ];
  }

  async #checkHeartbeat(): Promise<CheckResult> {
    const now = this.#context.clock.wallTime();
    const check = new Check('heartbeat', HEARTBEAT_KEY);
    const answer = await this.#read(keyRange(HEARTBEAT_KEY));
    if (isError(answer)) return this.#unreadable(check, answer);
    const [kv] = answer.kvs;
    if (kv === undefined) return check.failed('does not exist', CHECK_WRITER);
    const decoded = decodeTimestamp(kv.value, HEARTBEAT_KEY);
    if (!decoded.ok) return invalidCheck(check, decoded.rejection);
    const ageMs = now - decoded.value;
    const age = durationText(Math.abs(ageMs));
    if (ageMs > STALE_MS) return check.failed(`${age} old`, CHECK_WRITER);
    if (ageMs >= -STALE_MS) return check.ok(ageMs < 0 ? `${age} in the future` : `${age} old`);
    return check.warning(`${age} in the future`, 'check the clocks of this host and of the cluster');
  }

  async #checkConfig(): Promise<{ readonly check: CheckResult; readonly config?: ClusterConfig }> {
    const { name, local } = this.#cluster;
    const key = clusterConfigKey(name);
    const check = new Check('cluster-config', key);
    const answer = await this.#read(keyRange(key));
    if (isError(answer)) return { check: this.#unreadable(check, answer) };
    const [kv] = answer.kvs;
    if (kv === undefined && local) {
      const remedy = 'check the name of --cluster; if the cluster has no configuration, set --cluster-id';
      return { check: check.warning('does not exist', remedy) };
    }
    if (kv === undefined) {
      const remedy = `check that the cluster is named ${name}, like this file; ${CHECK_WRITER}`;
      return { check: check.failed('does not exist', remedy) };
    }
    const decoded = decodeClusterConfig(kv.value, key);
    if (!decoded.ok) return { check: invalidCheck(check, decoded.rejection) };
    const { id, capabilities } = decoded.value;
    const { syncedCanaries, cached } = capabilities;
    const text = `id ${id}${syncedCanaries ? ', with canaries' : ''}${cached ? ', cached by kvstoremesh' : ''}`;
    return { check: { ...check.ok(text), clusterID: id }, config: decoded.value };
  }

  async #checkCanaries(resources: readonly MeshResource[], layout: KeyLayout): Promise<CheckResult> {
    const { name } = this.#cluster;
    const check = new Check('canaries', syncedPrefix(name));
    const keys = resources.map((resource) => syncedKey(name, resource, layout));
    const answers = await Promise.all(keys.map((key) => this.#read(keyRange(key), true)));
    const error = answers.find(isError);
    if (error !== undefined) return this.#unreadable(check, error);
    const missing = resources.filter((_, index) => {
      const answer = answers[index];
      return answer !== undefined && !isError(answer) && answer.count === 0;
    });
    if (missing.length === 0) return check.ok(`complete: ${resources.join(', ')}`);
    return check.failed(`missing: ${missing.join(', ')}`, CHECK_WRITER);
  }

  async #checkRight(prefix: string): Promise<CheckResult> {
    const check = new Check('read', prefix);
    const answer = await this.#read(prefixRange(prefix), true);
    if (isError(answer)) return this.#unreadable(check, answer, `the prefix ${prefix}`);
    return check.ok(counted(answer.count, 'key'));
  }

  /** Returns the answer, or the error of the kvstore. */
  async #read(range: KeyRange, keysOnly = false): Promise<RangeResponse | KvstoreError> {
    const limits = { signal: this.#context.signal, deadlineMs: CHECK_TIMEOUT_MS };
    try {
      return await this.#transport.range({ ...range, limit: 1, keysOnly }, limits);
    } catch (error) {
      return asKvstoreError(error);
    }
  }

  /** Returns the check of an unreadable key or prefix. */
  #unreadable(check: Check, error: KvstoreError, right: string = check.subject): CheckResult {
    const { auth } = this.#cluster.config;
    const user = auth === undefined ? 'the user' : `user ${auth.username}`;
    return failedCheck(check, error, lacksRight(error) ? `grant read on ${right} to ${user}` : CHECK_SERVER);
  }
}

function isError(answer: RangeResponse | KvstoreError): answer is KvstoreError {
  return answer instanceof Error;
}

/** Returns true if the server knows the user, but the user may not read the key. */
function lacksRight({ code, message }: KvstoreError): boolean {
  return code === 'forbidden' && message.includes('permission denied');
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
function failedCheck(check: Check, { code, message }: KvstoreError, defaultRemedy: string): CheckResult {
  if (code === 'deadline') return check.failed(NO_ANSWER, defaultRemedy);
  const at = message.lastIndexOf('; ');
  if (at < 0) return check.failed(message, defaultRemedy);
  return check.failed(message.slice(0, at), message.slice(at + 2));
}

/** Returns the check of a key with an invalid value. The message begins with the key, which is the subject. */
function invalidCheck(check: Check, { message }: Rejection): CheckResult {
  return check.failed(message.replace(`${check.subject}: `, ''), CHECK_WRITER);
}

function checkClusterIDs(
  logins: readonly { readonly endpoint: string; readonly clusterID: string }[],
): readonly CheckResult[] {
  const [first] = logins;
  if (first === undefined) return [];
  const check = new Check('cluster-id', 'etcd');
  const hex = (id: string): string => BigInt(id).toString(16);
  if (logins.every(({ clusterID }) => clusterID === first.clusterID)) return [check.ok(hex(first.clusterID))];
  const text = logins.map(({ endpoint, clusterID }) => `${endpoint} has ${hex(clusterID)}`).join(', ');
  const remedy = 'name only the members of one etcd cluster in endpoints';
  return [check.failed(`several etcds: ${text}`, remedy)];
}

/**
 * Returns true if an agent reads a resource: slices only if the cluster does not export `services`. Services of the
 * local cluster are not read, because Kubernetes provides them.
 */
function isRead(resource: MeshResource, local: boolean, config: ClusterConfig | undefined): boolean {
  const capabilities = config?.capabilities ?? {};
  if (local && isServiceResource(resource)) return false;
  if (resource === 'endpointslices') return !exportsResource('services', capabilities);
  return exportsResource(resource, capabilities);
}
