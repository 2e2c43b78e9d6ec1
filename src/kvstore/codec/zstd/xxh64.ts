/*
 * XXH64 with seed 0. Its low 32 bits are the checksum of a zstd frame (RFC 8878, section 3.1.1). A number of 64 bits is
 * stored as two numbers of 32 bits, because `bigint` takes ten times as long.
 */

/** A number of 64 bits: its upper and lower 32 bits. */
interface Word {
  readonly hi: number;
  readonly lo: number;
}

// The primes of XXH64.
const P1: Word = { hi: 0x9e3779b1, lo: 0x85ebca87 };
const P2: Word = { hi: 0xc2b2ae3d, lo: 0x27d4eb4f };
const P3: Word = { hi: 0x165667b1, lo: 0x9e3779f9 };
const P4: Word = { hi: 0x85ebca77, lo: 0xc2b2ae63 };
const P5: Word = { hi: 0x27d4eb2f, lo: 0x165667c5 };

/** Bytes of a stripe: four words, one for each lane. */
const STRIPE = 32;
/** Bits by which the lanes are rotated before they are added. */
const LANE_ROTATIONS = [1, 7, 12, 18] as const;
/** Bytes that are hashed in one step; takes about 1 ms. */
const BYTES_PER_STEP = 128 * 1024;

/** A number of 64 bits that operations change in place. */
class Register {
  hi: number;
  lo: number;

  constructor({ hi, lo }: Word) {
    this.hi = hi | 0;
    this.lo = lo | 0;
  }

  add({ hi, lo }: Word): this {
    const sum = (this.lo >>> 0) + (lo >>> 0);
    this.lo = sum | 0;
    this.hi = (this.hi + hi + (sum > 0xffff_ffff ? 1 : 0)) | 0;
    return this;
  }

  /** Multiplies modulo 2^64. The product of the low words needs 64 bits, so it is computed from halves of 16 bits. */
  multiply({ hi, lo }: Word): this {
    const [a0, a1, b0, b1] = [this.lo & 0xffff, this.lo >>> 16, lo & 0xffff, lo >>> 16];
    const low = a0 * b0;
    const [left, right] = [a0 * b1, a1 * b0];
    const middle = (low >>> 16) + (left & 0xffff) + (right & 0xffff);
    const high = a1 * b1 + (left >>> 16) + (right >>> 16) + (middle >>> 16);
    this.hi = (high + Math.imul(this.lo, hi) + Math.imul(this.hi, lo)) | 0;
    this.lo = (middle << 16) | (low & 0xffff);
    return this;
  }

  xor({ hi, lo }: Word): this {
    this.hi ^= hi;
    this.lo ^= lo;
    return this;
  }

  /** @param bits from 1 to 31 */
  rotateLeft(bits: number): this {
    const { hi, lo } = this;
    this.hi = (hi << bits) | (lo >>> (32 - bits));
    this.lo = (lo << bits) | (hi >>> (32 - bits));
    return this;
  }

  /** Combines the number by XOR with itself, shifted right. */
  xorShifted(bits: number): this {
    const { hi, lo } = this;
    if (bits >= 32) return this.xor({ hi: 0, lo: hi >>> (bits - 32) });
    return this.xor({ hi: hi >>> bits, lo: (lo >>> bits) | (hi << (32 - bits)) });
  }

  /** Sets the number to eight bytes of the view. */
  read(view: DataView, at: number): this {
    this.lo = view.getInt32(at, true);
    this.hi = view.getInt32(at + 4, true);
    return this;
  }
}

const ZERO: Word = { hi: 0, lo: 0 };

/** Hashes the bytes after the last whole stripe. */
function hashTail(hash: Register, view: DataView, from: number): void {
  const word = new Register(ZERO);
  let at = from;
  for (; at + 8 <= view.byteLength; at += 8) {
    hash.xor(word.read(view, at).multiply(P2).rotateLeft(31).multiply(P1));
    hash.rotateLeft(27).multiply(P1).add(P4);
  }
  if (at + 4 <= view.byteLength) {
    hash.xor(new Register({ hi: 0, lo: view.getInt32(at, true) }).multiply(P1));
    hash.rotateLeft(23).multiply(P2).add(P3);
    at += 4;
  }
  for (; at < view.byteLength; at++) {
    hash.xor(new Register({ hi: 0, lo: view.getUint8(at) }).multiply(P5));
    hash.rotateLeft(11).multiply(P1);
  }
}

/** Returns the low 32 bits of XXH64, unsigned, in steps of about 1 ms. */
export function* xxh64Low(content: Uint8Array): Generator<undefined, number> {
  const view = new DataView(content.buffer, content.byteOffset, content.length);
  let at = 0;
  let hash = new Register(P5);
  if (content.length >= STRIPE) {
    const lanes = [new Register(P1).add(P2), new Register(P2), new Register(ZERO), negated(P1)];
    const word = new Register(ZERO);
    for (; at + STRIPE <= content.length; at += STRIPE) {
      let part = at;
      for (const lane of lanes) {
        lane.add(word.read(view, part).multiply(P2)).rotateLeft(31).multiply(P1);
        part += 8;
      }
      if ((at + STRIPE) % BYTES_PER_STEP === 0) yield;
    }
    hash = new Register(ZERO);
    for (const [index, bits] of LANE_ROTATIONS.entries())
      hash.add(new Register(lanes[index] ?? ZERO).rotateLeft(bits));
    for (const lane of lanes) hash.xor(lane.multiply(P2).rotateLeft(31).multiply(P1)).multiply(P1).add(P4);
  }
  hash.add({ hi: 0, lo: content.length });
  hashTail(hash, view, at);
  hash.xorShifted(33).multiply(P2).xorShifted(29).multiply(P3).xorShifted(32);
  return hash.lo >>> 0;
}

/** Returns the two's complement of a number. */
function negated({ hi, lo }: Word): Register {
  return new Register({ hi: ~hi, lo: ~lo }).add({ hi: 0, lo: 1 });
}
