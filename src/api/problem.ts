/** What is wrong with a request, as RFC 9457 has it, with the field and the value that are wrong where there are such. */
export interface ProblemDocument {
  /** Names the kind of problem: stable, for programs. */
  readonly type: string;
  readonly title: string;
  readonly status: number;
  /** One sentence for a person. */
  readonly detail: string;
  readonly field?: string | undefined;
  /** Cut to 120 characters. */
  readonly value?: string | undefined;
  /** What the field may be. */
  readonly allowed?: string | undefined;
}

/** The kinds of problems: status and title of each. */
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

/** One of the kinds. */
export type ProblemKind = keyof typeof PROBLEMS;

/** Thrown by a handler: the request is answered with it. */
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

/** Builds the document of a problem. */
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

/** The answer that a problem is. */
export function problemResponse(
  document: ProblemDocument,
  headers: Readonly<Record<string, string>> = {},
): Response {
  return new Response(JSON.stringify(document), {
    status: document.status,
    headers: { 'content-type': PROBLEM_TYPE, ...headers },
  });
}
