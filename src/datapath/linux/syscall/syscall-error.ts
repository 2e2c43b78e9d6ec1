import { constants } from 'node:os';

const { EAGAIN, EOPNOTSUPP } = constants.errno;

/**
 * Names of errno values. If a number has two names, the one that manual pages use is returned. ENOTSUPP is internal to the kernel, but some
 * calls return it.
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

/** A system call that the kernel has refused. */
export class SyscallError extends Error {
  override readonly name: string = 'SyscallError';
  /** The call, as in a manual page: `bpf(MAP_CREATE)`, `mount`. */
  readonly call: string;
  readonly errno: number;
  /** The name of `errno`: `ENOSPC`. */
  readonly code: string;
  /** Additional output of the kernel, such as the log of the verifier; `''` if there is none. */
  readonly detail: string;

  constructor(call: string, errno: number, detail = '') {
    const code = errnoCode(errno);
    super(detail === '' ? `${call}: ${code}` : `${call}: ${code}: ${detail}`);
    this.call = call;
    this.errno = errno;
    this.code = code;
    this.detail = detail;
  }
}
