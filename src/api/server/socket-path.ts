import { join } from 'node:path';

/**
 * Returns the default socket path: in the runtime folder of the user (`XDG_RUNTIME_DIR`) if it is set, else in
 * `/run/dpcache`.
 */
export function defaultSocketPath(
  env: { readonly XDG_RUNTIME_DIR?: string | undefined },
  name = 'dpcache.sock',
): string {
  return join(env.XDG_RUNTIME_DIR || '/run/dpcache', name);
}
