import { type AddressWords, type Family, maskWords, wordMask } from '../../src/net/address-words.ts';
import { formatAddress, formatPrefix } from '../../src/net/format-address.ts';
import { FreshStrings } from '../fresh-strings.ts';
import { randomWords } from '../random-order.ts';

/** The content of the table for longest-prefix match; see {@link Lookups}. */
export type LookupKind = 'ipv4' | 'shadowed' | 'ipv6';

/** A prefix of the table. */
interface Net {
  readonly words: Readonly<AddressWords>;
  readonly length: number;
}

/** The bits of an address that are random, as a mask for each word. The other bits are constant. */
interface Space {
  readonly family: Family;
  readonly bits: number;
  readonly base: readonly [number, number, number, number];
  readonly random: readonly [number, number, number, number];
  /** The lengths of the three thirds: an address, a subnet, and all of these. */
  readonly subnet: number;
  readonly mixed: { readonly from: number; readonly to: number };
}

const IPV4: Space = {
  family: 4,
  bits: 32,
  base: [0, 0, 0, 0],
  random: [-1, 0, 0, 0],
  subnet: 24,
  mixed: { from: 8, to: 31 },
};

/** 4,096 sites (/32) with 2^24 subnets (/64) each and 2^16 hosts in a subnet, below 2a00::/12. */
const IPV6: Space = {
  family: 6,
  bits: 128,
  base: [0x2a00_0000, 0, 0, 0],
  random: [0x0000_0fff, 0x00ff_ffff, 0, 0x0000_ffff],
  subnet: 64,
  mixed: { from: 32, to: 127 },
};

/** Each length covers at most 1/50 of the space, because a few short prefixes would leave no miss. */
const COVER = 50;
/** Size of the neighbourhood of a prefix in bits: a /24 for an address, a /16 for a /24. */
const NEIGHBOURHOOD = 8;
/** Number of lookups in each round: a sample, because they do not change the table; fewer for a small table. */
const SAMPLE = 20_000;
const MIN_SAMPLE = 2000;
const PREFIXES_PER_LOOKUP = 30;
const SHADOW_EVERY = 10;

function countBits(word: number): number {
  let count = 0;
  for (let rest = word >>> 0; rest !== 0; rest = (rest & (rest - 1)) >>> 0) count++;
  return count;
}

/** A number for a prefix, below 2^53. Two prefixes with one number can only make a miss look like a hit. */
function numberOf(words: Readonly<AddressWords>, length: number): number {
  let high = Math.imul(words.w0 ^ length, 0x9e37_79b1);
  let low = Math.imul(words.w0 ^ 0x5bd1_e995, 0x85eb_ca6b) ^ length;
  for (const word of [words.w1, words.w2, words.w3]) {
    high = Math.imul(high ^ (high >>> 15) ^ word, 0x9e37_79b1);
    low = Math.imul(low ^ (low >>> 13) ^ word, 0xc2b2_ae35);
  }
  return ((high ^ (high >>> 16)) >>> 11) * 2 ** 32 + ((low ^ (low >>> 16)) >>> 0);
}

function fresh(texts: readonly string[]): FreshStrings {
  return new FreshStrings(texts.length, 1, (at, out) => out.push(texts[at] ?? ''));
}

/**
 * A table of `n` prefixes for longest-prefix match, and lookups in it. One third are addresses, one third subnets
 * (/24; IPv6 /64), and one third CIDRs of all lengths (/8 to /31; IPv6 /32 to /127), as many of each length as of
 * another, except that no length covers more than 2 % of the space; all in random places. With `shadowed`, a
 * tenth of the keys are full-length CIDRs over addresses of the first third.
 *
 * - `exact`: the address of an entry.
 * - `hits`: a random address inside a random CIDR.
 * - `misses`: an address next to a random prefix, within 8 bits more (the same /24 for an address, the same /16
 *   for a /24), that no prefix of the table covers.
 */
export class Lookups {
  /** Keys of the table, in random order. */
  readonly keys: FreshStrings;
  readonly exact: FreshStrings;
  readonly hits: FreshStrings;
  readonly misses: FreshStrings;
  /** The same by text. */
  readonly sorted: { readonly [K in 'exact' | 'hits' | 'misses']: FreshStrings };
  readonly #space: Space;
  readonly #random: () => number;
  readonly #known = new Set<number>();
  /** Lengths in the table, longest first. */
  readonly #lengths: readonly number[];
  readonly #at: AddressWords;

  constructor(n: number, kind: LookupKind) {
    this.#space = kind === 'ipv6' ? IPV6 : IPV4;
    this.#random = randomWords(kind === 'ipv6' ? 6 : 4);
    this.#at = { family: this.#space.family, w0: 0, w1: 0, w2: 0, w3: 0 };
    const twins = kind === 'shadowed' ? Math.floor(n / SHADOW_EVERY) : 0;
    const nets = this.#nets(n - twins);
    this.#lengths = [...new Set(nets.map(({ length }) => length))].sort((a, b) => b - a);
    const addresses = nets.filter(({ length }) => length === this.#space.bits);
    const cidrs = nets.filter(({ length }) => length < this.#space.bits);
    const keys = [
      ...nets.map((net) => this.#text(net)),
      ...Array.from({ length: twins }, (_, i) =>
        formatPrefix(this.#pick(addresses, i).words, this.#space.bits),
      ),
    ];
    this.#shuffle(keys);
    const sample = Math.min(n, SAMPLE, Math.max(MIN_SAMPLE, Math.ceil(n / PREFIXES_PER_LOOKUP)));
    this.keys = new FreshStrings(keys.length, 1, (at, out) => out.push(keys[at] ?? ''));
    const look = (address: () => Readonly<AddressWords>): readonly string[] =>
      Array.from({ length: sample }, () => formatAddress(address()));
    const exact = look(() => this.#pick(addresses).words);
    const hits = look(() => this.#inside(this.#pick(cidrs)));
    const misses = look(() => this.#miss(nets));
    this.exact = fresh(exact);
    this.hits = fresh(hits);
    this.misses = fresh(misses);
    this.sorted = {
      exact: fresh(exact.toSorted()),
      hits: fresh(hits.toSorted()),
      misses: fresh(misses.toSorted()),
    };
  }

  #nets(n: number): readonly Net[] {
    const { bits, subnet, mixed } = this.#space;
    const nets: Net[] = [];
    const third = Math.floor(n / 3);
    let left = third;
    for (let length = mixed.from; length <= mixed.to; length++) {
      const share = Math.min(Math.ceil(left / (mixed.to - length + 1)), this.#most(length));
      this.#add(nets, length, share);
      left -= share;
    }
    this.#add(nets, subnet, third + left);
    this.#add(nets, bits, n - nets.length);
    return nets;
  }

  /** Returns the maximum number of prefixes of a length. */
  #most(length: number): number {
    const { random } = this.#space;
    const free = random.reduce((sum, word, i) => sum + countBits(word & wordMask(length - 32 * i)), 0);
    return Math.floor(2 ** free / COVER);
  }

  #add(nets: Net[], length: number, count: number): void {
    for (let added = 0; added < count; ) {
      const words = this.#address();
      maskWords(words, length);
      const number = numberOf(words, length);
      if (this.#known.has(number)) continue;
      this.#known.add(number);
      nets.push({ words, length });
      added++;
    }
  }

  /** A random address of the space. */
  #address(): AddressWords {
    const [b0, b1, b2, b3] = this.#space.base;
    const [r0, r1, r2, r3] = this.#space.random;
    const word = (base: number, random: number): number =>
      random === 0 ? base : base | (this.#random() & random);
    return {
      family: this.#space.family,
      w0: word(b0, r0),
      w1: word(b1, r1),
      w2: word(b2, r2),
      w3: word(b3, r3),
    };
  }

  /** A random address of the space that lies in a prefix. */
  #inside({ words, length }: Net): AddressWords {
    const address = this.#address();
    const join = (net: number, host: number, bits: number): number =>
      (net & wordMask(bits)) | (host & ~wordMask(bits));
    address.w0 = join(words.w0, address.w0, length);
    address.w1 = join(words.w1, address.w1, length - 32);
    address.w2 = join(words.w2, address.w2, length - 64);
    address.w3 = join(words.w3, address.w3, length - 96);
    return address;
  }

  #miss(nets: readonly Net[]): Readonly<AddressWords> {
    for (;;) {
      const { words, length } = this.#pick(nets);
      const address = this.#inside({ words, length: Math.max(0, length - NEIGHBOURHOOD) });
      if (!this.#covered(address)) return address;
    }
  }

  #covered(address: Readonly<AddressWords>): boolean {
    const at = Object.assign(this.#at, address);
    for (const length of this.#lengths) {
      maskWords(at, length);
      if (this.#known.has(numberOf(at, length))) return true;
    }
    return false;
  }

  #text({ words, length }: Net): string {
    return length === this.#space.bits ? formatAddress(words) : formatPrefix(words, length);
  }

  /** A random one, or the one at `index`. */
  #pick(nets: readonly Net[], index: number = this.#random() % nets.length): Net {
    const net = nets[index];
    if (net === undefined) throw new Error('a table needs at least one prefix of each kind');
    return net;
  }

  #shuffle(keys: string[]): void {
    for (let i = keys.length - 1; i > 0; i--) {
      const other = this.#random() % (i + 1);
      [keys[i], keys[other]] = [keys[other] ?? '', keys[i] ?? ''];
    }
  }
}
