import { X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { isLoopback, type TCPCredentials } from '../api/server/api-server.ts';
import { messageOf } from '../base/failure.ts';
import { readFileHead } from '../base/files/regular-file.ts';
import { InputError, unreadable } from './input-error.ts';
import { readPageFiles } from './page-files.ts';
import type { ServeOptions } from './served-api.ts';

/** The addresses of the API, and the files with its credentials. */
export interface ServeSource {
  readonly socket: string | undefined;
  readonly socketIsDefault: boolean;
  /** True if the page is served. */
  readonly ui: boolean;
  readonly listen: { readonly host: string; readonly port: number } | undefined;
  /** Additional host names of this server for clients over TCP. */
  readonly names: readonly string[];
  readonly files: {
    readonly token: string | undefined;
    readonly cert: string | undefined;
    readonly key: string | undefined;
    readonly clientCA: string | undefined;
  };
}

/** Maximum size of a file. A chain of certificates has about 10 kB. */
const MAX_FILE_BYTES = 65_536;

async function readOptionFile(option: string, path: string | undefined): Promise<string | undefined> {
  if (path === undefined) return undefined;
  const { bytes, isWhole } = await readFileHead(path, MAX_FILE_BYTES).catch((cause: unknown) => {
    throw unreadable(option, path, cause);
  });
  if (!isWhole) throw new InputError(`${option} ${path}: the file is larger than 64 KiB`);
  return bytes.toString('utf8');
}

/** Returns the token in the text of a file. Throws `InputError` if it is empty, or if no HTTP header can contain it. */
export function tokenOf(file: string, text: string): string {
  const token = text.trim();
  if (token === '') throw new InputError(`${file}: the file is empty`);
  if (/^[ -~]+$/.test(token)) return token;
  throw new InputError(`${file}: the token must be one line of ASCII characters`);
}

/** Reads the files of `--listen-…`. Throws `InputError` if one cannot be read or is invalid. */
async function readCredentials(files: ServeSource['files']): Promise<TCPCredentials> {
  const text = await readOptionFile('--listen-token', files.token);
  const token = text === undefined ? undefined : tokenOf(`--listen-token ${files.token}`, text);
  const cert = await readOptionFile('--listen-cert', files.cert);
  const key = await readOptionFile('--listen-key', files.key);
  const clientCA = await readOptionFile('--listen-client-ca', files.clientCA);
  if (cert === undefined || key === undefined) return { token };
  checkParsed(`--listen-cert ${files.cert}, --listen-key ${files.key}`, () =>
    createSecureContext({ cert, key }),
  );
  // Checked here, because a secure context accepts any text as an authority and then rejects all clients.
  if (clientCA !== undefined)
    checkParsed(`--listen-client-ca ${files.clientCA}`, () => new X509Certificate(clientCA));
  return { token, tls: { cert, key, clientCA } };
}

/** Throws `InputError` if `parse` throws. */
function checkParsed(what: string, parse: () => unknown): void {
  try {
    parse();
  } catch (cause) {
    const reason = messageOf(cause);
    const isMismatch = reason.includes('key values mismatch');
    throw new InputError(`${what}: ${isMismatch ? 'the key does not match the certificate' : reason}`, {
      cause,
    });
  }
}

/** Returns one sentence for each contradiction, and for settings that would serve untrusted clients. Reads no file. */
export function serveContradictions({
  listen,
  names,
  files,
  ui,
}: Pick<ServeSource, 'listen' | 'names' | 'files' | 'ui'>): readonly string[] {
  const { token, cert, key, clientCA } = files;
  const problems: string[] = [];
  if (listen === undefined) {
    const values = { name: names[0], token, cert, key, 'client-ca': clientCA };
    for (const [option, value] of Object.entries(values))
      if (value !== undefined) problems.push(`--listen-${option} requires --listen <address>`);
    if (ui) problems.push('--ui requires --listen <address>, because the page is served over TCP');
  }
  if ((cert === undefined) !== (key === undefined))
    problems.push('--listen-cert and --listen-key require each other');
  else if (clientCA !== undefined && cert === undefined)
    problems.push('--listen-client-ca requires --listen-cert and --listen-key');
  if (listen !== undefined && !isLoopback(listen.host) && token === undefined && clientCA === undefined)
    problems.push(
      `--listen ${listen.host} requires --listen-token or --listen-client-ca, because other machines can reach this address`,
    );
  return problems;
}

/**
 * Returns the options of serving, with the contents of the files. Throws `InputError` if a file cannot be read or used,
 * or if there are {@link serveContradictions}.
 */
export async function readServeOptions(source: ServeSource): Promise<ServeOptions> {
  const { socket, socketIsDefault, listen, names, files, ui } = source;
  const problems = serveContradictions(source);
  if (problems.length > 0) throw new InputError(problems.join('\ndpcache: '));
  if (listen === undefined) return { socket, socketIsDefault };
  const credentials = (): Promise<TCPCredentials> => readCredentials(files);
  const tcp = { ...listen, names, ...(await credentials()) };
  const page = ui ? await readPageFiles() : undefined;
  return { socket, socketIsDefault, tcp, credentials, page };
}
