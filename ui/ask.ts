import { useEffect, useState } from 'preact/hooks';
import type { ProblemDocument } from '../src/api/problem.ts';

/** What has been answered so far: a document, a problem, or nothing yet. */
export interface Answered<T> {
  readonly document?: T;
  readonly problem?: string;
}

/** Asks the agent that serves the page. Throws an error with one sentence. */
export async function ask<T>(path: string, signal?: AbortSignal): Promise<T> {
  const answer = await fetch(path, { signal: signal ?? null }).catch((cause: unknown) => {
    if (signal?.aborted) throw cause;
    throw new Error('The agent does not answer.');
  });
  const document: unknown = await answer.json();
  if (answer.ok || answer.status === 503) return document as T;
  throw new Error((document as ProblemDocument).detail);
}

/** The document at a path, asked for anew whenever `version` is another. What was answered before stays meanwhile. */
export function useAnswer<T>(path: string | undefined, version: unknown = 0): Answered<T> {
  const [state, setState] = useState<{ readonly path: string | undefined } & Answered<T>>({ path });
  useEffect(() => {
    const ended = new AbortController();
    if (path !== undefined) {
      ask<T>(path, ended.signal).then(
        (document) => setState({ path, document }),
        (error: Error) => ended.signal.aborted || setState({ path, problem: error.message }),
      );
    }
    return () => ended.abort();
  }, [path, version]);
  return state.path === path ? state : {};
}

/** A path with parameters; those that are empty are left out. */
export function withQuery(path: string, parameters: Readonly<Record<string, string | undefined>>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) if (value) query.set(name, value);
  return query.size === 0 ? path : `${path}?${query}`;
}
