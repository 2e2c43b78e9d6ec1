import { closeSync } from 'node:fs';
import type { Arena } from '../syscall/native.ts';
import type { SyscallError } from '../syscall/syscall-error.ts';
import { type Bpf, type BpfCommand, refusal, setAddress, setName } from './bpf.ts';
import { MAP_TYPES, type MapInfo, type MapShape, type MapType, mapInfo } from './info.ts';
import { kindOf, openPin, pin } from './pin.ts';

/**
 * Memory is taken by the entry: of an LPM trie there is no other way, and hash maps of services would take 300 MB for what
 * there is room for, as Cilium's do not either (`preallocate-bpf-maps`). A map that forgets has all of it from the start.
 */
const BPF_F_NO_PREALLOC = 1;
const BY_ENTRY: ReadonlySet<MapType> = new Set(['lpmTrie', 'hash']);
const ENOENT = 2;
const EINTR = 4;
const ENOSPC = 28;

/** How often a batch is asked for that was interrupted before its first entry. */
const TRIES = 8;

/** Entries of one batch: what is written at a time, and about 1 ms of reading. */
export const BATCH_ENTRIES = 1024;

/** As much of a `BpfMap` as is written and read through: in tests it may be something else. */
export interface BatchedMap extends Disposable {
  readonly shape: { readonly keySize: number; readonly valueSize: number; readonly maxEntries: number };
  readonly keys: { readonly view: DataView; readonly bytes: Uint8Array };
  readonly values: { readonly view: DataView };
  update(count: number): readonly (SyscallError | undefined)[];
  delete(count: number): readonly (SyscallError | undefined)[];
  batches(): Iterable<number>;
}

/** What is under a pin is another map than was wanted. */
export class ForeignMapError extends Error {
  override readonly name: string = 'ForeignMapError';
  readonly code: 'foreign-map' = 'foreign-map';
  readonly path: string;
  /** It is like the one that was wanted, but has room for another number of entries. */
  readonly isResized: boolean;
  /** How many it has room for. */
  readonly maxEntries: number;

  constructor(path: string, found: MapInfo, wanted: MapShape) {
    const words = (type: number, keySize: number, valueSize: number, maxEntries: number): string =>
      `type ${type}, keys of ${keySize} bytes, values of ${valueSize}, room for ${maxEntries}`;
    const { keySize, valueSize, maxEntries } = wanted;
    const was = words(found.type, found.keySize, found.valueSize, found.maxEntries);
    super(
      `${path} is another map (${was}) than wanted (${words(MAP_TYPES[wanted.type], keySize, valueSize, maxEntries)})`,
    );
    this.path = path;
    this.maxEntries = found.maxEntries;
    this.isResized = hasShape({ ...found, maxEntries: wanted.maxEntries }, wanted);
  }
}

/**
 * A map in the kernel. Entries are written and read in batches that lie one after the other in `keys` and `values`, which
 * the caller fills in and reads.
 */
export class BpfMap implements BatchedMap {
  readonly fd: number;
  readonly shape: MapShape;
  readonly keys: Arena;
  readonly values: Arena;
  readonly #bpf: Bpf;
  readonly #cursor: Arena;
  #isClosed = false;

  private constructor(bpf: Bpf, fd: number, shape: MapShape) {
    this.#bpf = bpf;
    this.fd = fd;
    this.shape = shape;
    this.keys = bpf.alloc(BATCH_ENTRIES * shape.keySize);
    this.values = bpf.alloc(BATCH_ENTRIES * shape.valueSize);
    // Where a dump goes on: a key, or a number of four bytes.
    this.#cursor = bpf.alloc(2 * Math.max(8, shape.keySize));
  }

  /** A map that nothing else has yet. The name is for those who look at it by `bpftool`. */
  static create(bpf: Bpf, shape: MapShape, name: string): BpfMap {
    const attributes = bpf.attributes();
    attributes.setUint32(0, MAP_TYPES[shape.type], true);
    attributes.setUint32(4, shape.keySize, true);
    attributes.setUint32(8, shape.valueSize, true);
    attributes.setUint32(12, shape.maxEntries, true);
    attributes.setUint32(16, BY_ENTRY.has(shape.type) ? BPF_F_NO_PREALLOC : 0, true);
    setName(attributes, 28, name);
    return new BpfMap(bpf, bpf.call('MAP_CREATE', name), shape);
  }

  /** The map under a pin; undefined when there is none. Throws {@link ForeignMapError}. */
  static open(bpf: Bpf, shape: MapShape, path: string): BpfMap | undefined {
    const fd = openPin(bpf, path);
    if (fd === undefined) return undefined;
    try {
      const info = mapInfo(bpf, fd);
      if (!hasShape(info, shape)) throw new ForeignMapError(path, info, shape);
      return new BpfMap(bpf, fd, shape);
    } catch (error) {
      closeSync(fd);
      throw error;
    }
  }

  /**
   * The map under a pin, or a new one that is pinned there; unless `isPinned`, it goes with this process. Throws
   * {@link ForeignMapError}.
   */
  static openOrCreate(bpf: Bpf, shape: MapShape, path: string, name: string, isPinned = true): BpfMap {
    const found = BpfMap.open(bpf, shape, path);
    if (found !== undefined) return found;
    const made = BpfMap.create(bpf, shape, name);
    if (isPinned) pin(bpf, made.fd, path);
    return made;
  }

  /** Writes the first `count` entries. One outcome each: undefined, or why not. One that fails stops no other. */
  update(count: number): readonly (SyscallError | undefined)[] {
    return this.#batch('MAP_UPDATE_BATCH', count);
  }

  /** Deletes the first `count` keys. What is not there has been deleted. */
  delete(count: number): readonly (SyscallError | undefined)[] {
    return this.#batch('MAP_DELETE_BATCH', count);
  }

  /** The value of the first key, in the first place of `values`; of an LPM trie that of the longest match. */
  lookup(): boolean {
    const attributes = this.#bpf.attributes();
    attributes.setUint32(0, this.fd, true);
    setAddress(attributes, 8, this.keys.address);
    setAddress(attributes, 16, this.values.address);
    const result = this.#bpf.try('MAP_LOOKUP_ELEM');
    if (result < 0 && result !== -ENOENT) throw refusal('MAP_LOOKUP_ELEM', -result);
    return result >= 0;
  }

  /**
   * Reads the map in batches, each of as many entries as are given, at the beginning of `keys` and `values`. What is
   * written meanwhile may show or not; what is deleted meanwhile may make it begin anew.
   */
  *batches(): Generator<number, void, void> {
    const size = this.#cursor.size / 2;
    const [first, second] = [this.#cursor.address, this.#cursor.address + size];
    for (let round = 0, interrupted = 0; ; round++) {
      const attributes = this.#bpf.attributes();
      setAddress(attributes, 0, round === 0 ? 0 : round % 2 === 1 ? first : second);
      setAddress(attributes, 8, round % 2 === 0 ? first : second);
      setAddress(attributes, 16, this.keys.address);
      setAddress(attributes, 24, this.values.address);
      attributes.setUint32(32, BATCH_ENTRIES, true);
      attributes.setUint32(36, this.fd, true);
      const result = this.#bpf.try('MAP_LOOKUP_BATCH');
      const count = attributes.getUint32(32, true);
      // Before 6.14 a trie gives up where others delete the next key, again and again. It goes on after what it has given.
      if (result === -EINTR && count === 0 && ++interrupted < TRIES) {
        round--;
        continue;
      }
      const isMore = result >= 0 || result === -ENOSPC || (result === -EINTR && count > 0);
      if (!isMore && result !== -ENOENT) throw refusal('MAP_LOOKUP_BATCH', -result);
      if (result === -ENOSPC && count === 0) throw refusal('MAP_LOOKUP_BATCH', ENOSPC);
      yield count;
      if (result === -ENOENT) return;
    }
  }

  /** Idempotent: the number of a descriptor that is closed may be another's by then. */
  [Symbol.dispose](): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    closeSync(this.fd);
    for (const arena of [this.keys, this.values, this.#cursor]) arena[Symbol.dispose]();
  }

  #batch(
    command: Extract<BpfCommand, 'MAP_UPDATE_BATCH' | 'MAP_DELETE_BATCH'>,
    count: number,
  ): readonly (SyscallError | undefined)[] {
    const outcomes: (SyscallError | undefined)[] = new Array(count).fill(undefined);
    const { keySize, valueSize } = this.shape;
    // The kernel stops at one that fails, and says how many it has done before.
    for (let at = 0; at < count; at++) {
      const attributes = this.#bpf.attributes();
      setAddress(attributes, 16, this.keys.address + at * keySize);
      if (command === 'MAP_UPDATE_BATCH') setAddress(attributes, 24, this.values.address + at * valueSize);
      attributes.setUint32(32, count - at, true);
      attributes.setUint32(36, this.fd, true);
      const result = this.#bpf.try(command);
      if (result >= 0) break;
      const done = attributes.getUint32(32, true);
      // It has not begun: its count is as it was.
      if (done === count - at) return outcomes.fill(refusal(command, -result), at);
      at += done;
      if (command === 'MAP_UPDATE_BATCH' || result !== -ENOENT) outcomes[at] = refusal(command, -result);
    }
    return outcomes;
  }
}

/** What a map of ours is like, whatever there is room for. */
export type OwnMap = Pick<MapShape, 'type' | 'keySize' | 'valueSize'>;

/** Whether a map like this is pinned there, or nothing is. */
export function isPinnedMap(bpf: Bpf, path: string, shape: OwnMap): boolean {
  const fd = openPin(bpf, path);
  if (fd === undefined) return true;
  try {
    if (kindOf(fd) !== 'map') return false;
    const info = mapInfo(bpf, fd);
    return hasShape(info, { ...shape, maxEntries: info.maxEntries });
  } finally {
    closeSync(fd);
  }
}

/** Whether a map is like this. */
export function hasShape(info: MapInfo, shape: MapShape): boolean {
  return (
    info.type === MAP_TYPES[shape.type] &&
    info.keySize === shape.keySize &&
    info.valueSize === shape.valueSize &&
    info.maxEntries === shape.maxEntries
  );
}
