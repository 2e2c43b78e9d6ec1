import { showValue } from '../base/show-value.ts';
import type { Uncertainty } from '../history/types.ts';
import type { RetainedDocument } from './past-document.ts';

/** A problem of a request (RFC 9457), with the invalid field and value if there is one. */
export interface ProblemDocument {
  /** Stable identifier of the problem kind, for programs. */
  readonly type: string;
  readonly title: string;
  readonly status: number;
  /** One sentence for the user. */
  readonly detail: string;
  readonly field?: string | undefined;
  /** The invalid value, truncated to 120 characters. */
  readonly value?: string | undefined;
  /** Description of valid values. */
  readonly allowed?: string | undefined;
  /** The known name that is most similar to the unknown `value`. */
  readonly nearest?: string | undefined;
  /** The interval for which the history holds changes, ISO 8601. Set if the requested time is outside of it. */
  readonly retained?: RetainedDocument | undefined;
  /** Why the object may have existed at the requested time. Absent if it certainly did not. */
  readonly reason?: Uncertainty | undefined;
}

/** Maximum length of a value in a problem. */
export const MAX_VALUE_LENGTH = 120;

/** Status and title of each problem kind. */
const PROBLEMS = {
  'invalid-parameter': [400, 'Invalid parameter'],
  'invalid-time': [400, 'Invalid time'],
  unauthorized: [401, 'Bearer token required'],
  forbidden: [403, 'Forbidden'],
  'bad-request': [400, 'Bad request'],
  'not-found': [404, 'Not found'],
  'unknown-path': [404, 'Unknown path'],
  'method-not-allowed': [405, 'Method not allowed'],
  'request-timeout': [408, 'Request timeout'],
  expired: [410, 'Expired'],
  'not-retained': [410, 'Time not recorded'],
  'length-required': [411, 'Content-Length required'],
  'body-too-large': [413, 'Body too large'],
  'unsupported-media-type': [415, 'Unsupported media type'],
  'too-many': [429, 'Too many requests'],
  'headers-too-large': [431, 'URL or headers too long'],
  internal: [500, 'Internal error'],
} as const;

export type ProblemKind = keyof typeof PROBLEMS;

/** The optional fields of a problem. */
export type ProblemDetails = Pick<
  ProblemDocument,
  'field' | 'value' | 'allowed' | 'nearest' | 'retained' | 'reason'
>;

/** Thrown by a route. The response is its document. */
export class ProblemError extends Error {
  readonly document: ProblemDocument;

  constructor(kind: ProblemKind, detail: string, fields: ProblemDetails = {}) {
    super(detail);
    this.name = 'ProblemError';
    this.document = problem(kind, detail, fields);
  }
}

/**
 * Returns the problem of an invalid parameter. `why` follows the field and the value: `is not a valid IP address`.
 * `allowed`: the valid values.
 */
export function invalidParameter(field: string, value: string, why: string, allowed?: string): ProblemError {
  const known = allowed === undefined ? {} : { allowed };
  return new ProblemError('invalid-parameter', `${field} ${showValue(value)} ${why}.`, {
    field,
    value,
    ...known,
  });
}

export function problem(kind: ProblemKind, detail: string, fields: ProblemDetails = {}): ProblemDocument {
  const [status, title] = PROBLEMS[kind];
  const document = { type: `urn:dpcache:problem:${kind}`, title, status, detail, ...fields };
  if (fields.value === undefined) return document;
  return { ...document, value: fields.value.slice(0, MAX_VALUE_LENGTH) };
}

/** Returns true for the problem of a path that the process does not serve. */
export function isUnknownPath({ type }: Partial<ProblemDocument>): boolean {
  return type === `urn:dpcache:problem:${'unknown-path' satisfies ProblemKind}`;
}

/** Returns the detail as a message of a command: without the capital letter and the full stop of a sentence. */
export function problemMessage({ detail }: Pick<ProblemDocument, 'detail'>): string {
  const sentence = detail.replace(/\.$/, '');
  return /^[A-Z][a-z]* /.test(sentence) ? sentence.charAt(0).toLowerCase() + sentence.slice(1) : sentence;
}

/** The media type of problem documents. */
export const PROBLEM_TYPE = 'application/problem+json';

export function problemResponse(
  document: ProblemDocument,
  headers: Readonly<Record<string, string>> = {},
): Response {
  return new Response(JSON.stringify(document), {
    status: document.status,
    headers: {
      'content-type': PROBLEM_TYPE,
      'cache-control': 'no-store', // by default, a browser may cache a 410 forever
      ...(document.status === 429 && { 'retry-after': '1' }),
      ...headers,
    },
  });
}
