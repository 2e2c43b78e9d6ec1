import { constants } from 'node:os';

const { EAGAIN, EOPNOTSUPP } = constants.errno;

/** Of two names of a number the one that manual pages use; and one that only the kernel knows, and lets out. */
const CODES: ReadonlyMap<number, string> = new Map([
  ...Object.entries(constants.errno).map(([code, errno]) => [errno, code] as const),
  ...([
    [EAGAIN, 'EAGAIN'],
    [EOPNOTSUPP, 'EOPNOTSUPP'],
    [524, 'ENOTSUPP'],
  ] as const),
]);

/** `ENOSPC` for 28; `E123` for a number without a name. */
export function errnoCode(errno: number): string {
  return CODES.get(errno) ?? `E${errno}`;
}

/** A system call that the kernel has refused. */
export class SyscallError extends Error {
  override readonly name: string = 'SyscallError';
  /** What was called, in the words of a manual page: `bpf(MAP_CREATE)`, `mount`. */
  readonly call: string;
  readonly errno: number;
  /** The name of `errno`: `ENOSPC`. */
  readonly code: string;
  /** What else the kernel has said, such as the log of the verifier; `''` when nothing. */
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
