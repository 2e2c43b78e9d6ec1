import { parseTime } from '../../base/system-clock.ts';
import { type Decoded, decodeWith, rejectInput } from '../../net/fields.ts';
import { bytesOfText } from './bytes.ts';
import { readText, VALUE_LIMITS } from './value.ts';

/** Decodes an RFC 3339 time (heartbeat, canaries) to milliseconds since the epoch. Reason: `invalid-time`. */
export function decodeTimestamp(value: Uint8Array, at: string): Decoded<number> {
  return decodeWith(at, () => {
    const text = readText(value, VALUE_LIMITS);
    return parseTime(text) ?? rejectInput('invalid-time', 'value', text, 'is not an RFC 3339 time');
  });
}

/** Returns whole seconds of UTC, as Go's `time.RFC3339` formats them: `2026-11-20T12:00:00Z`. */
export function timestampText(millis: number): string {
  return `${new Date(millis).toISOString().slice(0, 19)}Z`;
}

/** Returns the bytes of {@link timestampText}. */
export function encodeTimestamp(millis: number): Uint8Array {
  return bytesOfText(timestampText(millis));
}
