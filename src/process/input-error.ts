import { messageOf } from '../base/failure.ts';
/** An input that cannot be used: the file does not exist, may not be read, or has invalid contents. */
export class InputError extends Error {
  override readonly name = 'InputError';

  /** @param message the input, its problem and the remedy */
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

/** Returns the {@link InputError} for a failed read of `path`, the value of `option`. */
export function unreadable(option: string, path: string, cause: unknown): InputError {
  const code = cause instanceof Error && 'code' in cause ? String(cause.code) : '';
  const advice = ADVICE.get(code) ?? messageOf(cause);
  return new InputError(`${option} ${path}: ${advice}`, { cause });
}
