import type { LineScrub } from '../../../src/tape/scrub/scrub-lines.ts';

const WORDS = /[^\s:/=;,@"'`{}[\]()<>|&?#%+!*\\$^]+/g;

/** Returns plain data with the names and addresses of a scrubbed tape. Words that are not on the tape are kept. */
export function replaced(value: unknown, scrub: LineScrub): unknown {
  const text = (one: string): string => {
    try {
      return scrub.replaceText(one);
    } catch {
      return one.replace(WORDS, (word) => scrub.names.get(word) ?? word);
    }
  };
  if (typeof value === 'string')
    return /^[[{]/.test(value) ? replaced(JSON.parse(value), scrub) : text(value);
  if (Array.isArray(value)) return value.map((item) => replaced(item, scrub));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [text(key), replaced(item, scrub)]));
}

/**
 * Returns plain data with all lists and fields sorted, and with JSON in texts parsed, so that only relations are
 * compared.
 */
export function unordered(value: unknown): unknown {
  if (typeof value === 'string' && /^[[{]/.test(value)) return unordered(JSON.parse(value));
  if (Array.isArray(value)) {
    const items = value.map(unordered);
    return items.map((item) => JSON.stringify(item)).sort();
  }
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .map(([key, item]) => [key, unordered(item)] as const)
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  );
}
