import type { IPCache } from '../../ipcache/ipcache.ts';
import type {
  ClaimWriter,
  IPCacheChange,
  IPCacheEntry,
  IPCacheListener,
  KeyedEntry,
  OwnerListener,
} from '../../ipcache/types.ts';
import { RESERVED_IDENTITIES } from '../../model/numeric-identity.ts';
import { ownerCluster, sourceRank } from '../../model/source.ts';
import { addressBits, maskWords } from '../../net/address-words.ts';
import { formatAddress } from '../../net/format-address.ts';
import { isMapped, scanIPv4 } from '../../net/parse-address.ts';
import {
  formatPrefixOf,
  MAX_CLUSTER_ID,
  type PrefixRegister,
  parseKey,
  prefixOfKey,
  prefixRegister,
} from '../../net/prefix.ts';
import type { Bpf } from './bpf/bpf.ts';
import { type BatchedMap, BpfMap, ForeignMapError } from './bpf/bpf-map.ts';
import type { MapShape } from './bpf/info.ts';
import type { DesiredItems, KernelTable, TableChange } from './kernel-table.ts';
import { readAddressAt, writeWordsAt } from './netlink/address-bytes.ts';
import type { SyscallError } from './syscall/syscall-error.ts';

/** The first Cilium version that reads the map. 1.18 and later read the same layout. */
export type IPCacheLayout = '1.18' | '1.17' | '1.8';

const DEFAULT_LAYOUT: IPCacheLayout = '1.17';

/** The value of a prefix. */
export interface IPCacheItem {
  readonly identity: number;
  /** The IPv4 tunnel endpoint as a word, as in `AddressWords`; 0 if there is none or it is on this host. */
  readonly tunnel: number;
  /** The IPv6 tunnel endpoint, canonical; empty if there is none or it is on this host, and in layouts before 1.18. */
  readonly tunnelIPv6: string;
  readonly encryptKey: number;
  /**
   * Flag bits of Cilium, without the two of 1.18 that describe the tunnel endpoint; 0 in layout 1.8. Only
   * {@link REMOTE_CLUSTER} is written: no input has the flag `skip tunnel` (1) of prefixes that are reached without a
   * tunnel.
   */
  readonly flags: number;
  /** Rank of the source, used when the map is full. Not in the kernel; 0 in a dump. */
  readonly sourceRank: number;
}

export interface IPCacheMapOptions {
  /** A file in a bpffs. */
  readonly path: string;
  /** Default `1.17`. */
  readonly layout?: IPCacheLayout | undefined;
  /** Default as Cilium: 512,000. */
  readonly maxEntries?: number | undefined;
  /** If false and nothing is pinned, the new map is not pinned and ends with this process. Default true. */
  readonly isPinned?: boolean | undefined;
}

/** As Cilium (`IPCacheMapMaxEntries`). */
const MAX_ENTRIES = 512_000;
/** u32 prefix length, u16 cluster, u8 padding, u8 family, 16 bytes of address. */
const KEY_BYTES = 24;
/** Bits before the address, which are part of the prefix length. */
const STATIC_BITS = 32;
const KEY_FAMILY = { 4: 1, 6: 2 } as const;
/**
 * Size of a value, and offset of the encryption key in it. Except in 1.8, flags follow the key. 1.18 has 16 bytes of
 * tunnel endpoint, IPv4 addresses in the first four (pkg/maps/ipcache).
 */
const VALUES: Readonly<Record<IPCacheLayout, { readonly size: number; readonly encryptKeyAt: number }>> = {
  '1.18': { size: 24, encryptKeyAt: 22 },
  '1.17': { size: 12, encryptKeyAt: 10 },
  '1.8': { size: 12, encryptKeyAt: 8 },
};
/** Flags of 1.18: the value has a tunnel endpoint; it is an IPv6 address. */
const HAS_TUNNEL = 2;
const HAS_IPV6_TUNNEL = 4;
/**
 * Flag of 1.19: the address belongs to a node of another cluster (`metadataForNode` of Cilium,
 * pkg/ipcache/node_reconciler.go). Its node ports are not those of this cluster.
 */
const REMOTE_CLUSTER = 8;
/** Begins the text of a foreign key without a canonical text; its bytes follow in hexadecimal. */
const RAW = 'raw:';

/** Returns the shape of the map in a layout; default capacity as Cilium. */
export function ipcacheShape(layout: IPCacheLayout, maxEntries: number = MAX_ENTRIES): MapShape {
  return { type: 'lpmTrie', keySize: KEY_BYTES, valueSize: VALUES[layout].size, maxEntries };
}

/**
 * Opens a pinned map of any capacity, in the layout of 1.18 or 1.17. A map of 1.8 is read as one of 1.17, which has the
 * same sizes. Returns undefined if there is no pin. Throws `ForeignMapError` if the pin is another map, and
 * `SyscallError`.
 */
export function openIPCachePin(bpf: Bpf, path: string): IPCacheTable | undefined {
  const open = (layout: IPCacheLayout): IPCacheTable | undefined => {
    const map = BpfMap.open(bpf, ipcacheShape(layout), path, 'any');
    return map && new IPCacheTable(map, layout);
  };
  try {
    return open('1.18');
  } catch (error) {
    if (!(error instanceof ForeignMapError)) throw error;
    return open('1.17');
  }
}

/**
 * The map from prefixes to identities that Cilium's programs read: an LPM trie. Keys are prefixes, `10.1.2.3/32`; the
 * id of an address space, `10.1.2.3/32@5`, is a part of the key.
 */
export class IPCacheTable<M extends BatchedMap = BpfMap> implements KernelTable<IPCacheItem>, Disposable {
  readonly name: string = 'ipcache';
  readonly map: M;
  readonly #layout: IPCacheLayout;
  readonly #valueSize: number;
  readonly #encryptKeyAt: number;
  readonly #key: PrefixRegister = prefixRegister();
  readonly #tunnel: PrefixRegister = prefixRegister();

  /** Uses a map of {@link ipcacheShape}. */
  constructor(map: M, layout: IPCacheLayout = DEFAULT_LAYOUT) {
    this.map = map;
    this.#layout = layout;
    this.#valueSize = VALUES[layout].size;
    this.#encryptKeyAt = VALUES[layout].encryptKeyAt;
  }

  /**
   * Opens or creates the map. Throws `ForeignMapError` if a different object is pinned at the path, and `SyscallError`.
   */
  static open(bpf: Bpf, options: IPCacheMapOptions): IPCacheTable {
    const { path, layout = DEFAULT_LAYOUT, maxEntries, isPinned = true } = options;
    const map = BpfMap.openOrCreate(bpf, ipcacheShape(layout, maxEntries), path, 'ipcache', { isPinned });
    return new IPCacheTable(map, layout);
  }

  get capacity(): number {
    return this.map.shape.maxEntries;
  }

  equal(a: IPCacheItem, b: IPCacheItem): boolean {
    return (
      a.identity === b.identity &&
      a.tunnel === b.tunnel &&
      a.tunnelIPv6 === b.tunnelIPv6 &&
      a.encryptKey === b.encryptKey &&
      a.flags === b.flags
    );
  }

  /** Ranks stronger sources higher, then longer prefixes. */
  rank(key: string, item: IPCacheItem): number {
    if (!parseKey(key, this.#key)) return 0;
    return item.sourceRank * 256 + 128 - (addressBits(this.#key.family) - this.#key.length);
  }

  print(item: IPCacheItem): string {
    const { identity, encryptKey, flags } = item;
    const tunnel = tunnelText(item);
    let text = `identity ${identity}`;
    if (tunnel !== '') text += ` via ${tunnel}`;
    if (encryptKey !== 0) text += ` key ${encryptKey}`;
    if (flags !== 0) text += ` flags ${flags}`;
    return text;
  }

  *dump(): Generator<readonly [string, IPCacheItem], void, void> {
    for (const count of this.map.batches()) {
      for (let at = 0; at < count; at++) yield [this.#readKey(at), this.#readValue(at)];
    }
  }

  /**
   * Returns the item of the longest prefix in the map that contains a prefix, as a program finds it. May be called
   * while a dump is read, because it overwrites only the first entry of a batch, which the dump has already returned.
   * Throws `SyscallError`.
   */
  lookup(key: string): IPCacheItem | undefined {
    this.#writeKey(0, key);
    return this.map.lookup() ? this.#readValue(0) : undefined;
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
    if (!parseKey(text, key)) throw new RangeError(`${text} is not a prefix`);
    view.setUint32(at, STATIC_BITS + key.length, true);
    view.setUint32(at + 4, (KEY_FAMILY[key.family] << 24) | key.clusterID, true);
    writeWordsAt(view, at + 8, key, 6);
  }

  #writeValue(index: number, { identity, tunnel, tunnelIPv6, encryptKey, flags }: IPCacheItem): void {
    const { view } = this.map.values;
    const at = index * this.#valueSize;
    for (let word = 4; word < this.#valueSize; word += 4) view.setUint32(at + word, 0);
    view.setUint32(at, identity, true);
    view.setInt32(at + 4, tunnel);
    view.setUint8(at + this.#encryptKeyAt, encryptKey);
    if (this.#layout === '1.8') return;
    const hasIPv6 = tunnelIPv6 !== '' && parseKey(tunnelIPv6, this.#tunnel);
    if (hasIPv6) writeWordsAt(view, at + 4, this.#tunnel, 6);
    const hasTunnel = this.#layout === '1.18' && (hasIPv6 || tunnel !== 0);
    const derived = (hasTunnel ? HAS_TUNNEL : 0) | (hasIPv6 ? HAS_IPV6_TUNNEL : 0);
    view.setUint8(at + this.#encryptKeyAt + 1, flags | derived);
  }

  #readKey(index: number): string {
    const { view, bytes } = this.map.keys;
    const at = index * KEY_BYTES;
    const length = view.getUint32(at, true) - STATIC_BITS;
    const head = view.getUint32(at + 4, true);
    const family = head >>> 24 === KEY_FAMILY[4] ? 4 : 6;
    const clusterID = head & 0xffff;
    const isKnown = head === ((KEY_FAMILY[family] << 24) | clusterID) && clusterID <= MAX_CLUSTER_ID;
    // All fields are listed, because a spread takes ten times as long as the rest.
    const key: PrefixRegister = {
      family,
      w0: view.getInt32(at + 8),
      w1: view.getInt32(at + 12),
      w2: view.getInt32(at + 16),
      w3: view.getInt32(at + 20),
      length,
      form: 'cidr',
      clusterID,
    };
    maskWords(key, length);
    // The text of an IPv4-mapped prefix would be parsed as IPv4.
    if (!isKnown || length < 0 || length > addressBits(family) || isMapped(key))
      return RAW + Buffer.from(bytes.subarray(at, at + KEY_BYTES)).toString('hex');
    return formatPrefixOf('', key);
  }

  #readValue(index: number): IPCacheItem {
    const { view } = this.map.values;
    const at = index * this.#valueSize;
    const allFlags = this.#layout === '1.8' ? 0 : view.getUint8(at + this.#encryptKeyAt + 1);
    const hasIPv6 = this.#layout === '1.18' && (allFlags & HAS_IPV6_TUNNEL) !== 0;
    return {
      identity: view.getUint32(at, true),
      tunnel: hasIPv6 ? 0 : view.getInt32(at + 4),
      tunnelIPv6: hasIPv6 ? readAddressAt(view, at + 4, 6) : '',
      encryptKey: view.getUint8(at + this.#encryptKeyAt),
      flags: this.#layout === '1.18' ? allFlags & ~(HAS_TUNNEL | HAS_IPV6_TUNNEL) : allFlags,
      sourceRank: 0,
    };
  }
}

/** Returns the address of an item's tunnel endpoint; empty if it has none. */
export function tunnelText({ tunnel, tunnelIPv6 }: IPCacheItem): string {
  return tunnel === 0 ? tunnelIPv6 : formatAddress({ family: 4, w0: tunnel, w1: 0, w2: 0, w3: 0 });
}

/** The methods of an `IPCache` that {@link DesiredIPCache} uses. */
export type IPCacheReads = Pick<IPCache, 'lookupByPrefix' | 'entries' | 'size'>;

/** Returns true if an address belongs to this host. */
export type IsLocalAddress = (address: string) => boolean;

/** Returns true if a claim is of another cluster than `clusterName`, or was before a restart. */
function isRemoteClaim(writer: ClaimWriter | undefined, clusterName: string): boolean {
  if (writer?.source !== 'restored') return writer?.source === 'clustermesh';
  const cluster = ownerCluster(writer.owner);
  return cluster !== '' && cluster !== clusterName;
}

/** The host IP parsed last. */
const parsedHost = prefixRegister();

function itemOf(
  entry: KeyedEntry,
  isLocal: IsLocalAddress,
  layout: IPCacheLayout,
  clusterName: string,
): IPCacheItem {
  const { identity, hostIP, encryptKey, source } = entry;
  const tunnel = hostIP === undefined || isLocal(hostIP) ? '' : hostIP;
  const isIPv4 = tunnel !== '' && scanIPv4(tunnel, parsedHost) === tunnel.length;
  const isRemoteNode = identity === RESERVED_IDENTITIES['remote-node'] && isRemoteClaim(entry, clusterName);
  return {
    identity,
    tunnel: isIPv4 ? parsedHost.w0 : 0,
    tunnelIPv6: isIPv4 || layout !== '1.18' ? '' : tunnel,
    encryptKey,
    flags: isRemoteNode && layout === '1.18' ? REMOTE_CLUSTER : 0,
    sourceRank: sourceRank(source),
  };
}

/** The desired content of the map: the visible entries of an `IPCache`, read on demand. */
export class DesiredIPCache implements DesiredItems<IPCacheItem> {
  readonly #ipcache: IPCacheReads;
  readonly #layout: IPCacheLayout;
  readonly #isLocal: IsLocalAddress;
  readonly #clusterName: string;

  /**
   * Entries whose host IP is local get no tunnel endpoint (pkg/datapath/ipcache). By default, no address is local.
   * `clusterName`: the local cluster, whose restored nodes are no nodes of other clusters.
   */
  constructor(
    ipcache: IPCacheReads,
    layout: IPCacheLayout = DEFAULT_LAYOUT,
    isLocal: IsLocalAddress = () => false,
    clusterName = '',
  ) {
    this.#ipcache = ipcache;
    this.#layout = layout;
    this.#isLocal = isLocal;
    this.#clusterName = clusterName;
  }

  /** Includes entries shadowed by an endpoint. */
  get size(): number {
    return this.#ipcache.size;
  }

  get(key: string): IPCacheItem | undefined {
    const entry = this.#ipcache.lookupByPrefix(key);
    return entry && itemOf(entry, this.#isLocal, this.#layout, this.#clusterName);
  }

  *entries(): Generator<readonly [string, IPCacheItem], void, void> {
    for (const entry of this.#ipcache.entries())
      yield [prefixOfKey(entry.key), itemOf(entry, this.#isLocal, this.#layout, this.#clusterName)];
  }
}

/** Returns a listener that marks the prefixes whose value in the kernel may change. */
export function markPrefixes(mark: (prefix: string) => void): IPCacheListener {
  return {
    onChanges: (changes: readonly IPCacheChange[]) => {
      for (const change of changes) if (!hasSameValue(change.old, change.new)) mark(change.prefix);
    },
  };
}

/**
 * Returns a listener for prefixes whose source changes without a change of the attributes. It marks the prefixes whose
 * flags may change, and reports the others as reranked: the kernel does not store their sources, but the strongest
 * entries are kept if the map is full.
 */
export function rerankPrefixes(
  table: { readonly mark: (prefix: string) => void; readonly rerank: (prefix: string) => void },
  clusterName = '',
): OwnerListener {
  return {
    onOwnerChanges: (changes) => {
      for (const { key, previous, current } of changes) {
        const prefix = prefixOfKey(key);
        if (isRemoteClaim(previous, clusterName) === isRemoteClaim(current, clusterName))
          table.rerank(prefix);
        else table.mark(prefix);
      }
    },
  };
}

function hasSameValue(a: IPCacheEntry | undefined, b: IPCacheEntry | undefined): boolean {
  return (
    a !== undefined &&
    b !== undefined &&
    a.identity === b.identity &&
    a.hostIP === b.hostIP &&
    a.encryptKey === b.encryptKey
  );
}
