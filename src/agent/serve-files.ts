import { readFile } from 'node:fs/promises';
import { isLoopback } from '../api/api-server.ts';
import { InputError, unreadable } from './input-error.ts';
import { readPage } from './page-files.ts';
import type { ServeOptions } from './served-api.ts';

/** Where the API is served, with the files that say who is served. */
export interface ServeSource {
  readonly socket: string | undefined;
  readonly socketIsDefault: boolean;
  /** Whether the page is served. */
  readonly ui: boolean;
  readonly listen: { readonly host: string; readonly port: number } | undefined;
  readonly files: {
    readonly token: string | undefined;
    readonly cert: string | undefined;
    readonly key: string | undefined;
    readonly clientCA: string | undefined;
  };
}

async function read(option: string, path: string | undefined): Promise<string | undefined> {
  if (path === undefined) return undefined;
  return readFile(path, 'utf8').catch((cause: unknown) => {
    throw unreadable(option, path, cause);
  });
}

/** What of it cannot be together, or would serve strangers: a sentence each. Reads no file. */
export function serveContradictions({
  listen,
  files,
  ui,
}: Pick<ServeSource, 'listen' | 'files' | 'ui'>): readonly string[] {
  const { token, cert, key, clientCA } = files;
  const problems: string[] = [];
  if (listen === undefined) {
    if (Object.values(files).some(Boolean)) problems.push('--listen-…: say where with --listen <address>');
    if (ui) problems.push('--ui: the page is served over TCP: say where with --listen <address>');
  }
  if ((cert === undefined) !== (key === undefined))
    problems.push('--listen-cert and --listen-key belong together: name both');
  else if (clientCA !== undefined && cert === undefined)
    problems.push('--listen-client-ca: add --listen-cert and --listen-key');
  if (listen !== undefined && !isLoopback(listen.host) && token === undefined && clientCA === undefined)
    problems.push(
      `--listen ${listen.host}: beyond this machine it is served only with --listen-token or --listen-client-ca`,
    );
  return problems;
}

/** Reads the files. Throws `InputError` for one that cannot be read, and for {@link serveContradictions}. */
export async function readServeOptions(source: ServeSource): Promise<ServeOptions> {
  const { socket, socketIsDefault, listen, files, ui } = source;
  const problems = serveContradictions(source);
  if (problems.length > 0) throw new InputError(problems.join('\ndpcache: '));
  if (listen === undefined) return { socket, socketIsDefault };
  const token = (await read('--listen-token', files.token))?.trim();
  const cert = await read('--listen-cert', files.cert);
  const key = await read('--listen-key', files.key);
  const clientCA = await read('--listen-client-ca', files.clientCA);
  if (token === '') throw new InputError(`--listen-token ${files.token}: it is empty`);
  const tls = cert === undefined || key === undefined ? undefined : { cert, key, clientCA };
  const page = ui ? await readPage() : undefined;
  return { socket, socketIsDefault, tcp: { ...listen, token, tls }, page };
}
