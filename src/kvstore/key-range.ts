import { bytesOfKey, keyOfBytes } from './bytes.ts';

/** Keys from `start` on, `end` excluded. An `end` of `'\0'` means no end, as in etcd. */
export interface KeyRange {
  readonly start: string;
  readonly end: string;
}

/** The end of a range that has none. */
export const NO_END = '\0';

/** The first key after every key that starts with `prefix`: its last byte plus one. */
export function prefixEnd(prefix: string): string {
  const bytes = Uint8Array.from(bytesOfKey(prefix));
  for (let i = bytes.length - 1; i >= 0; i--) {
    const byte = bytes[i] ?? 0;
    if (byte === 0xff) continue;
    bytes[i] = byte + 1;
    return keyOfBytes(bytes.subarray(0, i + 1));
  }
  return NO_END;
}

/** Every key that starts with `prefix`; all keys for the empty one. */
export function prefixRange(prefix: string): KeyRange {
  return { start: prefix === '' ? '\0' : prefix, end: prefixEnd(prefix) };
}

/** The range of one key alone. */
export function keyRange(key: string): KeyRange {
  return { start: key, end: keyAfter(key) };
}

/** The smallest key that comes after `key`. */
export function keyAfter(key: string): string {
  return `${key}\0`;
}

/** Whether `key` lies in the range. */
export function inRange(key: string, range: KeyRange): boolean {
  return compareKeys(key, range.start) >= 0 && (range.end === NO_END || compareKeys(key, range.end) < 0);
}

function compareUnusual(a: string, b: string): number {
  return Buffer.compare(bytesOfKey(a), bytesOfKey(b));
}

/**
 * Orders keys as etcd does, by their bytes. Differs from the order of JavaScript strings only where a unit of
 * 0xD800 and above takes part.
 */
export function compareKeys(a: string, b: string): number {
  if (a === b) return 0;
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i++) {
    const left = a.charCodeAt(i);
    const right = b.charCodeAt(i);
    if (left === right) continue;
    if (left < 0xd800 && right < 0xd800) return left - right;
    return compareUnusual(a, b);
  }
  return a.length - b.length;
}
