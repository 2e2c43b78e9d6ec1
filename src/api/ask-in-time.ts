import { EitherSignal } from '../base/follow-signal.ts';
import { AgentError, ApiClient, type ApiOrigin, type Ask } from './api-client.ts';

/** Maximum time for an answer. The largest answer takes a few seconds; a hanging agent never answers. */
const ANSWER_MS = 30_000;

/** The {@link AgentError} of an agent that does not answer in time. */
export class NoAnswerError extends AgentError {
  readonly remedy = 'see the log and the load of this agent, and repeat the command';

  constructor(name: string) {
    super(`${name}: no answer for ${ANSWER_MS / 1000} s`);
    this.name = 'NoAnswerError';
  }
}

/**
 * Returns a function that sends requests to an agent. A request fails with {@link NoAnswerError} if its answer is not
 * complete after 30 s, and is aborted when `signal` fires.
 */
export function askInTime(target: string | ApiOrigin, signal: AbortSignal): Ask {
  return async (path, body) => {
    const deadline = AbortSignal.timeout(ANSWER_MS);
    using either = new EitherSignal(signal, deadline);
    try {
      return await new ApiClient(target, either.signal).ask(path, body);
    } catch (error) {
      if (signal.aborted || !deadline.aborted) throw error;
      throw new NoAnswerError(typeof target === 'string' ? target : target.origin);
    }
  };
}
