import type { Map as ImmutableMap } from 'immutable';
import { preferenceOf } from './affinity.ts';
import { backendComparison, equalBackendMaps, type OfferedBackends } from './backend.ts';
import { offeredBySlice, type ServiceState } from './service-state.ts';

/** Whether both states count the same origins, and take all their winners. */
function countsAlike(a: ServiceState, b: ServiceState): boolean {
  return (
    a.service?.global === b.service?.global &&
    a.service?.publishNotReady === b.service?.publishNotReady &&
    preferenceOf(a.service) === undefined &&
    preferenceOf(b.service) === undefined
  );
}

/** The addresses of which one origin says something else now. */
function* changedAddresses(
  before: OfferedBackends | undefined,
  after: OfferedBackends | undefined,
): Generator<string> {
  const equal = backendComparison();
  for (const { address } of before?.values() ?? []) if (!after?.has(address)) yield address;
  for (const backend of after?.values() ?? []) {
    const old = before?.get(backend.address);
    if (old === undefined || !equal(old, backend)) yield backend.address;
  }
}

/** The same for all origins of a kind. Those that are the same object are passed over. */
function* changedIn<T>(
  before: ImmutableMap<string, T>,
  after: ImmutableMap<string, T>,
  offered: (origin: T | undefined) => OfferedBackends | undefined,
): Generator<string> {
  if (before === after) return;
  for (const [name, old] of before) {
    const next = after.get(name);
    if (old !== next) yield* changedAddresses(offered(old), offered(next));
  }
  for (const [name, next] of after) if (!before.has(name)) yield* changedAddresses(undefined, offered(next));
}

/**
 * Whether the endpoints of two states of one service say the same. They follow from the inputs, so only the
 * addresses of which some input says something else are compared: the cost is that of what has changed, and one
 * look at each slice and cluster. Where the service counts other origins now, or has an affinity, all of them are.
 */
export function haveSameEndpoints(old: ServiceState, next: ServiceState): boolean {
  const before = old.endpoints.backends;
  const after = next.endpoints.backends;
  if (before === after) return true;
  if (before.size !== after.size) return false;
  if (!countsAlike(old, next)) return equalBackendMaps(before, after);
  const equal = backendComparison();
  const isSame = (address: string): boolean => {
    const [a, b] = [before.get(address), after.get(address)];
    return a === undefined || b === undefined ? a === b : equal(a, b);
  };
  const { service } = next;
  for (const address of changedIn(old.slices, next.slices, (slice) => offeredBySlice(slice, service))) {
    if (!isSame(address)) return false;
  }
  for (const address of changedIn(old.remotes, next.remotes, (offer) => offer)) {
    if (!isSame(address)) return false;
  }
  return true;
}
