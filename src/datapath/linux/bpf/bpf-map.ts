import { closeSync } from 'node:fs';
import { constants } from 'node:os';
import { basename } from 'node:path';
import { disposeOnError } from '../../../base/dispose-on-error.ts';
import type { Arena } from '../syscall/native.ts';
import type { SyscallError } from '../syscall/syscall-error.ts';
import { type Bpf, type BpfCommand, NAME_LENGTH, refusal, setAddress, setName } from './bpf.ts';
import { MAP_TYPES, type MapInfo, type MapShape, type MapType, mapInfo } from './info.ts';
import { kindOf, openPin, pin, STAGING_SUFFIX, unpin, usePin } from './pin.ts';

/**
 * Allocates memory when an entry is added. LPM tries require this flag. Without it, hash maps of services would take
 * 300 MB for their capacity. Cilium sets it, too (`preallocate-bpf-maps`). LRU maps are preallocated.
 */
const BPF_F_NO_PREALLOC = 1;
/** The map types created with the flag. */
const NOT_PREALLOCATED: ReadonlySet<MapType> = new Set(['lpmTrie', 'hash']);
const { EINTR, ENOENT, ENOSPC, EPERM } = constants.errno;

/** Maximum number of attempts to read a batch if reading is interrupted before its first entry. */
const MAX_TRIES = 8;

/** Maximum number of entries of one batch. Reading a batch takes about 1 ms. */
export const BATCH_ENTRIES = 1024;

/** The methods of a {@link BpfMap} for reads and writes. Tests have another implementation. */
export interface BatchedMap extends Disposable {
  readonly shape: { readonly keySize: number; readonly valueSize: number; readonly maxEntries: number };
  readonly keys: { readonly view: DataView; readonly bytes: Uint8Array };
  readonly values: { readonly view: DataView };
  update(count: number): readonly (SyscallError | undefined)[];
  delete(count: number): readonly (SyscallError | undefined)[];
  lookup(): boolean;
  batches(): Iterable<number>;
}

/** Thrown if the pinned map differs from the requested one. */
export class ForeignMapError extends Error {
  override readonly name: string = 'ForeignMapError';
  readonly code: 'foreign-map' = 'foreign-map';
  readonly path: string;
  /** True if the map differs only in its capacity. */
  readonly isResized: boolean;
  /** True if the map has the requested type and the name of its pin: it is probably of another layout. */
  readonly isOtherLayout: boolean;

  constructor(path: string, found: MapInfo, desired: MapShape) {
    const expected = shapeText({ ...desired, type: MAP_TYPES[desired.type] });
    super(`${path} is a different map: found ${shapeText(found)}; expected ${expected}`);
    this.path = path;
    this.isOtherLayout = isOfPin(path, found, desired);
    this.isResized = hasShape(found, desired);
  }
}

function shapeText({ type, keySize, valueSize, maxEntries }: Omit<MapInfo, 'id' | 'name'>): string {
  return `type ${type}, key ${keySize} B, value ${valueSize} B, max_entries ${maxEntries}`;
}

/** A map in the kernel, accessed in batches: `keys` and `values` hold the entries of a batch in a row. */
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
    // Position of a dump: a key, or a 4-byte number.
    this.#cursor = bpf.alloc(2 * Math.max(8, shape.keySize));
  }

  /** Creates a map without a pin. `bpftool` shows the name. */
  static create(bpf: Bpf, shape: MapShape, name: string): BpfMap {
    const attributes = bpf.attributes();
    attributes.setUint32(0, MAP_TYPES[shape.type], true);
    attributes.setUint32(4, shape.keySize, true);
    attributes.setUint32(8, shape.valueSize, true);
    attributes.setUint32(12, shape.maxEntries, true);
    attributes.setUint32(16, NOT_PREALLOCATED.has(shape.type) ? BPF_F_NO_PREALLOC : 0, true);
    setName(attributes, 28, name);
    let fd = bpf.tryCall('MAP_CREATE');
    if (fd === -EPERM) {
      bpf.unlimitLockedMemory();
      fd = bpf.tryCall('MAP_CREATE');
    }
    if (fd < 0) throw refusal('MAP_CREATE', -fd, name);
    return new BpfMap(bpf, fd, shape);
  }

  /**
   * Opens the map of a pin; undefined if there is no pin. Throws {@link ForeignMapError} if the map has another shape;
   * with `any`, it may have another capacity.
   */
  static open(
    bpf: Bpf,
    shape: MapShape,
    path: string,
    capacity: 'same' | 'any' = 'same',
  ): BpfMap | undefined {
    const fd = openPin(bpf, path);
    if (fd === undefined) return undefined;
    return disposeOnError([{ [Symbol.dispose]: () => closeSync(fd) }], () => {
      const info = mapInfo(bpf, fd);
      const { maxEntries } = info;
      if (!hasShape(info, shape) || (capacity === 'same' && maxEntries !== shape.maxEntries))
        throw new ForeignMapError(path, info, shape);
      return new BpfMap(bpf, fd, { ...shape, maxEntries });
    });
  }

  /** Opens the map of a pin, or creates a map and, if `isPinned`, its pin. Throws {@link ForeignMapError}. */
  static openOrCreate(
    bpf: Bpf,
    shape: MapShape,
    path: string,
    name: string,
    { isPinned = true, capacity }: { readonly isPinned?: boolean; readonly capacity?: 'same' | 'any' } = {},
  ): BpfMap {
    const found = BpfMap.open(bpf, shape, path, capacity);
    if (found !== undefined) return found;
    const created = BpfMap.create(bpf, shape, name);
    if (isPinned) disposeOnError([created], () => pin(bpf, created.fd, path));
    return created;
  }

  /** Writes the first `count` entries. Returns undefined or the error for each; a failure affects no other entry. */
  update(count: number): readonly (SyscallError | undefined)[] {
    return this.#batch('MAP_UPDATE_BATCH', count);
  }

  /** Deletes the first `count` keys. Deleting a missing key succeeds. */
  delete(count: number): readonly (SyscallError | undefined)[] {
    return this.#batch('MAP_DELETE_BATCH', count);
  }

  /**
   * Looks up the first key of `keys` and stores its value as the first of `values`. Returns false if the map has no
   * such key. An LPM trie returns the longest match.
   */
  lookup(): boolean {
    const attributes = this.#bpf.attributes();
    attributes.setUint32(0, this.fd, true);
    setAddress(attributes, 8, this.keys.address);
    setAddress(attributes, 16, this.values.address);
    const result = this.#bpf.tryCall('MAP_LOOKUP_ELEM');
    if (result < 0 && result !== -ENOENT) throw refusal('MAP_LOOKUP_ELEM', -result);
    return result >= 0;
  }

  /**
   * Reads the map in batches to the beginning of `keys` and `values`, and yields the number of entries of each.
   * Concurrent writes may or may not be included. Concurrent deletes may restart the dump from the first entry.
   */
  *batches(): Generator<number, void, void> {
    // Each call reads its position from one half of the cursor and writes the next position to the other half. At the
    // beginning of the map, the address of the position is 0.
    let position = 0;
    let next = this.#cursor.address;
    let other = next + this.#cursor.size / 2;
    let interrupted = 0;
    for (;;) {
      const attributes = this.#bpf.attributes();
      setAddress(attributes, 0, position);
      setAddress(attributes, 8, next);
      setAddress(attributes, 16, this.keys.address);
      setAddress(attributes, 24, this.values.address);
      attributes.setUint32(32, BATCH_ENTRIES, true);
      attributes.setUint32(36, this.fd, true);
      const result = this.#bpf.tryCall('MAP_LOOKUP_BATCH');
      const count = attributes.getUint32(32, true);
      // Before Linux 6.14, reading a trie fails with EINTR if others delete the next key, possibly several times. The
      // dump then continues after the returned entries.
      if (result === -EINTR && count === 0 && ++interrupted < MAX_TRIES) continue;
      // ENOSPC: the next entries of a hash map, which have one hash, do not fit into the rest of the batch.
      const isMore = result >= 0 || ((result === -ENOSPC || result === -EINTR) && count > 0);
      if (!isMore && result !== -ENOENT) throw refusal('MAP_LOOKUP_BATCH', -result);
      yield count;
      if (result === -ENOENT) return;
      interrupted = 0;
      position = next;
      [next, other] = [other, next];
    }
  }

  /** Idempotent, because a closed descriptor number may be reused. */
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
    // The kernel stops at a failing entry, and returns the number of entries before it. The next call begins after it.
    for (let at = 0; at < count; at++) {
      const attributes = this.#bpf.attributes();
      setAddress(attributes, 16, this.keys.address + at * keySize);
      if (command === 'MAP_UPDATE_BATCH') setAddress(attributes, 24, this.values.address + at * valueSize);
      attributes.setUint32(32, count - at, true);
      attributes.setUint32(36, this.fd, true);
      const result = this.#bpf.tryCall(command);
      if (result >= 0) break;
      const done = attributes.getUint32(32, true);
      // The kernel has refused the call and left the count as it was.
      if (done === count - at) return outcomes.fill(refusal(command, -result), at);
      at += done;
      if (command === 'MAP_UPDATE_BATCH' || result !== -ENOENT) outcomes[at] = refusal(command, -result);
    }
    return outcomes;
  }
}

/** Returns the state of the pin of an open map: `pinned`, `replaced`, or `undefined` if there is no pin. */
export function mapPinState(bpf: Bpf, path: string, map: number): 'pinned' | 'replaced' | undefined {
  return usePin(bpf, path, (fd) => {
    const isSame = kindOf(fd) === 'map' && mapInfo(bpf, fd).id === mapInfo(bpf, map).id;
    return isSame ? 'pinned' : 'replaced';
  });
}

export type PinnedShape = Pick<MapShape, 'type' | 'keySize' | 'valueSize'>;

/**
 * Removes a pin if its object is a map of this shape, or a map of another layout, which has this type and the name of
 * the pin. Returns false if it is any other object: the pin is kept.
 */
export function unpinMap(bpf: Bpf, path: string, shape: PinnedShape): boolean {
  const isOurs = usePin(bpf, path, (fd) => {
    const info = kindOf(fd) === 'map' ? mapInfo(bpf, fd) : undefined;
    return info !== undefined && (hasShape(info, shape) || isOfPin(path, info, shape));
  });
  if (isOurs === true) unpin(path);
  return isOurs !== false;
}

/** Returns true if a map has this type, and the name of its pin without the layout: `ipcache` for `ipcache-1_18`. */
function isOfPin(path: string, { type, name }: MapInfo, shape: PinnedShape): boolean {
  const [pinName = ''] = basename(path, STAGING_SUFFIX).split('-');
  return type === MAP_TYPES[shape.type] && name === pinName.slice(0, NAME_LENGTH);
}

/** Returns true if a map has this shape, whatever its capacity. */
function hasShape(info: MapInfo, { type, keySize, valueSize }: PinnedShape): boolean {
  return info.type === MAP_TYPES[type] && info.keySize === keySize && info.valueSize === valueSize;
}
