import { useEffect, useRef, useState } from 'preact/hooks';
import type { ProblemDocument } from '../src/api/problem.ts';
import { fetchAgent } from './token.tsx';

/** What has been answered so far: a document, a problem, or nothing yet. */
export interface Answered<T> {
  readonly document?: T;
  readonly problem?: string;
}

/** The agent has not answered: what it said before is all there is. */
class NoAnswer extends Error {}

/** Asks the agent that serves the page. Throws an error with one sentence. */
export async function ask<T>(path: string, signal?: AbortSignal): Promise<T> {
  try {
    const answer = await fetchAgent(path, signal);
    const document: unknown = await answer.json();
    if (answer.ok || answer.status === 503) return document as T;
    throw new Error((document as ProblemDocument).detail);
  } catch (error) {
    throw error instanceof TypeError ? new NoAnswer('The agent does not answer.') : error;
  }
}

/**
 * The document at a path, asked for anew whenever `version` is another: when the answer before has come, however long that
 * took. What was answered before stays meanwhile, and while the agent does not answer.
 */
export function useAnswer<T>(path: string | undefined, version: unknown = 0): Answered<T> {
  const [state, setState] = useState<{ readonly path: string | undefined } & Answered<T>>({ path });
  const latest = useRef(version);
  const asked = useRef<AbortController>();
  latest.current = version;
  const begin = (): void => {
    if (path === undefined) return;
    const ended = new AbortController();
    const of = latest.current;
    asked.current = ended;
    ask<T>(path, ended.signal)
      .then(
        (document) => setState({ path, document }),
        (error: Error) => {
          if (ended.signal.aborted) return;
          const failed = { path, problem: error.message };
          setState((before) =>
            error instanceof NoAnswer && before.path === path ? { ...before, ...failed } : failed,
          );
        },
      )
      .finally(() => {
        if (asked.current !== ended) return;
        asked.current = undefined;
        if (latest.current !== of) begin();
      });
  };
  useEffect(() => {
    begin();
    return () => {
      asked.current?.abort();
      asked.current = undefined;
    };
  }, [path]);
  useEffect(() => {
    if (asked.current === undefined) begin();
  }, [version]);
  return state.path === path ? state : {};
}

/** A path with parameters; those that are empty are left out. */
export function withQuery(path: string, parameters: Readonly<Record<string, string | undefined>>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) if (value) query.set(name, value);
  return query.size === 0 ? path : `${path}?${query}`;
}
