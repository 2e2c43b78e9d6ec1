import { bytesOfCharacters } from '../codec/bytes.ts';
import type { KeyWrite, KvstoreBackend, WriteOptions, WrittenAll } from '../session/backend.ts';
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
   * True if the watch has already delivered a value that the kvstore turns out to have. False after a failed write that
   * may have taken effect.
   */
  readonly isEqualSeen: boolean;
}

/** Options of a {@link KeyWriter}. */
export interface KeyWriterOptions {
  readonly backend: KvstoreBackend;
  readonly prefix: string;
  readonly leased: WriteOptions['leased'];
}

/** The revision of a write whose answer does not contain it. */
export const UNKNOWN_REVISION = 0;

/** Sends the writes of a prefix to the kvstore, one by one or in one transaction. */
export class KeyWriter {
  readonly #options: KeyWriterOptions;

  constructor(options: KeyWriterOptions) {
    this.#options = options;
  }

  /**
   * Writes or deletes the key. Returns its revision; 0 if unknown, and undefined if the kvstore had the wanted value.
   */
  async write({ key, wanted, mayBeThere }: Attempt, signal: AbortSignal): Promise<number | undefined> {
    const { backend, prefix, leased } = this.#options;
    const path = `${prefix}${key.name}`;
    const options = { fenced: true, leased, signal };
    if (wanted === undefined) {
      await backend.delete(path, options);
      return UNKNOWN_REVISION;
    }
    const value = bytesOfCharacters(wanted);
    if (!mayBeThere) return backend.update(path, value, options);
    return (await backend.updateIfDifferent(path, value, options)) ? UNKNOWN_REVISION : undefined;
  }

  /** Writes several keys in one transaction. */
  writeAll(attempts: readonly Attempt[], signal: AbortSignal): Promise<WrittenAll> {
    const { backend, prefix, leased } = this.#options;
    const writes = attempts.map(
      ({ key, wanted, mayBeThere }): KeyWrite => ({
        key: `${prefix}${key.name}`,
        value: wanted === undefined ? undefined : bytesOfCharacters(wanted),
        mayBeEqual: mayBeThere,
      }),
    );
    return backend.writeAll(writes, { fenced: true, leased, signal });
  }

  /**
   * Adopts leases of an earlier session, and calls `onAdopted` for their keys. Returns the attempts that must be
   * written.
   */
  async adoptAll(
    attempts: readonly Attempt[],
    signal: AbortSignal,
    onAdopted: (attempt: Attempt) => void,
  ): Promise<readonly Attempt[]> {
    if (attempts.every(({ adoptable }) => adoptable === undefined)) return attempts;
    const { backend, prefix } = this.#options;
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
}
