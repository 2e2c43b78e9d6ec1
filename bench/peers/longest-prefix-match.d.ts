/** As much as the bench uses of a package that has no types. */
declare module 'longest-prefix-match' {
  export default class LongestPrefixMatch<T> {
    readonly length: number;
    addPrefix(prefix: string, payload: T): void;
    /** What was added under the longest prefix over an address or prefix; empty when there is none. */
    getMatch(prefix: string): T[];
  }
}
