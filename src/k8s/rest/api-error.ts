import { messageOf } from '../../base/failure.ts';
import { cutText } from '../../base/show-value.ts';
import { isObject, parseJson } from '../../net/fields.ts';

/**
 * The reason for the failure of a request to an API server.
 *
 * - `unreachable`: no connection, or the client has closed it because the server does not answer. `broken`: the
 *   connection ended during the response. `silent`: no data for too long.
 * - `throttled`: 429. `unavailable`: 503 or 504, because the server starts, stops or is overloaded. `internal`: 500.
 * - `expired`: 410, the requested version was compacted. `future-version`: the version is not reached yet, because the
 *   server is behind or was restored from a backup.
 * - `unauthorized`: 401, the credentials are invalid or expired. `forbidden`: 403. `missing`: 404.
 * - `conflict`: 409, another object has that name, or the version or UID differs from the expected one. `invalid`: 422,
 *   the object or patch violates the schema, or a `test` of the patch failed.
 * - `garbled`: the response is malformed. `rejected`: the request was rejected for another reason.
 * - `credentials`: no credentials are available: a file cannot be read, or a plugin fails.
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

const PERMANENT_CODES: ReadonlySet<ApiErrorCode> = new Set([
  'forbidden',
  'missing',
  'conflict',
  'invalid',
  'rejected',
]);

/** A failed request to an API server. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly code: ApiErrorCode;
  /** True if the same request may succeed later without a change by the user. */
  readonly retryable: boolean;
  /** Delay requested by the server, in milliseconds; 0 if none. */
  readonly retryAfterMs: number;
  /** True if the server states causes, such as the fields that violate the schema; false if a `test` failed. */
  readonly hasCauses: boolean;

  constructor(
    code: ApiErrorCode,
    message: string,
    options: ErrorOptions & { readonly retryAfterMs?: number; readonly hasCauses?: boolean } = {},
  ) {
    super(message, options);
    this.code = code;
    this.retryable = !PERMANENT_CODES.has(code);
    this.retryAfterMs = options.retryAfterMs ?? 0;
    this.hasCauses = options.hasCauses ?? false;
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

const MAX_MESSAGE_LENGTH = 300;
/** Upper limit of `Retry-After`. */
const MAX_RETRY_AFTER_MS = 60_000;

/** Returns the header `Retry-After` in milliseconds; 0 if it is absent or invalid. */
export function retryAfter(seconds: unknown): number {
  const ms = Number(seconds ?? 0) * 1000;
  return ms > 0 ? Math.min(ms, MAX_RETRY_AFTER_MS) : 0;
}

function codeOf(status: number, causes: readonly unknown[], message: string): ApiErrorCode {
  const isFuture = causes.some((cause) => isObject(cause) && cause['reason'] === 'ResourceVersionTooLarge');
  if (isFuture || (status === 504 && message.includes('Too large resource version'))) return 'future-version';
  return BY_STATUS.get(status) ?? (status >= 500 ? 'internal' : 'rejected');
}

/** Returns a text of a server without the credential of its request, because a server may repeat it. */
export function withoutSecret(text: string, secret: string | undefined): string {
  return secret ? text.replaceAll(secret, '[removed]') : text;
}

/**
 * Returns the error of a Status object; fields may be missing. `httpStatus` replaces a missing code. `secret` is the
 * credential of the request.
 */
export function errorOfStatus(status: unknown, httpStatus = 0, retryAfterMs = 0, secret?: string): ApiError {
  const fields = isObject(status) ? status : {};
  const details = isObject(fields['details']) ? fields['details'] : {};
  const causes: readonly unknown[] = Array.isArray(details['causes']) ? details['causes'] : [];
  const message = typeof fields['message'] === 'string' ? fields['message'] : '';
  const code = typeof fields['code'] === 'number' ? fields['code'] : httpStatus;
  const shown = cutText(
    message === '' ? `status ${code}` : withoutSecret(message, secret),
    MAX_MESSAGE_LENGTH,
  );
  return new ApiError(codeOf(code, causes, message), shown, {
    retryAfterMs: Math.max(retryAfterMs, retryAfter(details['retryAfterSeconds'])),
    hasCauses: causes.length > 0,
  });
}

/** Returns the error of a failed response, whose body is a Status, plain text or HTML. */
export function errorOfAnswer(
  httpStatus: number,
  text: string,
  retryAfterMs: number,
  secret?: string,
): ApiError {
  const status = parseJson(text);
  const fields = isObject(status) ? status : { message: `status ${httpStatus}: ${text.trim()}` };
  return errorOfStatus(fields, httpStatus, retryAfterMs, secret);
}

/** Converts a thrown value to an ApiError. Unexpected values become `broken`. */
export function asApiError(thrown: unknown): ApiError {
  if (thrown instanceof ApiError) return thrown;
  return new ApiError('broken', messageOf(thrown), { cause: thrown });
}
