import { bytesOfKey, keyOfBytes } from './bytes.ts';

/** Keys from `start` to `end`, exclusive. An `end` of `'\0'` means no end, as in etcd. */
export interface KeyRange {
  readonly start: string;
  readonly end: string;
}

/** The `end` of a range without an end. */
export const NO_END = '\0';

/**
 * Returns the first key after all keys with `prefix`: the prefix with its last byte plus one. Returns `NO_END` if there
 * is no such key.
 */
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

/** Returns the range of all keys with `prefix`; all keys if it is empty. */
export function prefixRange(prefix: string): KeyRange {
  return { start: prefix === '' ? '\0' : prefix, end: prefixEnd(prefix) };
}

/** Returns the range of a single key. */
export function keyRange(key: string): KeyRange {
  return { start: key, end: keyAfter(key) };
}

/** Returns true if the range contains a single key: {@link keyRange}. */
export function isOneKey({ start, end }: KeyRange): boolean {
  return end.length === start.length + 1 && end.endsWith('\0') && end.startsWith(start);
}

/** The keys of a watch: all keys with `prefix`, or with `exactKey` only the key `prefix`. */
export interface WatchedKeys {
  readonly prefix: string;
  readonly exactKey?: boolean | undefined;
}

export function watchedRange({ prefix, exactKey = false }: WatchedKeys): KeyRange {
  return exactKey ? keyRange(prefix) : prefixRange(prefix);
}

/** Returns the smallest key after `key`. */
export function keyAfter(key: string): string {
  return `${key}\0`;
}

export function inRange(key: string, range: KeyRange): boolean {
  return compareKeys(key, range.start) >= 0 && (range.end === NO_END || compareKeys(key, range.end) < 0);
}

function compareBytes(a: string, b: string): number {
  return Buffer.compare(bytesOfKey(a), bytesOfKey(b));
}

/**
 * Orders keys by their bytes, as etcd does. Differs from the order of JavaScript strings only if a unit of at least
 * 0xD800 is compared.
 */
export function compareKeys(a: string, b: string): number {
  if (a === b) return 0;
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i++) {
    const left = a.charCodeAt(i);
    const right = b.charCodeAt(i);
    if (left === right) continue;
    if (left < 0xd800 && right < 0xd800) return left - right;
    return compareBytes(a, b);
  }
  return a.length - b.length;
}
