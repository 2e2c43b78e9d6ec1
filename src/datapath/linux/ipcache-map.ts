import { sourceRank } from '../../identity/source.ts';
import type { IPCache } from '../../ipcache/ipcache.ts';
import type {
  IPCacheChange,
  IPCacheEntry,
  IPCacheListener,
  KeyedEntry,
  OwnerListener,
} from '../../ipcache/types.ts';
import { type AddressWords, addressBits } from '../../net/address-words.ts';
import { formatAddress, formatPrefix } from '../../net/format-address.ts';
import { scanIPv4 } from '../../net/parse-address.ts';
import { type PrefixRegister, parsePrefix, prefixRegister } from '../../net/prefix.ts';
import type { Bpf } from './bpf/bpf.ts';
import { type BatchedMap, BpfMap } from './bpf/bpf-map.ts';
import type { MapShape } from './bpf/info.ts';
import type { DesiredItems, KernelTable, TableChange } from './kernel-table.ts';
import type { SyscallError } from './syscall/syscall-error.ts';

/** Which Cilium reads the map. */
export type IPCacheLayout = '1.17' | '1.8';

/** What the map says of a prefix. */
export interface IPCacheItem {
  readonly identity: number;
  /**
   * An IPv4 address as a word, as in `AddressWords`; 0 for none, and for what is on this host. The kernel has no room for
   * others.
   */
  readonly tunnel: number;
  readonly encryptKey: number;
  /**
   * Bits that are Cilium's to define; none in layout 1.8. 1.17 has one, `skip tunnel` (1), which an agent sets by itself for
   * prefixes that are routed beside a tunnel; none of our inputs says it, so it is always 0. `has tunnel endpoint` (2) and
   * `IPv6 tunnel endpoint` (4) came with the values of 24 bytes of 1.18 (pkg/maps/ipcache).
   */
  readonly flags: number;
  /** Where there is no room for all: of how strong a source it is. Not in the kernel; 0 in a dump. */
  readonly strength: number;
}

/** Where the map is and what it is like. */
export interface IPCacheMapOptions {
  /** A file in a bpffs. */
  readonly path: string;
  /** By default `1.17`. */
  readonly layout?: IPCacheLayout | undefined;
  /** By default as many as Cilium has: 512,000. */
  readonly maxEntries?: number | undefined;
  /** False: where nothing is pinned a new map stays without a pin, and goes with this process. By default true. */
  readonly isPinned?: boolean | undefined;
}

/** As many as Cilium has (`IPCacheMapMaxEntries`). */
const MAX_ENTRIES = 512_000;
/** u32 prefix length, u16 cluster, u8 padding, u8 family, 16 bytes of address. */
const KEY_BYTES = 24;
/** Prefix lengths count what comes before the address, too. */
const STATIC_BITS = 32;
const VALUE_BYTES = 12;
const FAMILIES = { 4: 1, 6: 2 } as const;
/** Where the value has its encryption key; only 1.17 has flags, one byte after. */
const KEY_AT: Readonly<Record<IPCacheLayout, number>> = { '1.17': 10, '1.8': 8 };
/** Of keys that are none of ours. */
const RAW = 'raw:';

/** What the map is like. */
export function ipcacheShape(maxEntries: number = MAX_ENTRIES): MapShape {
  return { type: 'lpmTrie', keySize: KEY_BYTES, valueSize: VALUE_BYTES, maxEntries };
}

/** The map from prefixes to identities that Cilium's programs read: an LPM trie. Keys are prefixes, `10.1.2.3/32`. */
export class IPCacheTable<Map extends BatchedMap = BpfMap> implements KernelTable<IPCacheItem>, Disposable {
  readonly name: string = 'ipcache';
  readonly map: Map;
  readonly #keyAt: number;
  readonly #hasFlags: boolean;
  readonly #key: PrefixRegister = prefixRegister();

  /** Over a map of {@link ipcacheShape}. */
  constructor(map: Map, layout: IPCacheLayout = '1.17') {
    this.map = map;
    this.#keyAt = KEY_AT[layout];
    this.#hasFlags = layout === '1.17';
  }

  /** Opens or creates the map. Throws `ForeignMapError` when something else is pinned there, and `SyscallError`. */
  static open(bpf: Bpf, { path, layout, maxEntries, isPinned = true }: IPCacheMapOptions): IPCacheTable {
    const map = BpfMap.openOrCreate(bpf, ipcacheShape(maxEntries), path, 'ipcache', isPinned);
    return new IPCacheTable(map, layout);
  }

  get capacity(): number {
    return this.map.shape.maxEntries;
  }

  equal(a: IPCacheItem, b: IPCacheItem): boolean {
    return (
      a.identity === b.identity &&
      a.tunnel === b.tunnel &&
      a.encryptKey === b.encryptKey &&
      a.flags === b.flags
    );
  }

  /** The stronger source, then the longer prefix. */
  rank(key: string, { strength }: IPCacheItem): number {
    if (!parsePrefix(key, this.#key)) return 0;
    return strength * 256 + 128 - (addressBits(this.#key.family) - this.#key.length);
  }

  print({ identity, tunnel, encryptKey, flags }: IPCacheItem): string {
    const host = tunnel === 0 ? '' : ` via ${formatAddress({ family: 4, w0: tunnel, w1: 0, w2: 0, w3: 0 })}`;
    const key = encryptKey === 0 ? '' : ` key ${encryptKey}`;
    return `identity ${identity}${host}${key}${flags === 0 ? '' : ` flags ${flags}`}`;
  }

  *dump(): Generator<readonly [string, IPCacheItem], void, void> {
    for (const count of this.map.batches()) {
      for (let at = 0; at < count; at++) yield [this.#readKey(at), this.#readValue(at)];
    }
  }

  apply(changes: readonly TableChange<IPCacheItem>[]): readonly (SyscallError | undefined)[] {
    const outcomes: (SyscallError | undefined)[] = [];
    for (let from = 0; from < changes.length; ) {
      const isDelete = changes[from]?.item === undefined;
      let count = 0;
      for (; from + count < changes.length; count++) {
        const change = changes[from + count];
        if (change === undefined || (change.item === undefined) !== isDelete) break;
        this.#writeKey(count, change.key);
        if (change.item !== undefined) this.#writeValue(count, change.item);
      }
      outcomes.push(...(isDelete ? this.map.delete(count) : this.map.update(count)));
      from += count;
    }
    return outcomes;
  }

  [Symbol.dispose](): void {
    this.map[Symbol.dispose]();
  }

  #writeKey(index: number, text: string): void {
    const { view, bytes } = this.map.keys;
    const at = index * KEY_BYTES;
    if (text.startsWith(RAW)) {
      bytes.set(Buffer.from(text.slice(RAW.length), 'hex'), at);
      return;
    }
    const key = this.#key;
    if (!parsePrefix(text, key)) throw new RangeError(`${text} is no prefix`);
    view.setUint32(at, STATIC_BITS + key.length, true);
    view.setUint32(at + 4, FAMILIES[key.family] << 24, true);
    view.setInt32(at + 8, key.w0);
    view.setInt32(at + 12, key.w1);
    view.setInt32(at + 16, key.w2);
    view.setInt32(at + 20, key.w3);
  }

  #writeValue(index: number, { identity, tunnel, encryptKey, flags }: IPCacheItem): void {
    const { view } = this.map.values;
    const at = index * VALUE_BYTES;
    view.setUint32(at, identity, true);
    view.setInt32(at + 4, tunnel);
    view.setUint32(at + 8, 0, true);
    view.setUint8(at + this.#keyAt, encryptKey);
    if (this.#hasFlags) view.setUint8(at + this.#keyAt + 1, flags);
  }

  #readKey(index: number): string {
    const { view, bytes } = this.map.keys;
    const at = index * KEY_BYTES;
    const length = view.getUint32(at, true) - STATIC_BITS;
    const head = view.getUint32(at + 4, true);
    const family = head === FAMILIES[4] << 24 ? 4 : 6;
    if (head !== FAMILIES[family] << 24 || length < 0 || length > addressBits(family))
      return RAW + Buffer.from(bytes.subarray(at, at + KEY_BYTES)).toString('hex');
    const words: AddressWords = {
      family,
      w0: view.getInt32(at + 8),
      w1: view.getInt32(at + 12),
      w2: view.getInt32(at + 16),
      w3: view.getInt32(at + 20),
    };
    return formatPrefix(words, length);
  }

  #readValue(index: number): IPCacheItem {
    const { view } = this.map.values;
    const at = index * VALUE_BYTES;
    return {
      identity: view.getUint32(at, true),
      tunnel: view.getInt32(at + 4),
      encryptKey: view.getUint8(at + this.#keyAt),
      flags: this.#hasFlags ? view.getUint8(at + this.#keyAt + 1) : 0,
      strength: 0,
    };
  }
}

/** As much of an `IPCache` as is asked. */
export type AskedIPCache = Pick<IPCache, 'lookupByPrefix' | 'entries' | 'size'>;

/** Whether an address is one of this host. */
export type IsOwnAddress = (address: string) => boolean;

const host = prefixRegister();

function itemOf({ identity, hostIP, encryptKey, source }: KeyedEntry, isOwn: IsOwnAddress): IPCacheItem {
  const isIPv4 = hostIP !== undefined && !isOwn(hostIP) && scanIPv4(hostIP, host) === hostIP.length;
  return { identity, tunnel: isIPv4 ? host.w0 : 0, encryptKey, flags: 0, strength: sourceRank(source) };
}

/** What is to be in the map: the visible entries of an `IPCache`, read when they are asked for. */
export class DesiredIPCache implements DesiredItems<IPCacheItem> {
  readonly #ipcache: AskedIPCache;
  readonly #isOwn: IsOwnAddress;

  /** What is on this host is behind no tunnel (pkg/datapath/ipcache). By default nothing is known to be. */
  constructor(ipcache: AskedIPCache, isOwn: IsOwnAddress = () => false) {
    this.#ipcache = ipcache;
    this.#isOwn = isOwn;
  }

  /** Those that an endpoint hides are counted, too. */
  get size(): number {
    return this.#ipcache.size;
  }

  get(key: string): IPCacheItem | undefined {
    const entry = this.#ipcache.lookupByPrefix(key);
    return entry && itemOf(entry, this.#isOwn);
  }

  *entries(): Generator<readonly [string, IPCacheItem], void, void> {
    for (const entry of this.#ipcache.entries()) yield [prefixOf(entry.key), itemOf(entry, this.#isOwn)];
  }
}

/** The prefix of a key of the cache, in which an endpoint has no length. */
function prefixOf(key: string): string {
  if (key.includes('/')) return key;
  return key.includes(':') ? `${key}/128` : `${key}/32`;
}

/** Tells a table which prefixes have changed in what the kernel has to know of them. */
export function markPrefixes(mark: (prefix: string) => void): IPCacheListener {
  return {
    onChanges: (changes: readonly IPCacheChange[]) => {
      for (const change of changes) if (!isSame(change.old, change.new)) mark(change.prefix);
    },
  };
}

/**
 * Tells a table which prefixes another source says now, in the same words: the kernel does not know sources, but where there
 * is no room for all the strongest stay.
 */
export function rerankPrefixes(rerank: (prefix: string) => void): OwnerListener {
  return {
    onOwnerChanges: (changes) => {
      for (const { key } of changes) rerank(prefixOf(key));
    },
  };
}

function isSame(a: IPCacheEntry | undefined, b: IPCacheEntry | undefined): boolean {
  return (
    a !== undefined &&
    b !== undefined &&
    a.identity === b.identity &&
    a.hostIP === b.hostIP &&
    a.encryptKey === b.encryptKey
  );
}
