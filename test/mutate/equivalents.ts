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
  {
    file: 'src/nodemanager/address-claims.ts',
    line: 'if (this.#claims.length > SCANNED) {',
    original: 'this.#claims.length > SCANNED',
    replacements: ['true', 'false', 'this.#claims.length >= SCANNED', 'this.#claims.length <= SCANNED'],
    reason: 'a scan and a look-up in the index find the same; which is faster depends on the number',
  },
  {
    file: 'src/nodemanager/address-claims.ts',
    line: 'for (let i = 0; i < this.#claims.length; i++) if (this.#claims[i]?.ip === ip) return i;',
    original: 'i < this.#claims.length',
    replacements: ['i <= this.#claims.length'],
    reason: 'behind the last claim is none',
  },
  {
    file: 'src/nodemanager/address-claims.ts',
    line: 'for (let i = 0; i < this.#claims.length; i++) if (this.#claims[i]?.ip === ip) return i;',
    original: 'this.#claims[i]?.ip',
    replacements: ['this.#claims[i].ip'],
    reason: 'there is a claim at each index below the length',
  },
  {
    file: 'src/nodemanager/handler-feed.ts',
    line: 'const lane = this.#lanes.size === 0 ? undefined : this.#lanes.get(node);',
    original: 'this.#lanes.size === 0',
    replacements: ['false'],
    reason: 'an empty map has no lane; not to look saves time',
  },
  {
    file: 'src/nodemanager/node-spec.ts',
    line: 'if (a[i]?.ip !== b[i]?.ip || a[i]?.type !== b[i]?.type) return false;',
    original: 'a[i]?.ip',
    replacements: ['a[i].ip'],
    reason: 'the index is below both lengths',
  },
  {
    file: 'src/nodemanager/node-spec.ts',
    line: 'if (a[i]?.ip !== b[i]?.ip || a[i]?.type !== b[i]?.type) return false;',
    original: 'b[i]?.ip',
    replacements: ['b[i].ip'],
    reason: 'the index is below both lengths',
  },
  {
    file: 'src/nodemanager/node-spec.ts',
    line: 'if (a[i]?.ip !== b[i]?.ip || a[i]?.type !== b[i]?.type) return false;',
    original: 'a[i]?.type',
    replacements: ['a[i].type'],
    reason: 'the index is below both lengths',
  },
  {
    file: 'src/nodemanager/node-spec.ts',
    line: 'if (a[i]?.ip !== b[i]?.ip || a[i]?.type !== b[i]?.type) return false;',
    original: 'b[i]?.type',
    replacements: ['b[i].type'],
    reason: 'the index is below both lengths',
  },
  {
    file: 'src/nodemanager/node-spec.ts',
    line: 'for (let i = 0; i < a.length; i++) {',
    original: 'i < a.length',
    replacements: ['i <= a.length'],
    reason: 'behind the end of both is nothing, which is equal',
  },
  {
    file: 'src/nodemanager/node-spec.ts',
    line: 'for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;',
    original: 'i < a.length',
    replacements: ['i <= a.length'],
    reason: 'behind the end of both is nothing, which is equal',
  },
  {
    file: 'src/nodemanager/node-spec.ts',
    line: 'if (a === b) return true;',
    original: 'a === b',
    replacements: ['false'],
    reason: 'one map has the entries that it has; not to compare them saves time',
  },
  {
    file: 'src/nodemanager/node-spec.ts',
    line: 'if (a.size === 0) return true;',
    original: 'a.size === 0',
    replacements: ['false'],
    reason: 'the loop over no entries ends with the same',
  },
  {
    file: 'src/nodemanager/node-table.ts',
    line: 'if (nodes.size === 0) this.#clusters.delete(cluster);',
    original: 'nodes.size === 0',
    replacements: ['false'],
    reason: 'keeps an empty map, of which only memory tells',
  },
  {
    file: 'src/nodemanager/node.ts',
    line: 'return this === other || (other instanceof Node && sameNode(this.fields, other.fields));',
    original: 'this === other',
    replacements: ['false'],
    reason: 'a node is the same as itself in every word; not to compare saves time',
  },
  {
    file: 'src/nodemanager/parse-node.ts',
    line: 'if (Array.isArray(addresses) && addresses.every(isCanonical)) return addresses;',
    original: 'Array.isArray(addresses) && addresses.every(isCanonical)',
    replacements: ['false'],
    reason: 'reads the same addresses, into another list',
  },
  {
    file: 'src/nodemanager/parse-node.ts',
    line: 'return given === undefined || given.size === 0 ? NO_STRINGS : given;',
    original: 'given.size === 0',
    replacements: ['false'],
    reason: 'an empty map says the same as the shared one',
  },
  {
    file: 'src/servicecache/backend.ts',
    line: 'if (a === b) return true;',
    original: 'a === b',
    replacements: ['false'],
    reason: 'what is one object says the same; not to compare saves time',
  },
  {
    file: 'src/servicecache/backend.ts',
    line: 'return a === b || (a.address === b.address && equalButPorts(a, b) && equalPorts(a.ports, b.ports));',
    original: 'a === b',
    replacements: ['false'],
    reason: 'what is one object says the same; not to compare saves time',
  },
  {
    file: 'src/servicecache/backend.ts',
    line: '(a.forZones === b.forZones || is(a.forZones, b.forZones))',
    original: 'a.forZones === b.forZones',
    replacements: ['false'],
    reason: 'what is one object says the same; not to compare saves time',
  },
  {
    file: 'src/servicecache/frontend-index.ts',
    line: 'if (old === service) return;',
    original: 'old === service',
    replacements: ['false'],
    reason: 'takes out and puts in the same frontends',
  },
  {
    file: 'src/servicecache/offer-difference.ts',
    line: 'if (next?.address === address) {',
    original: 'next?.address === address',
    replacements: ['false'],
    reason: 'what is left is looked up, and found there; it only takes longer',
  },
  {
    file: 'src/servicecache/offer-difference.ts',
    line: 'if (next?.address === address) {',
    original: '{ this.#advance(); return next; }',
    replacements: ['{}'],
    reason: 'what is left is looked up, and found there; it only takes longer',
  },
  {
    file: 'src/servicecache/offer-difference.ts',
    line: 'if (found !== undefined) this.#left?.delete(address);',
    original: 'found !== undefined',
    replacements: ['true'],
    reason: 'deletes what is not there',
  },
  {
    file: 'src/servicecache/offer-difference.ts',
    line: 'if (found !== undefined) this.#left?.delete(address);',
    original: 'this.#left?.delete',
    replacements: ['this.#left.delete'],
    reason: 'it was found in there',
  },
  {
    file: 'src/servicecache/offer-difference.ts',
    line: 'this.#next = done === true ? undefined : value;',
    original: 'done === true',
    replacements: ['false'],
    reason: 'an iterator that is done gives no value',
  },
  {
    file: 'src/servicecache/offer-difference.ts',
    line: 'return a === b || (a.size === b.size && everyDifference(a, b, () => false));',
    original: 'a === b',
    replacements: ['false'],
    reason: 'what is one object says the same; not to compare saves time',
  },
  {
    file: 'src/servicecache/offer-difference.ts',
    line: 'return a === b || (a.size === b.size && everyDifference(a, b, () => false));',
    original: 'a.size === b.size',
    replacements: ['true'],
    reason: 'the address that one of them lacks is a difference',
  },
  {
    file: 'src/servicecache/offer-difference.ts',
    line: 'return a === b || (a.size === b.size && everyDifference(a, b, () => false));',
    original: '() => false',
    replacements: ['() => undefined'],
    reason: 'both mean to stop',
  },
  {
    file: 'src/servicecache/offer-difference.ts',
    line: 'if (previous === undefined || previous === next) return next;',
    original: 'previous === next',
    replacements: ['false'],
    reason: 'it is found to be the same as itself',
  },
  {
    file: 'src/servicecache/service-state.ts',
    line: 'return announced === state.announced ? state : change(state, { announced });',
    original: 'announced === state.announced',
    replacements: ['false'],
    reason: 'an equal state, made anew',
  },
  {
    file: 'src/servicecache/service-stream.ts',
    line: 'if (a === undefined || b === undefined) return a === b;',
    original: 'a === b',
    replacements: ['false'],
    reason: 'two that are not announced have been told apart before',
  },
  {
    file: 'src/servicecache/service-stream.ts',
    line: 'if (last === undefined || saySame(seen, latest)) return undefined;',
    original: 'last === undefined',
    replacements: ['false'],
    reason: 'two that are not announced say the same',
  },
  {
    file: 'src/servicecache/service-stream.ts',
    line: 'if (awaited === undefined || sequence < awaited) return;',
    original: 'awaited === undefined',
    replacements: ['false'],
    reason: 'deletes what is not there',
  },
  {
    file: 'src/servicecache/service-table.ts',
    line: 'if (this.#synced) return;',
    original: 'this.#synced',
    replacements: ['false'],
    reason: 'announces what is announced: no event',
  },
  {
    file: 'src/servicecache/service.ts',
    line: 'if (a === b) return true;',
    original: 'a === b',
    replacements: ['false'],
    reason: 'what is one object says the same; not to compare saves time',
  },
  {
    file: 'src/servicecache/service.ts',
    line: 'return a === b || (a.size === b.size && a.every((text, key) => b.get(key) === text));',
    original: 'a === b',
    replacements: ['false'],
    reason: 'what is one object says the same; not to compare saves time',
  },
];
