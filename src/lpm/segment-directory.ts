import { assert } from '../base/assert.ts';
import { type AddressWords, addressBits, type Family, wordAt } from '../net/address-words.ts';
import { containsWords } from '../net/prefix.ts';

const WORDS = ['w0', 'w1', 'w2', 'w3'] as const;

/** Entries of a node, one for each value of an octet. */
const FAN = 256;
/** A split leaves at least 1/MIN_PART of the keys on each side, unless no octet allows it. */
const MIN_PART = 4;

/** Addresses, four words each. */
export type AddressColumn = Int32Array;

/** Reads the address at `index` into the words of `out`. The family of `out` is not changed. */
export function readAddress(addresses: AddressColumn, index: number, out: AddressWords): void {
  out.w0 = addresses[4 * index] ?? 0;
  out.w1 = addresses[4 * index + 1] ?? 0;
  out.w2 = addresses[4 * index + 2] ?? 0;
  out.w3 = addresses[4 * index + 3] ?? 0;
}

/** Writes an address at `index`. */
export function writeAddress(addresses: AddressColumn, index: number, words: Readonly<AddressWords>): void {
  addresses[4 * index] = words.w0;
  addresses[4 * index + 1] = words.w1;
  addresses[4 * index + 2] = words.w2;
  addresses[4 * index + 3] = words.w3;
}

/** Returns the octet at `level` (0 to 3, for IPv6 to 15) of an address. */
function octetOf(words: Readonly<AddressWords>, level: number): number {
  return (wordAt(words, level >>> 2) >>> (24 - 8 * (level & 3))) & 255;
}

function setOctet(words: AddressWords, level: number, octet: number): void {
  const word = WORDS[level >>> 2] ?? 'w0';
  const shift = 24 - 8 * (level & 3);
  words[word] = (words[word] & ~(255 << shift)) | (octet << shift);
}

/** The position of a split: before `octet` in the last node of the path. */
interface Cut {
  /** The nodes from the root, and in each the octet of the entry of the next. */
  readonly nodes: readonly number[];
  readonly octets: readonly number[];
  readonly octet: number;
}

/**
 * Maps an address to the segment that holds its keys: a tree over octets whose leaves are segments. Each segment owns
 * one contiguous range of addresses. Together the segments cover the whole family.
 *
 *     root   0 … 9 │ 10 │ 11 … 255        segment A has 0.0.0.0 to 10.0.63.255: the entries 0 to 9 of the root,
 *             A  A │  ▼ │  B     B        0 of the second node and 0 to 63 of the third; B has all other addresses
 *                  0 │ 1 … 255
 *                  ▼ │ B     B
 *                  A … A (63) │ B … B
 *
 * An entry is 0 (no segment yet), the offset of a node, or the complement of a segment number. A lookup reads one entry
 * for each octet until it reaches a segment: two or three entries in most tables. Splits follow the keys, so all
 * segments are well filled even if the addresses are unevenly distributed. A node takes 1 KiB and refers to about a
 * hundred segments.
 */
export class SegmentDirectory {
  readonly #levels: number;
  /** The entries of all nodes. Its size doubles when it is full. */
  #nodes: Int32Array = new Int32Array(FAN);
  /** Number of nodes. */
  #count = 1;
  /** True if a fork uses the same nodes. They are copied before the next write. */
  #shared = false;
  /** Buffer of a split: number of keys by octet. */
  readonly #counts = new Int32Array(FAN);
  /**
   * The node reached from the root as long as each node has exactly one child node. The lookup of an address
   * beginning with the octets of `#common` starts here, any other lookup at the root. Without it, a lookup would read
   * 16 nodes in a table of hosts in one IPv6 subnet.
   */
  #start = 0;
  #startLevel = 0;
  /** The octets on the path to `#start`. */
  readonly #common: AddressWords;

  constructor(family: Family) {
    this.#levels = addressBits(family) / 8;
    this.#common = { family, w0: 0, w1: 0, w2: 0, w3: 0 };
  }

  get bytes(): number {
    return this.#nodes.byteLength;
  }

  fork(): SegmentDirectory {
    const fork = new SegmentDirectory(this.#levels === 4 ? 4 : 6);
    fork.#nodes = this.#nodes;
    fork.#count = this.#count;
    fork.#shared = this.#shared = true;
    fork.#findStart();
    return fork;
  }

  /** Returns the segment of an address; -1 before {@link begin}. */
  at(words: Readonly<AddressWords>): number {
    const nodes = this.#nodes;
    if (this.#levels > 4) return this.#atWide(words);
    const { w0 } = words;
    let entry = nodes[w0 >>> 24] ?? 0;
    if (entry > 0) entry = nodes[entry + ((w0 >>> 16) & 255)] ?? 0;
    if (entry > 0) entry = nodes[entry + ((w0 >>> 8) & 255)] ?? 0;
    if (entry > 0) entry = nodes[entry + (w0 & 255)] ?? 0;
    return ~entry;
  }

  #atWide(words: Readonly<AddressWords>): number {
    const isCommon = containsWords(this.#common, 8 * this.#startLevel, words);
    let entry = isCommon ? this.#start : 0;
    for (let level = isCommon ? this.#startLevel : 0; level === 0 || entry > 0; level++) {
      entry = this.#nodes[entry + octetOf(words, level)] ?? 0;
    }
    return ~entry;
  }

  /** Sets `#start` after nodes were added or shared. */
  #findStart(): void {
    this.#start = 0;
    this.#startLevel = 0;
    for (let only = this.#onlyChild(0); only >= 0; only = this.#onlyChild(this.#start)) {
      setOctet(this.#common, this.#startLevel++, only);
      this.#start = this.#nodes[this.#start + only] ?? 0;
    }
  }

  /** Returns the octet of the only child node; -1 if the node has no child nodes or several. */
  #onlyChild(node: number): number {
    let only = -1;
    for (let octet = 0; octet < FAN; octet++) {
      if ((this.#nodes[node + octet] ?? 0) <= 0) continue;
      if (only >= 0) return -1;
      only = octet;
    }
    return only;
  }

  /** Assigns all addresses to the first segment. */
  begin(segment: number): void {
    this.#unshare();
    this.#nodes.fill(~segment);
  }

  /**
   * Assigns the upper part of a segment's range to the segment `upper`. `addresses` are the `count` addresses of its
   * keys, at least two of which differ. Their order is not preserved.
   */
  split(segment: number, upper: number, addresses: AddressColumn, count: number): void {
    this.#unshare();
    const { nodes, octets, octet } = this.#cut(segment, addresses, count);
    // In each node of the path, from the last to the root, the entries after the path are also of the upper part.
    let from = octet;
    for (let depth = nodes.length - 1; depth >= 0; depth--) {
      if (!this.#replace(nodes[depth] ?? 0, from, ~segment, ~upper)) return;
      from = (octets[depth - 1] ?? 0) + 1;
    }
  }

  /** Yields the segments of the addresses beginning with the first `length` bits of `words`, each once, ascending. */
  *within(words: Readonly<AddressWords>, length: number): Generator<number, void, void> {
    let node = 0;
    let level = 0;
    for (; 8 * (level + 1) <= length; level++) {
      const entry = this.#nodes[node + octetOf(words, level)] ?? 0;
      if (entry <= 0) {
        if (entry < 0) yield ~entry;
        return;
      }
      node = entry;
    }
    const first = octetOf(words, level);
    const covered = 2 ** (8 * (level + 1) - length); // number of octets at this level which the prefix contains
    let last = 0;
    for (const entry of this.#leaves(node, first, first + covered)) {
      if (entry !== last) yield ~entry;
      last = entry;
    }
  }

  /** Yields the leaves below the entries `from` to `to` (exclusive) of a node, ascending. */
  *#leaves(node: number, from: number, to: number): Generator<number, void, void> {
    for (let octet = from; octet < to; octet++) {
      const entry = this.#nodes[node + octet] ?? 0;
      if (entry > 0) yield* this.#leaves(entry, 0, FAN);
      else yield entry;
    }
  }

  /** Finds a balanced split of the keys at the smallest possible depth, and creates the nodes on the path. */
  #cut(segment: number, addresses: AddressColumn, count: number): Cut {
    const nodes = [0];
    const octets: number[] = [];
    /** Number of keys before the last node of the path, and in it. */
    let preceding = 0;
    let remaining = count;
    let level = 0;
    for (const common = commonOctets(addresses, count); level < common; level++) {
      const octet = octetAt(addresses, 0, level);
      nodes.push(this.#nodeBelow(nodes[level] ?? 0, octet, ~segment));
      octets.push(octet);
    }
    for (; ; level++) {
      this.#countOctets(addresses, remaining, level);
      const { octet, part, middle, precedingMiddle } = this.#bestOctet(preceding, count);
      const isLast = level === this.#levels - 1;
      if (part * MIN_PART >= count || isLast) {
        assert(part > 0, 'a segment that is split has keys at several addresses');
        return { nodes, octets, octet };
      }
      nodes.push(this.#nodeBelow(nodes[level] ?? 0, middle, ~segment));
      octets.push(middle);
      if (this.#counts[middle] !== remaining) remaining = keepOctet(addresses, remaining, level, middle);
      preceding = precedingMiddle;
    }
  }

  /** Counts the octets at a level of the first `count` addresses in `#counts`. */
  #countOctets(addresses: AddressColumn, count: number, level: number): void {
    this.#counts.fill(0);
    for (let i = 0; i < count; i++) {
      const octet = octetAt(addresses, i, level);
      this.#counts[octet] = (this.#counts[octet] ?? 0) + 1;
    }
  }

  /**
   * Returns the octet with the most balanced split of `count` keys, the size of the smaller part, the octet of the
   * median key, and the number of keys with smaller octets. `preceding` keys precede those of `#counts`.
   */
  #bestOctet(
    preceding: number,
    count: number,
  ): { octet: number; part: number; middle: number; precedingMiddle: number } {
    const best = { octet: 0, part: 0, middle: 0, precedingMiddle: preceding };
    let before = preceding;
    for (let octet = 0; octet < FAN; octet++) {
      const part = Math.min(before, count - before);
      if (octet > 0 && part > best.part) {
        best.octet = octet;
        best.part = part;
      }
      if (2 * before <= count) {
        best.middle = octet;
        best.precedingMiddle = before;
      }
      before += this.#counts[octet] ?? 0;
    }
    return best;
  }

  /** Returns the node below an entry. If the entry is a leaf, it is replaced by a new node. */
  #nodeBelow(node: number, octet: number, leaf: number): number {
    const entry = this.#nodes[node + octet] ?? 0;
    if (entry > 0) return entry;
    const added = FAN * this.#count++;
    if (added === this.#nodes.length) {
      const nodes = new Int32Array(2 * added);
      nodes.set(this.#nodes);
      this.#nodes = nodes;
    }
    this.#nodes.fill(leaf, added, added + FAN);
    this.#nodes[node + octet] = added;
    if (this.#levels > 4) this.#findStart();
    return added;
  }

  #unshare(): void {
    if (this.#shared) this.#nodes = this.#nodes.slice();
    this.#shared = false;
  }

  /** Replaces a leaf in all entries from `from` to the first other leaf. Returns false if there is another leaf. */
  #replace(node: number, from: number, leaf: number, by: number): boolean {
    for (let at = node + from; at < node + FAN; at++) {
      const entry = this.#nodes[at] ?? 0;
      if (entry === leaf) this.#nodes[at] = by;
      else if (entry <= 0 || !this.#replace(entry, 0, leaf, by)) return false;
    }
    return true;
  }
}

/** Returns the number of leading octets shared by all addresses. At least two addresses must differ. */
function commonOctets(addresses: AddressColumn, count: number): number {
  for (let word = 0; word < 4; word++) {
    let differing = 0;
    for (let i = 1; i < count; i++) differing |= (addresses[4 * i + word] ?? 0) ^ (addresses[word] ?? 0);
    if (differing !== 0) return 4 * word + (Math.clz32(differing) >>> 3);
  }
  return 0;
}

function octetAt(addresses: AddressColumn, index: number, level: number): number {
  return ((addresses[4 * index + (level >>> 2)] ?? 0) >>> (24 - 8 * (level & 3))) & 255;
}

/** Moves the addresses with this octet to the front and returns their number. */
function keepOctet(addresses: AddressColumn, count: number, level: number, octet: number): number {
  let moved = 0;
  for (let i = 0; i < count; i++) {
    if (octetAt(addresses, i, level) !== octet) continue;
    for (let word = 0; word < 4; word++) addresses[4 * moved + word] = addresses[4 * i + word] ?? 0;
    moved++;
  }
  return moved;
}
