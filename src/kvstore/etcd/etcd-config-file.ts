import { readFile } from 'node:fs/promises';
import { parse } from 'yaml';
import type { EtcdConfig, EtcdTLS } from './etcd-config.ts';

/** A configuration that cannot be used; the message names field and value. */
export class EtcdConfigError extends Error {
  override readonly name = 'EtcdConfigError';
}

/** A configuration with the files that it names, read. */
export interface LoadedEtcdConfig {
  readonly config: EtcdConfig;
  /** Everything that the configuration was made of, for comparing. */
  readonly parts: readonly (string | Buffer)[];
}

type Fields = ReadonlyMap<unknown, unknown>;

function refuse(field: string, value: unknown, why: string): never {
  // Passwords are not for logs.
  const shown = field === 'password' ? '' : ` ${JSON.stringify(value)}`;
  throw new EtcdConfigError(`${field}${shown}: ${why}`);
}

function text(fields: Fields, field: string): string | undefined {
  const value = fields.get(field);
  if (value === undefined || value === null || value === '') return undefined;
  return typeof value === 'string' ? value : refuse(field, value, 'must be text');
}

function flag(fields: Fields, field: string): boolean {
  const value = fields.get(field) ?? false;
  return typeof value === 'boolean' ? value : refuse(field, value, 'must be true or false');
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

/** Go's: text such as `1m30s`, or a number of nanoseconds. In milliseconds; undefined for none or zero. */
function duration(fields: Fields, field: string): number | undefined {
  const value = fields.get(field) ?? 0;
  if (typeof value === 'number' && value >= 0) return value / 1e6 || undefined;
  if (typeof value !== 'string' || !DURATION.test(value))
    return refuse(field, value, 'must be a duration, such as 10s');
  const parts = value.matchAll(/(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)/g);
  const sum = [...parts].reduce((ms, [, count, unit]) => ms + Number(count) * (UNIT_MS[unit ?? ''] ?? 0), 0);
  return sum || undefined;
}

function endpoints(fields: Fields, plain: 'http' | 'https'): readonly string[] {
  const value = fields.get('endpoints');
  if (!Array.isArray(value) || value.length === 0)
    return refuse('endpoints', value, 'must be a list of at least one URL');
  const urls = value.map((item: unknown) => endpoint(item, plain));
  const schemes = new Set(urls.map((url) => url.split(':', 1)[0]));
  return schemes.size === 1 ? urls : refuse('endpoints', value, 'must all be http or all be https');
}

function endpoint(item: unknown, plain: 'http' | 'https'): string {
  if (typeof item !== 'string' || item === '') return refuse('endpoints', item, 'must be a URL');
  const url = /^[a-z]+:\/\//.test(item) ? item : `${plain}://${item}`;
  const { protocol, host } = URL.canParse(url) ? new URL(url) : { protocol: '', host: '' };
  const known = (protocol === 'http:' || protocol === 'https:') && host !== '';
  return known ? url.replace(/\/$/, '') : refuse('endpoints', item, 'must be a URL of http or https');
}

function parseFields(content: string): Fields {
  try {
    const document: unknown = parse(content, { mapAsMap: true });
    if (document instanceof Map) return document;
  } catch (error) {
    const why = error instanceof Error ? error.message.split(/:?\n/, 1)[0] : String(error);
    throw new EtcdConfigError(`no YAML: ${why}`);
  }
  throw new EtcdConfigError('must be YAML with fields such as endpoints');
}

async function file(fields: Fields, ...names: readonly string[]): Promise<Buffer | undefined> {
  for (const name of names) {
    const path = text(fields, name);
    if (path === undefined) continue;
    const content = await readFile(path).catch((error: unknown) =>
      refuse(name, path, error instanceof Error ? error.message : String(error)),
    );
    // A file that is being written is empty or cut: better to keep what one has than to break the connection.
    return content.includes('-----BEGIN ') ? content : refuse(name, path, 'holds no PEM');
  }
  return undefined;
}

/**
 * Reads a Cilium etcd configuration (WIRE, "etcd configuration file"): its YAML, and the certificates that it
 * names. Unknown fields are ignored. Throws {@link EtcdConfigError}.
 */
export async function loadEtcdConfig(content: string): Promise<LoadedEtcdConfig> {
  const fields = parseFields(content);
  const [ca, certificate, key] = await Promise.all([
    file(fields, 'trusted-ca-file', 'ca-file'),
    file(fields, 'cert-file'),
    file(fields, 'key-file'),
  ]);
  if ((certificate === undefined) !== (key === undefined))
    throw new EtcdConfigError('cert-file and key-file: one needs the other');
  const secured = !flag(fields, 'insecure-transport');
  const urls = endpoints(fields, secured && ca !== undefined ? 'https' : 'http');
  const tls: EtcdTLS = {
    ca,
    certificate,
    key,
    insecureSkipVerify: flag(fields, 'insecure-skip-tls-verify'),
  };
  const username = text(fields, 'username');
  const config: EtcdConfig = {
    endpoints: urls,
    tls: secured && urls[0]?.startsWith('https:') === true ? tls : undefined,
    auth: username === undefined ? undefined : { username, password: text(fields, 'password') ?? '' },
    deadlineMs: duration(fields, 'dial-timeout'),
    keepAliveTimeMs: duration(fields, 'keep-alive-time'),
    keepAliveTimeoutMs: duration(fields, 'keep-alive-timeout'),
  };
  return { config, parts: [content, ca ?? '', certificate ?? '', key ?? ''] };
}
