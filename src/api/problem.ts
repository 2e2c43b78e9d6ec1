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
}

/** Status and title of each problem kind. */
const PROBLEMS = {
  'invalid-parameter': [400, 'A parameter is not valid'],
  unauthorized: [401, 'A bearer token is needed'],
  forbidden: [403, 'The request comes from where none is taken'],
  'bad-request': [400, 'The request is not valid HTTP'],
  'not-found': [404, 'There is no such thing'],
  'method-not-allowed': [405, 'Only reads are served'],
  'request-timeout': [408, 'The request has not come in time'],
  expired: [410, 'The list is not held any more'],
  'body-too-large': [413, 'The body is too large'],
  'unsupported-media-type': [415, 'The body must be JSON'],
  'too-many': [429, 'There are too many at a time'],
  'headers-too-large': [431, 'The address or the headers are too long'],
  internal: [500, 'The request has failed: a bug'],
} as const;

/** Kind of a problem. */
export type ProblemKind = keyof typeof PROBLEMS;

/** An error of a handler. The response is its document. */
export class ProblemError extends Error {
  readonly document: ProblemDocument;

  constructor(
    kind: ProblemKind,
    detail: string,
    about: Pick<ProblemDocument, 'field' | 'value' | 'allowed'> = {},
  ) {
    super(detail);
    this.name = 'ProblemError';
    this.document = problem(kind, detail, about);
  }
}

/** Returns the document of a problem. */
export function problem(
  kind: ProblemKind,
  detail: string,
  about: Pick<ProblemDocument, 'field' | 'value' | 'allowed'> = {},
): ProblemDocument {
  const [status, title] = PROBLEMS[kind];
  return { type: `urn:dpcache:problem:${kind}`, title, status, detail, ...about };
}

/** The media type of problem documents. */
export const PROBLEM_TYPE = 'application/problem+json';

/** Returns the response of a problem. */
export function problemResponse(
  document: ProblemDocument,
  headers: Readonly<Record<string, string>> = {},
): Response {
  return new Response(JSON.stringify(document), {
    status: document.status,
    headers: { 'content-type': PROBLEM_TYPE, ...headers },
  });
}
