import { type Command, InvalidArgumentError, Option } from 'commander';
import type { ServeSource } from '../agent/serve-files.ts';
import type { ServeOptions } from '../agent/served-api.ts';
import { defaultSocketPath } from '../api/socket-path.ts';
import type { CommandIO } from './io.ts';
import { parsePath } from './mesh-options.ts';

/** The socket of the agent that is asked. */
export interface SocketFlags {
  /** False: an agent's settings say that it serves none. */
  readonly socket?: string | false;
}

/** Where an agent serves its API. */
export interface ServeFlags {
  /** False: on none. */
  readonly socket?: string | false;
  readonly listen?: ListenAddress;
  readonly listenToken?: string;
  readonly listenCert?: string;
  readonly listenKey?: string;
  readonly listenClientCa?: string;
  readonly ui?: true;
}

interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

function parseListen(text: string): ListenAddress {
  const [, six, four, digits = ''] = /^(?:(?:\[([^\]]+)\]|([^:[\]]*)):)?(\d{1,5})$/.exec(text) ?? [];
  const port = digits === '' ? Number.NaN : Number(digits);
  if (port <= 65_535) return { host: six || four || '127.0.0.1', port };
  throw new InvalidArgumentError('It must be a port, or address:port, such as 127.0.0.1:8080 or [::1]:8080.');
}

/** What an agent keeps on a disk. */
export interface StateFlags {
  readonly stateDir?: string;
  readonly importCiliumState?: string;
}

/** Adds the options of {@link StateFlags}. */
export function addStateOptions(command: Command): Command {
  return command
    .optionsGroup('What it keeps:')
    .addOption(
      new Option(
        '--state-dir <folder>',
        'write what it knows there now and then, and answer from it after a restart until its sources are complete',
      )
        .argParser(parsePath)
        .conflicts('once'),
    )
    .option(
      '--import-cilium-state <folder>',
      'with --state-dir, where that has no checkpoint yet: answer from the state directory of a Cilium agent, such as /var/run/cilium/state; writes nothing there',
      parsePath,
    )
    .optionsGroup('Options:');
}

/** Adds `--socket` to a command that asks. */
export function addSocketOption(command: Command, of = 'agent', name = 'dpcache.sock'): Command {
  return command.option(
    '--socket <path>',
    `socket of the ${of} to ask (default: ${name} in $XDG_RUNTIME_DIR or /run/dpcache)`,
    parsePath,
  );
}

/** The socket of the process that is asked. */
export function socketPath({ socket }: SocketFlags, env: CommandIO['env'], name?: string): string {
  return socket || defaultSocketPath(env, name);
}

/** Adds the options of {@link ServeFlags} of an agent. */
export function addServeOptions(command: Command): Command {
  return addListenOptions(command)
    .optionsGroup('How it is asked:')
    .option('--ui', 'with --listen: serve the page, too')
    .optionsGroup('Options:');
}

/** Adds the options of {@link ServeFlags} of any process. */
export function addListenOptions(command: Command, name = 'dpcache.sock'): Command {
  return command
    .optionsGroup('How it is asked:')
    .option(
      '--socket <path>',
      `unix socket of its API (default: ${name} in $XDG_RUNTIME_DIR or /run/dpcache)`,
      parsePath,
    )
    .option('--no-socket', 'no unix socket')
    .option(
      '--listen <address>',
      'serve the API over TCP too, at port or address:port (alone: loopback)',
      parseListen,
    )
    .option('--listen-token <file>', 'with --listen: clients show this bearer token', parsePath)
    .option('--listen-cert <file>', 'with --listen: certificate of the server (PEM)', parsePath)
    .option('--listen-key <file>', 'with --listen: its key (PEM)', parsePath)
    .option(
      '--listen-client-ca <file>',
      'with --listen: only clients with a certificate of this authority (PEM)',
      parsePath,
    )
    .optionsGroup('Options:');
}

/** What the flags say of who is served over TCP, and where. */
function tcpSource(flags: ServeFlags): Pick<ServeSource, 'listen' | 'files' | 'ui'> {
  const { listen, listenToken, listenCert, listenKey, listenClientCa, ui } = flags;
  const files = { token: listenToken, cert: listenCert, key: listenKey, clientCA: listenClientCa };
  return { listen, files, ui: ui === true };
}

/** What of the flags cannot be together: a sentence each. Reads no file. */
export async function serveProblems(flags: ServeFlags): Promise<readonly string[]> {
  const { serveContradictions } = await import('../agent/serve-files.ts');
  return serveContradictions(tcpSource(flags));
}

/** Where the flags ask the API to be served. Throws `InputError` for files that cannot be read. */
export async function serveOptions(
  flags: ServeFlags,
  env: CommandIO['env'],
  name?: string,
): Promise<ServeOptions> {
  const { readServeOptions } = await import('../agent/serve-files.ts');
  const { socket } = flags;
  return readServeOptions({
    socket: socket === false ? undefined : (socket ?? defaultSocketPath(env, name)),
    socketIsDefault: socket === undefined,
    ...tcpSource(flags),
  });
}
