/** Returns an address as a text of zeros and ones. */
export function bitsOf(address: Uint8Array): string {
  return Array.from(address, (byte) => byte.toString(2).padStart(8, '0')).join('');
}

/** A model of longest-prefix lookup: all prefixes as bits, the longest first. */
export class NaiveTrie {
  readonly #identities = new Map<string, number>();
  #lengths: readonly number[] = [];

  set(bits: string, identity: number): void {
    this.#identities.set(bits, identity);
    if (!this.#lengths.includes(bits.length))
      this.#lengths = [...this.#lengths, bits.length].sort((a, b) => b - a);
  }

  /** Returns 0 if no prefix contains the address. */
  lookup(bits: string): number {
    for (const length of this.#lengths) {
      const identity = this.#identities.get(bits.slice(0, length));
      if (identity !== undefined) return identity;
    }
    return 0;
  }
}
