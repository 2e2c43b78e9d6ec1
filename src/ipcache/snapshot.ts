import { Map as ImmutableMap, Set as ImmutableSet } from 'immutable';
import { addressBits, type Family } from '../net/address-words.ts';
import { formatKey, type KeyForm, type PrefixRegister, parsePrefix, prefixRegister } from '../net/prefix.ts';
import {
  type Edit,
  type TrieNode,
  trieDiff,
  trieGet,
  trieMatch,
  trieNodes,
  trieSet,
} from '../net/prefix-trie.ts';
import { prefixChange, sameEntry } from './change.ts';
import type { HeldClaim } from './entry-rows.ts';
import type { IPCacheChange, KeyedEntry } from './types.ts';

type Claims = TrieNode<HeldClaim> | undefined;
type ByIdentity = ImmutableMap<number, ImmutableSet<string>>;

/** A key and the claim in force on it now; undefined when nobody claims it. */
export interface Placed {
  readonly key: Readonly<PrefixRegister>;
  readonly claim: HeldClaim | undefined;
}

interface State {
  readonly revision: number;
  readonly size: number;
  readonly ipv4: Claims;
  readonly ipv6: Claims;
  readonly byIdentity: ByIdentity;
}

function keyOf(node: TrieNode<HeldClaim>, form: KeyForm): string {
  return formatKey({ ...node, form });
}

function keyedEntry(node: TrieNode<HeldClaim>, form: KeyForm): KeyedEntry | undefined {
  const claim = form === 'endpoint' ? node.endpoint : node.cidr;
  if (claim === undefined) return undefined;
  return { ...claim, key: keyOf(node, form), shadowed: form === 'cidr' && node.endpoint !== undefined };
}

/** What listeners see at a node: the endpoint, else the CIDR (I4). */
function visible(node: Claims): HeldClaim | undefined {
  return node?.endpoint ?? node?.cidr;
}

/**
 * All entries of an `IPCache` at one revision. Immutable: later writes do not show. It shares what has not changed
 * with the snapshots before and after it, and may be kept as long as one likes.
 */
export class IPCacheSnapshot {
  readonly #state: State;

  private constructor(state: State) {
    this.#state = state;
  }

  /** Nothing, before the first revision. */
  static readonly EMPTY: IPCacheSnapshot = new IPCacheSnapshot({
    revision: 0,
    size: 0,
    ipv4: undefined,
    ipv6: undefined,
    byIdentity: ImmutableMap(),
  });

  /**
   * This snapshot with other claims at some keys. Cost: that of the keys given, each about log2(size) small copies;
   * many keys at once share them.
   */
  with(revision: number, placed: Iterable<Placed>): IPCacheSnapshot {
    let { size, ipv4, ipv6 } = this.#state;
    const edit: Edit = {};
    const byIdentity = this.#state.byIdentity.withMutations((identities) => {
      for (const { key, claim } of placed) {
        const root = key.family === 4 ? ipv4 : ipv6;
        const node = trieGet(root, key);
        const old = key.form === 'endpoint' ? node?.endpoint : node?.cidr;
        if (old?.identity !== claim?.identity) moveIdentity(identities, formatKey(key), old, claim);
        size += (claim === undefined ? 0 : 1) - (old === undefined ? 0 : 1);
        const changed = trieSet(root, key, claim, edit);
        if (key.family === 4) ipv4 = changed;
        else ipv6 = changed;
      }
    });
    return new IPCacheSnapshot({ revision, size, ipv4, ipv6, byIdentity });
  }

  /** The revision of the cache when it was taken. */
  get revision(): number {
    return this.#state.revision;
  }

  /** Keys held, shadowed ones included. */
  get size(): number {
    return this.#state.size;
  }

  /** As `IPCache.get`. */
  get(key: string): KeyedEntry | undefined {
    const register = prefixRegister();
    if (!parsePrefix(key, register)) return undefined;
    const node = trieGet(this.#root(register.family), register);
    return node && keyedEntry(node, register.form);
  }

  /** As `IPCache.lookup`. */
  lookup(ip: string): KeyedEntry | undefined {
    const address = prefixRegister();
    if (!parsePrefix(ip, address) || address.form !== 'endpoint') return undefined;
    const node = trieMatch(this.#root(address.family), address, addressBits(address.family));
    return node && keyedEntry(node, node.endpoint === undefined ? 'cidr' : 'endpoint');
  }

  /** As `IPCache.lookupByIdentity`. */
  lookupByIdentity(identity: number): readonly string[] {
    return this.#state.byIdentity.get(identity)?.toArray() ?? [];
  }

  /** The visible entries, with `includeShadowed` all: IPv4 first, by address, a prefix before what it contains. */
  *entries(options: { readonly includeShadowed?: boolean } = {}): Generator<KeyedEntry, void, void> {
    for (const root of [this.#state.ipv4, this.#state.ipv6]) {
      for (const node of trieNodes(root)) {
        for (const form of ['endpoint', 'cidr'] as const) {
          const entry = keyedEntry(node, form);
          if (entry !== undefined && (options.includeShadowed || !entry.shadowed)) yield entry;
        }
      }
    }
  }

  /**
   * The changes that lead a listener from `a` to `b`, in any direction of time, by address. Cost: that of the parts
   * in which they differ, if one was made from the other; else that of both.
   */
  static diff(a: IPCacheSnapshot, b: IPCacheSnapshot): readonly IPCacheChange[] {
    const changes: IPCacheChange[] = [];
    for (const family of [4, 6] as const) {
      for (const { node, before, after } of trieDiff(a.#root(family), b.#root(family))) {
        const [old, next] = [visible(before), visible(after)];
        if (!sameEntry(old, next))
          changes.push(prefixChange({ ...node, form: 'cidr' }, attributes(old), attributes(next)));
      }
    }
    return changes;
  }

  #root(family: Family): Claims {
    return family === 4 ? this.#state.ipv4 : this.#state.ipv6;
  }
}

function attributes(claim: HeldClaim | undefined): IPCacheChange['old'] {
  if (claim === undefined) return undefined;
  const { identity, hostIP, encryptKey, k8s } = claim;
  return { identity, hostIP, encryptKey, k8s };
}

function moveIdentity(
  identities: ByIdentity,
  key: string,
  from: HeldClaim | undefined,
  to: HeldClaim | undefined,
): void {
  if (from !== undefined) {
    const left = identities.get(from.identity)?.delete(key);
    if (left === undefined || left.isEmpty()) identities.delete(from.identity);
    else identities.set(from.identity, left);
  }
  if (to !== undefined) identities.update(to.identity, ImmutableSet<string>(), (keys) => keys.add(key));
}
