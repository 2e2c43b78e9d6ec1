import { join } from 'node:path';

/** Where an agent's socket is by default: a folder of the user, or of the system where there is none. */
export function defaultSocketPath(env: { readonly XDG_RUNTIME_DIR?: string | undefined }): string {
  return join(env.XDG_RUNTIME_DIR || '/run/dpcache', 'dpcache.sock');
}
