import { createServer } from 'node:http';
import { join } from 'node:path';
import { onTestFinished, vi } from 'vitest';
import { temporaryFolder } from '../../agent/support/temporary-folder.ts';

/**
 * Serves a socket and never answers. The time limit of a request fires when the server has the request. Returns the
 * path of the socket.
 */
export async function hangingAgent(): Promise<string> {
  const socket = join(temporaryFolder({}), 'hanging.sock');
  let late = new AbortController();
  const limit = vi.spyOn(AbortSignal, 'timeout').mockImplementation(() => {
    late = new AbortController();
    return late.signal;
  });
  const server = createServer(() => late.abort());
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  onTestFinished(() => {
    limit.mockRestore();
    server.close();
  });
  return socket;
}
