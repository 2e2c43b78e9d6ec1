import type { ListenOptions, Server } from 'node:net';

/** Resolves when the server listens. Rejects if it cannot. */
export function listen(server: Server, options: ListenOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(options, () => {
      server.off('error', reject);
      resolve();
    });
  });
}
