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
];
