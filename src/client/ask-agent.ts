import { AgentError, ApiClient } from '../api/api-client.ts';
import { InputError } from '../process/input-error.ts';

/**
 * Calls `use` with a client of the socket of a running agent or another process. Throws `InputError` if the request
 * fails; `advice` is added to its message if no process answered.
 */
export async function askAgent<T>(
  socket: string,
  use: (client: ApiClient) => Promise<T>,
  signal: AbortSignal,
  advice: string = START,
): Promise<T> {
  return withInputErrors(
    () => use(new ApiClient(socket, signal)),
    ({ problem }) => (problem === undefined ? advice : undefined),
  );
}

/** Returns the result of `ask`. If a request fails, throws an `InputError` with the advice of `adviceOf`. */
export async function withInputErrors<T>(
  ask: () => Promise<T>,
  adviceOf: (error: AgentError) => string | undefined,
): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    if (!(error instanceof AgentError)) throw error;
    const advice = adviceOf(error);
    const message = advice === undefined ? error.message : `${error.message}; ${advice}`;
    throw new InputError(message, { cause: error });
  }
}

const START =
  'start one with dpcache agent, set its socket with --socket, or add a source with --load or --kvstore';
