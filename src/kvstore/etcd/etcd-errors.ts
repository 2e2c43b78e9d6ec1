import { status } from '@grpc/grpc-js';
import { KvstoreError, type KvstoreErrorCode } from '../session/errors.ts';
import { connectionFailure, foreignAnswer } from './connection-failure.ts';

/** The text of grpc-js 1.14 if the server closes the connection with ENHANCE_YOUR_CALM. */
const ENHANCE_YOUR_CALM = 'Bandwidth exhausted or memory limit exceeded';
/** Maximum length of a text of a server in an error. A header list has up to 64 KiB, and a message 64 MiB. */
export const MAX_SERVER_TEXT = 1_000;

const TOO_MANY_REQUESTS = 'too many requests';
const TOO_MANY_PINGS = 'closed the connection because of too many pings';

/** The beginning of all messages of etcd. */
const ETCD_PREFIX = /^etcdserver: /;

/** Messages of etcd that are more specific than the gRPC status. */
const CODE_BY_MESSAGE: readonly (readonly [part: string, code: KvstoreErrorCode])[] = [
  ['invalid auth token', 'invalid-token'],
  ['user name is empty', 'invalid-token'], // no token was sent: authentication was enabled later
  ['auth: revision in header is old', 'invalid-token'],
  ['revision of auth store is old', 'invalid-token'],
  ['permission denied', 'forbidden'],
  ['invalid user ID or password', 'forbidden'],
  [ENHANCE_YOUR_CALM, 'unavailable'],
  ['required revision has been compacted', 'compacted'],
  ['required revision is a future revision', 'future-revision'],
  ['requested lease not found', 'lease-not-found'],
  ['no leader', 'no-leader'],
  [TOO_MANY_REQUESTS, 'overloaded'],
  ['larger than max', 'too-large'],
  ['decompresses to a size larger', 'too-large'],
  ['not supported for learner', 'unavailable'], // a member that does not vote yet; another one can answer
  // Texts of grpc-js 1.14 for answers of proxies, and of gRPC servers that are not etcd.
  ['Received HTTP status code', 'unavailable'],
  ['Received RST_STREAM', 'unavailable'],
  ['unknown service', 'unavailable'],
];

const CODE_BY_STATUS: ReadonlyMap<number, KvstoreErrorCode> = new Map<number, KvstoreErrorCode>([
  [status.CANCELLED, 'unavailable'],
  [status.DEADLINE_EXCEEDED, 'deadline'],
  [status.PERMISSION_DENIED, 'forbidden'],
  [status.RESOURCE_EXHAUSTED, 'overloaded'],
  [status.FAILED_PRECONDITION, 'invalid-request'],
  [status.INVALID_ARGUMENT, 'invalid-request'],
  [status.UNAVAILABLE, 'unavailable'],
  [status.UNAUTHENTICATED, 'invalid-token'],
]);

/** Returns the code for a message of etcd, such as the cancel reason of a watch; `undefined` if it is unknown. */
export function codeOfMessage(message: string): KvstoreErrorCode | undefined {
  return CODE_BY_MESSAGE.find(([part]) => message.includes(part))?.[1];
}

/** An empty note after the text, added by grpc-js 1.14. */
const EMPTY_NOTE = /\.? Resolution note: $/;

/**
 * Returns an error of grpc-js, or of the decoding of an answer, as a {@link KvstoreError}. For common causes, the
 * message names the problem, the endpoint and the remedy; otherwise it is the endpoint and the text of the error. The
 * original error is the `cause`.
 *
 * @param host the endpoint without its scheme
 */
export function etcdError(thrown: unknown, host: string): KvstoreError {
  if (thrown instanceof KvstoreError) return thrown;
  const error = thrown instanceof Error ? thrown : new Error(String(thrown));
  const grpcStatus = 'code' in error && typeof error.code === 'number' ? error.code : undefined;
  const byStatus = grpcStatus === undefined ? undefined : CODE_BY_STATUS.get(grpcStatus);
  const text = grpcStatus === undefined ? error.message : error.message.replace(EMPTY_NOTE, '');
  const code = codeOfMessage(text) ?? byStatus ?? 'internal';
  const originalText = `${serverAt(host)}: ${text.replace(ETCD_PREFIX, '')}`;
  return new KvstoreError(code, plainMessage(text, grpcStatus, code, host) ?? originalText, { cause: error });
}

/** Returns the error of a call whose answer has a content type other than gRPC, such as a proxy's HTML page. */
export function foreignAnswerError(host: string, contentType: string): KvstoreError {
  return new KvstoreError('unavailable', foreignAnswer(serverAt(host), `of type ${contentType}`));
}

/**
 * Returns true if the server applies entries too slowly, while another member may be faster. The other cause of
 * `overloaded`, a full database, concerns all members.
 */
export function isTooManyRequests(error: KvstoreError): boolean {
  return error.message.includes(TOO_MANY_REQUESTS);
}

/** Returns true if the server closed the connection because it was pinged too often. */
export function isTooManyPings(error: KvstoreError | undefined): boolean {
  return error?.message.includes(TOO_MANY_PINGS) === true;
}

/** Returns the error of a call that an endpoint did not answer in time. */
export function etcdDeadlineError(host: string): KvstoreError {
  return new KvstoreError('deadline', noAnswer(serverAt(host)));
}

/** Returns the message for a common cause: problem, endpoint, remedy; undefined for other causes. */
function plainMessage(
  text: string,
  grpcStatus: number | undefined,
  code: KvstoreErrorCode,
  host: string,
): string | undefined {
  const server = serverAt(host);
  if (text.includes('invalid user ID or password'))
    return `${server} rejects the user or the password; check username and password of the configuration`;
  // `withMissingRight` appends the remedy, because only the caller knows the key.
  if (text.includes('permission denied')) return `permission denied by ${server}`;
  if (grpcStatus === status.DEADLINE_EXCEEDED) return noAnswer(server);
  // If grpc-js 1.14 cannot decompress an answer, its error has no status and no text.
  if (grpcStatus === undefined && text === '')
    return `${server} sent an answer in an unknown grpc-encoding; check the proxy before etcd`;
  if (text === ENHANCE_YOUR_CALM) return `${server} ${TOO_MANY_PINGS}; raise keep-alive-time`;
  if (text === '') return `${server} gave no reason for status ${grpcStatus}`;
  return code === 'unavailable' ? connectionFailure(text, server) : undefined;
}

function noAnswer(server: string): string {
  return `no answer from ${server} in time; check the network and the load of etcd`;
}

function serverAt(host: string): string {
  return `etcd at ${host}`;
}
