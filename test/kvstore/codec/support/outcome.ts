import type { Decoded } from '../../../../src/net/fields.ts';

/** Returns the decoded value, or the reason and the field of the rejection. */
export function outcomeOf<T>(decoded: Decoded<T>): T | string {
  return decoded.ok ? decoded.value : `${decoded.rejection.reason} ${decoded.rejection.field}`;
}
