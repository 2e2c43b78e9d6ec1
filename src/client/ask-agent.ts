import { AgentError, ApiClient } from '../api/api-client.ts';
import { errorCode } from '../base/failure.ts';
import { InputError } from '../process/input-error.ts';

const START_ADVICE =
  'start one with dpcache agent, set its socket with --socket, or add a source with --load or --kvstore';

/** The advice for a socket that this user may not open. Only the user of the process may, and root. */
const ACCESS_ADVICE = 'run dpcache as the user of that process, or as root';

/**
 * Calls `use` with a client of the socket of a running agent or another process. Throws `InputError` if the request
 * fails; `advice` is added to its message if no process answered.
 */
export async function askAgent<T>(
  socket: string,
  use: (client: ApiClient) => Promise<T>,
  signal: AbortSignal,
  advice: string = START_ADVICE,
): Promise<T> {
  return withInputErrors(
    () =>
      use(new ApiClient(socket, signal)).catch((error: unknown) => {
        throw asAnswerError(error, socket);
      }),
    ({ problem, cause }) => {
      if (errorCode(cause) === 'EACCES') return ACCESS_ADVICE;
      return problem === undefined ? advice : undefined;
    },
  );
}

/**
 * Returns an `InputError` if `error` shows that a document has unexpected content, for example lacks a field, because
 * the process that sent it has another version. Otherwise returns `error` itself. `name`: that process.
 */
export function asAnswerError(error: unknown, name: string): unknown {
  const isOfDocument = error instanceof TypeError || error instanceof SyntaxError;
  if (!isOfDocument || errorCode(error) !== undefined) return error;
  const reason = `unexpected document (${error.message})`;
  return new InputError(`${name}: ${reason}: use the dpcache version of that process`, { cause: error });
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
