/**
 * Lease of an agent's keys. If an agent loses its connection, its slave keys may be missing for this time although its
 * pods run.
 */
export const AGENT_LEASE_MS: number = 15 * 60_000;

/** A setting that would let a collector delete objects in use. */
export class UnsafeSettingError extends Error {
  override readonly name = 'UnsafeSettingError';
  readonly code = 'unsafe-setting';
  /** Name of upstream's flag: `identity-gc-interval`. */
  readonly field: string;
  readonly value: string;

  constructor(field: string, value: string, reason: string) {
    super(`${field} is ${value}: ${reason}`);
    this.field = field;
    this.value = value;
  }
}
