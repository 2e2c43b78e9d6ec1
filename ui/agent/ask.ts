import { useEffect, useRef, useState } from 'preact/hooks';
import type { ProblemDocument } from '../../src/api/problem.ts';
import { fetchAgent } from './token.tsx';

/** The last answer: a document, a problem, or undefined while loading. */
export interface Answered<T> {
  readonly document?: T;
  readonly problem?: string;
}

/** The agent is unreachable. The last answer stays visible. */
class NoAnswer extends Error {}

/** Returns the document at a path of the agent. Throws an error with one sentence. */
export async function ask<T>(path: string, signal?: AbortSignal): Promise<T> {
  try {
    const answer = await fetchAgent(path, signal);
    const document: unknown = await answer.json();
    if (answer.ok || answer.status === 503) return document as T;
    throw new Error((document as ProblemDocument).detail);
  } catch (error) {
    throw withSentence(error);
  }
}

/** Sends a body to a path of the agent and returns the JSON lines of the answer. Throws an error with one sentence. */
export async function askLines<T>(path: string, body: object, signal: AbortSignal): Promise<readonly T[]> {
  try {
    const answer = await fetchAgent(path, signal, body);
    if (!answer.ok) throw new Error(((await answer.json()) as ProblemDocument).detail);
    const lines = (await answer.text()).trimEnd().split('\n');
    return lines.map((line) => JSON.parse(line) as T);
  } catch (error) {
    throw withSentence(error);
  }
}

function withSentence(error: unknown): unknown {
  return error instanceof TypeError ? new NoAnswer('The agent is unreachable.') : error;
}

/**
 * Returns the document at a path. If `version` changes, requests it again after the current request has ended. Keeps the last
 * document until then, and while the agent is unreachable.
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

/** Returns a path with parameters. Empty ones are omitted. */
export function withQuery(path: string, parameters: Readonly<Record<string, string | undefined>>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) if (value) query.set(name, value);
  return query.size === 0 ? path : `${path}?${query}`;
}
