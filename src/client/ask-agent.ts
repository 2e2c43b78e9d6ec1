import { ApiClient, ApiError } from '../api/api-client.ts';
import { InputError } from '../process/input-error.ts';

/**
 * Calls `use` with a client of the socket of a running agent or another process. Throws `InputError` if the request fails; `advice`
 * is added to its message if no process answered.
 */
export async function askAgent<T>(
  socket: string,
  use: (client: ApiClient) => Promise<T>,
  signal: AbortSignal,
  advice: string = START,
): Promise<T> {
  try {
    return await use(new ApiClient(socket, signal));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const hint = error.problem === undefined ? `; ${advice}` : '';
    throw new InputError(`${error.message}${hint}`, { cause: error });
  }
}

const START =
  'start one with dpcache agent, set its socket with --socket, or add a source with --load or --kvstore';
