import { useEffect, useRef, useState } from 'preact/hooks';
import type { ProblemDocument } from '../../src/api/problem.ts';
import { shareEqual } from './share-equal.ts';
import { fetchAgent } from './token.tsx';

/** The last answer: a document, a problem, or undefined while loading. */
export interface Answered<T> {
  readonly document?: T;
  readonly problem?: string;
}

/** Maximum time for an answer. The largest answer takes a few seconds; a hanging agent never answers. */
export const ANSWER_MS = 30_000;

/**
 * Thrown if the agent does not answer, or answers that it is overloaded or has failed. The last answer stays visible,
 * and the request is repeated.
 */
export class NoAnswer extends Error {}

/** Returns the document at a path of the agent. Throws an error with one sentence. */
export function ask<T>(path: string, signal?: AbortSignal): Promise<T> {
  return withDeadline(signal, async (either) => {
    const answer = await fetchAgent(path, either);
    const document = await documentOf(answer);
    if (answer.ok || 'ready' in document) return document as T; // `/readyz` answers 503 if the agent is not ready
    throw problemOf(answer, document);
  });
}

/** Sends a body to a path of the agent and returns the JSON lines of the answer. Throws an error with one sentence. */
export function askLines<T>(path: string, body: object, signal: AbortSignal): Promise<readonly T[]> {
  return withDeadline(signal, async (either) => {
    const answer = await fetchAgent(path, either, body);
    if (!answer.ok) throw problemOf(answer, await documentOf(answer));
    const lines = (await answer.text()).trimEnd().split('\n');
    return lines.map((line) => JSON.parse(line) as T);
  });
}

/** Aborts a request after {@link ANSWER_MS}. The message of each error is a sentence for the user. */
async function withDeadline<T>(
  signal: AbortSignal | undefined,
  request: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const deadline = new AbortController();
  const timer = setTimeout(() => deadline.abort(), ANSWER_MS);
  try {
    return await request(AbortSignal.any([deadline.signal, ...(signal === undefined ? [] : [signal])]));
  } catch (error) {
    if (deadline.signal.aborted) throw new NoAnswer(`The agent has not answered for ${ANSWER_MS / 1_000} s.`);
    if (error instanceof TypeError) throw new NoAnswer('The agent is unreachable.');
    if (error instanceof SyntaxError) throw new NoAnswer('The answer is not from the agent, or incomplete.');
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Returns the JSON object of an answer. Throws a SyntaxError if there is none. If the answer reports a failure, returns
 * an empty object instead, because a proxy sends its failures as HTML or as text.
 */
export async function documentOf(answer: Response): Promise<object> {
  const document: unknown = await (answer.ok ? answer.json() : answer.json().catch(() => ({})));
  if (typeof document !== 'object' || document === null) throw new SyntaxError('no document');
  return document;
}

/** Returns the error of an answer. A proxy may have sent it instead of the agent. */
export function problemOf({ status }: Response, document: object): Error {
  const { detail }: Partial<ProblemDocument> = document;
  const text = detail ?? `The answer is not from the agent: HTTP status ${status}.`;
  return detail === undefined || status >= 500 || status === 429 ? new NoAnswer(text) : new Error(text);
}

/**
 * The pause after a read is the duration of the read times this factor, so that a page does not keep an agent busy with
 * long lists.
 */
const PAUSE_FACTOR = 4;

/** The pause after a request without an answer. */
const RETRY_MS = 3_000;

/**
 * Returns the last answer of `read` for `name`. Reads immediately when `name` changes. When `version` changes, reads
 * after the current read and its pause. If there is no answer, the last one is kept, and the read is repeated. If
 * `name` is undefined, nothing is read. Equal parts of successive answers are the same objects.
 */
export function useRead<T>(
  name: string | undefined,
  read: (signal: AbortSignal) => Promise<T>,
  version: unknown,
): Answered<T> {
  const [state, setState] = useState<{ readonly name: string | undefined } & Answered<T>>({ name });
  const latestVersion = useRef(version);
  latestVersion.current = version;
  /** The last read, until the end of the pause after it. */
  const running = useRef<AbortController>();
  const start = async (): Promise<void> => {
    if (name === undefined) return;
    const ended = new AbortController();
    const readVersion = latestVersion.current;
    const startedAt = performance.now();
    running.current = ended;
    const [answer, isUnanswered] = await read(ended.signal).then(
      (document) => [{ name, document }, false] as const,
      (error: Error) => [{ name, problem: error.message }, error instanceof NoAnswer] as const,
    );
    if (ended.signal.aborted) return;
    setState((before) => {
      if (before.name !== name) return answer;
      if (isUnanswered) return { ...before, ...answer };
      return 'document' in answer ? { name, document: shareEqual(before.document, answer.document) } : answer;
    });
    const pauseMs = isUnanswered ? RETRY_MS : PAUSE_FACTOR * (performance.now() - startedAt);
    setTimeout(() => {
      if (running.current !== ended) return;
      running.current = undefined;
      if (isUnanswered || latestVersion.current !== readVersion) void start();
    }, pauseMs);
  };
  useEffect(() => {
    void start();
    return () => {
      running.current?.abort();
      running.current = undefined;
    };
  }, [name]);
  useEffect(() => {
    if (running.current === undefined) void start();
  }, [version]);
  return state.name === name ? state : {};
}

/** Returns the document at a path, as {@link useRead} does. */
export function useAnswer<T>(path: string | undefined, version: unknown = 0): Answered<T> {
  return useRead<T>(path, (signal) => ask(path ?? '', signal), version);
}

/** Returns a path with parameters. Empty ones are omitted. */
export function withQuery(path: string, parameters: Readonly<Record<string, string | undefined>>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) if (value) query.set(name, value);
  return query.size === 0 ? path : `${path}?${query}`;
}
