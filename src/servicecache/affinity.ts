import type { Backends } from './backend.ts';
import type { Service } from './service.ts';

/**
 * Service affinity (SEMANTICS 3.3): `local` leaves remote backends out while there is an active local one,
 * `remote` the mirror image, `none` takes all. Pure. Costs one pass over the backends of a service that has an
 * affinity, nothing otherwise.
 */
export function selectByAffinity(service: Service | undefined, backends: Backends): Backends {
  if (service === undefined || service.affinity === 'none') return backends;
  const wantsLocal = service.affinity === 'local';
  const preferred = backends.filter((backend) => (backend.cluster === '') === wantsLocal);
  return preferred.some((backend) => backend.state === 'active') ? preferred : backends;
}
