import LongestPrefixMatch from 'longest-prefix-match';

/**
 * The npm package `longest-prefix-match`: a binary trie, the only maintained package for longest matches with values
 * over IPv4 and IPv6. It supports only inserts and lookups. It parses addresses from text, which takes microseconds per
 * call.
 */
export class NpmTrieSubject {
  readonly #trie = new LongestPrefixMatch<number>();

  addAll(prefixes: readonly string[]): void {
    for (let i = 0; i < prefixes.length; i++) this.#trie.addPrefix(prefixes[i] ?? '', i);
  }

  matchAll(addresses: readonly string[]): number {
    let found = 0;
    for (const address of addresses)
      if (this.#trie.getMatch(`${address}/${address.includes(':') ? 128 : 32}`).length > 0) found++;
    return found;
  }
}
