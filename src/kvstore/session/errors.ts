import { messageOf } from '../../base/failure.ts';

/**
 * Reason of a failed kvstore call.
 *
 * - `unavailable`: no connection, or it broke; `deadline`: no answer in time; `no-leader`: the cluster has no
 *   quorum; `overloaded`: the server is overloaded. All of them are temporary.
 * - `invalid-token`: the credentials have expired and must be fetched again.
 * - `compacted`: the requested revision was compacted; `future-revision`: the requested revision does not exist yet
 *   (possible after a restore).
 * - `too-large`: the answer exceeds the limit of the transport.
 * - `forbidden`: the user has no right to do this. `lease-not-found`: the lease has expired or was revoked.
 * - `lock-lost`: the lock of the write is not held any more. `not-leader`: `mayWrite` of the client returned false.
 * - `invalid-request`: the server rejects the request itself. `aborted`: the signal of the caller fired. `closed`: the
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

/** Failures to reach a server. */
export const UNREACHABLE: ReadonlySet<KvstoreErrorCode> = new Set(['unavailable', 'deadline', 'no-leader']);

const RETRYABLE: ReadonlySet<KvstoreErrorCode> = new Set([
  'unavailable',
  'deadline',
  'no-leader',
  'overloaded',
  'invalid-token',
  'internal',
]);

const WITHOUT_EFFECT: ReadonlySet<KvstoreErrorCode> = new Set([
  'forbidden',
  'invalid-request',
  'invalid-token',
  'lease-not-found',
  'lock-lost',
  'not-leader',
  'overloaded',
]);

/** A failure of the kvstore or of the connection to it. A mistake of the caller throws a `UsageError` instead. */
export class KvstoreError extends Error {
  override readonly name = 'KvstoreError';
  readonly code: KvstoreErrorCode;
  /** True if the same call may succeed later without any other change. */
  readonly retryable: boolean;

  constructor(code: KvstoreErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    this.retryable = RETRYABLE.has(code);
  }
}

/** Returns true if it is certain that the failed write has not taken effect and never will. */
export function neverTakesEffect({ code }: KvstoreError): boolean {
  return WITHOUT_EFFECT.has(code);
}

/** Returns any thrown value as a {@link KvstoreError}. Other values become `internal`, with the value as the cause. */
export function asKvstoreError(thrown: unknown): KvstoreError {
  if (thrown instanceof KvstoreError) return thrown;
  const message = messageOf(thrown);
  return new KvstoreError('internal', message, { cause: thrown });
}

/**
 * Returns the thrown value as a {@link KvstoreError}. If the user lacks a right, the message names the right, which the
 * message of etcd does not.
 */
export function withMissingRight(thrown: unknown, right: 'read' | 'readwrite', key: string): KvstoreError {
  const cause = asKvstoreError(thrown);
  if (cause.code !== 'forbidden' || !cause.message.includes('permission denied')) return cause;
  return new KvstoreError(cause.code, `${cause.message}; grant ${right} on ${key} to the user`, { cause });
}

/** Returns a handler that throws its error again, with the missing right if the user lacks one. */
export function rethrowWithRight(right: 'read' | 'readwrite', key: string): (thrown: unknown) => never {
  return (thrown) => {
    throw withMissingRight(thrown, right, key);
  };
}

export function abortedError(): KvstoreError {
  return new KvstoreError('aborted', 'the call was aborted');
}

/** Returns the error for a lease which the server has just granted and does not have. */
export function missingNewLease(lease: string): KvstoreError {
  return new KvstoreError('unavailable', `lease ${lease} was granted, but does not exist`);
}

/** Returns the error for a granted lease that the client already holds, for example after a restore of the store. */
export function leaseGrantedTwice(lease: string): KvstoreError {
  return new KvstoreError('internal', `the server granted lease ${lease}, which this client already holds`);
}

export function closedError(): KvstoreError {
  return new KvstoreError('closed', 'the client was closed');
}
