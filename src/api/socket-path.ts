import { join } from 'node:path';

/** Where a process' socket is by default: a folder of the user, or of the system where there is none. */
export function defaultSocketPath(
  env: { readonly XDG_RUNTIME_DIR?: string | undefined },
  name = 'dpcache.sock',
): string {
  return join(env.XDG_RUNTIME_DIR || '/run/dpcache', name);
}
