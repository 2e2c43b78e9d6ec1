import LongestPrefixMatch from 'longest-prefix-match';

/**
 * The npm package `longest-prefix-match`: a binary trie, the one for longest matches with values over IPv4 and IPv6 that
 * is kept up. It can only be added to and asked. It reads addresses through text, hence microseconds a call.
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
