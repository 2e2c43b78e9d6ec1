import { constants } from 'node:os';
import { messageOf } from '../../../base/failure.ts';

const { EAGAIN, EOPNOTSUPP } = constants.errno;

/**
 * Names of errno values, as in manual pages. EAGAIN and EOPNOTSUPP are listed because EWOULDBLOCK and ENOTSUP have the
 * same numbers. ENOTSUPP is internal to the kernel, but some calls return it.
 */
const CODES: ReadonlyMap<number, string> = new Map([
  ...Object.entries(constants.errno).map(([code, errno]) => [errno, code] as const),
  ...([
    [EAGAIN, 'EAGAIN'],
    [EOPNOTSUPP, 'EOPNOTSUPP'],
    [524, 'ENOTSUPP'],
  ] as const),
]);

/** Returns `ENOSPC` for 28, and `E123` for a number without a name. */
export function errnoCode(errno: number): string {
  return CODES.get(errno) ?? `E${errno}`;
}

/** A system call refused by the kernel. */
export class SyscallError extends Error {
  override readonly name: string = 'SyscallError';
  /** The call, as in a manual page: `bpf(MAP_CREATE)`, `mount`. */
  readonly call: string;
  /** 0 if the error is not one of the kernel. */
  readonly errno: number;
  /** The name of `errno`: `ENOSPC`; `UNKNOWN` if it is 0. */
  readonly code: string;
  /** Additional output of the kernel, such as the log of the verifier; `''` if there is none. */
  readonly detail: string;

  constructor(call: string, errno: number, detail = '') {
    const code = errno === 0 ? 'UNKNOWN' : errnoCode(errno);
    super([call, errno === 0 ? '' : code, detail].filter((part) => part !== '').join(': '));
    this.call = call;
    this.errno = errno;
    this.code = code;
    this.detail = detail;
  }
}

/** Returns the {@link SyscallError} for an error of Node's file system; errno 0 for any other error. */
export function syscallErrorOf(call: string, error: unknown): SyscallError {
  const errno =
    error instanceof Error && 'errno' in error && typeof error.errno === 'number' ? -error.errno : 0;
  return new SyscallError(call, errno, messageOf(error));
}
