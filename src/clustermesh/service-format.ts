/**
 * The format in which the services of a cluster are read. `auto`: slices if it exports only slices. `slices`: slices if
 * it exports any. `legacy`: never slices; a cluster that exports only slices then has no services here.
 */
export type ServiceFormat = 'auto' | 'legacy' | 'slices';

export const SERVICE_FORMATS: readonly ServiceFormat[] = ['auto', 'legacy', 'slices'];
