import { bytesOfCharacters } from '../codec/bytes.ts';
import type { KeyWrite, KvstoreBackend } from '../session/backend.ts';
import type { LeaseID } from '../session/transport.ts';
import type { SyncKey } from './sync-key.ts';

/** A write that is about to be sent. */
export interface Attempt {
  readonly key: SyncKey;
  /** Undefined if the key is deleted. */
  readonly wanted: string | undefined;
  /** True if the kvstore may already have the wanted value. */
  readonly mayBeThere: boolean;
  /** The lease of an earlier session, if the kvstore has the wanted value under it. */
  readonly adoptable: LeaseID | undefined;
  /**
   * True if the watch has delivered the value which the write may find. False after a failed write, which may have
   * taken effect.
   */
  readonly wasDelivered: boolean;
}

export function writeOf({ key, wanted, mayBeThere }: Attempt, prefix: string): KeyWrite {
  return {
    key: `${prefix}${key.name}`,
    value: wanted === undefined ? undefined : bytesOfCharacters(wanted),
    mayBeEqual: mayBeThere,
  };
}

/**
 * Adopts leases of an earlier session, and calls `onAdopted` for their keys. Returns the attempts that must be written.
 */
export async function adoptLeases(
  attempts: readonly Attempt[],
  { backend, prefix }: { readonly backend: KvstoreBackend; readonly prefix: string },
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
    const keys = same.map(({ key }) => `${prefix}${key.name}`);
    if (await backend.adoptLease?.(lease, keys, { signal })) same.forEach(onAdopted);
    else due.push(...same);
  }
  return due;
}
