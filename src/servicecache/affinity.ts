import type { Backend, Backends } from './backend.ts';
import type { Service } from './service.ts';

/** The backends of the side that a service prefers, and whether any of them can take traffic. */
export interface PreferredSide {
  /** True when remote clusters are preferred, false when this one is. */
  readonly remote: boolean;
  readonly backends: Backends;
  /** How many of them are active. */
  readonly active: number;
}

/** Whether a backend is on that side. */
export function isOnSide(backend: Backend, remote: boolean): boolean {
  return (backend.cluster !== '') === remote;
}

/** The preferred side of these backends. Costs one pass. */
export function preferredSide(backends: Backends, remote: boolean): PreferredSide {
  const preferred = backends.filter((backend) => isOnSide(backend, remote));
  return { remote, backends: preferred, active: preferred.count((backend) => backend.state === 'active') };
}

/** The side that a service prefers: `undefined` for none. */
export function preferenceOf(service: Service | undefined): 'local' | 'remote' | undefined {
  return service === undefined || service.affinity === 'none' ? undefined : service.affinity;
}

/**
 * Service affinity (SEMANTICS 3.3): `local` leaves remote backends out while there is an active local one,
 * `remote` the mirror image; without a preference all are taken.
 */
export function selectSide(from: {
  readonly backends: Backends;
  readonly preferred: PreferredSide | undefined;
}): Backends {
  const { backends, preferred } = from;
  return preferred !== undefined && preferred.active > 0 ? preferred.backends : backends;
}
