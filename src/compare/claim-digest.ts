import { forEachInSteps } from '../base/turn-gate.ts';
import { Int32Rows } from '../columns/int32-rows.ts';
import { mix } from '../columns/mix.ts';
import { PagedMap } from '../columns/paged-map.ts';
import type { ClaimTracker, RowReceiver } from '../ipcache/claims/changed-rows.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import type { CompleteClaim } from '../ipcache/row-reader.ts';
import type { ClaimWriter, NamedPorts } from '../ipcache/types.ts';
import { identityScope } from '../model/numeric-identity.ts';
import { ownerCluster } from '../model/source.ts';
import { formatKey, type PrefixRegister } from '../net/prefix.ts';
import {
  addToSum,
  BUCKETS,
  bucketTexts,
  type GroupDigest,
  mixOther,
  PLACES,
  placeOfLanes,
  sumText,
  textHash,
  totalText,
} from './digest-sums.ts';

/** Rows that one step reads: less than a millisecond. */
const ROWS_PER_STEP = 256;

/** Maximum number of rows that one step of a scan compares with the wanted places: about 0.1 ms. */
const ROWS_PER_SCAN = 16_384;

/** Number of places whose sums one step formats: about 0.5 ms. */
const PLACES_PER_STEP = 1024;

/** Maximum number of cached hashes of host IPs, and of the owners of each source. */
const CACHED_NAMES = 65_536;

/**
 * Hash seeds. A hash has two lanes of 32 bits, A and B. The hash of a claim is a sum of terms ({@link setClaim}): those
 * of the host and of the pod have seeds of their own, as have the service account and the named ports of the pod.
 */
const SEED_A = 0x2545_f491;
const SEED_B = 0x9e37_79b9;
const HOST = 0x1b56_c4e9;
const POD = 0x51ed_270b;
const ACCOUNT = 0x3c6e_f372;
const PORTS = 0x510e_527f;
const META_PRIME = 0x7feb_352d;

/** Both lanes of the hash of the current key. All digests share them: hashing is synchronous and never nested. */
let keyA = 0;
let keyB = 0;

/** Sets the lanes to the hash of a key, and returns the place of the key. */
function placeOf(key: Readonly<PrefixRegister>): number {
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
  return placeOfLanes(a, b);
}

/** Cached hashes of host IPs. The cache is cleared when it has too many. */
const hostHashes = new Map<string, number>();

/** Returns the hash of a host IP; 0 if there is none. */
function hostHash(hostIP: string | undefined): number {
  if (hostIP === undefined) return 0;
  const known = hostHashes.get(hostIP);
  if (known !== undefined) return known;
  if (hostHashes.size >= CACHED_NAMES) hostHashes.clear();
  const hash = textHash(0, hostIP);
  hostHashes.set(hostIP, hash);
  return hash;
}

/** Returns the hash of named ports, whatever their order. */
function portsHash(ports: NamedPorts): number {
  let sum = PORTS;
  for (const [name, { port, protocol }] of ports) sum += textHash((protocol << 16) | port, name);
  return sum | 0;
}

/** Both lanes of the hash of the current claim, shared like those of the key. */
let claimA = 0;
let claimB = 0;

/**
 * Sets the lanes to the hash of a claim on the last key of {@link placeOf}: the sum of the terms of the identity, the
 * host and the pod. Each term includes `owner`, the hash of the owner, so that the sum changes if two owners exchange
 * their hosts or pods. `identity` is the numeric identity; for a local one, the hash of its labels.
 */
function setClaim({ hostIP, encryptKey, k8s }: CompleteClaim, identity: number, owner: number): void {
  let a = mix(mix(keyA, identity), owner);
  let b = mixOther(mixOther(keyB, identity), owner);
  if (hostIP !== undefined || encryptKey !== 0) {
    const host = owner ^ mix(hostHash(hostIP), encryptKey);
    a += mix(keyA ^ HOST, host);
    b += mixOther(keyB ^ HOST, host);
  }
  if (k8s !== undefined) {
    const { namespace, podName, serviceAccount = '', namedPorts } = k8s;
    let pod = textHash(textHash(owner, namespace), podName);
    if (serviceAccount !== '') pod = textHash(pod ^ ACCOUNT, serviceAccount);
    if (namedPorts !== undefined && namedPorts.size > 0) pod = mix(pod, portsHash(namedPorts));
    a += mix(keyA ^ POD, pod);
    b += mixOther(keyB ^ POD, pod);
  }
  claimA = a | 0;
  claimB = b | 0;
}

interface WriterGroup {
  /** Its index in `#groupList`. */
  readonly index: number;
  readonly name: string;
  claims: number;
  /** For each bucket two 32-bit sums of the hashes of its claims. */
  readonly sums: Int32Array;
}

/** The group of a writer, and the hash of the writer's owner. */
interface GroupMember {
  readonly group: WriterGroup;
  readonly owner: number;
}

/** The hash of an overruled claim, as it was added to the sums of a group. */
interface OverruledTerm {
  readonly group: WriterGroup;
  readonly a: number;
  readonly b: number;
}

const NO_TERMS: readonly OverruledTerm[] = [];

// Columns of a row: the two lanes that its effective claim added to the sums, the index of the group of this claim, and
// the place of the key. `ROW_STRIDE` is the number of columns.
const LANE_A = 0;
const LANE_B = 1;
const GROUP = 2;
const PLACE = 3;
const ROW_STRIDE = 4;

export interface ClaimDigestOptions {
  readonly ipcache: IPCache;
  /** Returns the labels of a local identity as text, because its number differs on each node. Default: empty. */
  readonly labelsOf?: ((identity: number) => string) | undefined;
}

/**
 * Sums of the claims of an IPCache for each group of writers, to compare two processes without their lists. A change
 * marks the row of its key, which costs a few ns; {@link ClaimDigest.read} hashes the claims of the marked rows. Its
 * generators yield after each step of less than a millisecond; claims may change between steps.
 *
 * Sums are no protection against forged claims: a writer who can choose claims can choose claims with equal sums.
 */
export class ClaimDigest {
  readonly #ipcache: IPCache;
  readonly #labelsOf: (identity: number) => string;
  /** The groups by name: one for each source, and one for each source and cluster that is or was followed. */
  readonly #groups = new Map<string, WriterGroup>();
  /** The groups by index. Index 0 is no group. */
  readonly #groupList: (WriterGroup | undefined)[] = [undefined];
  /** The group of each writer, by source and owner. */
  readonly #byWriter = new Map<string, Map<string, GroupMember>>();
  /** By row: the hash of its effective claim, as it was added to the sums. */
  readonly #effective = new Int32Rows(ROW_STRIDE);
  /** By row: the hashes of its overruled claims, as they were added to the sums. */
  readonly #overruled = new PagedMap<readonly OverruledTerm[]>();
  /** The rows with claims of local identities, whose labels may change. */
  readonly #locals = new Set<number>();
  #tracker: ClaimTracker | undefined;
  /** The writer of the last claim and its group, because claims are read in runs of one writer. */
  #lastWriter: ClaimWriter = { source: 'unspec', owner: '' };
  #lastMember: GroupMember | undefined;

  constructor({ ipcache, labelsOf }: ClaimDigestOptions) {
    this.#ipcache = ipcache;
    this.#labelsOf = labelsOf ?? (() => '');
  }

  /**
   * Updates the sums in steps. When the last step returns, they are the sums of the present claims. Costs about 0.3 µs
   * for each key whose claims changed since the last call (at the first call: each key), and for each key with a local
   * identity.
   */
  *read(): Generator<void, void, void> {
    this.#tracker ??= this.#ipcache.trackClaims();
    const tracker = this.#tracker;
    yield* forEachInSteps(this.#locals, ROWS_PER_STEP, (row) => tracker.mark(row));
    while (tracker.read(ROWS_PER_STEP, this.#readRow) === ROWS_PER_STEP) yield;
  }

  /** Stops following the claims. The next {@link ClaimDigest.read} reads all keys again. */
  stop(): void {
    this.#tracker?.stop();
    this.#tracker = undefined;
  }

  /** Returns the digests of all groups with claims, by name, as of the last {@link ClaimDigest.read}. */
  groups(): readonly GroupDigest[] {
    const found = [...this.#groups.values()].filter(({ claims }) => claims > 0);
    return found
      .map(({ name, claims, sums }) => ({ writer: name, claims, sum: totalText(sums) }))
      .sort((x, y) => (x.writer < y.writer ? -1 : 1));
  }

  /** Returns the sums of the buckets of a group at the last read; undefined for an unknown group. */
  buckets(writer: string): readonly string[] | undefined {
    const group = this.#groups.get(writer);
    return group && bucketTexts(group.sums);
  }

  /**
   * Calls `onClaim` for each claim of a group at the wanted places. The keys are those of the last
   * {@link ClaimDigest.read}, with their present claims. Cost: a scan of all rows, about 5 ns each, and 1 µs for each
   * claim that is found.
   */
  *claimsIn(
    writer: string,
    isWanted: (place: number) => boolean,
    onClaim: (claim: CompleteClaim, key: string, place: number) => void,
  ): Generator<void, void, void> {
    const seen = new Set<string>(); // a key that is deleted and set again may have another row
    const onRow: RowReceiver = (_, register, effective, overruled) => {
      if (effective === undefined) return;
      const place = placeOf(register);
      if (!isWanted(place)) return; // since the last read, the row has got another key
      const key = formatKey(register);
      if (seen.has(key)) return;
      seen.add(key);
      for (const claim of [effective, ...overruled])
        if (this.#memberOf(claim).group.name === writer) onClaim(claim, key, place);
    };
    yield* this.#scan(writer, isWanted, ROWS_PER_STEP, (row) => this.#tracker?.readRow(row, onRow));
  }

  /** Returns the sums of the places of a group for which `isWanted` is true, except zero, the sum of no claims. */
  *placeSums(
    writer: string,
    isWanted: (place: number) => boolean,
  ): Generator<void, ReadonlyMap<number, string>, void> {
    const lanes = new Int32Array(PLACES * 2);
    yield* this.#scan(writer, isWanted, ROWS_PER_SCAN, (_, place, a, b) => addToSum(lanes, place * 2, a, b));
    const sums = new Map<number, string>();
    for (let place = 0; place < PLACES; place++) {
      const [a = 0, b = 0] = [lanes[place * 2], lanes[place * 2 + 1]];
      if ((a | b) !== 0) sums.set(place, sumText(a, b));
      if (place % PLACES_PER_STEP === 0) yield;
    }
    return sums;
  }

  /**
   * Calls `onRow` for each row with claims of a group at a wanted place, with the sums of their hashes, as of the last
   * {@link ClaimDigest.read}. A step finds at most `maxFound` rows.
   */
  *#scan(
    writer: string,
    isWanted: (place: number) => boolean,
    maxFound: number,
    onRow: (row: number, place: number, a: number, b: number) => void,
  ): Generator<void, void, void> {
    const group = this.#groups.get(writer);
    if (group === undefined) return;
    for (let row = 0; row < this.#effective.limit; ) {
      const end = row + ROWS_PER_SCAN;
      for (let found = 0; row < end && found < maxFound; row++) {
        const page = this.#effective.pageOf(row);
        const at = this.#effective.offsetOf(row);
        const index = page[at + GROUP] ?? 0;
        const place = page[at + PLACE] ?? 0;
        if (index === 0 || !isWanted(place)) continue;
        let isFound = index === group.index;
        let a = isFound ? (page[at + LANE_A] ?? 0) : 0;
        let b = isFound ? (page[at + LANE_B] ?? 0) : 0;
        for (const term of this.#overruledOf(row)) {
          if (term.group !== group) continue;
          isFound = true;
          a += term.a;
          b += term.b;
        }
        if (!isFound) continue;
        onRow(row, place, a, b);
        found++;
      }
      yield;
    }
  }

  /** Replaces the claims of a row in the sums. */
  readonly #readRow: RowReceiver = (row, key, effective, overruled) => {
    this.#removeRow(row);
    if (effective === undefined) {
      this.#locals.delete(row);
      return;
    }
    const place = placeOf(key);
    const { group, owner } = this.#memberOf(effective);
    let isLocal = this.#setClaim(effective, owner);
    addClaim(group, place, claimA, claimB);
    this.#effective.reserve(row);
    const page = this.#effective.writablePageOf(row);
    const at = this.#effective.offsetOf(row);
    page[at + LANE_A] = claimA;
    page[at + LANE_B] = claimB;
    page[at + GROUP] = group.index;
    page[at + PLACE] = place;
    if (overruled.length > 0) {
      const added: OverruledTerm[] = [];
      for (const claim of overruled) {
        const member = this.#memberOf(claim);
        if (this.#setClaim(claim, member.owner)) isLocal = true;
        addClaim(member.group, place, claimA, claimB);
        added.push({ group: member.group, a: claimA, b: claimB });
      }
      this.#overruled.set(row, added);
    }
    if (isLocal) this.#locals.add(row);
    else if (this.#locals.size > 0) this.#locals.delete(row);
  };

  /** Subtracts the hashes of a row from the sums. */
  #removeRow(row: number): void {
    const page = this.#effective.pageOf(row);
    const at = this.#effective.offsetOf(row);
    const group = this.#groupList[page[at + GROUP] ?? 0];
    if (group === undefined) return;
    const place = page[at + PLACE] ?? 0;
    subtractClaim(group, place, page[at + LANE_A] ?? 0, page[at + LANE_B] ?? 0);
    this.#effective.set(row, GROUP, 0);
    const overruled = this.#overruledOf(row);
    for (const { group: other, a, b } of overruled) subtractClaim(other, place, a, b);
    if (overruled.length > 0) this.#overruled.delete(row);
  }

  #overruledOf(row: number): readonly OverruledTerm[] {
    return (this.#overruled.size > 0 && this.#overruled.get(row)) || NO_TERMS;
  }

  /** Sets the lanes to the hash of a claim. Returns true if its identity is local. */
  #setClaim(claim: CompleteClaim, owner: number): boolean {
    const isLocal = identityScope(claim.identity) !== 0;
    setClaim(claim, isLocal ? textHash(1, this.#labelsOf(claim.identity)) : claim.identity, owner);
    return isLocal;
  }

  /** Returns the group of a writer, which it creates for the first claim. */
  #memberOf(writer: ClaimWriter): GroupMember {
    const { source, owner } = writer;
    const last = this.#lastWriter;
    if (this.#lastMember !== undefined && last.owner === owner && last.source === source)
      return this.#lastMember;
    const owners = this.#byWriter.get(source) ?? new Map<string, GroupMember>();
    let member = owners.get(owner);
    if (member === undefined) {
      if (owners.size >= CACHED_NAMES) owners.clear();
      const name = groupName(writer);
      const group = this.#groups.get(name) ?? this.#addGroup(name);
      member = { group, owner: textHash(0, owner) };
      this.#byWriter.set(source, owners.set(owner, member));
    }
    this.#lastWriter = writer;
    this.#lastMember = member;
    return member;
  }

  #addGroup(name: string): WriterGroup {
    const group = { index: this.#groupList.length, name, claims: 0, sums: new Int32Array(BUCKETS * 2) };
    this.#groups.set(name, group);
    this.#groupList.push(group);
    return group;
  }
}

function addClaim(group: WriterGroup, place: number, a: number, b: number): void {
  addToSum(group.sums, (place >>> 8) * 2, a, b);
  group.claims++;
}

function subtractClaim(group: WriterGroup, place: number, a: number, b: number): void {
  addToSum(group.sums, (place >>> 8) * 2, -a, -b);
  group.claims--;
}

function groupName({ source, owner }: ClaimWriter): string {
  return owner === '' ? source : `${source} ${ownerCluster(owner)}`;
}
