import { atLeast, checkArgument, FUNCTION, objectWith, optional, optionsWith } from '../base/arguments.ts';
import { assert } from '../base/assert.ts';
import { onAbort } from '../base/follow-signal.ts';
import { CallbackGuard } from '../base/guard.ts';
import { KeyedQueue } from '../base/keyed-queue.ts';
import { type Rejection, RejectionLog, type RejectionStatus, rejection } from '../base/rejection.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import type { Claim, KeyedEntry } from '../ipcache/types.ts';
import { HashPrefixTable } from '../lpm/hash-prefix-table.ts';
import { formatLabels, LABELS, type Labels } from '../model/labels.ts';
import { RESERVED_IDENTITIES } from '../model/numeric-identity.ts';
import { isSource, type Source } from '../model/source.ts';
import { maskWords } from '../net/address-words.ts';
import {
  copyRegister,
  formatKey,
  hasAddressLength,
  Prefix,
  type PrefixRegister,
  parsePrefix,
  prefixRegister,
} from '../net/prefix.ts';
import { WORLD_LABELS, type WorldLabels } from './cidr-labels.ts';
import { LocalIdentities } from './local-identities.ts';
import {
  addLabels,
  type LabelsByKey,
  nodeLabel,
  type Resolved,
  type ResourceLabels,
  resolveLabels,
  strongestFirst,
} from './merge-labels.ts';

/** Options of {@link MetadataLayer}. */
export interface MetadataLayerOptions {
  /** Receives the claims on prefixes with labels. */
  readonly ipcache: IPCache;
  /** Calls `callback` in a later turn of the event loop, like `setImmediate`. */
  readonly nextTurn: (callback: () => void) => unknown;
  /** Default `single-stack`. */
  readonly world?: WorldLabels | undefined;
  /** Default: a new, empty allocator. */
  readonly identities?: LocalIdentities | undefined;
  /** Prefixes per turn: at least 1, default 256. */
  readonly chunk?: number | undefined;
  /** Receives every rejection after it was counted. */
  readonly onReject?: ((rejection: Rejection) => void) | undefined;
}

/** Counts of a {@link MetadataLayer}. */
export interface MetadataLayerStatus {
  /** Prefixes with labels of a resource. */
  readonly prefixes: number;
  /** Prefixes which are not yet up to date in the IPCache. */
  readonly pending: number;
  /** See {@link MetadataLayer.revision}. */
  readonly revision: number;
  /** See {@link MetadataLayer.applied}. */
  readonly applied: number;
  /** Node-local identities in use. */
  readonly identities: number;
  /** Prefixes without a claim because no identity is free. */
  readonly withoutIdentity: number;
  readonly rejections: RejectionStatus;
}

/** The owner of all claims of this layer. */
export const METADATA_OWNER = 'metadata';

const CHUNK = 256;
/** Number of labels whose merge takes as long as the other work on a prefix. */
const LABELS_PER_PREFIX = 16;

/** The current claim of a prefix. */
interface CurrentClaim {
  readonly key: string;
  readonly claim: Claim & { readonly owner: string };
  /** True if the identity is node-local: this prefix is then counted as one of its users. */
  readonly isLocal: boolean;
}

/** The labels from the resources of a prefix, strongest resource first, and the strongest source. */
interface SortedLabels {
  readonly source: Source;
  /** Without repeated keys, because thousands of policies may contain the same CIDR. */
  readonly labels: Labels;
  /**
   * The smallest name of the resources with the same source and labels, by {@link ResourceLabels.text}. If there is one
   * text only, the name does not matter, and its resource may have been removed.
   */
  readonly firsts: ReadonlyMap<string, string>;
}

/** A pending call of `waitForRevision`. */
interface RevisionWaiter {
  readonly revision: number;
  readonly resolve: (isApplied: boolean) => void;
}

/** A prefix with labels, or with a claim to delete. */
interface LabeledPrefix {
  readonly key: PrefixRegister;
  /** The slot of `key` in the table of the layer. */
  readonly slot: number;
  readonly resources: Map<string, ResourceLabels>;
  /** The labels of `resources`; undefined if they have changed since they were sorted. */
  sorted: SortedLabels | undefined;
  /** `#taken` when this prefix and all covered ones were enqueued last. If it has not changed, they still are. */
  enqueuedAt: number;
  claimed: CurrentClaim | undefined;
}

/**
 * Merges the labels of prefixes from several resources into claims in the IPCache (Cilium: `ipcache.metadata`).
 *
 *     resource a ─ labels ─┐
 *     resource b ─ labels ─┼─► merged ─► identity: reserved, or node-local and counted ─► one claim, owner `metadata`
 *     covering prefixes ───┘
 *
 * Among labels with the same key, that of the prefix itself is used, or else that of the longest covering prefix.
 * Within one prefix, it is the label of the strongest source, then of the smaller resource name. At most one label has
 * source `cidr`. The claim has the strongest source of the resources that name exactly this prefix.
 *
 * Changes take effect in later turns of the event loop, in chunks and in order; {@link MetadataLayer.waitForRevision}
 * waits for them. The cost of a change is linear in the prefixes of this layer which the changed prefix covers, unless
 * the labels of the prefix stay the same, as they do if other policies contain the same CIDR.
 */
export class MetadataLayer {
  readonly #options: MetadataLayerOptions;
  readonly #chunk: number;
  readonly #identities: LocalIdentities;
  readonly #world: WorldLabels;
  readonly #rejections: RejectionLog;
  readonly #prefixes = new Map<string, LabeledPrefix>();
  /** The keys of `#prefixes`, to find the covering and the covered ones. */
  readonly #table = new HashPrefixTable();
  /** Pending prefixes, each with the first revision that enqueued it, ascending. */
  readonly #pending = new KeyedQueue<string, number>();
  /** Number of prefixes taken from `#pending` so far. */
  #taken = 0;
  readonly #revisionWaiters = new Set<RevisionWaiter>();
  #revision = 0;
  #isTurnScheduled = false;
  /** Prefixes without a claim, because no identity was free, with the labels of the missing identity. */
  readonly #withoutIdentity = new Map<string, string>();
  /** The prefixes of `#withoutIdentity` by their labels, the longest waiting first. */
  readonly #waitingByLabels = new Map<string, Set<string>>();
  /** True if this turn has freed an identity. */
  #hasFreedIdentity = false;

  constructor(options: MetadataLayerOptions) {
    checkArgument('new MetadataLayer: options', options, OPTIONS);
    const { chunk = CHUNK } = options;
    this.#options = options;
    this.#chunk = chunk;
    this.#identities = options.identities ?? new LocalIdentities();
    this.#world = options.world ?? 'single-stack';
    this.#rejections = new RejectionLog(options.onReject, new CallbackGuard());
  }

  /** The node-local identities. */
  get identities(): LocalIdentities {
    return this.#identities;
  }

  /** The revision of the last change. */
  get revision(): number {
    return this.#revision;
  }

  /** The last revision whose changes are all in the IPCache. */
  get applied(): number {
    const { first } = this.#pending;
    const enqueued = first === undefined ? undefined : this.#pending.get(first);
    return enqueued === undefined ? this.#revision : enqueued - 1;
  }

  /**
   * Sets the labels of a resource on a prefix (a CIDR or an IP), and returns the revision with which they take effect.
   * An invalid prefix or source, or an invalid list of labels, is rejected and changes nothing.
   */
  upsertMetadata(prefix: string, source: Source, resource: string, labels: Labels): number {
    const key = prefixRegister();
    if (!parsePrefix(prefix, key)) return this.#reject('invalid-prefix', 'prefix', prefix, resource);
    if (!isSource(source)) return this.#reject('unknown-source', 'source', source, resource);
    if (LABELS(labels) !== undefined) return this.#reject('invalid-labels', 'labels', labels, resource);
    key.form = 'cidr';
    const text = formatKey(key);
    const known = this.#prefixes.get(text) ?? this.#add(text, key);
    const ofResource = { source, resource, labels, text: textOf(source, labels) };
    const previous = known.resources.get(resource);
    if (previous?.text === ofResource.text) return this.#revision;
    known.resources.set(resource, ofResource);
    const addsNothing = previous === undefined && isRepeated(ofResource, known);
    return addsNothing ? this.#revision : this.#enqueueIfChanged(text, known);
  }

  /** Removes the labels of a resource from a prefix, and returns the revision with which this takes effect. */
  removeMetadata(prefix: string, resource: string): number {
    const text = Prefix.parse(prefix)?.toString() ?? '';
    const known = this.#prefixes.get(text);
    const previous = known?.resources.get(resource);
    if (known === undefined || previous === undefined) return this.#revision;
    known.resources.delete(resource);
    return isRepeated(previous, known) ? this.#revision : this.#enqueueIfChanged(text, known);
  }

  /**
   * Enqueues an address; ignores an address without labels. Call it when a node at the address was added, changed or
   * removed. Returns the revision with which the change takes effect.
   */
  refresh(address: string): number {
    const text = Prefix.parse(address)?.toString() ?? '';
    if (!this.#prefixes.has(text)) return this.#revision;
    this.#revision++;
    this.#enqueue(text);
    return this.#revision;
  }

  /**
   * Resolves to true when the IPCache contains all changes up to `revision` (default: the current revision), or to
   * false if the signal fires before. `revision` may be in the future.
   */
  waitForRevision(revision: number = this.#revision, signal?: AbortSignal): Promise<boolean> {
    if (this.applied >= revision) return Promise.resolve(true);
    if (signal?.aborted === true) return Promise.resolve(false);
    return new Promise((resolve) => {
      const waiter: RevisionWaiter = {
        revision,
        resolve: (isApplied) => {
          this.#revisionWaiters.delete(waiter);
          leaveSignal();
          resolve(isApplied);
        },
      };
      const leaveSignal = onAbort(signal, () => waiter.resolve(false));
      this.#revisionWaiters.add(waiter);
    });
  }

  /** Frees the identities which are still withheld (AGENT 19). */
  releaseWithheld(): void {
    this.#identities.releaseWithheld();
    this.#enqueueWithoutIdentity();
  }

  status(): MetadataLayerStatus {
    return {
      prefixes: this.#prefixes.size,
      pending: this.#pending.size,
      revision: this.#revision,
      applied: this.applied,
      identities: this.#identities.size,
      withoutIdentity: this.#withoutIdentity.size,
      rejections: this.#rejections.status(),
    };
  }

  #reject(reason: string, field: string, value: unknown, resource: string): number {
    this.#rejections.add(rejection(reason, field, value, 'is not valid', resource));
    return this.#revision;
  }

  #add(text: string, key: PrefixRegister): LabeledPrefix {
    const slot = this.#table.insert(key);
    const known: LabeledPrefix = {
      key: copyRegister(key),
      slot,
      resources: new Map(),
      sorted: undefined,
      enqueuedAt: -1,
      claimed: undefined,
    };
    this.#prefixes.set(text, known);
    return known;
  }

  /**
   * Enqueues a prefix whose resources changed, and then all covered prefixes, unless its labels are still the same.
   * Returns the revision with which the change takes effect.
   */
  #enqueueIfChanged(text: string, changed: LabeledPrefix): number {
    const before = changed.sorted;
    changed.sorted = undefined;
    if (before !== undefined && changed.resources.size > 0 && isSame(before, sortedLabels(changed)))
      return this.#revision;
    changed.sorted = undefined; // sorted again in its turn, after further changes
    this.#revision++;
    if (changed.enqueuedAt === this.#taken) return this.#revision;
    changed.enqueuedAt = this.#taken;
    this.#enqueue(text);
    if (hasAddressLength(changed.key)) return this.#revision;
    const key = prefixRegister();
    for (const slot of this.#table.covered(changed.key)) {
      this.#table.keyOf(slot, key);
      this.#enqueue(formatKey(key));
    }
    return this.#revision;
  }

  #enqueue(text: string, revision: number = this.#revision): void {
    if (!this.#pending.has(text)) this.#pending.set(text, revision);
    this.#scheduleTurn();
  }

  #runTurn(): void {
    const { ipcache } = this.#options;
    this.#isTurnScheduled = false;
    ipcache.batch(() => {
      for (let weight = 0; weight < this.#chunk; ) {
        const next = this.#pending.shift();
        if (next === undefined) break;
        this.#taken++;
        weight += 1 + Math.floor(this.#reconcile(next[0]) / LABELS_PER_PREFIX);
      }
    });
    if (this.#hasFreedIdentity) this.#enqueueWithoutIdentity();
    this.#hasFreedIdentity = false;
    const { applied } = this;
    for (const waiter of this.#revisionWaiters) if (waiter.revision <= applied) waiter.resolve(true);
    if (this.#pending.size > 0) this.#scheduleTurn();
  }

  #scheduleTurn(): void {
    if (this.#isTurnScheduled) return;
    this.#isTurnScheduled = true;
    this.#options.nextTurn(() => this.#runTurn());
  }

  /** Enqueues the prefixes whose labels can get a free identity, the longest waiting first. */
  #enqueueWithoutIdentity(): void {
    let { free } = this.#identities;
    for (const texts of this.#waitingByLabels.values()) {
      if (free <= 0) return;
      free--;
      this.#enqueueAgain(texts);
    }
  }

  /**
   * Enqueues prefixes that have no identity yet, under the revision of the next change, because all revisions up to the
   * current one may already count as applied.
   */
  #enqueueAgain(texts: Iterable<string>): void {
    for (const text of texts) this.#enqueue(text, this.#revision + 1);
  }

  /**
   * Records if a prefix has its identity, or waits for one because none is free. If it has its identity, enqueues the
   * prefixes which wait for the same one.
   */
  #recordIdentity(text: string, desired: DesiredClaim | undefined, identity: number | undefined): void {
    const isMissing = desired !== undefined && identity === undefined;
    if (this.#withoutIdentity.size === 0 && !isMissing) return;
    const labels = desired?.resolved.kind === 'labels' ? formatLabels(desired.resolved.labels) : '';
    const previous = this.#withoutIdentity.get(text);
    if (previous !== undefined && !(isMissing && previous === labels)) {
      const others = this.#waitingByLabels.get(previous);
      others?.delete(text);
      if (others?.size === 0) this.#waitingByLabels.delete(previous);
      this.#withoutIdentity.delete(text);
    }
    if (!isMissing) {
      this.#enqueueAgain(this.#waitingByLabels.get(labels) ?? []);
      return;
    }
    this.#withoutIdentity.set(text, labels);
    const waiting = this.#waitingByLabels.get(labels) ?? new Set();
    this.#waitingByLabels.set(labels, waiting.add(text));
  }

  /** Updates the claim of a prefix. Returns the number of merged labels. */
  #reconcile(text: string): number {
    const known = this.#prefixes.get(text);
    if (known === undefined) return 0;
    if (known.resources.size > 0) {
      const merged: LabelsByKey = new Map();
      const { source, labels } = sortedLabels(known);
      addLabels(merged, labels);
      const inherited = this.#inherit(known.key, merged);
      this.#setClaim(text, known, this.#desiredClaim(text, { source, known, merged }));
      return labels.length + inherited;
    }
    this.#setClaim(text, known, undefined);
    this.#prefixes.delete(text);
    this.#table.remove(known.slot, known.key);
    return 0;
  }

  /** Returns the desired claim of a prefix; undefined if it gets none. */
  #desiredClaim(text: string, { source, known, merged }: MergedPrefix): DesiredClaim | undefined {
    const node = merged.has('kube-apiserver') ? this.#nodeAt(known.key) : undefined;
    // The claim on an address of this host stays as it is (SEMANTICS 2.5).
    if (node?.identity === RESERVED_IDENTITIES.host) return undefined;
    const label = node && nodeLabel(node.identity);
    if (label !== undefined) merged.set(label.key, label);
    const resolved = resolveLabels(text, merged, this.#world);
    const { hostIP, encryptKey } = node ?? {};
    const isAddress =
      merged.has('kube-apiserver') || (resolved.kind === 'reserved' && !isWorld(resolved.identity));
    const key = formatKey({
      ...known.key,
      form: isAddress && hasAddressLength(known.key) ? 'endpoint' : 'cidr',
    });
    return { key, source, hostIP, encryptKey, resolved };
  }

  /** Adds the labels of the covering prefixes, longest first. Returns their number. */
  #inherit(key: PrefixRegister, merged: LabelsByKey): number {
    let count = 0;
    const around = copyRegister(key);
    for (let length = key.length - 1; length >= 0; length--) {
      if (this.#table.countOf(key.family, length, 'cidr') === 0) continue;
      around.length = length;
      maskWords(around, length);
      if (this.#table.find(around) < 0) continue;
      const covering = this.#prefixes.get(formatKey(around));
      if (covering === undefined || covering.resources.size === 0) continue;
      const { labels } = sortedLabels(covering);
      addLabels(merged, labels);
      count += labels.length;
    }
    return count;
  }

  /**
   * Returns the strongest claim of another owner that gives this address the identity of a node (`host`,
   * `remote-node`).
   */
  #nodeAt(key: PrefixRegister): KeyedEntry | undefined {
    if (!hasAddressLength(key)) return undefined;
    const { claims = [] } = this.#options.ipcache.explain(formatKey({ ...key, form: 'endpoint' })) ?? {};
    return claims.find(
      ({ key: claimKey, owner, identity }) =>
        !claimKey.includes('/') && owner !== METADATA_OWNER && nodeLabel(identity) !== undefined,
    );
  }

  /** Writes the desired claim, then deletes the previous one, so that the prefix keeps a claim. */
  #setClaim(text: string, known: LabeledPrefix, desired: DesiredClaim | undefined): void {
    const { ipcache } = this.#options;
    const previous = known.claimed;
    const identity = desired && this.#identityOf(desired);
    this.#recordIdentity(text, desired, identity);
    known.claimed = undefined;
    if (desired !== undefined && identity !== undefined) {
      const { key, source, hostIP, encryptKey, resolved } = desired;
      const claim = { identity, source, owner: METADATA_OWNER, hostIP, encryptKey };
      known.claimed = { key, claim, isLocal: resolved.kind === 'labels' };
      ipcache.upsert(key, claim);
    }
    if (previous === undefined) return;
    const after = known.claimed;
    if (previous.key !== after?.key || previous.claim.source !== after.claim.source)
      ipcache.delete(previous.key, { source: previous.claim.source, owner: METADATA_OWNER });
    if (!previous.isLocal) return;
    if (this.#identities.release(previous.claim.identity)) this.#hasFreedIdentity = true;
  }

  #identityOf({ resolved }: DesiredClaim): number | undefined {
    return resolved.kind === 'reserved' ? resolved.identity : this.#identities.allocate(resolved.labels);
  }
}

const OPTIONS = optionsWith({
  ipcache: objectWith({ upsert: FUNCTION, delete: FUNCTION }),
  nextTurn: FUNCTION,
  world: optional(WORLD_LABELS),
  identities: optional(objectWith({ allocate: FUNCTION })),
  chunk: optional(atLeast(1)),
});

/** A prefix with its strongest source, and its labels merged with those of the covering prefixes. */
interface MergedPrefix {
  readonly source: Source;
  readonly known: LabeledPrefix;
  readonly merged: LabelsByKey;
}

/** A claim whose node-local identity is not allocated yet. */
interface DesiredClaim {
  readonly key: string;
  readonly source: Source;
  readonly hostIP: string | undefined;
  readonly encryptKey: number | undefined;
  readonly resolved: Resolved;
}

function sortedLabels(prefix: LabeledPrefix): SortedLabels {
  if (prefix.sorted !== undefined) return prefix.sorted;
  // Of the resources with the same source and labels, only the first one matters.
  const firsts = new Map<string, ResourceLabels>();
  for (const one of prefix.resources.values()) {
    const first = firsts.get(one.text);
    if (first === undefined || one.resource < first.resource) firsts.set(one.text, one);
  }
  const resources = strongestFirst(firsts.values());
  const [strongest] = resources;
  assert(strongest !== undefined, 'the prefix has labels of a resource');
  prefix.sorted = {
    source: strongest.source,
    labels: withoutRepeatedKeys(resources.flatMap(({ labels }) => labels)),
    firsts: new Map(Array.from(firsts, ([text, { resource }]) => [text, resource])),
  };
  return prefix.sorted;
}

/**
 * Returns true if another resource with the same source and labels comes before this one, which then adds nothing.
 * Their order does not matter if all resources of the prefix have the same.
 */
function isRepeated({ text, resource }: ResourceLabels, { resources, sorted }: LabeledPrefix): boolean {
  const first = sorted?.firsts.get(text);
  if (first === undefined) return false;
  return sorted?.firsts.size === 1 ? resources.size > 0 : first < resource;
}

/**
 * Removes labels which {@link addLabels} never adds. Keeps both a label of source `cidr` and another one with the same
 * key, because `addLabels` skips the first one if a longer prefix has a `cidr` label.
 */
function withoutRepeatedKeys(labels: Labels): Labels {
  const seen = { cidr: new Set<string>(), other: new Set<string>() };
  return labels.filter(({ source, key }) => {
    const keys = source === 'cidr' ? seen.cidr : seen.other;
    return !keys.has(key) && keys.add(key);
  });
}

function isSame(some: SortedLabels, others: SortedLabels): boolean {
  return textOf(some.source, some.labels) === textOf(others.source, others.labels);
}

/** Returns a text that is equal for equal sources and labels. The order decides which `cidr` label is kept. */
function textOf(source: Source, labels: Labels): string {
  return JSON.stringify([source, ...labels.flatMap(({ source: of, key, value }) => [of, key, value])]);
}

function isWorld(identity: number): boolean {
  const { world, 'world-ipv4': ipv4, 'world-ipv6': ipv6 } = RESERVED_IDENTITIES;
  return identity === world || identity === ipv4 || identity === ipv6;
}
