import type { VNode } from 'preact';
import { useState } from 'preact/hooks';

/** Where the token is for as long as the tab is open: in no address, and not on a disk. */
const KEY = 'dpcache-token';

let needed = false;
const listeners = new Set<() => void>();

/** Whether the agent has asked for a token that has not been given. */
export function isTokenNeeded(): boolean {
  return needed;
}

/** Calls back when a token is needed. Gives how to end that. */
export function onTokenNeeded(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Asks the agent that serves the page, with the token if there is one. */
export async function fetchAgent(path: string, signal?: AbortSignal): Promise<Response> {
  const token = sessionStorage.getItem(KEY);
  const headers: Record<string, string> = token === null ? {} : { authorization: `Bearer ${token}` };
  const answer = await fetch(path, { headers, signal: signal ?? null });
  if (answer.status === 401 && !needed) {
    needed = true;
    for (const listener of listeners) listener();
  }
  return answer;
}

/** Asks a person for the token, and begins anew with it. */
export function TokenForm(): VNode {
  const [token, setToken] = useState('');
  const isWrong = sessionStorage.getItem(KEY) !== null;
  const submit = (event: Event): void => {
    event.preventDefault();
    sessionStorage.setItem(KEY, token.trim());
    location.reload();
  };
  return (
    <section>
      <h2>A token is needed</h2>
      <form onSubmit={submit}>
        <p>
          {isWrong ? 'The agent does not take this token.' : 'The agent serves those who show its token.'}
        </p>
        <label for="token">Content of the file of --listen-token</label>{' '}
        <input
          id="token"
          type="password"
          autocomplete="off"
          required
          value={token}
          onInput={({ currentTarget }) => setToken(currentTarget.value)}
        />{' '}
        <button type="submit">Show</button>
      </form>
    </section>
  );
}
