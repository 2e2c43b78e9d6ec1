import { errorCode, messageOf } from '../base/failure.ts';

/**
 * Thrown if an input cannot be used: a file does not exist, may not be read, or has invalid contents. The message names
 * the input, its problem and the remedy.
 */
export class InputError extends Error {
  override readonly name = 'InputError';
}

/** Remedies by the code of a failure. */
const REMEDIES: ReadonlyMap<string, string> = new Map([
  ['ENOENT', 'check the path'],
  ['EACCES', 'check its permissions'],
  ['EISDIR', 'name a file'],
  ['ENOTDIR', 'check the path'],
]);

/** Returns the {@link InputError} for a failed read of `path`, the value of `option`. */
export function unreadable(option: string, path: string, cause: unknown): InputError {
  const code = String(errorCode(cause) ?? '');
  const remedy = REMEDIES.get(code);
  const reason = remedy === undefined ? messageOf(cause) : `${messageOf(cause)}: ${remedy}`;
  return new InputError(`${option} ${path}: ${reason}`, { cause });
}
