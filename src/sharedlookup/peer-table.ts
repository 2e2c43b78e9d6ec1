import { parsePrefix, prefixRegister } from '../net/prefix.ts';
import { HEADER, MAX_PEERS, PEER, PEER_WORDS } from './layout.ts';
import type { SharedHeap } from './shared-memory.ts';

/** Rows of the first table. It doubles when it is full. */
const FIRST_ROWS = 64;

/** Returned by {@link PeerTable.use} if the table has no room for a new peer. */
export const NO_PEER = -1;

/**
 * A pair of host IP and encryption key. `name` is its key in the map, `uses` the number of entries that refer to it,
 * `batch` the number of the batch that added it.
 */
interface Peer {
  readonly number: number;
  readonly name: string;
  readonly batch: number;
  uses: number;
}

/**
 * Numbers the pairs of host IP and encryption key, so that an entry stores 23 bits instead of both. Written by one
 * thread. The number of an unused peer is assigned again in the next batch, or immediately if the peer was added in
 * this one, because no reader knows it. The table grows to `guaranteedWords` in any case, then only if the heap has
 * room. It does not shrink.
 */
export class PeerTable {
  readonly #heap: SharedHeap;
  readonly #guaranteedWords: number;
  readonly #peers = new Map<string, Peer>();
  readonly #byNumber: (Peer | undefined)[] = [undefined];
  /** Numbers to assign again. */
  readonly #free: number[] = [];
  /** Peers which have become unused in this batch. */
  readonly #unused: Peer[] = [];
  readonly #key = prefixRegister();
  #table: number;
  #rows: number = FIRST_ROWS;
  #batch = 0;

  constructor(heap: SharedHeap, guaranteedWords: number) {
    this.#heap = heap;
    this.#guaranteedWords = guaranteedWords;
    this.#table = heap.allocate(FIRST_ROWS * PEER_WORDS);
    heap.words.fill(0, this.#table, this.#table + PEER_WORDS);
    heap.words[HEADER.peers] = this.#table;
  }

  /** Returns the number of a peer, and counts one use of it; {@link NO_PEER} if it is new and there is no room. */
  use(hostIP: string | undefined, encryptKey: number): number {
    if (hostIP === undefined && encryptKey === 0) return 0;
    const name = encryptKey === 0 && hostIP !== undefined ? hostIP : `${encryptKey} ${hostIP ?? ''}`;
    const peer = this.#peers.get(name) ?? this.#add(name, hostIP, encryptKey);
    if (peer === undefined) return NO_PEER;
    peer.uses++;
    return peer.number;
  }

  /** Ends one use of a peer. */
  release(number: number): void {
    const peer = this.#byNumber[number];
    if (peer === undefined) return;
    peer.uses--;
    if (peer.uses > 0) return;
    if (peer.batch === this.#batch) this.#delete(peer);
    else this.#unused.push(peer);
  }

  /** Starts a batch. Deletes the peers still unused. Must be called when no valid lookup can read them. */
  begin(): void {
    this.#batch++;
    for (const peer of this.#unused)
      if (peer.uses === 0 && this.#byNumber[peer.number] === peer) this.#delete(peer);
    this.#unused.length = 0;
  }

  #delete(peer: Peer): void {
    this.#peers.delete(peer.name);
    this.#byNumber[peer.number] = undefined;
    this.#free.push(peer.number);
  }

  #add(name: string, hostIP: string | undefined, encryptKey: number): Peer | undefined {
    const number = this.#free.pop() ?? this.#byNumber.length;
    if (number >= this.#rows && !this.#double()) return undefined;
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
    const peer = { number, name, batch: this.#batch, uses: 0 };
    this.#peers.set(name, peer);
    this.#byNumber[number] = peer;
    return peer;
  }

  /** Doubles the rows. Returns false, and changes nothing, if there is no room. */
  #double(): boolean {
    const old = this.#table;
    const size = this.#rows * PEER_WORDS;
    if (this.#rows > MAX_PEERS) return false;
    if (2 * size > this.#guaranteedWords && !this.#heap.hasRoom(2 * size)) return false;
    this.#table = this.#heap.allocate(2 * size);
    this.#heap.words.copyWithin(this.#table, old, old + size);
    this.#rows *= 2;
    Atomics.store(this.#heap.words, HEADER.peers, this.#table);
    this.#heap.release(old, size);
    return true;
  }
}
