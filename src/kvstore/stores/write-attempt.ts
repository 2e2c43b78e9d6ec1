import type { KeyWrite, KvstoreBackend } from '../session/backend.ts';
import type { LeaseID } from '../session/transport.ts';

/** A write that is about to be sent, or was sent. */
export interface Attempt extends KeyWrite {
  readonly row: number;
  /** Undefined if the key is deleted. */
  readonly value: Uint8Array | undefined;
  /** True if the kvstore may already have the value. */
  readonly mayBeEqual: boolean;
  /** The lease of an earlier session, if the kvstore has the value under it. */
  readonly adoptable: LeaseID | undefined;
  /**
   * True if the watch has delivered the value which the write may find. False after a failed write, which may have
   * taken effect.
   */
  readonly wasDelivered: boolean;
  /** The last event that the watch has delivered since the start of the put. */
  watched: { readonly isDesired: boolean; readonly modRevision: number } | undefined;
}

/**
 * Adopts leases of an earlier session, and calls `onAdopted` for their keys. Returns the attempts that must be written.
 */
export async function adoptLeases(
  attempts: readonly Attempt[],
  backend: KvstoreBackend,
  signal: AbortSignal,
  onAdopted: (attempt: Attempt) => void,
): Promise<readonly Attempt[]> {
  if (attempts.every(({ adoptable }) => adoptable === undefined)) return attempts;
  const due: Attempt[] = [];
  const byLease = new Map<LeaseID, Attempt[]>();
  for (const attempt of attempts) {
    const { adoptable } = attempt;
    const same = adoptable === undefined ? due : byLease.get(adoptable);
    if (same !== undefined) same.push(attempt);
    else if (adoptable !== undefined) byLease.set(adoptable, [attempt]);
  }
  for (const [lease, same] of byLease) {
    const keys = same.map(({ key }) => key);
    if (await backend.adoptLease?.(lease, keys, { signal })) same.forEach(onAdopted);
    else due.push(...same);
  }
  return due;
}
