import { Buffer } from 'node:buffer';
import { dirname, resolve } from 'node:path';
import { parse } from 'yaml';
import type { Clock } from '../../base/clock.ts';
import { messageOf, yamlProblem } from '../../base/failure.ts';
import { readRegularFile } from '../../base/files/regular-file.ts';
import { type Rejection, rejection } from '../../base/rejection.ts';
import { systemClock } from '../../base/system-clock.ts';
import { Fields } from '../../net/fields.ts';
import { withoutUser } from '../../net/url-host.ts';
import {
  type ClientCertificate,
  type ClusterAccess,
  type Credentials,
  fixedCredentials,
  isBearerToken,
  type Pem,
} from './cluster-access.ts';
import { ExecCredentials, type ExecPlugin } from './exec-credentials.ts';
import { TokenFile } from './token-file.ts';

/** An invalid kubeconfig or service account. */
export class KubeconfigError extends Error {
  override readonly name = 'KubeconfigError';
  readonly code = 'invalid-kubeconfig';
  /** Rejections by field; empty if the error concerns no field. */
  readonly rejections: readonly Rejection[];

  constructor(message: string, rejections: readonly Rejection[] = [], options?: ErrorOptions) {
    super(message, options);
    this.rejections = rejections;
  }
}

/** One context of a kubeconfig. */
export interface Kubeconfig extends ClusterAccess {
  readonly context: string;
  /** Names of cluster and user in the context. The user is empty if the context has none: requests are anonymous. */
  readonly cluster: string;
  readonly user: string;
  /** The default namespace. */
  readonly namespace: string;
}

/** Options of {@link readKubeconfig}. */
export interface KubeconfigOptions {
  /** Default: `current-context`. */
  readonly context?: string | undefined;
  /** Default: the system clock. */
  readonly clock?: Clock | undefined;
}

type KubeconfigSection = Fields<undefined>;

/** Replaces secrets in messages. */
const SECRET = '(not shown)';
/** Name of the extension of a cluster that configures credential plugins. */
const EXEC_EXTENSION = 'client.authentication.k8s.io/exec';
const EXEC_VERSIONS = ['client.authentication.k8s.io/v1', 'client.authentication.k8s.io/v1beta1'] as const;

/** Unsupported fields. They are rejected because ignoring them would change the route or the user of requests. */
const UNSUPPORTED_OF_CLUSTER: ReadonlyMap<string, string> = new Map([
  ['proxy-url', 'proxies are not supported: remove it, and connect to the API server directly'],
]);
const UNSUPPORTED_OF_USER: ReadonlyMap<string, string> = new Map([
  ['auth-provider', 'was removed in Kubernetes 1.26: use an exec plugin'],
  ['as', 'impersonation is not supported'],
  ['as-uid', 'impersonation is not supported'],
  ['as-groups', 'impersonation is not supported'],
  ['as-user-extra', 'impersonation is not supported'],
]);

/** Reads a kubeconfig file. Rejects with a {@link KubeconfigError} that names every invalid field. */
export async function readKubeconfig(path: string, options: KubeconfigOptions = {}): Promise<Kubeconfig> {
  let text: string;
  try {
    text = (await readRegularFile(path)).toString('utf8');
  } catch (cause) {
    throw new KubeconfigError(`cannot read kubeconfig ${path}: ${messageOf(cause)}`, [], { cause });
  }
  return parseKubeconfig(text, path, options);
}

/** Parses the text of a kubeconfig. Relative paths are relative to the folder of `path`. */
export function parseKubeconfig(text: string, path: string, options: KubeconfigOptions = {}): Kubeconfig {
  let document: unknown;
  try {
    document = parse(text, { maxAliasCount: 0, logLevel: 'error' });
  } catch (error) {
    // Not with `cause`, because the message of the parser contains lines of the file.
    throw new KubeconfigError(`kubeconfig ${path} is not YAML: ${yamlProblem(error)}`);
  }
  const rejections: Rejection[] = [];
  const reject = (reason: string, field: string, value: unknown, why: string): undefined => {
    rejections.push(rejection(reason, field, value, why, path));
  };
  const fields = Fields.of(document, reject, 'kubeconfig');
  const kubeconfig = fields && new KubeconfigReader(fields, dirname(resolve(path)), options).read();
  if (kubeconfig !== undefined && rejections.length === 0) return kubeconfig;
  const count = rejections.length === 1 ? '1 field is invalid' : `${rejections.length} fields are invalid`;
  throw new KubeconfigError(
    `cannot use kubeconfig ${path}: ${count}:\n${rejections.map(({ message }) => `  ${message}`).join('\n')}`,
    rejections,
  );
}

/** Reads one context of a kubeconfig. */
class KubeconfigReader {
  readonly #root: KubeconfigSection;
  readonly #folder: string;
  readonly #options: KubeconfigOptions;

  constructor(root: KubeconfigSection, folder: string, options: KubeconfigOptions) {
    this.#root = root;
    this.#folder = folder;
    this.#options = options;
  }

  /** Returns the context; undefined if a required field was rejected. */
  read(): Kubeconfig | undefined {
    const context = this.#options.context ?? this.#root.text('current-context');
    if (context === undefined) return undefined;
    const section = this.#named('contexts', context, 'context');
    const cluster = section?.text('cluster');
    const user = section?.string('user') ?? '';
    if (cluster === undefined) return undefined;
    const clusterSection = this.#named('clusters', cluster, 'cluster');
    const userSection = user === '' ? 'anonymous' : this.#named('users', user, 'user');
    if (clusterSection === undefined || userSection === undefined) return undefined;
    const access = this.#access(clusterSection, userSection);
    return (
      access && { ...access, context, cluster, user, namespace: section?.string('namespace') || 'default' }
    );
  }

  /** Returns the section of the list element with that name: `clusters[1].cluster`. */
  #named(list: string, name: string, section: string): KubeconfigSection | undefined {
    const elements = this.#root.list(list).items((all, index) => all.object(index));
    const element = elements.find((candidate) => candidate.value('name') === name);
    const names = elements.map((candidate) => String(candidate.value('name'))).join(', ');
    if (element === undefined)
      return this.#root.reject(
        list,
        'unknown-name',
        `no element is named "${name}": found ${names || 'none'}`,
        name,
      );
    if (element.value(section) !== undefined) return element.object(section);
    return element.reject(section, 'missing-field', 'is missing');
  }

  #access(cluster: KubeconfigSection, user: KubeconfigSection | 'anonymous'): ClusterAccess | undefined {
    rejectUnsupported(cluster, UNSUPPORTED_OF_CLUSTER);
    const server = this.#server(cluster);
    const ca = this.#pem(cluster, 'certificate-authority');
    const credentials =
      user === 'anonymous' ? fixedCredentials(undefined, undefined) : this.#credentials(user, cluster, ca);
    const insecureSkipVerify = cluster.boolean('insecure-skip-tls-verify') ?? false;
    if (insecureSkipVerify && ca !== undefined)
      cluster.reject(
        'insecure-skip-tls-verify',
        'contradiction',
        'must be false if certificate-authority is set',
      );
    const serverName = cluster.string('tls-server-name') || undefined;
    const disableCompression = cluster.boolean('disable-compression');
    if (server === undefined || credentials === undefined) return undefined;
    return { server, ca, serverName, insecureSkipVerify, disableCompression, credentials };
  }

  #server(cluster: KubeconfigSection): string | undefined {
    const text = cluster.text('server');
    if (text === undefined) return undefined;
    const withScheme = text.includes('://') ? text : `https://${text}`;
    const url = URL.canParse(withScheme) ? new URL(withScheme) : undefined;
    if (url?.protocol === 'https:' || url?.protocol === 'http:') return url.origin + url.pathname;
    return cluster.reject('server', 'invalid-url', 'must be a URL, https://host:port', withoutUser(text));
  }

  #credentials(
    user: KubeconfigSection,
    cluster: KubeconfigSection,
    ca: Pem | undefined,
  ): Credentials | undefined {
    rejectUnsupported(user, UNSUPPORTED_OF_USER);
    const clock = this.#options.clock ?? systemClock;
    const certificate = this.#certificate(user);
    if (user.value('exec') !== undefined) {
      const plugin = this.#exec(user.item('exec'), cluster, ca);
      return plugin && new ExecCredentials(plugin, clock);
    }
    const tokenFile = user.string('tokenFile');
    if (tokenFile) return new TokenFile(resolve(this.#folder, tokenFile), clock, certificate);
    return fixedCredentials(this.#authorization(user), certificate);
  }

  #authorization(user: KubeconfigSection): string | undefined {
    const token = secret(user, 'token');
    if (token && !isBearerToken(token))
      return user.reject(
        'token',
        'invalid-token',
        'must have no space, line break or other invalid character',
        SECRET,
      );
    if (token) return `Bearer ${token}`;
    const [name, password] = [user.string('username'), secret(user, 'password')];
    if (!name) return undefined;
    return `Basic ${Buffer.from(`${name}:${password ?? ''}`).toString('base64')}`;
  }

  #certificate(user: KubeconfigSection): ClientCertificate | undefined {
    const certificate = this.#pem(user, 'client-certificate');
    const key = this.#pem(user, 'client-key');
    if (certificate !== undefined && key !== undefined) return { certificate, key };
    if (certificate !== undefined)
      user.reject('client-key', 'missing-field', 'must be set if client-certificate is set');
    if (key !== undefined)
      user.reject('client-certificate', 'missing-field', 'must be set if client-key is set');
    return undefined;
  }

  /** Returns the PEM of `x-data` (base64) if present, else of `x` (a file). */
  #pem(section: KubeconfigSection, name: string): Pem | undefined {
    const field = `${name}-data`;
    const encoded = secret(section, field);
    if (encoded) {
      const data = Buffer.from(encoded, 'base64');
      if (data.toString('latin1').includes('-----BEGIN ')) return { data };
      return section.reject(field, 'invalid-pem', 'must be PEM encoded as base64', SECRET);
    }
    const file = section.string(name);
    return file ? { file: resolve(this.#folder, file) } : undefined;
  }

  #exec(
    exec: KubeconfigSection | undefined,
    cluster: KubeconfigSection,
    ca: Pem | undefined,
  ): ExecPlugin | undefined {
    if (exec === undefined) return undefined;
    const apiVersion = exec.text('apiVersion') && exec.word('apiVersion', EXEC_VERSIONS);
    const command = exec.text('command');
    const args = exec.list('args').items((list, index) => list.string(index));
    const env: Record<string, string> = {};
    for (const entry of exec.list('env').items((list, index) => list.item(index))) {
      const [name, value] = [entry.text('name'), entry.string('value')];
      if (name !== undefined && value !== undefined) env[name] = value;
    }
    if (exec.string('interactiveMode') === 'Always')
      exec.reject(
        'interactiveMode',
        'unsupported',
        'is not supported, because no terminal is available: use IfAvailable or Never',
      );
    if (apiVersion === undefined || command === undefined) return undefined;
    return {
      apiVersion,
      args,
      env,
      folder: this.#folder,
      installHint: exec.string('installHint'),
      // A path is relative to the kubeconfig; a bare name is searched in PATH.
      command: command.includes('/') ? resolve(this.#folder, command) : command,
      cluster: exec.boolean('provideClusterInfo') === true ? clusterInfo(cluster) : undefined,
      ca,
    };
  }
}

/** Rejects the unsupported fields of a section. */
function rejectUnsupported(section: KubeconfigSection, unsupported: ReadonlyMap<string, string>): void {
  for (const [name, why] of unsupported)
    if ((section.value(name) ?? '') !== '') section.reject(name, 'unsupported', why, SECRET);
}

/** Returns a string that is never shown in messages. */
function secret(section: KubeconfigSection, name: string): string | undefined {
  const value = section.value(name);
  if (typeof value === 'string' || value === undefined) return value;
  return section.reject(name, 'wrong-type', 'must be a string', SECRET);
}

function clusterInfo(cluster: KubeconfigSection): Readonly<Record<string, unknown>> {
  const names = ['server', 'tls-server-name', 'insecure-skip-tls-verify', 'disable-compression'];
  const extensions = cluster.list('extensions').items((list, index) => list.object(index));
  const extension = extensions.find((candidate) => candidate.value('name') === EXEC_EXTENSION);
  const fields = Object.fromEntries(names.map((name) => [name, cluster.value(name)]));
  return { ...fields, config: extension?.value('extension') };
}
