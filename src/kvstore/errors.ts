import { messageOf } from '../base/failure.ts';
/**
 * Why a call to a kvstore failed.
 *
 * - `unavailable`: no connection, or it broke; `deadline`: no answer in time; `no-leader`: the cluster has lost
 *   its quorum; `overloaded`: the server asks to slow down. All of them pass.
 * - `invalid-token`: the credentials have expired and have to be fetched anew.
 * - `compacted`: the revision asked for has been compacted away; `future-revision`: it has not been reached
 *   (after a restore, a revision that once was can lie in the future again).
 * - `too-large`: the answer is larger than the transport takes.
 * - `forbidden`: the user may not do this. `lease-not-found`: the lease has expired or was revoked.
 * - `lock-lost`: the lock under which the write was to be made is not held any more. `not-leader`: the client's owner may not
 *   write now (`mayWrite`).
 * - `invalid-request`: the server refuses the request itself. `aborted`: the caller's signal. `closed`: the
 *   client was closed. `internal`: anything else.
 */
export type KvstoreErrorCode =
  | 'unavailable'
  | 'deadline'
  | 'no-leader'
  | 'overloaded'
  | 'invalid-token'
  | 'compacted'
  | 'future-revision'
  | 'too-large'
  | 'forbidden'
  | 'lease-not-found'
  | 'lock-lost'
  | 'not-leader'
  | 'invalid-request'
  | 'aborted'
  | 'closed'
  | 'internal';

/** Failures that say that no server was reached. */
export const OUT_OF_REACH: ReadonlySet<KvstoreErrorCode> = new Set(['unavailable', 'deadline', 'no-leader']);

const RETRYABLE: ReadonlySet<KvstoreErrorCode> = new Set([
  'unavailable',
  'deadline',
  'no-leader',
  'overloaded',
  'invalid-token',
  'internal',
]);

const NOT_DONE: ReadonlySet<KvstoreErrorCode> = new Set([
  'forbidden',
  'invalid-request',
  'invalid-token',
  'lease-not-found',
  'lock-lost',
  'not-leader',
]);

/** The kvstore, or the way to it, has failed. What the caller did wrong throws an `AssertionError` instead. */
export class KvstoreError extends Error {
  override readonly name = 'KvstoreError';
  readonly code: KvstoreErrorCode;
  /** Whether the same call may succeed later without anybody changing anything. */
  readonly retryable: boolean;

  constructor(code: KvstoreErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    this.retryable = RETRYABLE.has(code);
  }
}

/** Whether a write that failed with this has certainly not taken effect, and will not. */
export function isOutcomeKnown({ code }: KvstoreError): boolean {
  return NOT_DONE.has(code);
}

/** Any thrown value as a {@link KvstoreError}; what is none becomes `internal` with the value as its cause. */
export function asKvstoreError(thrown: unknown): KvstoreError {
  if (thrown instanceof KvstoreError) return thrown;
  const message = messageOf(thrown);
  return new KvstoreError('internal', message, { cause: thrown });
}

/** What was thrown, and where the user lacks a right, which: etcd says only that it lacks one. */
export function namingRight(thrown: unknown, right: 'read' | 'readwrite', key: string): KvstoreError {
  const cause = asKvstoreError(thrown);
  if (cause.code !== 'forbidden' || !cause.message.includes('permission denied')) return cause;
  return new KvstoreError(cause.code, `grant ${right} on ${key} to the user: ${cause.message}`, { cause });
}

/** The error of a call whose signal has fired. */
export function abortedError(): KvstoreError {
  return new KvstoreError('aborted', 'the call was aborted');
}

/** The error of a call that was not answered in time. */
export function deadlineError(): KvstoreError {
  return new KvstoreError('deadline', 'no answer in time');
}
