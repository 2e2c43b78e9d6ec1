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
