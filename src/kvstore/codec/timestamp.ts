import { checkArgument, matching } from '../../base/arguments.ts';
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

/** Returns a time as bytes of its RFC 3339 text in whole seconds of UTC. */
export function encodeTimestamp(millis: number): Uint8Array {
  checkArgument('encodeTimestamp: millis', millis, TIME);
  return bytesOfText(timestampText(millis));
}

const TIME = matching(
  'must be a time in milliseconds since 1970',
  (value) => typeof value === 'number' && !Number.isNaN(new Date(value).getTime()),
);
