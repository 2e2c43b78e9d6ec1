import { messageOf } from '../base/failure.ts';
/** Why an input could not be used at all: the file is not there, may not be read, or is not what it should be. */
export class InputError extends Error {
  override readonly name = 'InputError';

  /** `message` says which input, what is wrong with it, and what to do. */
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
  }
}

const ADVICE: ReadonlyMap<string, string> = new Map([
  ['ENOENT', 'there is no such file or folder: check the path'],
  ['EACCES', 'you may not read it: check its permissions'],
  ['EISDIR', 'it is a folder: name a file'],
  ['ENOTDIR', 'a part of its path is a file, not a folder: check the path'],
]);

/** The {@link InputError} for a failed read of `path` that was given as `option`. */
export function unreadable(option: string, path: string, cause: unknown): InputError {
  const code = cause instanceof Error && 'code' in cause ? String(cause.code) : '';
  const advice = ADVICE.get(code) ?? messageOf(cause);
  return new InputError(`${option} ${path}: ${advice}`, { cause });
}
