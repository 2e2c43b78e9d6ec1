import { type Command, InvalidArgumentError, Option } from 'commander';
import type { ApiClient } from '../api/api-client.ts';
import { defaultSocketPath } from '../api/server/socket-path.ts';
import type { ServeSource } from '../process/serve-files.ts';
import type { ServeOptions } from '../process/served-api.ts';
import type { CommandIO } from './io.ts';
import { parsePath, parseSize, RepeatableOption } from './option-table.ts';

/** The socket of the agent to ask. */
export interface SocketFlags {
  /** Path of the socket; false if the settings contain `--no-socket`. */
  readonly socket?: string | false;
}

/** Addresses of the API of an agent. */
export interface ServeFlags extends SocketFlags {
  readonly listen?: ApiAddress;
  readonly listenName?: readonly string[];
  readonly listenToken?: string;
  readonly listenCert?: string;
  readonly listenKey?: string;
  readonly listenClientCa?: string;
  readonly ui?: true;
}

/** An address of the API over TCP. */
export type ApiAddress = NonNullable<ServeSource['listen']>;

/** Parses a port (of loopback) or `address:port`. */
function parseListen(text: string): ApiAddress {
  const [, bracketed, unbracketed, digits] = /^(?:(?:\[([^\]]+)\]|([^:[\]]*)):)?(\d{1,5})$/.exec(text) ?? [];
  const port = Number(digits);
  if (port <= 65_535) return { host: bracketed || unbracketed || '127.0.0.1', port };
  throw new InvalidArgumentError('It must be a port or address:port, such as 127.0.0.1:8080 or [::1]:8080.');
}

/** Parses the address at which a recorded state is served: without credentials, so only to this machine. */
export function parseServe(text: string): ApiAddress {
  const address = parseListen(text);
  if (/^(localhost|::1|127(\.\d+){3})$/i.test(address.host)) return address;
  throw new InvalidArgumentError(
    'It must be an address of this machine, such as 127.0.0.1:8080, because no credentials protect it. ' +
      'To open the page on another machine, forward the port, such as with ssh -L.',
  );
}

/** Returns the DNS names with one more. */
function appendHostName(name: string, previous: readonly string[] = []): readonly string[] {
  if (/^[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?$/i.test(name) && name.length <= 254) return [...previous, name];
  throw new InvalidArgumentError('It must be a DNS name without a port, such as agent.example.');
}

/** Options of the files of an agent, as parsed by commander. */
export interface StateFlags {
  readonly stateDir?: string;
  readonly importCiliumState?: string;
  /** Bytes; 0: off. */
  readonly historyMemory: number;
  readonly historyDisk: number;
  readonly tape?: string;
  /** Bytes. */
  readonly tapeSize: number;
}

/** Parses the size of a tape, at least 16 MiB. */
function parseTapeSize(text: string): number {
  const size = parseSize(text);
  if (size >= 16 << 20) return size;
  throw new InvalidArgumentError('It must be a size of at least 16MiB, such as 256MiB.');
}

/** Adds the options of {@link StateFlags}. */
export function addStateOptions(command: Command): Command {
  return command
    .optionsGroup('State on disk:')
    .addOption(
      new Option(
        '--state-dir <folder>',
        'write checkpoints to this folder; after a restart, answer from the last one until all sources are synced',
      )
        .argParser(parsePath)
        .conflicts('once'),
    )
    .option(
      '--import-cilium-state <folder>',
      'with --state-dir: if it has no checkpoint yet, read the state directory of a Cilium agent, such as /var/run/cilium/state',
      parsePath,
    )
    .addOption(
      new Option(
        '--history-memory <size>',
        'memory for the history that --at and dpcache history read, such as 64MiB; off: record no history',
      )
        .argParser(parseSize)
        .default(16 << 20, '16MiB'),
    )
    .addOption(
      new Option(
        '--history-disk <size>',
        'with --state-dir: size of the files with older history, which remain after a restart, such as 1GiB; off: write no files',
      )
        .argParser(parseSize)
        .default(128 << 20, '128MiB'),
    )
    .addOption(
      new Option(
        '--tape <folder>',
        'record all input in this folder; dpcache replay restores and checks any earlier state from it',
      )
        .argParser(parsePath)
        .conflicts('once'),
    )
    .addOption(
      new Option('--tape-size <size>', 'with --tape: maximum size of its files; the oldest are removed first')
        .argParser(parseTapeSize)
        .default(256 << 20, '256MiB'),
    )
    .optionsGroup('Options:');
}

/** Returns the contradiction between the options of the files of an agent, if any. `isSet`: one is not the default. */
export function stateContradiction(
  { stateDir, importCiliumState, historyMemory, historyDisk, tape }: StateFlags,
  isSet: (attribute: keyof StateFlags) => boolean,
): string | undefined {
  if (tape === undefined && isSet('tapeSize')) return '--tape-size requires --tape <folder>';
  if (importCiliumState !== undefined && stateDir === undefined)
    return '--import-cilium-state requires --state-dir, because the imported state is stored there';
  if (!isSet('historyDisk') || historyDisk === 0) return undefined;
  if (stateDir === undefined)
    return '--history-disk requires --state-dir, because its files are stored there';
  return historyMemory === 0 ? '--history-disk requires --history-memory, which is off' : undefined;
}

/** Adds `--socket` to a command that asks a running process. */
export function addSocketOption(command: Command, process = 'agent', socketName = 'dpcache.sock'): Command {
  return command.option(
    '--socket <path>',
    `socket of the running ${process} (default: ${socketName} in $XDG_RUNTIME_DIR or /run/dpcache)`,
    parsePath,
  );
}

/** Returns the remedy if no process answers at the socket of a command without other sources. */
export function socketAdvice(process = 'agent'): string {
  return `start one with dpcache ${process}, or set its socket with --socket`;
}

/** Returns the socket of the process to ask. */
export function socketPath({ socket }: SocketFlags, env: CommandIO['env'], socketName?: string): string {
  return socket || defaultSocketPath(env, socketName);
}

/** Calls `use` with a client of the running process that a command names. The default process is an agent. */
export async function askProcess<T>(
  flags: SocketFlags,
  { env, signal }: CommandIO,
  use: (client: ApiClient) => Promise<T>,
  process?: string,
  socketName?: string,
): Promise<T> {
  const { askAgent } = await import('../client/ask-agent.ts');
  return askAgent(socketPath(flags, env, socketName), use, signal, socketAdvice(process));
}

/** Adds the options of {@link ServeFlags}. */
export function addListenOptions(command: Command, socketName = 'dpcache.sock'): Command {
  return command
    .optionsGroup('API:')
    .option(
      '--socket <path>',
      `unix socket of the API (default: ${socketName} in $XDG_RUNTIME_DIR or /run/dpcache)`,
      parsePath,
    )
    .option('--no-socket', 'do not serve the API on a unix socket')
    .addOption(
      new Option('--listen <address>', 'serve the API over TCP, too, at a port (of loopback) or address:port')
        .argParser(parseListen)
        .conflicts('once'),
    )
    .addOption(
      new RepeatableOption(
        '--listen-name <name>',
        'with --listen: DNS name that clients may use, such as agent.example; may be repeated',
      ).argParser(appendHostName),
    )
    .option(
      '--listen-token <file>',
      'with --listen: accept only clients that send the bearer token in this file',
      parsePath,
    )
    .option('--listen-cert <file>', 'with --listen: TLS certificate of the server (PEM)', parsePath)
    .option('--listen-key <file>', 'with --listen: key of the certificate (PEM)', parsePath)
    .option(
      '--listen-client-ca <file>',
      'with --listen: accept only clients with a certificate of this CA (PEM)',
      parsePath,
    )
    .option('--ui', 'with --listen: serve the web page, too')
    .optionsGroup('Options:');
}

/** Returns the address and the credentials of the flags for TCP. */
function tcpSource(flags: ServeFlags): Pick<ServeSource, 'listen' | 'names' | 'files' | 'ui'> {
  const { listen, listenName: names = [], listenToken, listenCert, listenKey, listenClientCa, ui } = flags;
  const files = { token: listenToken, cert: listenCert, key: listenKey, clientCA: listenClientCa };
  return { listen, names, files, ui: ui === true };
}

/** Returns one sentence for each contradiction between the flags. Reads no file. */
export async function serveProblems(flags: ServeFlags): Promise<readonly string[]> {
  const { serveContradictions } = await import('../process/serve-files.ts');
  return serveContradictions(tcpSource(flags));
}

/** Returns the addresses of the API for the flags, and its files. */
export function serveSource(flags: ServeFlags): ServeSource {
  const { socket } = flags;
  return {
    socket: typeof socket === 'string' ? socket : undefined,
    socketIsDefault: socket === undefined,
    ...tcpSource(flags),
  };
}

/**
 * Returns the addresses of the API for the flags, with the contents of the files. Throws `InputError` if a file cannot
 * be read or used.
 */
export async function serveOptions(
  flags: ServeFlags,
  env: CommandIO['env'],
  socketName?: string,
): Promise<ServeOptions> {
  const { readServeOptions } = await import('../process/serve-files.ts');
  const source = serveSource(flags);
  return readServeOptions(
    source.socketIsDefault ? { ...source, socket: defaultSocketPath(env, socketName) } : source,
  );
}
