import type { Claim } from '../../src/ipcache/types.ts';
import { FreshStrings } from '../fresh-strings.ts';
import { RandomOrder } from '../random-order.ts';

/**
 * The keys and their order: bare IPv4, with a tenth of full-length CIDRs, or IPv6, all in random order; `sorted` and
 * `ipv6Sorted` by text, as a kvstore lists them; `reordered` is bare IPv4 whose later operations use another random
 * order; `sparse` is bare IPv4 without neighbours.
 */
export type EntryKind = 'ipv4' | 'shadowed' | 'ipv6' | 'sorted' | 'ipv6Sorted' | 'reordered' | 'sparse';

/** Returns the entry at a position. */
interface Order {
  at(place: number): number;
}

/** A part of the workload, with fresh strings. */
export interface EntryChunk {
  readonly keys: readonly string[];
  readonly claims: readonly Claim[];
}

const IDENTITIES = 5000; // identity of entry i = i mod 5000
const NAMESPACES = 200;
/** One key in ten is the full-length CIDR of the previous endpoint in the list of all entries. */
const SHADOW_EVERY = 10;
/** Maximum number of entries: the size of 10.0.0.0/8. */
const MAX_ADDRESS_BITS = 24;
/** Sparse addresses: the lower half of all, so that almost none has a neighbour in its /26. */
const SPARSE_BITS = 30;

function ipv4(word: number): string {
  return `${word >>> 24}.${(word >>> 16) & 255}.${(word >>> 8) & 255}.${word & 255}`;
}

/** Returns a canonical IPv6 address: each node has a /64. */
function ipv6(word: number): string {
  return `fd00:10:0:${((word >>> 8) + 1).toString(16)}::${((word & 255) + 1).toString(16)}`;
}

/**
 * Returns the numbers 0 to `n` − 1 by their texts. A blank sorts before all other characters; a sort by a function
 * takes minutes.
 */
function sortedOrder(n: number, textOf: (index: number) => string): Order {
  const texts = Array.from({ length: n }, (_, index) => `${textOf(index)} ${index}`).sort();
  const order = Uint32Array.from(texts, (text) => Number(text.slice(text.indexOf(' '))));
  return { at: (place) => order[place] ?? 0 };
}

/**
 * `n` entries: pods of nodes that have a /24 each, about half full, with host IP, namespace and pod
 * name. They are returned in the order of insertion every time, except for `reordered`.
 */
export class Entries {
  readonly n: number;
  readonly #kind: EntryKind;
  readonly #addresses: RandomOrder;
  /** Order of the entries. The CIDR of an endpoint may precede it. */
  readonly #order: Order;
  readonly #laterOrder: Order;
  readonly #inserted: FreshStrings;
  readonly #later: FreshStrings;
  readonly #laterKeys: FreshStrings;

  constructor(n: number, kind: EntryKind) {
    this.n = n;
    this.#kind = kind;
    const dense = Math.min(MAX_ADDRESS_BITS, Math.ceil(Math.log2(n)) + 1);
    const bits = kind === 'sparse' ? SPARSE_BITS : dense;
    this.#addresses = new RandomOrder(2 ** bits, 1);
    this.#order = kind.endsWith('orted') ? sortedOrder(n, (at) => this.#key(at)) : new RandomOrder(n, 2);
    this.#laterOrder = kind === 'reordered' ? new RandomOrder(n, 3) : this.#order;
    const all = (order: Order): FreshStrings =>
      new FreshStrings(n, 4, (at, out) => this.#write(order.at(at), out));
    this.#inserted = all(this.#order);
    this.#later = kind === 'reordered' ? all(this.#laterOrder) : this.#inserted;
    this.#laterKeys = new FreshStrings(n, 1, (at, out) => out.push(this.#key(this.#laterOrder.at(at))));
  }

  /** Every entry once, with claims. */
  *fresh(): Generator<EntryChunk> {
    yield* claims(this.#inserted, (at) => this.#order.at(at));
  }

  /** Every entry once again, with identities that differ by `step` from those of {@link Entries.fresh}. */
  *again(step = 0): Generator<EntryChunk> {
    yield* claims(this.#later, (at) => this.#laterOrder.at(at) + step);
  }

  /** One chunk in ten of {@link Entries.again}, with other identities. */
  *tenth(): Generator<EntryChunk> {
    yield* claims(this.#later, (at) => this.#laterOrder.at(at) + 2, 10);
  }

  /** Every key once, in the order of {@link Entries.again}. */
  *keys(): Generator<readonly string[]> {
    for (const { texts } of this.#laterKeys.chunks()) yield texts;
  }

  get #isIPv6(): boolean {
    return this.#kind.startsWith('ipv6');
  }

  #address(index: number): number {
    const counterpart = this.#kind === 'shadowed' && index % SHADOW_EVERY === SHADOW_EVERY - 1;
    return this.#addresses.at(counterpart ? index - 1 : index);
  }

  #key(index: number): string {
    const word = this.#address(index);
    if (this.#isIPv6) return ipv6(word);
    const address = ipv4(this.#kind === 'sparse' ? word : 0x0a00_0000 | word);
    return this.#kind === 'shadowed' && index % SHADOW_EVERY === SHADOW_EVERY - 1 ? `${address}/32` : address;
  }

  #write(index: number, out: string[]): void {
    const node = this.#address(index) >>> 8;
    out.push(
      this.#key(index),
      this.#isIPv6 ? `fd00:172:16::${(node + 1).toString(16)}` : ipv4(0xac10_0000 | (node & 0xffff)),
      `namespace-${index % NAMESPACES}`,
      `workload-${index % IDENTITIES}-6d4b75cb6d-${(36 ** 4 + index).toString(36)}`,
    );
  }
}

/** The entries of every `every`th chunk. */
function* claims(strings: FreshStrings, indexOf: (at: number) => number, every = 1): Generator<EntryChunk> {
  for (const { from, count, texts } of strings.chunks(every)) {
    const chunk: { keys: string[]; claims: Claim[] } = { keys: [], claims: [] };
    for (let i = 0; i < count; i++) {
      chunk.keys.push(texts[4 * i] ?? '');
      chunk.claims.push({
        source: 'kvstore',
        identity: indexOf(from + i) % IDENTITIES,
        hostIP: texts[4 * i + 1] ?? '',
        encryptKey: 0,
        k8s: { namespace: texts[4 * i + 2] ?? '', podName: texts[4 * i + 3] ?? '' },
      });
    }
    yield chunk;
  }
}
