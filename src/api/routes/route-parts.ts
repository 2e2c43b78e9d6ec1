import { hash } from 'node:crypto';
import { z } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { assert } from '../../base/assert.ts';
import { hasSimilarLength, nearest } from '../../base/show-value.ts';
import type { TurnGate } from '../../base/turn-gate.ts';
import { UNCERTAINTIES } from '../../history/types.ts';
import { type Labels, parseLabelQuery } from '../../model/labels.ts';
import { canonicalAddress, canonicalEndpoint, Prefix } from '../../net/prefix.ts';
import type { RouteContext } from '../api-context.ts';
import { decodedSegment } from '../name-path.ts';
import { invalidParameter, PROBLEM_TYPE, type ProblemDocument, ProblemError } from '../problem.ts';
import { RETAINED } from '../schemas/history-schemas.ts';
import type { ListPage, ListPages, PagedSource } from './list-pages.ts';

const PROBLEM: z.ZodType<ProblemDocument> = z
  .object({
    type: z.string(),
    title: z.string(),
    status: z.int(),
    detail: z.string(),
    field: z.string().optional(),
    value: z.string().optional(),
    allowed: z.string().optional(),
    nearest: z.string().optional().describe('The known name that is most similar to the unknown one'),
    retained: RETAINED.optional().describe('Interval for which the history has changes'),
    reason: z
      .enum(UNCERTAINTIES)
      .optional()
      .describe('Why the answer "not found" is uncertain; absent if the object certainly did not exist'),
  })
  .openapi('Problem');

/** Descriptions and media types of a route's responses. */
export type AnswerDescription<S extends z.ZodType> = {
  readonly 200: {
    readonly description: string;
    readonly content: { readonly 'application/json': { readonly schema: S } };
  };
  readonly 304: { readonly description: string };
  readonly default: {
    readonly description: string;
    readonly content: { readonly 'application/problem+json': { readonly schema: typeof PROBLEM } };
  };
};

/** Returns the response descriptions of a route: a document, 304 or a problem. */
export function answers<S extends z.ZodType>(schema: S, description: string): AnswerDescription<S> {
  return {
    200: { description, content: { 'application/json': { schema } } },
    304: { description: 'The client already has this response: its `ETag` is in `If-None-Match`' },
    default: { description: 'The problem', content: { [PROBLEM_TYPE]: { schema: PROBLEM } } },
  };
}

/**
 * Returns the schema of a list in the body of a request, whose check ends at the first invalid item. zod alone takes up
 * to 3 µs to report each of them: 0.3 s for a body of 1 MiB.
 */
export function listOf<S extends z.ZodType>(item: S, maxItems: number): z.ZodPreprocess<z.ZodArray<S>> {
  return z.preprocess((value, context) => {
    if (!Array.isArray(value) || value.length > maxItems) return value;
    for (const [index, entry] of value.entries()) {
      const { error } = item.safeParse(entry);
      if (error === undefined) continue;
      for (const issue of error.issues) context.addIssue({ ...issue, path: [index, ...issue.path] });
      return z.NEVER;
    }
    return value;
  }, z.array(item).max(maxItems));
}

const MAX_LIMIT = 1_000;

/** Number of items counted or compared per step: less than a millisecond. */
const ITEMS_PER_SLICE = 1_024;

/** Parameters of a list: the page size and the token of the next page. */
export const PAGE_PARAMETERS: {
  readonly limit: z.ZodType<number>;
  readonly continue: z.ZodOptional<z.ZodString>;
} = {
  limit: limitParameter(MAX_LIMIT, 500).openapi({
    description: 'Maximum number of items of the page',
    param: { in: 'query', name: 'limit' },
  }),
  continue: z
    .string()
    .max(40)
    .optional()
    .openapi({
      description: 'The `continue` of the previous page',
      param: { in: 'query', name: 'continue' },
    }),
};

/** Parsed query of a list: {@link PAGE_PARAMETERS} and the filters. */
export interface PageQuery {
  readonly limit: number;
  readonly continue?: string | undefined;
  readonly [filter: string]: string | number | undefined;
}

export function pageOf<T>(item: z.ZodType<T>): z.ZodType<{
  items: readonly T[];
  revision: number;
  continue?: string | undefined;
}> {
  return z.object({
    items: z.array(item).readonly(),
    revision: z.int().describe('Revision of the list; `/v1/monitor?from=` returns the later changes'),
    continue: z.string().optional().describe('Token of the next page; absent on the last one'),
  });
}

/** Number of items of a list. */
export interface CountDocument {
  readonly count: number;
  /** Revision of the change feed when the count started. */
  readonly revision: number;
}

export const COUNT: z.ZodType<CountDocument> = z
  .object({ count: z.int(), revision: z.int() })
  .openapi('Count');

/**
 * Runs all steps of a request through the gate. Throws `ProblemError` if the client disconnects, because the remaining
 * steps would only delay other requests.
 */
export async function runWhileConnected(
  { req }: Context,
  gate: TurnGate,
  steps: Iterable<unknown>,
): Promise<void> {
  if (!(await gate.runSteps(steps, req.raw.signal))) throw disconnectedProblem();
}

/** Throws `ProblemError` if the client has disconnected. */
export function checkConnected({ req }: Context): void {
  if (req.raw.signal.aborted) throw disconnectedProblem();
}

/** Returns the problem of a request whose client has disconnected. */
export function disconnectedProblem(): ProblemError {
  return new ProblemError('bad-request', 'The client disconnected before the answer.');
}

/** Returns the number of items that are not `undefined`. Counts in turns of the event loop. */
export async function countItems(
  c: Context,
  { gate, feed: { revision } }: Pick<RouteContext, 'gate' | 'feed'>,
  items: Iterable<unknown>,
): Promise<CountDocument> {
  let count = 0;
  const add = (item: unknown): void => {
    if (item !== undefined) count++;
  };
  await runWhileConnected(c, gate, slices(items, add));
  return { count, revision };
}

/** Passes each item to a function until it returns false, a slice of items in each step. */
function* slices<T>(items: Iterable<T>, add: (item: T) => unknown): Generator<void, void, void> {
  let read = 0;
  for (const item of items) {
    if (add(item) === false) return;
    if (++read % ITEMS_PER_SLICE === 0) yield;
  }
}

/** Maximum number of names of similar length compared with an unknown name: at most about 5 ms. */
export const COMPARED_NAMES = 1_000;

/**
 * Returns the problem of an unknown service or node, with the most similar known name. `value` and the known names have
 * two parts with a slash between them, and only names with one of the parts of `value` are compared. Reads the names in
 * turns of the event loop.
 */
export async function unknownNameProblem(
  c: Context,
  gate: TurnGate,
  kind: 'service' | 'node',
  { value, known }: { readonly value: string; readonly known: Iterable<string> },
): Promise<ProblemError> {
  const slash = value.indexOf('/');
  const [first, second] = [value.slice(0, slash + 1), value.slice(slash)];
  const similar: string[] = [];
  const add = (name: string): boolean => {
    if (hasSimilarLength(value, name) && (name.startsWith(first) || name.endsWith(second)))
      similar.push(name);
    return similar.length < COMPARED_NAMES;
  };
  await runWhileConnected(c, gate, slices(known, add));
  const about = { field: 'name', value, nearest: nearest(value, similar) };
  return new ProblemError('not-found', `No such ${kind}.`, about);
}

/**
 * Parses the IP or CIDR of a parameter. It may have an address space (`10.0.0.1@5`). Throws `ProblemError` if it is
 * invalid.
 */
export function prefixParameter(field: string, text: string): Prefix {
  const prefix = Prefix.parseAnnotated(text);
  if (prefix !== undefined) return prefix;
  const allowed =
    'an IPv4 or IPv6 address, or a CIDR such as 10.0.0.0/8; followed by @ and a cluster id if the address is in the address space of a cluster';
  throw invalidParameter(field, text, 'is not a valid IP address or CIDR', allowed);
}

/**
 * Parses the parameter `ip`. It may have an address space (`10.0.0.1@5`). Returns the canonical form. Throws
 * `ProblemError` if it is invalid.
 */
export function endpointParameter(text: string): string {
  return canonicalEndpoint(text) ?? addressParameter('ip', text);
}

/**
 * Parses the IP of a parameter. It has no address space. Returns the canonical form. Throws `ProblemError` if it is
 * invalid.
 */
export function addressParameter(field: string, text: string): string {
  const address = canonicalAddress(text);
  if (address !== undefined) return address;
  throw invalidParameter(field, text, 'is not a valid IP address', 'an IPv4 or IPv6 address');
}

/** Parses a query for labels. Throws `ProblemError` if it is invalid. */
export function labelParameter(text: string): (labels: Labels) => boolean {
  const query = parseLabelQuery(text);
  if (query !== undefined) return query;
  throw invalidParameter('label', text, 'has no key', 'app=web, k8s:app=web or k8s:app');
}

/**
 * Returns a page of a list, read in a turn of the gate: the page of the `continue` token, or the first one if there is
 * none. Throws `ProblemError` if `continue` is combined with filters, because the list already has its own.
 */
export async function readPage<T>(
  pages: ListPages<T>,
  gate: TurnGate,
  { limit, continue: token, ...filters }: PageQuery,
  begin: () => PagedSource<T> | Promise<PagedSource<T>>,
): Promise<ListPage<T>> {
  if (token === undefined) {
    const listing = await begin();
    return inTurn(gate, limit, () => pages.begin(listing, limit));
  }
  const filter = Object.entries(filters).find(([, value]) => value !== undefined);
  if (filter === undefined) return inTurn(gate, limit, () => pages.next(token, limit));
  const [field, value] = filter;
  const detail =
    'continue and filters cannot be combined: remove the filters, because the list already has its own.';
  throw new ProblemError('invalid-parameter', detail, { field, value: String(value) });
}

async function inTurn<T>(gate: TurnGate, weight: number, read: () => T): Promise<T> {
  const results: T[] = [];
  await gate.run(weight, () => results.push(read()));
  const [result] = results;
  assert(result !== undefined, 'the gate ran the read');
  return result;
}

/** Returns the name of a list: a hash of the run of the agent, the kind and version of the list, and the filters. */
export function listName(instance: string, list: string, version: number, query: Partial<PageQuery>): string {
  const { limit: _, continue: _token, ...filters } = query;
  return hash('sha1', JSON.stringify([instance, list, version, filters]), 'base64url').slice(0, 16);
}

/** Returns the schema of a text filter. */
export function filterParameter(description: string): z.ZodOptional<z.ZodString> {
  return z.string().min(1).max(512).optional().openapi({ description });
}

/** Returns the schema of the maximum number of items of an answer, with its default. */
export function limitParameter(max: number, preset: number): z.ZodType<number> {
  return z.coerce.number().int().min(1).max(max).default(preset);
}

/** Returns the schema of an integer in a path or a query. An empty text is invalid, although `Number('')` is 0. */
export function integerParameter(max: number): z.ZodType<number> {
  const isEmpty = (text: unknown): boolean => typeof text === 'string' && text.trim() === '';
  return z.preprocess((text) => (isEmpty(text) ? undefined : text), z.coerce.number().int().min(0).max(max));
}

/** A name in a path, decoded. */
export const NAME: z.ZodType<string, string> = z
  .string()
  .min(1)
  .max(253)
  .describe('`.` and `..` are written as `~.` and `~..`')
  .transform(decodedSegment);

/** The query of routes with answers for earlier moments. */
export const AT: z.ZodObject<{ at: z.ZodOptional<z.ZodString> }, z.core.$strict> = z.strictObject({
  at: filterParameter(
    'Answer for this moment: RFC 3339, `-10m`, or `#` and the `sequence` of a change in `/v1/history`',
  ),
});
