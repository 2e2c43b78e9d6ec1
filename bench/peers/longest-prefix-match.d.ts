/** The part of an untyped package that the bench uses. */
declare module 'longest-prefix-match' {
  export default class LongestPrefixMatch<T> {
    readonly length: number;
    addPrefix(prefix: string, payload: T): void;
    /** Returns the values of the longest prefix of an address or prefix; empty if there is none. */
    getMatch(prefix: string): T[];
  }
}
