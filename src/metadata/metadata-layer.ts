import { assert } from '../base/assert.ts';
import { CallbackGuard } from '../base/guard.ts';
import { type Rejection, RejectionLog, type RejectionStatus, rejection } from '../base/rejection.ts';
import { formatLabels, type Labels } from '../identity/labels.ts';
import { RESERVED_IDENTITIES } from '../identity/numeric-identity.ts';
import { isSource, type Source } from '../identity/source.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import type { Claim, KeyedEntry } from '../ipcache/types.ts';
import { maskWords } from '../net/address-words.ts';
import { HashPrefixTable } from '../net/hash-prefix-table.ts';
import {
  copyRegister,
  formatKey,
  Prefix,
  type PrefixRegister,
  parsePrefix,
  prefixRegister,
} from '../net/prefix.ts';
import type { WorldLabels } from './cidr-labels.ts';
import { LocalIdentities } from './local-identities.ts';
import {
  addLabels,
  type LabelsByKey,
  nodeLabel,
  resolveLabels,
  type Said,
  strongestFirst,
} from './merge-labels.ts';

/** Options of {@link MetadataLayer}. */
export interface MetadataLayerOptions {
  readonly ipcache: IPCache;
  /** Calls back in a later turn of the event loop: `setImmediate`. */
  readonly nextTurn: (callback: () => void) => unknown;
  /** Default `single-stack`. */
  readonly world?: WorldLabels | undefined;
  readonly identities?: LocalIdentities | undefined;
  /** Prefixes of one turn; default 256. */
  readonly chunk?: number | undefined;
  /** Receives everything that is rejected, after it was counted. */
  readonly onReject?: ((rejection: Rejection) => void) | undefined;
}

/** The layer in numbers. */
export interface MetadataLayerStatus {
  /** Prefixes of which some resource says something. */
  readonly prefixes: number;
  /** Those that are not up to date in the IPCache. */
  readonly pending: number;
  readonly revision: number;
  readonly applied: number;
  /** Node-local identities in use. */
  readonly identities: number;
  /** Prefixes without claim, because there is no number left. */
  readonly withoutIdentity: number;
  readonly rejections: RejectionStatus;
}

/** The owner of all claims of this layer. */
export const METADATA_OWNER = 'metadata';

const CHUNK = 256;

/** What is claimed for a prefix. */
interface Claimed {
  readonly key: string;
  readonly claim: Claim & { readonly owner: string };
  /** Whether a user of the identity is counted. */
  readonly isLocal: boolean;
}

interface Known {
  readonly key: PrefixRegister;
  readonly slot: number;
  readonly said: Map<string, Said>;
  claimed: Claimed | undefined;
}

/**
 * Labels of prefixes that several resources say, turned into claims in the IPCache (upstream: `ipcache.metadata`).
 *
 *     resource a ─ labels ─┐
 *     resource b ─ labels ─┼─► merged ─► identity: reserved, or node-local and counted ─► one claim, owner `metadata`
 *     covering prefixes ───┘
 *
 * Of labels with one key the strongest source's counts, then the smaller name of a resource, then the longer covering
 * prefix; of source `cidr` there is one. The claim has the strongest source of the resources that say something of this
 * very prefix.
 *
 * What is said takes effect in later turns, in chunks and in order; {@link MetadataLayer.waitForRevision} waits for it. A
 * change costs a look at what the prefix covers here.
 */
export class MetadataLayer {
  readonly #options: MetadataLayerOptions;
  readonly #identities: LocalIdentities;
  readonly #world: WorldLabels;
  readonly #rejections: RejectionLog;
  readonly #known = new Map<string, Known>();
  readonly #table = new HashPrefixTable();
  /** Prefixes to look at, each with the revision that asked for it first: ascending. */
  readonly #pending = new Map<string, number>();
  readonly #waiting = new Set<{ readonly revision: number; readonly resolve: (applied: boolean) => void }>();
  #revision = 0;
  #turning = false;
  /** Prefixes that want an identity, and there was none. */
  readonly #lacking = new Set<string>();
  /** Whether a number has become free in this turn. */
  #freed = false;

  constructor(options: MetadataLayerOptions) {
    this.#options = options;
    this.#identities = options.identities ?? new LocalIdentities();
    this.#world = options.world ?? 'single-stack';
    this.#rejections = new RejectionLog(options.onReject, new CallbackGuard());
  }

  /** The node-local identities. */
  get identities(): LocalIdentities {
    return this.#identities;
  }

  /** The revision of the last thing that was said. */
  get revision(): number {
    return this.#revision;
  }

  /** The IPCache shows everything up to this revision. */
  get applied(): number {
    for (const first of this.#pending.values()) return first - 1;
    return this.#revision;
  }

  /**
   * A resource says labels of a prefix (a CIDR, or an IP), instead of what it said of it before. Gives the revision with
   * which it takes effect. What is no prefix or no source is rejected, and changes nothing.
   */
  upsertMetadata(prefix: string, source: Source, resource: string, labels: Labels): number {
    const key = prefixRegister();
    if (!parsePrefix(prefix, key)) return this.#reject('invalid-prefix', 'prefix', prefix, resource);
    if (!isSource(source)) return this.#reject('unknown-source', 'source', source, resource);
    key.form = 'cidr';
    const text = formatKey(key);
    const known = this.#known.get(text) ?? this.#add(text, key);
    const before = known.said.get(resource);
    if (before?.source === source && formatLabels(before.labels) === formatLabels(labels))
      return this.#revision;
    known.said.set(resource, { source, resource, labels });
    return this.#changed(text, known);
  }

  /** A resource says nothing of a prefix any more. Gives the revision with which that takes effect. */
  removeMetadata(prefix: string, resource: string): number {
    const text = Prefix.parse(prefix)?.toString() ?? '';
    const known = this.#known.get(text);
    return known?.said.delete(resource) === true ? this.#changed(text, known) : this.#revision;
  }

  /** A node has come to an address, has left it, or is reached otherwise: looks again, if anything is said of the address. */
  refresh(address: string): number {
    const text = Prefix.parse(address)?.toString() ?? '';
    if (!this.#known.has(text)) return this.#revision;
    this.#revision++;
    this.#await(text);
    return this.#revision;
  }

  /**
   * Resolves to true once the IPCache shows everything up to a revision, by default the present one; to false when the signal
   * fires before. A revision that there is not yet is waited for.
   */
  waitForRevision(revision: number = this.#revision, signal?: AbortSignal): Promise<boolean> {
    if (this.applied >= revision) return Promise.resolve(true);
    if (signal?.aborted === true) return Promise.resolve(false);
    return new Promise((resolve) => {
      const waiting = {
        revision,
        resolve: (applied: boolean): void => {
          this.#waiting.delete(waiting);
          signal?.removeEventListener('abort', giveUp);
          resolve(applied);
        },
      };
      const giveUp = (): void => waiting.resolve(false);
      this.#waiting.add(waiting);
      signal?.addEventListener('abort', giveUp);
    });
  }

  /** What was not asked for again of the numbers that were withheld is free (AGENT 19). */
  releaseWithheld(): void {
    this.#identities.releaseWithheld();
    this.#retry();
  }

  status(): MetadataLayerStatus {
    return {
      prefixes: this.#known.size,
      pending: this.#pending.size,
      revision: this.#revision,
      applied: this.applied,
      identities: this.#identities.size,
      withoutIdentity: this.#lacking.size,
      rejections: this.#rejections.status(),
    };
  }

  #reject(reason: string, field: string, value: unknown, resource: string): number {
    this.#rejections.add(rejection(reason, field, value, 'is not valid', resource));
    return this.#revision;
  }

  #add(text: string, key: PrefixRegister): Known {
    const slot = this.#table.insert(key);
    const known: Known = { key: copyRegister(key), slot, said: new Map(), claimed: undefined };
    this.#known.set(text, known);
    return known;
  }

  /** The prefix and all that it covers are to be looked at. */
  #changed(text: string, known: Known): number {
    this.#revision++;
    this.#await(text); // before all that it covers
    const key = prefixRegister();
    for (const slot of this.#table.covered(known.key)) {
      this.#table.keyOf(slot, key);
      this.#await(formatKey(key));
    }
    return this.#revision;
  }

  #await(text: string, revision: number = this.#revision): void {
    if (!this.#pending.has(text)) this.#pending.set(text, revision);
    this.#askForTurn();
  }

  #turn(): void {
    const { ipcache, chunk = CHUNK } = this.#options;
    this.#turning = false;
    ipcache.batch(() => {
      let looked = 0;
      for (const text of this.#pending.keys()) {
        this.#pending.delete(text);
        this.#look(text);
        if (++looked === chunk) break;
      }
    });
    if (this.#freed) this.#retry();
    this.#freed = false;
    const { applied } = this;
    for (const waiting of this.#waiting) if (waiting.revision <= applied) waiting.resolve(true);
    if (this.#pending.size > 0) this.#askForTurn();
  }

  #askForTurn(): void {
    if (this.#turning) return;
    this.#turning = true;
    this.#options.nextTurn(() => this.#turn());
  }

  /** There may be a number for those that lack one. It does not belong to what was said so far: that has had its turn. */
  #retry(): void {
    for (const text of this.#lacking) this.#await(text, this.#revision + 1);
  }

  #look(text: string): void {
    const known = this.#known.get(text);
    if (known === undefined) return;
    if (known.said.size > 0) {
      this.#claim(text, known, this.#wanted(text, known));
      return;
    }
    this.#claim(text, known, undefined);
    this.#known.delete(text);
    this.#table.remove(known.slot, known.key);
  }

  /** The claim that follows from what is said, but for a node-local identity: then `labels` wants one. */
  #wanted(text: string, known: Known): Wanted | undefined {
    const said = strongestFirst(known.said.values());
    const [strongest] = said;
    assert(strongest !== undefined, 'something is said of the prefix');
    const { source } = strongest;
    const merged: LabelsByKey = new Map();
    for (const { labels } of said) addLabels(merged, labels);
    this.#inherit(known.key, merged);
    const node = merged.has('kube-apiserver') ? this.#nodeAt(known.key) : undefined;
    const label = node && nodeLabel(node.identity);
    // The own host stays what it is (K 43).
    if (node?.identity === RESERVED_IDENTITIES.host) return undefined;
    if (label !== undefined) merged.set(label.key, label);
    const resolved = resolveLabels(text, merged, this.#world);
    const { hostIP, encryptKey } = node ?? {};
    const isAddress =
      merged.has('kube-apiserver') || (resolved.kind === 'reserved' && !isWorld(resolved.identity));
    const key = formatKey({ ...known.key, form: isAddress && isFull(known.key) ? 'endpoint' : 'cidr' });
    return { key, source, hostIP, encryptKey, resolved };
  }

  /** Adds the labels of the prefixes that cover this one, the longest first. */
  #inherit(key: PrefixRegister, merged: LabelsByKey): void {
    const around = copyRegister(key);
    for (let length = key.length - 1; length >= 0; length--) {
      if (this.#table.countOf(key.family, length, 'cidr') === 0) continue;
      around.length = length;
      maskWords(around, length);
      if (this.#table.find(around) < 0) continue;
      const covering = this.#known.get(formatKey(around));
      for (const { labels } of strongestFirst(covering?.said.values() ?? [])) addLabels(merged, labels);
    }
  }

  /** What others say of a node at this address, the strongest of them. */
  #nodeAt(key: PrefixRegister): KeyedEntry | undefined {
    if (!isFull(key)) return undefined;
    const { claims = [] } = this.#options.ipcache.explain(formatKey({ ...key, form: 'endpoint' })) ?? {};
    return claims.find(
      ({ key: of, owner, identity }) =>
        !of.includes('/') && owner !== METADATA_OWNER && nodeLabel(identity) !== undefined,
    );
  }

  /** Claims what is wanted instead of what was claimed; in between the prefix is never free. */
  #claim(text: string, known: Known, wanted: Wanted | undefined): void {
    const { ipcache } = this.#options;
    const before = known.claimed;
    const identity = wanted && this.#identityOf(wanted);
    if (wanted !== undefined && identity === undefined) this.#lacking.add(text);
    else this.#lacking.delete(text);
    known.claimed = undefined;
    if (wanted !== undefined && identity !== undefined) {
      const { key, source, hostIP, encryptKey, resolved } = wanted;
      const claim = { identity, source, owner: METADATA_OWNER, hostIP, encryptKey };
      known.claimed = { key, claim, isLocal: resolved.kind === 'labels' };
      ipcache.upsert(key, claim);
    }
    if (before === undefined) return;
    const after = known.claimed;
    if (before.key !== after?.key || before.claim.source !== after.claim.source)
      ipcache.delete(before.key, { source: before.claim.source, owner: METADATA_OWNER });
    if (!before.isLocal) return;
    this.#identities.release(before.claim.identity);
    this.#freed = true;
  }

  #identityOf({ resolved }: Wanted): number | undefined {
    return resolved.kind === 'reserved' ? resolved.identity : this.#identities.allocate(resolved.labels);
  }
}

interface Wanted {
  readonly key: string;
  readonly source: Source;
  readonly hostIP: string | undefined;
  readonly encryptKey: number | undefined;
  readonly resolved: ReturnType<typeof resolveLabels>;
}

function isFull({ family, length }: PrefixRegister): boolean {
  return length === (family === 4 ? 32 : 128);
}

function isWorld(identity: number): boolean {
  const { world, 'world-ipv4': ipv4, 'world-ipv6': ipv6 } = RESERVED_IDENTITIES;
  return identity === world || identity === ipv4 || identity === ipv6;
}
