import { readFile } from 'node:fs/promises';
import { isLoopback } from '../api/api-server.ts';
import type { ServeOptions } from './agent-api.ts';
import { InputError, unreadable } from './input-error.ts';
import { readPage } from './page-files.ts';

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

/** Reads the files. Throws `InputError` for one that cannot be read, and where strangers would be served. */
export async function readServeOptions({
  socket,
  socketIsDefault,
  listen,
  files,
  ui,
}: ServeSource): Promise<ServeOptions> {
  const token = (await read('--listen-token', files.token))?.trim();
  const cert = await read('--listen-cert', files.cert);
  const key = await read('--listen-key', files.key);
  const clientCA = await read('--listen-client-ca', files.clientCA);
  if (listen === undefined) {
    if (Object.values(files).some(Boolean))
      throw new InputError('--listen-…: say where with --listen <address>');
    if (ui) throw new InputError('--ui: the page is served over TCP: say where with --listen <address>');
    return { socket, socketIsDefault };
  }
  if (token === '') throw new InputError(`--listen-token ${files.token}: it is empty`);
  if ((cert === undefined) !== (key === undefined))
    throw new InputError('--listen-cert and --listen-key belong together: name both');
  if (clientCA !== undefined && cert === undefined)
    throw new InputError('--listen-client-ca: add --listen-cert and --listen-key');
  if (!isLoopback(listen.host) && token === undefined && clientCA === undefined)
    throw new InputError(
      `--listen ${listen.host}: beyond this machine it is served only with --listen-token or --listen-client-ca`,
    );
  const tls = cert === undefined || key === undefined ? undefined : { cert, key, clientCA };
  const page = ui ? await readPage() : undefined;
  return { socket, socketIsDefault, tcp: { ...listen, token, tls }, page };
}
