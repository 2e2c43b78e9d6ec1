import { Int32Rows } from '../base/int32-rows.ts';
import type { AddressWords } from '../net/address-words.ts';
import { KeyHash } from '../net/key-hash.ts';

const WORD = 1; // the key hash wants a length word; identities all have this one

/** Identity → the first link of its list of slots; 0 for an identity that no entry has. */
export class IdentityHeads {
  readonly #identities = new KeyHash(0);
  readonly #links = new Int32Rows(1);
  readonly #key: AddressWords = { family: 4, w0: 0, w1: 0, w2: 0, w3: 0 };

  get(identity: number): number {
    const at = this.#find(identity);
    return at < 0 ? 0 : this.#links.get(at, 0);
  }

  /** Sets the first link of an identity and gives the one before. 0 forgets the identity. */
  exchange(identity: number, link: number): number {
    const found = this.#find(identity);
    const before = found < 0 ? 0 : this.#links.get(found, 0);
    if (link === 0) {
      if (found >= 0) this.#identities.remove(found);
      return before;
    }
    const at = found >= 0 ? found : this.#identities.insert(this.#key, WORD);
    this.#links.reserve(at);
    this.#links.set(at, 0, link);
    return before;
  }

  #find(identity: number): number {
    this.#key.w0 = identity | 0;
    return this.#identities.find(this.#key, WORD);
  }
}
