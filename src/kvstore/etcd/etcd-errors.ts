import { status } from '@grpc/grpc-js';
import { KvstoreError, type KvstoreErrorCode } from '../session/errors.ts';

/** Messages of etcd that are more specific than the gRPC status. */
const BY_MESSAGE: readonly (readonly [part: string, code: KvstoreErrorCode])[] = [
  ['invalid auth token', 'invalid-token'],
  ['user name is empty', 'invalid-token'], // no token was sent: authentication was enabled later
  ['auth: revision in header is old', 'invalid-token'],
  ['revision of auth store is old', 'invalid-token'],
  ['permission denied', 'forbidden'],
  ['invalid user ID or password', 'forbidden'],
  ['required revision has been compacted', 'compacted'],
  ['required revision is a future revision', 'future-revision'],
  ['requested lease not found', 'lease-not-found'],
  ['no leader', 'no-leader'],
  ['too many requests', 'overloaded'],
  ['larger than max', 'too-large'],
];

const BY_STATUS: ReadonlyMap<number, KvstoreErrorCode> = new Map<number, KvstoreErrorCode>([
  [status.CANCELLED, 'unavailable'],
  [status.DEADLINE_EXCEEDED, 'deadline'],
  [status.PERMISSION_DENIED, 'forbidden'],
  [status.RESOURCE_EXHAUSTED, 'overloaded'],
  [status.FAILED_PRECONDITION, 'invalid-request'],
  [status.INVALID_ARGUMENT, 'invalid-request'],
  [status.UNIMPLEMENTED, 'invalid-request'],
  [status.UNAVAILABLE, 'unavailable'],
  [status.UNAUTHENTICATED, 'invalid-token'],
]);

/** Returns the code for a message of etcd, such as the cancel reason of a watch; `undefined` if it is unknown. */
export function codeOfMessage(message: string): KvstoreErrorCode | undefined {
  return BY_MESSAGE.find(([part]) => message.includes(part))?.[1];
}

/** An empty note that grpc-js appends (its load balancers, 1.14). */
const EMPTY_NOTE = /\.? Resolution note: $/;

/** Returns an error of grpc-js or etcd3 as a {@link KvstoreError}. */
export function etcdError(thrown: unknown): KvstoreError {
  if (thrown instanceof KvstoreError) return thrown;
  const error = thrown instanceof Error ? thrown : new Error(String(thrown));
  const number = 'code' in error && typeof error.code === 'number' ? error.code : undefined;
  const byStatus = number === undefined ? undefined : BY_STATUS.get(number);
  const message = error.message.replace(EMPTY_NOTE, '');
  return new KvstoreError(codeOfMessage(message) ?? byStatus ?? 'internal', message, { cause: error });
}
