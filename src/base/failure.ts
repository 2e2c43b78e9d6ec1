import type { Clock } from './clock.ts';
import { showValue } from './show-value.ts';

/** A failure as plain data for a status. */
export interface Failure {
  /** The `code` of the error, such as `unavailable`. If it has none, its name, such as `TypeError`. */
  readonly code: string;
  readonly message: string;
  /** Wall time, milliseconds since the epoch. */
  readonly at: number;
}

/** Texts of the codes of system errors (errno(3), getaddrinfo(3)). */
const SYSTEM_ERRORS: ReadonlyMap<string, string> = new Map([
  ['EACCES', 'permission denied'],
  ['EADDRINUSE', 'address already in use'],
  ['EADDRNOTAVAIL', 'address not available on this machine'],
  ['EAI_AGAIN', 'temporary DNS failure'],
  ['ECONNREFUSED', 'connection refused'],
  ['ECONNRESET', 'connection reset by the peer'],
  ['EFBIG', 'file too large'],
  ['EHOSTUNREACH', 'host unreachable'],
  ['EIO', 'input/output error'],
  ['EISDIR', 'is a folder'],
  ['ELOOP', 'too many symbolic links'],
  ['EMFILE', 'too many open files'],
  ['ENETUNREACH', 'network unreachable'],
  ['ENOENT', 'no such file or folder'],
  ['ENOSPC', 'no space left on device'],
  ['ENOTDIR', 'a part of the path is a file'],
  ['ENOTFOUND', 'unknown host name'],
  ['EPERM', 'operation not permitted'],
  // A fixed text, because the message of OpenSSL has a memory address, a source file and a line break.
  ['EPROTO', 'protocol error'],
  ['EPIPE', 'connection closed by the peer'],
  ['EROFS', 'read-only file system'],
  ['ETIMEDOUT', 'connection timed out'],
]);

/** Returns the text of a code of a system error, such as `ECONNREFUSED`; `undefined` if it is unknown. */
export function systemErrorText(code: string): string | undefined {
  return SYSTEM_ERRORS.get(code);
}

/** Returns the code of an error, such as `ENOENT`; `undefined` if it has none. */
export function errorCode(thrown: unknown): unknown {
  return thrown instanceof Error && 'code' in thrown ? thrown.code : undefined;
}

/**
 * Returns the problem in an error of the YAML parser and its position. Omits the parts of the text that the message
 * contains, because they may be secrets.
 */
export function yamlProblem(thrown: unknown): string {
  const [line = ''] = messageOf(thrown).split('\n', 1);
  const [, problem = line, position = ''] =
    /^(.*?\S)(?:(?::\s|\s\\).*?)?( at line \d+, column \d+)?:?$/.exec(line) ?? [];
  return problem + position;
}

/**
 * Returns the message of a thrown value. For a system error of Node.js, returns a text without its code, with the
 * network address if there is one. File names are omitted, because the caller names the file. If no address of a host
 * accepts a connection, the error has no message, so the texts for all addresses are returned.
 */
export function messageOf(thrown: unknown): string {
  if (!(thrown instanceof Error))
    try {
      return String(thrown);
    } catch {
      return showValue(thrown); // an object without a prototype has no text
    }
  if (thrown instanceof AggregateError && thrown.message === '')
    return thrown.errors.map(messageOf).join('; ');
  const { code, address, port, hostname }: NodeJSError = thrown;
  if (!('syscall' in thrown) || typeof code !== 'string') return thrown.message;
  // The message of an unknown code is `CODE: text, open '/path'`.
  const text =
    systemErrorText(code) ?? thrown.message.replace(`${code}: `, '').replace(/, [a-z]+( '.*)?$/s, '');
  const host = address?.includes(':') === true ? `[${address}]` : address;
  // The address of a unix socket is a file name; its port is -1 if the process cannot listen on it.
  const where = port === undefined || port < 0 ? hostname : `${host}:${port}`;
  return where === undefined ? text : `${text}: ${where}`;
}

/** The fields of system errors of Node.js. */
interface NodeJSError extends Error {
  readonly code?: unknown;
  readonly address?: string;
  readonly port?: number;
  readonly hostname?: string;
}

/** Returns the later of two failures; the first one if both are equally late. */
export function laterFailure(a: Failure | undefined, b: Failure | undefined): Failure | undefined {
  return a === undefined || (b !== undefined && b.at > a.at) ? b : a;
}

/** Returns a thrown value as a {@link Failure} of this moment. */
export function failureOf(thrown: unknown, clock: Pick<Clock, 'wallTime'>): Failure {
  const at = clock.wallTime();
  const message = messageOf(thrown);
  if (!(thrown instanceof Error)) return { code: typeof thrown, message, at };
  const code = 'code' in thrown && typeof thrown.code === 'string' ? thrown.code : thrown.name;
  return { code, message, at };
}
