import type { Mutant } from './mutant.ts';

/** Mutants of one place that no test can detect, because what they compute is the same. */
export interface Equivalent {
  readonly file: string;
  /** The line of the source in which the mutant begins, without indentation. */
  readonly line: string;
  /** What is replaced, as the report prints it. */
  readonly original: string;
  readonly replacements: readonly string[];
  readonly reason: string;
}

/** What tells mutants apart; line numbers change too often. */
export function keyOf({ file, line, original, replacement }: Omit<Mutant, 'status' | 'lineNumber'>): string {
  return `${file}: ${line}: ${original} → ${replacement}`;
}

/** The keys of what is listed. */
export function keysOf(equivalents: readonly Equivalent[]): ReadonlySet<string> {
  return new Set(
    equivalents.flatMap((entry) => entry.replacements.map((replacement) => keyOf({ ...entry, replacement }))),
  );
}

/** In the order of files. */
export const EQUIVALENTS: readonly Equivalent[] = [
  {
    file: 'src/identity/labels.ts',
    line: 'return [...byKey.values()].sort((a, b) => (a.key < b.key ? -1 : 1));',
    original: 'a.key < b.key',
    replacements: ['a.key <= b.key'],
    reason: 'the keys of a map are never equal',
  },
  {
    file: 'src/identity/remote-identity-cache.ts',
    line: 'if (this.#byID.get(id)?.key === key) return;',
    original: 'this.#byID.get(id)?.key === key',
    replacements: ['false'],
    reason: 'writes again what is there; the early return only saves time',
  },
  {
    file: 'src/identity/remote-identity-cache.ts',
    line: 'const rest = (this.#byLabels.get(entry.key) ?? []).filter((other) => other !== id);',
    original: '[]',
    replacements: ['["Stryker was here"]'],
    reason: 'each entry is in the list of its labels: the fallback is for the compiler',
  },
  {
    file: 'src/identity/remote-identity-cache.ts',
    line: 'if (rest.length > 0) this.#byLabels.set(entry.key, rest);',
    original: 'rest.length > 0',
    replacements: ['true', 'rest.length >= 0'],
    reason: 'keeps an empty list, of which only memory tells',
  },
  {
    file: 'src/identity/source.ts',
    line: 'return a.owner < b.owner ? -1 : 1;',
    original: 'a.owner < b.owner',
    replacements: ['a.owner <= b.owner'],
    reason: 'equal owners have returned before',
  },
  {
    file: 'src/net/address-words.ts',
    line: 'return bits >= 32 ? -1 : -1 << (32 - bits);',
    original: 'bits >= 32',
    replacements: ['bits > 32'],
    reason: 'a shift by 0 gives -1 as well',
  },
  {
    file: 'src/net/format-address.ts',
    line: 'const codes: number[] = [];',
    original: '[]',
    replacements: ['["Stryker was here"]'],
    reason: 'every place is written before it is read',
  },
  {
    file: 'src/net/format-address.ts',
    line: 'for (let i = 0; i < 8; i++) {',
    original: 'i < 8',
    replacements: ['i <= 8'],
    reason: 'behind the last group is no group of zero',
  },
  {
    file: 'src/net/parse-address.ts',
    line: 'octet = octet < 0 ? digit : octet * 10 + digit;',
    original: 'octet < 0',
    replacements: ['octet <= 0'],
    reason: 'a digit after an octet of 0 has been rejected before',
  },
  {
    file: 'src/net/parse-address.ts',
    line: 'for (; i < to; i++) {',
    original: 'i < to',
    replacements: ['i <= to'],
    reason: 'at the end is a slash or nothing, and neither is a digit; but to read behind a text is slow',
  },
  {
    file: 'src/net/parse-address.ts',
    line: 'if (i < to && text.charCodeAt(i) === DOT) {',
    original: 'i < to',
    replacements: ['true', 'i <= to'],
    reason: 'at the end is a slash or nothing, and neither is a dot; but to read behind a text is slow',
  },
  {
    file: 'src/net/prefix.ts',
    line: 'if (end < 0) return parseIPv6Prefix(text, out);',
    original: 'end < 0',
    replacements: ['end <= 0'],
    reason: 'an IPv4 address ends after seven characters or more',
  },
  {
    file: 'src/net/prefix.ts',
    line: 'if (!scanIPv6(text, slash < 0 ? text.length : slash, out)) return false;',
    original: 'slash < 0',
    replacements: ['slash <= 0'],
    reason: 'a text that begins with a slash is rejected either way',
  },
  {
    file: 'src/net/prefix.ts',
    line: 'if (slash < 0) {',
    original: 'slash < 0',
    replacements: ['slash <= 0'],
    reason: 'a text that begins with a slash has been rejected before',
  },
  {
    file: 'src/net/prefix.ts',
    line: "return key.form === 'endpoint' && !text.includes(':') ? text : formatKey(key);",
    original: "key.form === 'endpoint' && !text.includes(':')",
    replacements: ['false'],
    reason: 'formatting gives the same text; it only takes longer',
  },
  {
    file: 'src/net/prefix.ts',
    line: "return key.form === 'endpoint' && !text.includes(':') ? text : formatKey(key);",
    original: "'endpoint'",
    replacements: ['""'],
    reason: 'formatting gives the same text; it only takes longer',
  },
  {
    file: 'src/net/prefix.ts',
    line: "return key.form === 'endpoint' && !text.includes(':') ? text : formatKey(key);",
    original: "':'",
    replacements: ['""'],
    reason: 'formatting gives the same text; it only takes longer',
  },
];
