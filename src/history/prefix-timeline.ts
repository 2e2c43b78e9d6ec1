import { sameEntry } from '../ipcache/change.ts';
import { decidingRule } from '../ipcache/deciding-rule.ts';
import type { CompleteClaim } from '../ipcache/row-reader.ts';
import type { ClaimWriter, DecidingRule } from '../ipcache/types.ts';
import { compareWriters } from '../model/source.ts';
import { copyRegister, formatKey, hasAddressLength, type PrefixRegister } from '../net/prefix.ts';
import { writerText } from './claim-codec.ts';
import { type ClaimChange, keyHash } from './record-reader.ts';
import type { Segment } from './segment.ts';
import type { PastClaim, PrefixRecord } from './types.ts';

export interface RecordPlace {
  readonly segment: Segment;
  readonly position: number;
  /** Milliseconds since the life (the run of the agent) began. */
  readonly ms: number;
}

/** A change of one of the keys of a prefix, and the place of its record. */
export interface TimelineChange extends ClaimChange, RecordPlace {
  readonly key: string;
}

/** Returns true if a change happened after the requested moment. */
export type IsLater = (place: RecordPlace) => boolean;

/** Returns the keys of a prefix: for a full-length one the endpoint IP and the CIDR, the endpoint first (I4). */
export function keysOf(key: Readonly<PrefixRegister>): readonly PrefixRegister[] {
  if (!hasAddressLength(key)) return [copyRegister(key)];
  return (['endpoint', 'cidr'] as const).map((form) => ({ ...copyRegister(key), form }));
}

/** Returns the prefix of a key as a CIDR. */
export function cidrOf(key: Readonly<PrefixRegister>): string {
  return formatKey({ ...copyRegister(key), form: 'cidr' });
}

export type ClaimsByKey = ReadonlyMap<string, readonly CompleteClaim[]>;

export function claimsByKey(
  keys: readonly PrefixRegister[],
  claimsOf: (key: string) => readonly CompleteClaim[],
): ClaimsByKey {
  return new Map(keys.map((key) => [formatKey(key), claimsOf(formatKey(key))]));
}

function claimName(key: string, writer: ClaimWriter): string {
  return `${key} ${writerText(writer)}`;
}

interface DatedClaim {
  readonly claim: CompleteClaim;
  /** Time of the change that ended the claim, if this change is after the moment. */
  readonly until: number | undefined;
}

type StateClaim = Omit<PastClaim, 'since'>;

/**
 * The claims on the keys of one prefix at a moment. `undo` undoes each change after the moment. `findStarts` then
 * receives the older changes until all starts are known, and `result` returns the claims. Changes must be passed newest
 * first.
 */
export class PastState {
  /** Claims by key and writer, directly before the last change that was passed. */
  readonly #claims: Map<string, Map<string, DatedClaim>>;
  #effectiveUntil: number | undefined;
  /** The claims at the moment, stored before `#claims` moves to an earlier time; undefined until then. */
  #claimsOfMoment: readonly StateClaim[] | undefined;
  /** The start of each claim of the moment, by key and writer: the time of the change that set it. */
  readonly #since = new Map<string, number>();
  #effectiveSince: number | undefined;

  constructor(current: ClaimsByKey) {
    this.#claims = new Map(
      Array.from(current, ([key, claims]) => [
        key,
        new Map(claims.map((claim) => [writerText(claim), { claim, until: undefined }])),
      ]),
    );
  }

  /** Undoes a change later than the moment. Returns the visible claims before and after the change. */
  undo(change: TimelineChange): NonNullable<PrefixRecord['effective']> {
    const after = this.#visible();
    this.#put(change, change.ms);
    const before = this.#visible();
    if (!sameVisible(after, before)) this.#effectiveUntil = change.ms;
    return { before, after };
  }

  /**
   * Processes a change at or before the moment. Because the newest change is passed first, the first change of a claim
   * is the one that set it. Returns true if the starts of all claims of the moment are known, so that older changes
   * are not needed.
   */
  findStarts(change: TimelineChange): boolean {
    const claims = this.#claimsAtMoment();
    const name = claimName(change.key, change.writer);
    const isClaim = claims.some((claim) => claimName(claim.key, claim) === name);
    if (isClaim && !this.#since.has(name)) this.#since.set(name, change.ms);
    this.#put(change, undefined);
    if (this.#effectiveSince === undefined && !sameVisible(claims[0], this.#visible()))
      this.#effectiveSince = change.ms;
    return this.#effectiveSince !== undefined && this.#since.size === claims.length;
  }

  #visible(): CompleteClaim | undefined {
    for (const claims of this.#claims.values()) {
      let strongest: CompleteClaim | undefined;
      for (const { claim } of claims.values())
        if (strongest === undefined || compareWriters(claim, strongest) < 0) strongest = claim;
      if (strongest !== undefined) return strongest;
    }
    return undefined;
  }

  result(): PastPrefix {
    const claims = this.#claimsAtMoment().map((claim) => ({
      ...claim,
      since: this.#since.get(claimName(claim.key, claim)),
    }));
    const decidedBy = decidingRule(claims);
    const times = { effectiveSince: this.#effectiveSince, effectiveUntil: this.#effectiveUntil };
    return { claims, decidedBy, ...times };
  }

  /** Returns the claims of the moment: of the endpoint, then of the CIDR, strongest first (I4). */
  #claimsAtMoment(): readonly StateClaim[] {
    this.#claimsOfMoment ??= this.#sorted();
    return this.#claimsOfMoment;
  }

  #sorted(): readonly StateClaim[] {
    return Array.from(this.#claims, ([key, claims]) =>
      [...claims.values()]
        .sort((a, b) => compareWriters(a.claim, b.claim))
        .map(({ claim, until }, index) => ({ key, until, effective: index === 0, ...claim })),
    ).flat();
  }

  #put({ key, writer, before }: TimelineChange, until: number | undefined): void {
    const claims = this.#claims.get(key);
    if (before === undefined) claims?.delete(writerText(writer));
    else claims?.set(writerText(writer), { claim: before, until });
  }
}

/** The claims on a prefix at a moment. Times are milliseconds since the life began. */
export interface PastPrefix {
  readonly claims: readonly PastClaim[];
  readonly decidedBy: DecidingRule | undefined;
  readonly effectiveSince: number | undefined;
  readonly effectiveUntil: number | undefined;
}

/** Returns the claims on a key before all later changes, the effective one first. `current`: those now. */
export function claimsBefore(
  key: PrefixRegister,
  current: readonly CompleteClaim[],
  segments: readonly Segment[],
  isLater: IsLater,
): readonly CompleteClaim[] {
  let claims = [...current];
  const hash = keyHash(key);
  for (let index = segments.length - 1; index >= 0; index--) {
    const segment = segments[index] as Segment; // below the length
    let position = segment.findKey(segment.newest(hash), key);
    while (position >= 0) {
      if (!isLater({ segment, position, ms: segment.msAt(position) })) return claims.sort(compareWriters);
      const { writer, before } = segment.claimAt(position);
      claims = claims.filter(({ source, owner }) => source !== writer.source || owner !== writer.owner);
      if (before !== undefined) claims.push(before);
      position = segment.findKey(segment.previous(position), key);
    }
  }
  return claims.sort(compareWriters);
}

/** Returns true if two visible claims have the same attributes and writer. */
function sameVisible(a: CompleteClaim | undefined, b: CompleteClaim | undefined): boolean {
  return sameEntry(a, b) && a?.source === b?.source && a?.owner === b?.owner;
}

/** Yields the changes of a key in a segment, newest first. */
function* changesIn(segment: Segment, key: PrefixRegister): Generator<TimelineChange, void, void> {
  const text = formatKey(key);
  let at = segment.findKey(segment.newest(keyHash(key)), key);
  while (at >= 0) {
    const ms = segment.msAt(at);
    // Fields are listed one by one, because a spread takes longer than the decoding.
    const { writer, before, after, effect } = segment.claimAt(at);
    yield { writer, before, after, effect, key: text, segment, position: at, ms };
    at = segment.findKey(segment.previous(at), key);
  }
}

/** Yields the changes of the keys of a prefix in a segment, newest first. */
export function* changesOfKeys(
  segment: Segment,
  keys: readonly PrefixRegister[],
): Generator<TimelineChange, void, void> {
  const [first, second] = keys.map((key) => changesIn(segment, key));
  if (first !== undefined) yield* second === undefined ? first : newestOfBoth(first, second);
}

/** Yields the changes of two keys in the order of their positions, newest first. */
function* newestOfBoth(
  first: Iterator<TimelineChange, void, void>,
  second: Iterator<TimelineChange, void, void>,
): Generator<TimelineChange, void, void> {
  let ofFirst = first.next().value;
  let ofSecond = second.next().value;
  while (ofFirst !== undefined || ofSecond !== undefined) {
    if (ofFirst !== undefined && (ofSecond === undefined || ofFirst.position > ofSecond.position)) {
      yield ofFirst;
      ofFirst = first.next().value;
    } else if (ofSecond !== undefined) {
      yield ofSecond;
      ofSecond = second.next().value;
    }
  }
}
