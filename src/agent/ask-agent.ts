import { ApiClient, ApiError } from '../api/api-client.ts';
import { InputError } from './input-error.ts';

/** Lets `use` ask the running agent behind a socket. Throws `InputError` when it cannot be asked. */
export async function askAgent<T>(
  socket: string,
  use: (client: ApiClient) => Promise<T>,
  signal: AbortSignal,
): Promise<T> {
  try {
    return await use(new ApiClient(socket, signal));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const advice = error.problem === undefined ? `; ${START}` : '';
    throw new InputError(`${error.message}${advice}`, { cause: error });
  }
}

const START =
  'start one with dpcache agent, name its socket with --socket, or say what to follow with --load or --kvstore';
