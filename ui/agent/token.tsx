import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { noteDate } from './clock.ts';

/** Key of the token in the storage of the tab. The token is never in a URL or on a disk. */
const KEY = 'dpcache-token';

/** Returns the token; null if there is none, or if the browser forbids the storage. */
function storedToken(): string | null {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

let isNeeded = false;
let onNeeded = (): void => {};

/** Returns true if the agent has refused a request because the token is missing or wrong. */
export function isTokenNeeded(): boolean {
  return isNeeded;
}

/** Calls the listener when a token is required. There is one listener. */
export function onTokenNeeded(listener: () => void): void {
  onNeeded = listener;
}

/**
 * Sends a request to the agent that serves the page, with the token if there is one. A body is sent as JSON with POST.
 */
export async function fetchAgent(path: string, signal?: AbortSignal, body?: object): Promise<Response> {
  const token = storedToken();
  const headers: Record<string, string> = token === null ? {} : { authorization: `Bearer ${token}` };
  const sent =
    body === undefined
      ? { headers }
      : {
          method: 'POST',
          headers: { ...headers, 'content-type': 'application/json' },
          body: JSON.stringify(body),
        };
  // Relative to the page, because a proxy may serve it below a path.
  const answer = await fetch(path.slice(1), { ...sent, signal: signal ?? null });
  noteDate(answer.headers.get('date'));
  if (answer.status === 401 && !isNeeded) {
    isNeeded = true;
    onNeeded();
  }
  return answer;
}

/** Asks for the token and reloads the page. */
export function TokenForm(): VNode {
  const [token, setToken] = useState('');
  const [isForbidden, setForbidden] = useState(false);
  const isWrong = storedToken() !== null;
  const submit = (event: Event): void => {
    event.preventDefault();
    try {
      sessionStorage.setItem(KEY, token.trim());
    } catch {
      setForbidden(true);
      return;
    }
    location.reload();
  };
  return (
    <section class="panel" aria-label="Token">
      <div class="body">
        <h1>Token required</h1>
        {isForbidden && (
          <p class="problem" role="alert">
            The browser does not store the token: allow this site to store data.
          </p>
        )}
        <form onSubmit={submit}>
          <p class="soft">
            {isWrong ? 'The agent rejected the token.' : 'The agent requires a bearer token.'} Enter the
            content of the file of <code>--listen-token</code>. The page keeps it until the tab is closed.
          </p>
          <div class="filters">
            <label>
              token
              <input
                id="token"
                type="password"
                autocomplete="off"
                required
                value={token}
                onInput={({ currentTarget }) => setToken(currentTarget.value)}
              />
            </label>
            <button type="submit" class="primary">
              Continue
            </button>
          </div>
        </form>
      </div>
    </section>
  );
}
