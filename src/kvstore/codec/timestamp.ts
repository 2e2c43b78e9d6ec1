import { bytesOfText } from '../bytes.ts';
import { type Decoded, decodeWith, readText, refuse } from './fields.ts';

/** Decodes an RFC 3339 time (heartbeat, canaries) to milliseconds since the epoch. Reason: `invalid-time`. */
export function decodeTimestamp(value: Uint8Array, at: string): Decoded<number> {
  return decodeWith(at, () => {
    const text = readText(value);
    const time = /^\d{4}-\d\d-\d\d[Tt]/.test(text) ? Date.parse(text) : Number.NaN;
    return Number.isNaN(time) ? refuse('invalid-time', 'value', text, 'is not an RFC 3339 time') : time;
  });
}

/** Whole seconds of UTC, as Go's `time.RFC3339` formats them: `2026-11-20T12:00:00Z`. */
export function encodeTimestamp(millis: number): Uint8Array {
  return bytesOfText(`${new Date(millis).toISOString().slice(0, 19)}Z`);
}
