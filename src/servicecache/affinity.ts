import { type Backend, type Backends, filterBackends } from './backend.ts';
import type { Service } from './service.ts';

/** The backends of the side that a service prefers. */
export interface PreferredSide {
  /** True if remote clusters are preferred, false if the local cluster is. */
  readonly remote: boolean;
  readonly backends: Backends;
  /** Number of backends with the state `active`. */
  readonly activeCount: number;
}

/** Returns true if a backend is in a remote cluster (`remote` is true) or in the local one (`remote` is false). */
export function isOnSide(backend: Backend, remote: boolean): boolean {
  return (backend.cluster !== '') === remote;
}

/** Returns the backends of the preferred side. Linear in all backends. */
export function preferredSide(backends: Backends, remote: boolean): PreferredSide {
  const preferred = filterBackends(backends, (backend) => isOnSide(backend, remote));
  return { remote, backends: preferred, activeCount: preferred.count(({ state }) => state === 'active') };
}

/** Returns the side that a service prefers; `undefined` for none. */
export function preferenceOf(service: Service | undefined): 'local' | 'remote' | undefined {
  return service === undefined || service.affinity === 'none' ? undefined : service.affinity;
}

/**
 * Applies service affinity (SEMANTICS 3.3). `local` excludes remote backends if an active local one exists, `remote`
 * the reverse. Without a preference all backends are returned.
 */
export function selectSide({
  backends,
  preferred,
}: {
  readonly backends: Backends;
  readonly preferred: PreferredSide | undefined;
}): Backends {
  return preferred !== undefined && preferred.activeCount > 0 ? preferred.backends : backends;
}
