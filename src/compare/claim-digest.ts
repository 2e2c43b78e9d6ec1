import type { Unsubscribe } from '../base/subscription.ts';
import { mix } from '../columns/mix.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import type { HeldClaim } from '../ipcache/row-reader.ts';
import type { ClaimWriter } from '../ipcache/types.ts';
import { identityScope } from '../model/numeric-identity.ts';
import { compareWriters, ownerCluster } from '../model/source.ts';
import { formatKey, type PrefixRegister, parseKey, prefixRegister } from '../net/prefix.ts';
import {
  BUCKETS,
  bucketTexts,
  type GroupDigest,
  mixOther,
  placeOfLanes,
  sumText,
  textHash,
  totalText,
} from './digest-sums.ts';

/** Entries of the state, or keys, that one step reads: less than a millisecond. */
const ENTRIES_PER_STEP = 256;

/** Owners and host IPs that are cached. */
const CACHED_NAMES = 65_536;

/** Seeds of the lanes of keys, and of the parts of the lanes that have the host and the pod. */
const SEED_A = 0x2545_f491;
const SEED_B = 0x9e37_79b9;
const HOST = 0x1b56_c4e9;
const POD = 0x51ed_270b;
const META_PRIME = 0x7feb_352d;

/** Both lanes of the hash of a key. One pair is enough because hashing is not re-entrant. */
let keyA = 0;
let keyB = 0;

/** Sets the lanes to the hash of a key. */
function setKey(key: Readonly<PrefixRegister>): void {
  const form = (key.form === 'endpoint' ? 2 : 0) + (key.family === 6 ? 1 : 0);
  const meta = Math.imul((key.clusterID << 16) | (key.length << 2) | form, META_PRIME);
  let a = mix(SEED_A, key.w0 ^ meta);
  let b = mixOther(SEED_B, (key.w0 + meta) | 0);
  if (key.family === 6) {
    a = mix(mix(mix(a, key.w1), key.w2), key.w3);
    b = mixOther(mixOther(mixOther(b, key.w1), key.w2), key.w3);
  }
  keyA = a;
  keyB = b;
}

/** Returns the bucket and the place in it of a key: 16 bits. */
export function placeOf(key: Readonly<PrefixRegister>): number {
  setKey(key);
  return placeOfLanes(keyA, keyB);
}

/** The hashes of host IPs, which are few; cleared when there are many. */
const hostHashes = new Map<string, number>();

function hostHash(hostIP: string | undefined): number {
  if (hostIP === undefined) return 0;
  const known = hostHashes.get(hostIP);
  if (known !== undefined) return known;
  if (hostHashes.size >= CACHED_NAMES) hostHashes.clear();
  const hash = textHash(0, hostIP);
  hostHashes.set(hostIP, hash);
  return hash;
}

function isSameHost(a: HeldClaim, b: HeldClaim): boolean {
  return a.hostIP === b.hostIP && a.encryptKey === b.encryptKey;
}

function isSamePod({ k8s: a }: HeldClaim, { k8s: b }: HeldClaim): boolean {
  return a === b || (a?.namespace === b?.namespace && a?.podName === b?.podName);
}

/**
 * Adds the identity of a claim on the key of {@link setKey} to two sums, or subtracts it. Host and pod have separate terms, so that
 * changes of other fields need not hash their texts. All terms have the owner, so that two owners cannot swap them unnoticed.
 * `identity` is the hash of the labels for a local identity.
 */
function addIdentity(sums: Int32Array, at: number, identity: number, owner: number, sign: 1 | -1): void {
  sums[at] = (sums[at] ?? 0) + sign * mix(mix(keyA, identity), owner);
  sums[at + 1] = (sums[at + 1] ?? 0) + sign * mixOther(mixOther(keyB, identity), owner);
}

/** Adds the host and the encryption key of a claim to two sums, or subtracts them. */
function addHost(
  sums: Int32Array,
  at: number,
  { encryptKey, hostIP }: HeldClaim,
  owner: number,
  sign: 1 | -1,
): void {
  if (hostIP === undefined && encryptKey === 0) return;
  const host = owner ^ mix(hostHash(hostIP), encryptKey);
  sums[at] = (sums[at] ?? 0) + sign * mix(keyA ^ HOST, host);
  sums[at + 1] = (sums[at + 1] ?? 0) + sign * mixOther(keyB ^ HOST, host);
}

/** Adds the pod of a claim to two sums, or subtracts it. */
function addPod(sums: Int32Array, at: number, { k8s }: HeldClaim, owner: number, sign: 1 | -1): void {
  if (k8s === undefined) return;
  const pod = textHash(textHash(owner, k8s.namespace), k8s.podName);
  sums[at] = (sums[at] ?? 0) + sign * mix(keyA ^ POD, pod);
  sums[at + 1] = (sums[at + 1] ?? 0) + sign * mixOther(keyB ^ POD, pod);
}

/** The sums of one group of writers. */
interface Group {
  readonly name: string;
  claims: number;
  /** For each bucket two 32-bit sums of the hashes of its claims. Claims of local identities are not included. */
  readonly sums: Int32Array;
  /** Keys with a claim of a local identity, and the number of these claims. */
  readonly locals: Map<string, number>;
}

/** A writer's group, and the hash of its owner. */
interface Member {
  readonly group: Group;
  readonly owner: number;
}

/** The claims that a key had at the start, of the writers that have changed theirs since: by writer. */
type FirstClaims = Map<string, HeldClaim | undefined>;

/** Options of {@link ClaimDigest}. */
export interface ClaimDigestOptions {
  readonly ipcache: IPCache;
  /**
   * Returns the labels of a local identity as text. Such identities have other numbers on each node, so their labels are compared;
   * default: the empty text.
   */
  readonly labelsOf?: ((identity: number) => string) | undefined;
}

/**
 * Sums of the claims of an IPCache for each group of writers, to compare two processes without their lists. A change of a claim costs
 * two hashes, and two for each text that it changes. Before {@link ClaimDigest.start} it costs nothing. Its generators yield after each
 * step of less than a millisecond; claims may change between steps.
 *
 * Sums are no protection against forged claims: a writer who can choose claims can choose claims with equal sums.
 */
export class ClaimDigest {
  readonly #ipcache: IPCache;
  readonly #labelsOf: (identity: number) => string;
  readonly #groups = new Map<string, Group>();
  /** The group of each writer, by source and owner. */
  readonly #byWriter = new Map<string, Map<string, Member>>();
  readonly #key = prefixRegister();
  #unsubscribe: Unsubscribe | undefined;
  #lastWriter: ClaimWriter = { source: 'unspec', owner: '' };
  #lastMember: Member | undefined;

  constructor({ ipcache, labelsOf }: ClaimDigestOptions) {
    this.#ipcache = ipcache;
    this.#labelsOf = labelsOf ?? (() => '');
  }

  /** True after {@link ClaimDigest.start}. */
  get started(): boolean {
    return this.#unsubscribe !== undefined;
  }

  /** Starts to follow the claims, and adds the current ones; the sums are complete after the last step. */
  *start(): Generator<void, void, void> {
    if (this.started) return;
    const changed = new Map<string, FirstClaims>();
    /** The keys whose overruled claims are added; undefined when this is complete. */
    let read: Set<string> | undefined = new Set();
    this.#unsubscribe = this.#ipcache.observeClaims((key, writer, before, after) => {
      if (read !== undefined || changed.size > 0) keepFirst(changed, formatKey(key), writer, before, read);
      this.#replace(key, writer, before, after);
    });
    // Changes are added to the state of this moment: the snapshot, and the overruled claims, which it does not have.
    const snapshot = this.#ipcache.snapshot();
    let added = 0;
    for (const [effective, ...overruled] of this.#ipcache.contested()) {
      const key = effective?.key;
      if (key !== undefined && !changed.has(key) && !read.has(key)) {
        for (const claim of overruled) this.#addText(key, claim);
        read.add(key);
      }
      if (++added % ENTRIES_PER_STEP === 0) yield;
    }
    read = undefined;
    for (const [key, first] of changed) {
      for (const claim of overruledAtFirst(this.#ipcache.claimsOf(key), first)) this.#addText(key, claim);
      changed.delete(key);
      if (++added % ENTRIES_PER_STEP === 0) yield;
    }
    for (const entry of snapshot.entries({ includeShadowed: true })) {
      this.#addText(entry.key, entry);
      if (++added % ENTRIES_PER_STEP === 0) yield;
    }
  }

  /** Stops following. The sums are not valid any more. */
  stop(): void {
    this.#unsubscribe?.();
    this.#unsubscribe = undefined;
    this.#groups.clear();
    this.#byWriter.clear();
    this.#lastMember = undefined;
  }

  /** Returns the digests of all groups with claims, by name, in one turn: about 2 µs for each claim of a local identity. */
  groups(): readonly GroupDigest[] {
    const steps = this.groupsInSteps();
    for (;;) {
      const { done, value } = steps.next();
      if (done === true) return value;
    }
  }

  /** Like {@link ClaimDigest.groups}, in steps. */
  *groupsInSteps(): Generator<void, readonly GroupDigest[], void> {
    const found: GroupDigest[] = [];
    for (const group of this.#groups.values()) {
      if (group.claims === 0) continue;
      const sums = yield* this.#sumsOf(group);
      found.push({ writer: group.name, claims: group.claims, sum: totalText(sums) });
      yield;
    }
    return found.sort((x, y) => (x.writer < y.writer ? -1 : 1));
  }

  /** Returns the sums of the buckets of a group; undefined for an unknown group. */
  *buckets(writer: string): Generator<void, readonly string[] | undefined, void> {
    const group = this.#groups.get(writer);
    return group && bucketTexts(yield* this.#sumsOf(group));
  }

  /**
   * Passes the claims of a group at some places to `onClaim`. Cost: a scan of all keys, about 60 ns each, and 1 µs for each claim that
   * is found.
   */
  *claimsIn(
    writer: string,
    isWanted: (place: number) => boolean,
    onClaim: (claim: HeldClaim, key: string, place: number) => void,
  ): Generator<void, void, void> {
    const isOf = (by: ClaimWriter): boolean => groupName(by) === writer;
    const seen = new Set<string>();
    for (const keys of this.#ipcache.keysOfWriters(isOf, (key) => isWanted(placeOf(key)))) {
      for (const key of keys) {
        if (seen.has(key) || !parseKey(key, this.#key)) continue;
        seen.add(key);
        const place = placeOf(this.#key);
        for (const claim of this.#ipcache.claimsOf(key)) if (isOf(claim)) onClaim(claim, key, place);
      }
      yield;
    }
  }

  /** Returns the sums of the places of a group for which `isWanted` is true, except those without claims. */
  *placeSums(
    writer: string,
    isWanted: (place: number) => boolean,
  ): Generator<void, ReadonlyMap<number, string>, void> {
    const lanes = new Map<number, Int32Array>();
    yield* this.claimsIn(writer, isWanted, (claim, key, place) => {
      const sums = lanes.get(place) ?? new Int32Array(2);
      if (parseKey(key, this.#key)) this.#addWhole(sums, 0, this.#key, claim);
      lanes.set(place, sums);
    });
    return new Map(Array.from(lanes, ([place, [a = 0, b = 0]]) => [place, sumText(a, b)]));
  }

  #addText(key: string, claim: HeldClaim): void {
    if (parseKey(key, this.#key)) this.#replace(this.#key, claim, undefined, claim);
  }

  /** Replaces a claim of a writer in the sums. */
  #replace(
    key: Readonly<PrefixRegister>,
    writer: ClaimWriter,
    before: HeldClaim | undefined,
    after: HeldClaim | undefined,
  ): void {
    const { group, owner } = this.#memberOf(writer);
    const { sums } = group;
    const at = (placeOf(key) >>> 8) * 2;
    const old = before !== undefined && identityScope(before.identity) === 0 ? before : undefined;
    const next = after !== undefined && identityScope(after.identity) === 0 ? after : undefined;
    if (before !== undefined) group.claims--;
    if (after !== undefined) group.claims++;
    if (before !== old) countLocal(group, key, -1);
    if (after !== next) countLocal(group, key, 1);
    const isBoth = old !== undefined && next !== undefined;
    const isHostKept = isBoth && isSameHost(old, next);
    const isPodKept = isBoth && isSamePod(old, next);
    if (old !== undefined) {
      addIdentity(sums, at, old.identity, owner, -1);
      if (!isHostKept) addHost(sums, at, old, owner, -1);
      if (!isPodKept) addPod(sums, at, old, owner, -1);
    }
    if (next !== undefined) {
      addIdentity(sums, at, next.identity, owner, 1);
      if (!isHostKept) addHost(sums, at, next, owner, 1);
      if (!isPodKept) addPod(sums, at, next, owner, 1);
    }
  }

  /** Adds a claim with any identity to two sums. */
  #addWhole(sums: Int32Array, at: number, key: Readonly<PrefixRegister>, claim: HeldClaim): void {
    const isLocal = identityScope(claim.identity) !== 0;
    const identity = isLocal ? textHash(1, this.#labelsOf(claim.identity)) : claim.identity;
    const owner = textHash(0, claim.owner);
    setKey(key);
    addIdentity(sums, at, identity, owner, 1);
    addHost(sums, at, claim, owner, 1);
    addPod(sums, at, claim, owner, 1);
  }

  /** Returns the sums of a group with those of local identities. */
  *#sumsOf({ name, locals, sums }: Group): Generator<void, Int32Array, void> {
    if (locals.size === 0) return sums;
    const own = new Int32Array(sums.length);
    let added = 0;
    for (const text of locals.keys()) {
      if (!parseKey(text, this.#key)) continue;
      const at = (placeOf(this.#key) >>> 8) * 2;
      for (const claim of this.#ipcache.claimsOf(text))
        if (groupName(claim) === name && identityScope(claim.identity) !== 0)
          this.#addWhole(own, at, this.#key, claim);
      if (++added % ENTRIES_PER_STEP === 0) yield;
    }
    return own.map((sum, at) => sum + (sums[at] ?? 0));
  }

  #memberOf(writer: ClaimWriter): Member {
    const { source, owner } = writer;
    const last = this.#lastWriter;
    if (this.#lastMember !== undefined && last.owner === owner && last.source === source)
      return this.#lastMember;
    const owners = this.#byWriter.get(source) ?? new Map<string, Member>();
    let member = owners.get(owner);
    if (member === undefined) {
      if (owners.size >= CACHED_NAMES) owners.clear();
      const name = groupName(writer);
      const group = this.#groups.get(name) ?? newGroup(name);
      this.#groups.set(name, group);
      member = { group, owner: textHash(0, owner) };
      this.#byWriter.set(source, owners.set(owner, member));
    }
    this.#lastWriter = writer;
    this.#lastMember = member;
    return member;
  }
}

/** Keeps the claim of a writer before its first change, unless the overruled claims of the key, or all, are `read`. */
function keepFirst(
  changed: Map<string, FirstClaims>,
  key: string,
  { source, owner }: ClaimWriter,
  before: HeldClaim | undefined,
  read: ReadonlySet<string> | undefined,
): void {
  const first = changed.get(key) ?? new Map<string, HeldClaim | undefined>();
  if (first.size === 0 && read?.has(key) !== false) return;
  const writer = `${source} ${owner}`;
  if (!first.has(writer)) first.set(writer, before);
  changed.set(key, first);
}

/** Returns the overruled claims of a key before the first change of each writer. */
function overruledAtFirst(now: readonly HeldClaim[], first: FirstClaims): readonly HeldClaim[] {
  const unchanged = now.filter(({ source, owner }) => !first.has(`${source} ${owner}`));
  const before = [...first.values()].filter((claim) => claim !== undefined);
  return [...unchanged, ...before].sort(compareWriters).slice(1);
}

function countLocal({ locals }: Group, key: Readonly<PrefixRegister>, sign: 1 | -1): void {
  const text = formatKey(key);
  const count = (locals.get(text) ?? 0) + sign;
  if (count === 0) locals.delete(text);
  else locals.set(text, count);
}

/** Returns the group of a writer: its source, and the cluster of its owner. */
function groupName({ source, owner }: ClaimWriter): string {
  return owner === '' ? source : `${source} ${ownerCluster(owner)}`;
}

function newGroup(name: string): Group {
  return { name, claims: 0, sums: new Int32Array(BUCKETS * 2), locals: new Map() };
}
