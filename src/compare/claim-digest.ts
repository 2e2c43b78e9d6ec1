import type { Unsubscribe } from '../base/subscription.ts';
import { mix } from '../columns/mix.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import type { HeldClaim } from '../ipcache/row-reader.ts';
import type { ClaimWriter } from '../ipcache/types.ts';
import { identityScope } from '../model/numeric-identity.ts';
import { ownerCluster } from '../model/source.ts';
import { formatKey, type PrefixRegister, parseKey, prefixRegister } from '../net/prefix.ts';

/** Number of buckets of a digest, and of parts of each bucket. The first bytes of the hash of a key select them. */
export const BUCKETS = 256;

/** Entries of the state at the start that one step adds: less than a millisecond. */
const ENTRIES_PER_STEP = 256;

/** Owners and host IPs that are cached. */
const CACHED_NAMES = 65_536;

/** Both lanes of a hash. One pair is enough because hashing is not re-entrant. */
let laneA = 0;
let laneB = 0;

const FNV_PRIME = 0x0100_0193;
const OTHER_PRIME = 0x85eb_ca6b;

function addWord(word: number): void {
  laneA = mix(laneA, word);
  laneB = Math.imul(laneB ^ word, OTHER_PRIME);
  laneB ^= laneB >>> 13;
}

/** Returns the hash of a text after another hash. The length is added, so that two texts differ from their concatenation. */
function textHash(hash: number, text: string): number {
  let result = hash;
  for (let i = 0; i < text.length; i++) result = Math.imul(result ^ text.charCodeAt(i), FNV_PRIME);
  return mix(result, text.length + 1);
}

/** Sets the lanes to the hash of a key. */
function setKey(key: Readonly<PrefixRegister>): void {
  laneA = 0x2545_f491;
  laneB = 0x9e37_79b9;
  addWord(key.w0);
  if (key.family === 6) {
    addWord(key.w1);
    addWord(key.w2);
    addWord(key.w3);
  }
  const form = (key.form === 'endpoint' ? 2 : 0) + (key.family === 6 ? 1 : 0);
  addWord((key.clusterID << 16) | (key.length << 2) | form);
}

/** Returns the bucket and the part of the key whose hash the lanes have: 16 bits. */
function place(): number {
  return mix(laneA, laneB) >>> 16;
}

/** Returns the bucket and the part of a key: 16 bits. */
export function placeOf(key: Readonly<PrefixRegister>): number {
  setKey(key);
  return place();
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

/** Returns the hash of the texts of a claim, except its owner. */
function textsHash({ hostIP, k8s }: HeldClaim): number {
  const host = hostHash(hostIP);
  return k8s === undefined ? host : textHash(textHash(host, k8s.namespace), k8s.podName);
}

/** Returns true if the texts of two claims of a writer are equal. Faster than a hash. */
function haveSameTexts(a: HeldClaim, b: HeldClaim): boolean {
  if (a.hostIP !== b.hostIP) return false;
  if (a.k8s === b.k8s) return true;
  return a.k8s?.namespace === b.k8s?.namespace && a.k8s?.podName === b.k8s?.podName;
}

/** Adds the fields of a claim to the hash of its key. `identity` is the hash of the labels for a local identity. */
function addClaim(identity: number, encryptKey: number, owner: number, texts: number): void {
  addWord(identity);
  addWord(encryptKey ^ owner);
  addWord(texts);
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

/** The digest of the claims of a group of writers. */
export interface GroupDigest {
  /** The source, and the cluster of the owner if there is one: `clustermesh baltic`. Nodes belong to the group of their cluster. */
  readonly writer: string;
  readonly claims: number;
  /** 16 hexadecimal digits. Equal claims have equal sums in any process. */
  readonly sum: string;
}

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
 * two hashes. Before {@link ClaimDigest.start} it costs nothing.
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

  /**
   * Starts to follow the claims, and yields steps that add the current ones; the sums are complete after the last step. Claims may
   * change between steps. The first step costs a few µs for each key with several claims.
   */
  *start(): Generator<void, void, void> {
    if (this.started) return;
    this.#unsubscribe = this.#ipcache.observeClaims((key, writer, before, after) => {
      this.#replace(key, writer, before, after);
    });
    // Later changes are added to the state of this moment: the snapshot and the overruled claims.
    const snapshot = this.#ipcache.snapshot();
    for (const [, ...overruled] of this.#ipcache.contested())
      for (const claim of overruled) this.#addText(claim.key, claim);
    let added = 0;
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

  /** Returns the digests of all groups with claims, by name. */
  groups(): readonly GroupDigest[] {
    const found: GroupDigest[] = [];
    for (const group of this.#groups.values()) {
      if (group.claims === 0) continue;
      const sums = this.#sumsOf(group);
      let [a, b] = [0, 0];
      for (let i = 0; i < sums.length; i += 2) {
        a = (a + (sums[i] ?? 0)) | 0;
        b = (b + (sums[i + 1] ?? 0)) | 0;
      }
      found.push({ writer: group.name, claims: group.claims, sum: hex(a, b) });
    }
    return found.sort((x, y) => (x.writer < y.writer ? -1 : 1));
  }

  /** Returns the sums of the buckets of a group; undefined for an unknown group. */
  buckets(writer: string): readonly string[] | undefined {
    const group = this.#groups.get(writer);
    return group && texts(this.#sumsOf(group));
  }

  /**
   * Yields steps that pass the claims of a group in some buckets to `onClaim`. Cost: a scan of all keys, about 60 ns each, and 1 µs
   * for each claim that is found.
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

  /** Yields steps that read the claims of a group in some buckets, and sets the sum of each part of them in `sums`. */
  *partSums(
    writer: string,
    isWanted: (place: number) => boolean,
    sums: Map<number, string>,
  ): Generator<void, void, void> {
    const lanes = new Map<number, [number, number]>();
    yield* this.claimsIn(writer, isWanted, (claim, key, place) => {
      if (!parseKey(key, this.#key)) return;
      this.#hash(this.#key, claim);
      const [a, b] = lanes.get(place) ?? [0, 0];
      lanes.set(place, [(a + laneA) | 0, (b + laneB) | 0]);
    });
    for (const [place, [a, b]] of lanes) sums.set(place, hex(a, b));
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
    setKey(key);
    const [keyA, keyB] = [laneA, laneB];
    const at = (place() >>> 8) * 2;
    const { sums } = group;
    let texts = 0;
    if (before !== undefined) {
      group.claims--;
      texts = textsHash(before);
      if (identityScope(before.identity) !== 0) countLocal(group, key, -1);
      else {
        addClaim(before.identity, before.encryptKey, owner, texts);
        sums[at] = (sums[at] ?? 0) - laneA;
        sums[at + 1] = (sums[at + 1] ?? 0) - laneB;
        laneA = keyA;
        laneB = keyB;
      }
    }
    if (after === undefined) return;
    group.claims++;
    if (identityScope(after.identity) !== 0) {
      countLocal(group, key, 1);
      return;
    }
    if (before === undefined || !haveSameTexts(before, after)) texts = textsHash(after);
    addClaim(after.identity, after.encryptKey, owner, texts);
    sums[at] = (sums[at] ?? 0) + laneA;
    sums[at + 1] = (sums[at + 1] ?? 0) + laneB;
  }

  /** Sets the lanes to the hash of a claim. */
  #hash(key: Readonly<PrefixRegister>, claim: HeldClaim): void {
    const { identity, encryptKey, owner } = claim;
    const isLocal = identityScope(identity) !== 0;
    const name = isLocal ? textHash(1, this.#labelsOf(identity)) : identity;
    setKey(key);
    addClaim(name, encryptKey, textHash(0, owner), textsHash(claim));
  }

  /** Returns the sums of a group with those of local identities. */
  #sumsOf(group: Group): Int32Array {
    const { locals, sums } = group;
    if (locals.size === 0) return sums;
    const all = sums.slice();
    for (const text of locals.keys()) {
      if (!parseKey(text, this.#key)) continue;
      const at = (placeOf(this.#key) >>> 8) * 2;
      for (const claim of this.#ipcache.claimsOf(text)) {
        if (groupName(claim) !== group.name || identityScope(claim.identity) === 0) continue;
        this.#hash(this.#key, claim);
        all[at] = (all[at] ?? 0) + laneA;
        all[at + 1] = (all[at + 1] ?? 0) + laneB;
      }
    }
    return all;
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

function hex(a: number, b: number): string {
  const text = (word: number): string => (word >>> 0).toString(16).padStart(8, '0');
  return text(a) + text(b);
}

function texts(sums: Int32Array): readonly string[] {
  return Array.from({ length: BUCKETS }, (_, at) => hex(sums[at * 2] ?? 0, sums[at * 2 + 1] ?? 0));
}
