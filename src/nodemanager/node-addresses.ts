import { assert } from '../base/assert.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { compareWriters, sourceRank } from '../identity/source.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import type { ClaimWriter, OwnerChange } from '../ipcache/types.ts';
import {
  type AddressClaim,
  addressClaims,
  haveSameClaims,
  NodeClaims,
  type NodeConfiguration,
} from './address-claims.ts';
import type { Node } from './node.ts';
import type { NodeEntry } from './node-entry.ts';

const NO_CLAIMS = new NodeClaims();

/** The claims of a node with more addresses are kept: they are looked up for each address that changes hands. */
const RECOMPUTED = 16;

/** What the node manager needs of an `IPCache`. */
export type NodeIPCache = Pick<IPCache, 'upsert' | 'delete' | 'batch' | 'get' | 'subscribeOwners'>;

/** An address of a node that another writer holds in the IPCache. */
export interface LostAddress {
  readonly ip: string;
  /** Undefined when it is free: the IPCache had no room. */
  readonly holder: ClaimWriter | undefined;
  /** Whether the holder's source is stronger than the node's, so that handlers wait. */
  readonly stronger: boolean;
}

/** What {@link NodeAddresses} needs to know of the nodes. */
export interface NodeAddressesOptions {
  readonly configuration: NodeConfiguration;
  /**
   * Write claims again that are there already. Needed where the IPCache keeps one claim a key and forgets
   * others: the last writer of equal rank has it.
   */
  readonly rewrite: boolean;
  /** The node that writes under this owner's name. */
  entryOf(owner: string): NodeEntry | undefined;
  /** An address that the node wants has changed hands. */
  onOwnership(entry: NodeEntry): void;
}

/**
 * Keeps the nodes' claims in the IPCache, and knows which addresses nodes have lost to others. Writes happen to
 * completion: what listeners of the IPCache do meanwhile is looked at afterwards.
 */
export class NodeAddresses {
  readonly #ipcache: NodeIPCache;
  readonly #options: NodeAddressesOptions;
  readonly #unsubscribe: Unsubscribe;
  /** By address: the nodes that want it and do not have it. */
  readonly #losers = new Map<string, Set<NodeEntry>>();
  #configuration: NodeConfiguration;
  /** The claims of nodes with many addresses, under the present configuration. */
  #kept = new WeakMap<Node, NodeClaims>();
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

  /**
   * Whether claims are being written right now. A listener of the IPCache that is called by such a write must
   * not change nodes.
   */
  get writing(): boolean {
    return this.#writing;
  }

  /** The switches under which nodes claim their addresses. */
  get configuration(): NodeConfiguration {
    return this.#configuration;
  }

  /** Claims what the effective node claims, and nothing that was claimed for another version before. */
  update(entry: NodeEntry): void {
    this.#begin();
    try {
      this.#replace(entry, this.#configuration);
    } finally {
      this.#end();
    }
    this.#review();
  }

  /** The same for several nodes as one batch: listeners of the IPCache receive the net effect. */
  updateAll(entries: readonly NodeEntry[], configuration: NodeConfiguration = this.#configuration): void {
    this.#begin();
    try {
      this.#ipcache.batch(() => {
        for (const entry of entries) this.#replace(entry, configuration);
      });
      if (configuration !== this.#configuration) this.#kept = new WeakMap();
      this.#configuration = configuration;
      // One of them may have taken what another one had just written: the net change of owner does not name the latter.
      for (const entry of entries) this.#verify(entry);
    } finally {
      this.#end();
    }
    this.#review();
  }

  /** Whether {@link NodeAddresses.update} may change anything though the node has not. */
  mayRefresh(entry: NodeEntry): boolean {
    return this.#options.rewrite || entry.lost !== undefined;
  }

  /** Whether a stronger source holds one of the node's addresses (SEMANTICS 4). */
  isHeldBack(entry: NodeEntry): boolean {
    for (const ip of entry.lost ?? []) if (this.#lostAddress(entry, ip).stronger) return true;
    return false;
  }

  /** The addresses that the node wants and does not have. */
  lost(entry: NodeEntry): readonly LostAddress[] {
    return Array.from(entry.lost ?? [], (ip) => this.#lostAddress(entry, ip));
  }

  /** Leaves every claim as it is, and watches no more. */
  close(): void {
    this.#unsubscribe();
    this.#ownerChanges = [];
  }

  #lostAddress(entry: NodeEntry, ip: string): LostAddress {
    const rank = entry.effective === undefined ? 0 : sourceRank(entry.effective.source);
    const found = this.#ipcache.get(ip);
    const holder = found && { source: found.source, owner: found.owner };
    return { ip, holder, stronger: holder !== undefined && sourceRank(holder.source) > rank };
  }

  #begin(): void {
    assert(!this.#writing, 'node addresses: a write within a write');
    this.#writing = true;
  }

  #end(): void {
    this.#writing = false;
  }

  #replace(entry: NodeEntry, configuration: NodeConfiguration): void {
    if (configuration === this.#configuration && !this.mayRefresh(entry) && claimsAlike(entry)) {
      entry.written = entry.effective;
      return;
    }
    const before = this.#claims(entry.written, this.#configuration);
    const wanted = this.#claims(entry.effective, configuration);
    const changesSource = entry.written?.source !== entry.effective?.source;
    entry.written = entry.effective;
    if (changesSource && before.size > 0 && wanted.size > 0) {
      this.#replaceSource(entry, before, wanted);
      return;
    }
    let position = 0;
    for (const claim of wanted) {
      if (!this.#stands(entry, claim, before.at(position++))) this.#put(entry, claim);
    }
    for (const claim of before) if (wanted.on(claim.ip) === undefined) this.#drop(entry, claim);
  }

  /**
   * Claims are kept per source, so those of the old one have to go. The new ones come first, so that no address is
   * free in between, and listeners of the IPCache see the net effect.
   */
  #replaceSource(entry: NodeEntry, before: NodeClaims, wanted: NodeClaims): void {
    this.#ipcache.batch(() => {
      for (const claim of wanted) this.#put(entry, claim);
      for (const claim of before) {
        if (wanted.on(claim.ip) === undefined) this.#drop(entry, claim);
        else this.#ipcache.delete(claim.ip, claim);
      }
    });
  }

  /** Whether a claim is in the IPCache as it is. Addresses rarely move within the list: compare in place. */
  #stands(entry: NodeEntry, claim: AddressClaim, before: AddressClaim | undefined): boolean {
    return (
      before !== undefined &&
      !this.#options.rewrite &&
      claim.equals(before) &&
      entry.lost?.has(claim.ip) !== true
    );
  }

  #claims(node: Node | undefined, configuration: NodeConfiguration): NodeClaims {
    if (node === undefined) return NO_CLAIMS;
    const kept = configuration === this.#configuration ? this.#kept.get(node) : undefined;
    if (kept !== undefined) return kept;
    const claims = addressClaims(node, configuration);
    if (claims.size > RECOMPUTED && configuration === this.#configuration) this.#kept.set(node, claims);
    return claims;
  }

  #verify(entry: NodeEntry): void {
    for (const claim of this.#claims(entry.written, this.#configuration)) {
      this.#mark(entry, claim.ip, holds(claim, this.#ipcache.get(claim.ip)));
    }
  }

  /** What the node claims on an address, if it does. */
  #claimOn(ip: string, entry: NodeEntry): AddressClaim | undefined {
    return this.#claims(entry.written, this.#configuration).on(ip);
  }

  #put(entry: NodeEntry, claim: AddressClaim): void {
    const outcome = this.#ipcache.upsert(claim.ip, claim);
    this.#mark(entry, claim.ip, outcome === 'applied' || outcome === 'unchanged');
  }

  #drop(entry: NodeEntry, claim: AddressClaim): void {
    this.#ipcache.delete(claim.ip, claim);
    this.#mark(entry, claim.ip, true);
  }

  /** Notes whether the node has the address (or does not want it), or has lost it. */
  #mark(entry: NodeEntry, ip: string, fine: boolean): void {
    if (fine) {
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

  /**
   * Looks at the addresses that changed hands, and at those that do so meanwhile. A node is reviewed once for
   * all of its addresses.
   */
  #review(): void {
    while (!this.#writing && this.#ownerChanges.length > 0) {
      const changes = this.#ownerChanges;
      this.#ownerChanges = [];
      const affected = new Set<NodeEntry>();
      for (const change of changes) this.#reviewAddress(change, affected);
      for (const entry of affected) this.#options.onOwnership(entry);
    }
  }

  /** What the change says may be out of date by now; what counts is who holds the address. */
  #reviewAddress({ key, previous, current }: OwnerChange, affected: Set<NodeEntry>): void {
    const interested = new Set(this.#losers.get(key));
    for (const writer of [previous, current]) {
      const entry = writer && this.#options.entryOf(writer.owner);
      if (entry !== undefined && this.#claimOn(key, entry) !== undefined) interested.add(entry);
    }
    if (interested.size === 0) return;
    this.#reclaim(key, interested);
    const holder = this.#ipcache.get(key);
    for (const entry of interested) {
      const claim = this.#claimOn(key, entry);
      this.#mark(entry, key, claim === undefined || holds(claim, holder));
      affected.add(entry);
    }
  }

  /**
   * Claims once more for those whose claim the IPCache does not keep: all of them on a free address; on a held one
   * where it has a single slot, those of stronger sources, which win, and of weaker ones, as only what it has
   * overruled makes it notify the next change; not those of equal rank, which would take it from each other. The
   * strongest comes last: of equal rank the last writer wins there.
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
    this.#begin();
    try {
      this.#ipcache.batch(() => {
        for (const { entry, claim } of claims) this.#put(entry, claim);
      });
    } finally {
      this.#end();
    }
  }
}

function claimsAlike({ written, effective }: NodeEntry): boolean {
  return written !== undefined && effective !== undefined && haveSameClaims(written, effective);
}

function holds(claim: AddressClaim, holder: ClaimWriter | undefined): boolean {
  return claim.owner === holder?.owner && claim.source === holder.source;
}
