/** A Status object, the response of an API server to a failed request. */
export interface ApiStatus {
  readonly kind: 'Status';
  readonly apiVersion: 'v1';
  readonly metadata: { readonly continue?: string };
  readonly status: 'Failure';
  readonly message: string;
  readonly reason: string;
  readonly details?: unknown;
  readonly code: number;
}

const CODES = {
  BadRequest: 400,
  Unauthorized: 401,
  Forbidden: 403,
  NotFound: 404,
  MethodNotAllowed: 405,
  AlreadyExists: 409,
  Conflict: 409,
  Expired: 410,
  RequestEntityTooLarge: 413,
  UnsupportedMediaType: 415,
  Invalid: 422,
  Timeout: 504,
} as const;

/** Thrown while a request is handled. The response is this Status. */
export class StatusError extends Error {
  override readonly name = 'StatusError';
  readonly status: ApiStatus;

  constructor(
    reason: keyof typeof CODES,
    message: string,
    more: { readonly details?: unknown; readonly token?: string } = {},
  ) {
    super(message);
    const metadata = more.token === undefined ? {} : { continue: more.token };
    const details = more.details === undefined ? {} : { details: more.details };
    this.status = {
      kind: 'Status',
      apiVersion: 'v1',
      metadata,
      status: 'Failure',
      message,
      reason,
      ...details,
      code: CODES[reason],
    };
  }
}
