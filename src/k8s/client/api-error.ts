import { cutText } from '../../base/show-value.ts';
import { isObject } from '../../net/fields.ts';

/**
 * Why a request to an API server failed.
 *
 * - `unreachable`: no connection. `broken`: the connection ended in the middle. `silent`: nothing came for too long.
 * - `throttled`: 429. `unavailable`: 503, 504: it starts, stops, or is overloaded. `internal`: 500.
 * - `expired`: what was asked for is no longer remembered: 410. `future-version`: it has not been reached: the server is
 *   behind, or has been restored from a backup.
 * - `unauthorized`: 401: the credentials are not (or no longer) valid. `forbidden`: 403. `missing`: 404.
 * - `conflict`: 409: there is another object of that name, or it is not at the version, or not the life, that was expected.
 *   `invalid`: 422: the object or patch is not what the kind wants, or a `test` of the patch does not hold.
 * - `garbled`: the answer is not what the API says. `rejected`: the request is refused for another reason.
 * - `credentials`: there are none to be had: a file that cannot be read, a plugin that fails.
 */
export type ApiErrorCode =
  | 'unreachable'
  | 'broken'
  | 'silent'
  | 'throttled'
  | 'unavailable'
  | 'internal'
  | 'expired'
  | 'future-version'
  | 'unauthorized'
  | 'forbidden'
  | 'missing'
  | 'conflict'
  | 'invalid'
  | 'garbled'
  | 'rejected'
  | 'credentials';

const FOR_GOOD: ReadonlySet<ApiErrorCode> = new Set([
  'forbidden',
  'missing',
  'conflict',
  'invalid',
  'rejected',
]);

/** An API server, or the way to it, has failed. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly code: ApiErrorCode;
  /** Whether the same request may succeed later without anybody changing anything. */
  readonly retryable: boolean;
  /** The server asks to wait for so long; 0 if it says nothing. */
  readonly retryAfterMs: number;

  constructor(
    code: ApiErrorCode,
    message: string,
    options: ErrorOptions & { readonly retryAfterMs?: number } = {},
  ) {
    super(message, options);
    this.code = code;
    this.retryable = !FOR_GOOD.has(code);
    this.retryAfterMs = options.retryAfterMs ?? 0;
  }
}

const BY_STATUS: ReadonlyMap<number, ApiErrorCode> = new Map([
  [401, 'unauthorized'],
  [403, 'forbidden'],
  [404, 'missing'],
  [409, 'conflict'],
  [422, 'invalid'],
  [410, 'expired'],
  [429, 'throttled'],
  [503, 'unavailable'],
  [504, 'unavailable'],
]);

const MESSAGE_LENGTH = 300;
/** A server that says "an hour" is not believed. */
const LONGEST_RETRY_AFTER_MS = 60_000;

/** So many milliseconds, from the header `Retry-After` in seconds; 0 where it says nothing of use. */
export function retryAfter(seconds: unknown): number {
  const ms = Number(seconds ?? 0) * 1000;
  return ms > 0 ? Math.min(ms, LONGEST_RETRY_AFTER_MS) : 0;
}

function codeOf(status: number, details: unknown, message: string): ApiErrorCode {
  const causes = isObject(details) && Array.isArray(details['causes']) ? details['causes'] : [];
  const isFuture = causes.some((cause) => isObject(cause) && cause['reason'] === 'ResourceVersionTooLarge');
  if (isFuture || (status === 504 && message.includes('Too large resource version'))) return 'future-version';
  return BY_STATUS.get(status) ?? (status >= 500 ? 'internal' : 'rejected');
}

/** What a Status object says; one of a stream may lack all but its code. */
export function errorOfStatus(status: unknown, httpStatus = 0, retryAfterMs = 0): ApiError {
  const fields = isObject(status) ? status : {};
  const { code = httpStatus, message = '', details } = fields;
  const words = typeof message === 'string' ? message : '';
  const number = typeof code === 'number' ? code : httpStatus;
  const asked = isObject(details) ? retryAfter(details['retryAfterSeconds']) : 0;
  const text = cutText(words === '' ? `answered ${number}` : words, MESSAGE_LENGTH);
  return new ApiError(codeOf(number, details, words), text, { retryAfterMs: Math.max(retryAfterMs, asked) });
}

/** What an answer other than 200 says: a Status, the same without kind, plain text, or a page of HTML. */
export function errorOfAnswer(httpStatus: number, text: string, retryAfterMs: number): ApiError {
  try {
    const status: unknown = JSON.parse(text);
    if (isObject(status)) return errorOfStatus(status, httpStatus, retryAfterMs);
  } catch {
    // not JSON
  }
  return errorOfStatus({ message: `answered ${httpStatus}: ${text.trim()}` }, httpStatus, retryAfterMs);
}

/** A thrown value as an ApiError; what was not expected is `broken`. */
export function asApiError(thrown: unknown): ApiError {
  if (thrown instanceof ApiError) return thrown;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  return new ApiError('broken', message, { cause: thrown });
}
