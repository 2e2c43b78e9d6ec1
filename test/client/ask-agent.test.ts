import { expect, it } from 'vitest';
import { AgentError } from '../../src/api/api-client.ts';
import { askAgent } from '../../src/client/ask-agent.ts';

/** Returns the message of a command whose request fails with an error of the system. */
function failing(code: string): Promise<string> {
  const cause = Object.assign(new Error(`connect ${code}`), { code });
  const use = async (): Promise<string> =>
    Promise.reject(new AgentError('/a.sock: it failed', undefined, cause));
  return askAgent('/a.sock', use, new AbortController().signal, 'start one').catch(({ message }) => message);
}

it('a socket of another user has advice about access (regression: "permission denied; start one with dpcache agent")', async () => {
  expect(await failing('EACCES')).toBe(
    '/a.sock: it failed; run dpcache as the user of that process, or as root',
  );
  expect(await failing('ENOENT')).toBe('/a.sock: it failed; start one');
});
