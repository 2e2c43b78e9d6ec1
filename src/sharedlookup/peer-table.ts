import { assert } from '../base/assert.ts';
import { parsePrefix, prefixRegister } from '../net/prefix.ts';
import { HEADER, MAX_PEERS, PEER, PEER_WORDS } from './layout.ts';
import type { SharedHeap } from './shared-memory.ts';

/** Rows of the first table. It doubles when it is full. */
const FIRST_ROWS = 64;

/**
 * A pair of host IP and encryption key. `name` is its key in the map, `uses` the number of entries that refer to it.
 */
interface Peer {
  readonly number: number;
  readonly name: string;
  uses: number;
}

/**
 * Numbers the pairs of host IP and encryption key, so that an entry stores 23 bits instead of both. Written by one
 * thread. The number of an unused peer is assigned again after the next {@link PeerTable.turn}.
 */
export class PeerTable {
  readonly #heap: SharedHeap;
  readonly #peers = new Map<string, Peer>();
  readonly #byNumber: (Peer | undefined)[] = [undefined];
  /** Numbers that can be assigned again. */
  readonly #free: number[] = [];
  /** Peers that have become unused since the last turn. */
  readonly #unused: Peer[] = [];
  readonly #key = prefixRegister();
  #table: number;
  #rows: number = FIRST_ROWS;

  constructor(heap: SharedHeap) {
    this.#heap = heap;
    this.#table = heap.allocate(FIRST_ROWS * PEER_WORDS);
    heap.words.fill(0, this.#table, this.#table + PEER_WORDS);
    heap.words[HEADER.peers] = this.#table;
  }

  /** Returns the number of a peer, and counts one use of it. */
  use(hostIP: string | undefined, encryptKey: number): number {
    if (hostIP === undefined && encryptKey === 0) return 0;
    const name = encryptKey === 0 && hostIP !== undefined ? hostIP : `${encryptKey} ${hostIP ?? ''}`;
    const peer = this.#peers.get(name) ?? this.#add(name, hostIP, encryptKey);
    peer.uses++;
    return peer.number;
  }

  /** Ends one use of a peer. */
  release(number: number): void {
    const peer = this.#byNumber[number];
    if (peer === undefined) return;
    peer.uses--;
    if (peer.uses === 0) this.#unused.push(peer);
  }

  /** Deletes the peers that are still unused. Must be called when no valid lookup can read them. */
  turn(): void {
    if (this.#unused.length === 0) return;
    for (const peer of this.#unused) {
      if (peer.uses > 0 || this.#byNumber[peer.number] !== peer) continue;
      this.#peers.delete(peer.name);
      this.#byNumber[peer.number] = undefined;
      this.#free.push(peer.number);
    }
    this.#unused.length = 0;
  }

  #add(name: string, hostIP: string | undefined, encryptKey: number): Peer {
    const number = this.#free.pop() ?? this.#byNumber.length;
    assert(number <= MAX_PEERS, 'more than 8,388,607 pairs of host IP and encryption key');
    while (number >= this.#rows) this.#double();
    const { words } = this.#heap;
    const row = this.#table + number * PEER_WORDS;
    const key = this.#key;
    const hasHost = hostIP !== undefined && parsePrefix(hostIP, key);
    words[row + PEER.encryptKey] = encryptKey;
    words[row + PEER.family] = hasHost ? key.family : 0;
    words[row + PEER.w0] = key.w0;
    words[row + PEER.w1] = key.w1;
    words[row + PEER.w2] = key.w2;
    words[row + PEER.w3] = key.w3;
    const peer = { number, name, uses: 0 };
    this.#peers.set(name, peer);
    this.#byNumber[number] = peer;
    return peer;
  }

  #double(): void {
    const old = this.#table;
    const size = this.#rows * PEER_WORDS;
    this.#table = this.#heap.allocate(2 * size);
    this.#heap.words.copyWithin(this.#table, old, old + size);
    this.#rows *= 2;
    Atomics.store(this.#heap.words, HEADER.peers, this.#table);
    this.#heap.release(old, size);
  }
}
