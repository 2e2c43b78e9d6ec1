import { assert } from '../base/assert.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import type { ClaimWriter, OwnerChange } from '../ipcache/types.ts';
import { compareSources, compareWriters, type Source, sourceRank } from '../model/source.ts';
import { isSpecialAddress } from '../net/special-address.ts';
import {
  type AddressClaim,
  addressClaims,
  claimSource,
  haveSameClaims,
  NodeClaims,
  type NodeConfiguration,
} from './address-claims.ts';
import type { Node } from './node.ts';
import type { NodeEntry } from './node-entry.ts';

const NO_CLAIMS = new NodeClaims();

/** Claims of nodes with more addresses than this are cached, because each owner change of an address looks them up. */
const MAX_UNCACHED = 16;

/** The methods of an `IPCache` which the node manager calls. */
export type NodeIPCache = Pick<IPCache, 'upsert' | 'delete' | 'batch' | 'get' | 'subscribeOwners'>;

/** An address claimed by a node without effect: another writer has the effective claim, or there is none. */
export interface LostAddress {
  readonly ip: string;
  /** The writer of the effective claim. Undefined if the address has no claim, because the IPCache is full. */
  readonly holder: ClaimWriter | undefined;
  /**
   * True if changes of the node are held back from handlers, because the holder's source is stronger. Always false for
   * a link-local address.
   */
  readonly stronger: boolean;
}

export interface NodeAddressesOptions {
  readonly configuration: NodeConfiguration;
  /** True to write unchanged claims again: an IPCache with one claim per key may have replaced them by others. */
  readonly rewrite: boolean;
  /** Returns true if this process runs on the node. */
  isLocal(node: Node): boolean;
  /** Returns the node whose claims have this owner name. */
  entryOf(owner: string): NodeEntry | undefined;
  /** Called when the owner of a claimed address of the node changed. */
  onOwnerChange(entry: NodeEntry): void;
}

/**
 * Maintains the nodes' claims in the IPCache, and records the addresses that nodes lost to other writers. Owner changes
 * during a write are reviewed when the write is complete.
 */
export class NodeAddresses {
  readonly #ipcache: NodeIPCache;
  readonly #options: NodeAddressesOptions;
  readonly #unsubscribe: Unsubscribe;
  /** For each lost address, the nodes to which it is lost. */
  readonly #losers = new Map<string, Set<NodeEntry>>();
  #configuration: NodeConfiguration;
  /** Claims of nodes with many addresses, under the current configuration. */
  #cachedClaims = new WeakMap<Node, NodeClaims>();
  #ownerChanges: OwnerChange[] = [];
  #writing = false;

  constructor(ipcache: NodeIPCache, options: NodeAddressesOptions) {
    this.#ipcache = ipcache;
    this.#options = options;
    this.#configuration = options.configuration;
    this.#unsubscribe = ipcache.subscribeOwners({
      onOwnerChanges: (changes) => {
        for (const change of changes) this.#ownerChanges.push(change);
        this.#review();
      },
    });
  }

  /** True while claims are written. A listener of the IPCache called by such a write must not change nodes. */
  get writing(): boolean {
    return this.#writing;
  }

  get configuration(): NodeConfiguration {
    return this.#configuration;
  }

  /** Replaces the claims of the previous version of a node by those of the effective one. */
  update(entry: NodeEntry): void {
    this.#write(() => this.#replace(entry, this.#configuration));
    this.#review();
  }

  /** Like {@link NodeAddresses.update} for several nodes, as one batch of the IPCache. */
  updateAll(entries: readonly NodeEntry[], configuration: NodeConfiguration = this.#configuration): void {
    this.#write(() => {
      this.#ipcache.batch(() => {
        for (const entry of entries) this.#replace(entry, configuration);
      });
      if (configuration !== this.#configuration) this.#cachedClaims = new WeakMap();
      this.#configuration = configuration;
      // Two nodes of the batch may claim one address. The net owner change names only the winner, so the loser is found
      // here.
      for (const entry of entries) this.#verify(entry);
    });
    this.#review();
  }

  /** Returns true if {@link NodeAddresses.update} may have an effect although the node is unchanged. */
  mayRefresh(entry: NodeEntry): boolean {
    return this.#options.rewrite || entry.lost !== undefined;
  }

  /** Returns true if a stronger holder of one of the node's addresses holds back its changes (SEMANTICS 4). */
  isHeldBack(entry: NodeEntry): boolean {
    for (const ip of entry.lost ?? []) if (this.#lostAddress(entry, ip).stronger) return true;
    return false;
  }

  /** Returns the claimed addresses which the node does not hold. */
  lost(entry: NodeEntry): readonly LostAddress[] {
    return Array.from(entry.lost ?? [], (ip) => this.#lostAddress(entry, ip));
  }

  claimsOf(node: Node | undefined, configuration: NodeConfiguration): NodeClaims {
    if (node === undefined) return NO_CLAIMS;
    const cached = configuration === this.#configuration ? this.#cachedClaims.get(node) : undefined;
    if (cached !== undefined) return cached;
    const claims = addressClaims(node, configuration, this.#options.isLocal(node));
    if (claims.size > MAX_UNCACHED && configuration === this.#configuration)
      this.#cachedClaims.set(node, claims);
    return claims;
  }

  /** Stops watching owner changes. Claims are left as they are. */
  close(): void {
    this.#unsubscribe();
    this.#ownerChanges = [];
  }

  #lostAddress(entry: NodeEntry, ip: string): LostAddress {
    const { effective } = entry;
    const found = this.#ipcache.get(ip);
    if (found === undefined) return { ip, holder: undefined, stronger: false };
    const { source, owner } = found;
    // Routers may have one link-local address on all nodes: `local-router-ipv4` and `-ipv6` of Cilium.
    const stronger = effective !== undefined && !isSpecialAddress(ip) && this.#isStronger(source, effective);
    return { ip, holder: { source, owner }, stronger };
  }

  /**
   * Returns true if the source of a holder is stronger than that of a node's claims. `kube-apiserver` never is, because
   * an API server runs on the node.
   */
  #isStronger(holder: Source, node: Node): boolean {
    return holder !== 'kube-apiserver' && compareSources(holder, this.#sourceOf(node)) < 0;
  }

  #sourceOf(node: Node): Source {
    return claimSource(node, this.#options.isLocal(node));
  }

  /** Runs `work`. Owner changes that it causes are collected for {@link NodeAddresses.#review}. */
  #write(work: () => void): void {
    assert(!this.#writing, 'node addresses: nested write');
    this.#writing = true;
    try {
      work();
    } finally {
      this.#writing = false;
    }
  }

  #replace(entry: NodeEntry, configuration: NodeConfiguration): void {
    if (configuration === this.#configuration && !this.mayRefresh(entry) && haveEqualClaims(entry)) {
      entry.written = entry.effective;
      return;
    }
    const previous = this.claimsOf(entry.written, this.#configuration);
    const desired = this.claimsOf(entry.effective, configuration);
    const [before, after] = [previous.at(0), desired.at(0)];
    entry.written = entry.effective;
    if (before !== undefined && after !== undefined && before.source !== after.source) {
      this.#replaceSource(entry, previous, desired);
      return;
    }
    let position = 0;
    for (const claim of desired) {
      if (!this.#isUnchanged(entry, claim, previous.at(position))) this.#put(entry, claim);
      position++;
    }
    for (const claim of previous) if (desired.find(claim.ip) === undefined) this.#drop(entry, claim);
  }

  /** Replaces the claims of one source by those of another, new ones first, so that no address is free in between. */
  #replaceSource(entry: NodeEntry, previous: NodeClaims, desired: NodeClaims): void {
    this.#ipcache.batch(() => {
      for (const claim of desired) this.#put(entry, claim);
      for (const claim of previous) {
        if (desired.find(claim.ip) === undefined) this.#drop(entry, claim);
        else this.#ipcache.delete(claim.ip, claim);
      }
    });
  }

  /** Returns true if a claim is unchanged. Compared by position, because addresses rarely move in the list. */
  #isUnchanged(entry: NodeEntry, claim: AddressClaim, previous: AddressClaim | undefined): boolean {
    return (
      previous !== undefined &&
      !this.#options.rewrite &&
      claim.equals(previous) &&
      entry.lost?.has(claim.ip) !== true
    );
  }

  /** Records which addresses are lost to the node. */
  #verify(entry: NodeEntry): void {
    for (const claim of this.claimsOf(entry.written, this.#configuration)) {
      this.#setLost(entry, claim.ip, !isHeldBy(claim, this.#ipcache.get(claim.ip)));
    }
  }

  /** Returns the claim of a node on an address in the IPCache, effective or not. */
  #claimOn(ip: string, entry: NodeEntry): AddressClaim | undefined {
    return this.claimsOf(entry.written, this.#configuration).find(ip);
  }

  #put(entry: NodeEntry, claim: AddressClaim): void {
    const outcome = this.#ipcache.upsert(claim.ip, claim);
    this.#setLost(entry, claim.ip, outcome !== 'applied' && outcome !== 'unchanged');
  }

  #drop(entry: NodeEntry, claim: AddressClaim): void {
    this.#ipcache.delete(claim.ip, claim);
    this.#setLost(entry, claim.ip, false);
  }

  /** Records if an address is lost to a node: the node claims the address, but another writer or none holds it. */
  #setLost(entry: NodeEntry, ip: string, isLost: boolean): void {
    if (!isLost) {
      if (entry.lost?.delete(ip) !== true) return;
      if (entry.lost.size === 0) entry.lost = undefined;
      const losers = this.#losers.get(ip);
      losers?.delete(entry);
      if (losers?.size === 0) this.#losers.delete(ip);
      return;
    }
    entry.lost ??= new Set();
    entry.lost.add(ip);
    const losers = this.#losers.get(ip);
    if (losers === undefined) this.#losers.set(ip, new Set([entry]));
    else losers.add(entry);
  }

  /** Reviews the addresses whose owners changed, until none is left. Reports each affected node once per pass. */
  #review(): void {
    while (!this.#writing && this.#ownerChanges.length > 0) {
      const changes = this.#ownerChanges;
      this.#ownerChanges = [];
      const affected = new Set<NodeEntry>();
      for (const change of changes) this.#reviewAddress(change, affected);
      for (const entry of affected) this.#options.onOwnerChange(entry);
    }
  }

  /**
   * Reviews one address. It uses the current holder, because the change may be outdated. If both owners have the same
   * rank, other nodes that lost the address need no review, except those whose claims `#reclaim` writes.
   */
  #reviewAddress({ key, previous, current }: OwnerChange, affected: Set<NodeEntry>): void {
    const isSameRank =
      current !== undefined && previous && compareSources(previous.source, current.source) === 0;
    const interested = new Set(
      isSameRank ? this.#losersOfOtherRank(key, current.source) : this.#losers.get(key),
    );
    for (const writer of [previous, current]) {
      const entry = writer && this.#options.entryOf(writer.owner);
      if (entry !== undefined && this.#claimOn(key, entry) !== undefined) interested.add(entry);
    }
    if (interested.size === 0) return;
    this.#reclaim(key, interested);
    const holder = this.#ipcache.get(key);
    for (const entry of interested) {
      const claim = this.#claimOn(key, entry);
      this.#setLost(entry, key, claim !== undefined && !isHeldBy(claim, holder));
      affected.add(entry);
    }
  }

  /** Returns the nodes that `#reclaim` may have to write if the owner of an address changed within one rank. */
  *#losersOfOtherRank(key: string, source: Source): Generator<NodeEntry, void, void> {
    if (!this.#options.rewrite) return;
    for (const entry of this.#losers.get(key) ?? []) {
      const { written } = entry;
      if (written !== undefined && compareSources(this.#sourceOf(written), source) !== 0) yield entry;
    }
  }

  /**
   * Writes claims on an address again which the IPCache has dropped. If the address has no claim, all are written. If
   * another writer holds it in a cache with one claim per key, only claims of another rank than the holder's are
   * written: a stronger one wins, and a weaker one makes the key contested, so that the cache reports its next owner
   * change. With claims of the same rank, nodes would take the address from each other. The strongest claim is written
   * last, because the last writer of equal rank wins.
   */
  #reclaim(key: string, interested: ReadonlySet<NodeEntry>): void {
    const holder = this.#ipcache.get(key);
    if (holder !== undefined && !this.#options.rewrite) return;
    const rank = holder === undefined ? undefined : sourceRank(holder.source);
    const claims = Array.from(interested, (entry) => ({ entry, claim: this.#claimOn(key, entry) }))
      .flatMap(({ entry, claim }) => (claim === undefined ? [] : [{ entry, claim }]))
      .filter(({ claim }) => sourceRank(claim.source) !== rank)
      .sort((a, b) => compareWriters(b.claim, a.claim));
    if (claims.length === 0) return;
    this.#write(() =>
      this.#ipcache.batch(() => {
        for (const { entry, claim } of claims) this.#put(entry, claim);
      }),
    );
  }
}

/** Returns true if the effective version has the claims of the version in the IPCache. */
function haveEqualClaims({ written, effective }: NodeEntry): boolean {
  return written !== undefined && effective !== undefined && haveSameClaims(written, effective);
}

function isHeldBy(claim: AddressClaim, holder: ClaimWriter | undefined): boolean {
  return claim.owner === holder?.owner && claim.source === holder.source;
}
