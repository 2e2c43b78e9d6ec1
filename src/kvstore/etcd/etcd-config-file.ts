import { X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { messageOf, yamlProblem } from '../../base/failure.ts';
import { readFileHead } from '../../base/files/regular-file.ts';
import { invalidText } from '../../base/rejection.ts';
import { Fields, isObject } from '../../net/fields.ts';
import { withoutUser } from '../../net/url-host.ts';
import { type EtcdConfig, EtcdConfigError, type EtcdTLS } from './etcd-config.ts';

/** Maximum size of a configuration. A larger one is rejected. */
export const MAX_CONFIG_BYTES: number = 64 << 10;
/** Maximum size of a PEM file. A bundle of all public authorities has 200 kB. */
const MAX_PEM_BYTES = 1 << 20;
/**
 * Maximum number of lexer tokens, and of characters of one token. For some texts the time of the YAML parser is
 * quadratic in these numbers: 64 KiB of `! ` take 4 s. A configuration with 255 endpoints has 1,500 tokens.
 */
const MAX_TOKENS = 4096;
const MAX_TOKEN_LENGTH = 4096;

/** The minimum of gRPC for Go, which uses it in place of a shorter time. */
const MIN_KEEP_ALIVE_MS = 10_000;

/** A configuration and the content of its files. */
export interface LoadedEtcdConfig {
  readonly config: EtcdConfig;
  /** Paths of the files named in the configuration. */
  readonly files: readonly string[];
  /** The text of the configuration and the content of its files, to detect changes. */
  readonly parts: readonly (string | Uint8Array)[];
}

/** Reads a file that is named in a configuration. Rejects if the file is unusable. */
export type ReadPem = (path: string) => Promise<Buffer>;

/** Reads a PEM file. Rejects a file of more than 1 MiB, and one without PEM. */
export async function readPem(path: string): Promise<Buffer> {
  const { bytes, isWhole } = await readFileHead(path, MAX_PEM_BYTES);
  if (!isWhole) throw new Error('is larger than 1 MiB');
  // A file that is being written may be empty or incomplete. Reject it, so that the connection is kept.
  if (!bytes.includes('-----BEGIN ')) throw new Error('contains no PEM');
  return bytes;
}

/** Throws the error of a field. It does not contain passwords, because errors are logged. */
function reject(_reason: string, field: string, value: unknown, requirement: string): never {
  throw new EtcdConfigError(
    field === 'password' ? `${field}: ${requirement}` : invalidText(field, value, requirement),
  );
}

function readText(fields: Fields<never>, name: string): string | undefined {
  return fields.string(name) || undefined;
}

function readFlag(fields: Fields<never>, name: string): boolean {
  return fields.boolean(name) ?? false;
}

const UNIT_MS: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  ms: 1,
  s: 1e3,
  m: 6e4,
  h: 36e5,
};
const DURATION = /^(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+$/;

/**
 * Returns a Go duration in milliseconds; undefined if it is absent or zero. It is text such as `1m30s`, or a number of
 * nanoseconds.
 */
function readDuration(fields: Fields<never>, name: string): number | undefined {
  const value = fields.value(name) ?? 0;
  if (typeof value === 'number' && value >= 0) return value / 1e6 || undefined;
  if (typeof value !== 'string' || !DURATION.test(value))
    return fields.reject(name, 'invalid-duration', 'must be a duration, such as 10s');
  const parts = value.matchAll(/(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)/g);
  const sum = [...parts].reduce((ms, [, count, unit]) => ms + Number(count) * (UNIT_MS[unit ?? ''] ?? 0), 0);
  return sum || undefined;
}

function readEndpoints(fields: Fields<never>, defaultScheme: 'http' | 'https'): readonly string[] {
  const name = 'endpoints';
  const urls = fields.list(name).items((list, index) => readEndpoint(list, index, defaultScheme));
  if (urls.length === 0) return fields.reject(name, 'missing-field', 'must contain at least one URL');
  const schemes = new Set(urls.map((url) => url.split(':', 1)[0]));
  return schemes.size === 1 ? urls : fields.reject(name, 'invalid-url', 'must use one scheme: http or https');
}

/** Scheme, and host with port, of an endpoint. As in clients of etcd in Go, a user and a path are ignored. */
const ENDPOINT = /^(?:([a-z]+):\/\/)?(?:[^/?#]*@)?([^/?#]*)/i;

function readEndpoint(list: Fields<never>, index: number, defaultScheme: 'http' | 'https'): string {
  const text = list.text(index);
  const reject = (requirement: string): never =>
    list.reject(index, 'invalid-url', requirement, withoutUser(text));
  const [, scheme = defaultScheme, address = ''] = ENDPOINT.exec(text) ?? [];
  const url = `${scheme.toLowerCase()}://${address}`;
  const { protocol, host } = URL.canParse(url) ? new URL(url) : { protocol: '', host: '' };
  const isValid = (protocol === 'http:' || protocol === 'https:') && host !== '';
  if (!isValid) return reject('must be an http or https URL');
  // Without a port, grpc-js connects to 443, and etcd's Go clients fail. `URL` drops the default port of its scheme.
  return /:\d+$/.test(address) ? url : reject('must have a port, such as 2379');
}

/** Returns the addresses in `cilium-host-aliases`, by host. */
function readHostAliases(fields: Fields<never>): ReadonlyMap<string, readonly string[]> {
  const aliases = new Map<string, readonly string[]>();
  const hosts = fields.list('cilium-host-aliases');
  for (const host of hosts.items((list, index) => list.item(index))) {
    const name = host.text('hostname').toLowerCase();
    if (aliases.has(name)) host.reject('hostname', 'duplicate', 'has addresses already', name);
    const addressAt = (list: Fields<never>, index: number): string =>
      list.address(index) ?? list.reject(index, 'missing-field', 'is missing', '');
    const ips = host.list('ips').items(addressAt);
    if (ips.length === 0) host.reject('ips', 'missing-field', 'must contain at least one IP address', ips);
    aliases.set(name, ips);
  }
  return aliases;
}

/** The YAML parser is loaded on demand: it takes 40 ms, and a client without a configuration file does not need it. */
type Yaml = typeof import('yaml');

function checkSize(content: string, { Lexer }: Yaml): void {
  if (content.length > MAX_CONFIG_BYTES) throw new EtcdConfigError('is larger than 64 KiB');
  let tokens = 0;
  for (const token of new Lexer().lex(content)) {
    if (++tokens > MAX_TOKENS) throw new EtcdConfigError(`has more than ${MAX_TOKENS} words`);
    if (token.length > MAX_TOKEN_LENGTH)
      throw new EtcdConfigError(`has a value of more than ${MAX_TOKEN_LENGTH} characters`);
  }
}

async function parseFields(content: string): Promise<Fields<never>> {
  const yaml = await import('yaml');
  checkSize(content, yaml);
  let document: unknown;
  try {
    document = yaml.parse(content, { logLevel: 'error' });
  } catch (error) {
    throw new EtcdConfigError(`is not YAML: ${yamlProblem(error)}`);
  }
  if (!isObject(document)) throw new EtcdConfigError('must be a YAML object with fields such as endpoints');
  return Fields.of(document, reject, 'document');
}

/** Reads the file named by the first present field; undefined if no field is present. */
async function readNamedFile(
  fields: Fields<never>,
  read: ReadPem,
  ...names: readonly string[]
): Promise<{ readonly path: string; readonly bytes: Buffer } | undefined> {
  for (const name of names) {
    const path = readText(fields, name);
    if (path === undefined) continue;
    return {
      path,
      bytes: await read(path).catch((error: unknown) => fields.reject(name, 'unreadable', messageOf(error))),
    };
  }
  return undefined;
}

/**
 * Rejects a certificate and key that do not match. The two files are renewed one after the other, and the connection
 * must keep the previous pair until both are new.
 */
function checkPair(certificate: Buffer | undefined, key: Buffer | undefined): void {
  if (certificate === undefined && key === undefined) return;
  if (certificate === undefined || key === undefined)
    throw new EtcdConfigError('cert-file and key-file: set both or none');
  try {
    createSecureContext({ cert: certificate, key });
  } catch (error) {
    const reason = messageOf(error);
    throw new EtcdConfigError(
      reason.includes('key values mismatch')
        ? 'cert-file and key-file: the key does not match the certificate'
        : `cert-file and key-file: ${reason}`,
    );
  }
}

function checkAuthorities(ca: Buffer | undefined): void {
  if (ca === undefined) return;
  try {
    new X509Certificate(ca);
  } catch (error) {
    throw new EtcdConfigError(`trusted-ca-file is not a certificate: ${messageOf(error)}`);
  }
}

/**
 * Reads a configuration file and the files named in it; see {@link loadEtcdConfig}. Also rejects with errors of `fs`.
 */
export async function loadEtcdConfigFile(path: string): Promise<LoadedEtcdConfig> {
  const { bytes, isWhole } = await readFileHead(path, MAX_CONFIG_BYTES);
  if (!isWhole) throw new EtcdConfigError('is larger than 64 KiB');
  return loadEtcdConfig(bytes.toString('utf8'));
}

/**
 * Reads a Cilium etcd configuration (WIRE, "etcd configuration file"): its YAML, of at most 64 KiB, and the
 * certificates named in it. Ignores unknown fields. Throws {@link EtcdConfigError} if it is invalid, or if key and
 * certificate do not match.
 */
export async function loadEtcdConfig(content: string, read: ReadPem = readPem): Promise<LoadedEtcdConfig> {
  const fields = await parseFields(content);
  const mayUseTLS = !readFlag(fields, 'insecure-transport');
  const [authorities, certificateFile, keyFile] = await Promise.all(
    [['trusted-ca-file', 'ca-file'], ['cert-file'], ['key-file']].map((names) =>
      mayUseTLS ? readNamedFile(fields, read, ...names) : undefined,
    ),
  );
  const ca = authorities?.bytes;
  const certificate = certificateFile?.bytes;
  const key = keyFile?.bytes;
  checkPair(certificate, key);
  checkAuthorities(ca);
  const urls = readEndpoints(fields, mayUseTLS && ca !== undefined ? 'https' : 'http');
  const tls: EtcdTLS = {
    ca,
    certificate,
    key,
    insecureSkipVerify: readFlag(fields, 'insecure-skip-tls-verify'),
  };
  const username = readText(fields, 'username');
  const keepAliveTimeMs = readDuration(fields, 'keep-alive-time');
  const config: EtcdConfig = {
    endpoints: urls,
    hostAliases: readHostAliases(fields),
    tls: mayUseTLS && urls[0]?.startsWith('https:') === true ? tls : undefined,
    auth: username === undefined ? undefined : { username, password: readText(fields, 'password') ?? '' },
    deadlineMs: readDuration(fields, 'dial-timeout'),
    keepAliveTimeMs: keepAliveTimeMs && Math.max(MIN_KEEP_ALIVE_MS, keepAliveTimeMs),
    keepAliveTimeoutMs: readDuration(fields, 'keep-alive-timeout'),
  };
  const files = [authorities, certificateFile, keyFile].filter((named) => named !== undefined);
  return {
    config,
    files: files.map(({ path }) => path),
    parts: [content, ...files.map(({ bytes }) => bytes)],
  };
}
