import { sameEntry } from '../ipcache/change.ts';
import { decidingRule } from '../ipcache/explain.ts';
import type { HeldClaim } from '../ipcache/row-reader.ts';
import type { DecidingRule } from '../ipcache/types.ts';
import { compareWriters } from '../model/source.ts';
import { addressBits } from '../net/address-words.ts';
import { copyRegister, formatKey, type PrefixRegister } from '../net/prefix.ts';
import { writerText } from './claim-codec.ts';
import { type ClaimChange, keyHash, type Segment } from './segment.ts';
import type { PastClaim } from './types.ts';

/** A change of one of the keys of a prefix, and where it is recorded. */
export interface TimelineChange extends ClaimChange {
  readonly key: string;
  readonly segment: Segment;
  readonly position: number;
  /** Milliseconds of the life. */
  readonly ms: number;
}

/** Returns true if a change happened after the moment of a question. */
export type IsLater = (change: TimelineChange) => boolean;

/** Returns the keys of a prefix: for a full-length one the endpoint IP and the CIDR, the endpoint first (I4). */
export function keysOf(key: Readonly<PrefixRegister>): readonly PrefixRegister[] {
  if (key.length !== addressBits(key.family)) return [copyRegister(key)];
  return (['endpoint', 'cidr'] as const).map((form) => ({ ...copyRegister(key), form }));
}

/** The claims on the keys of one prefix at some moment, which changes move back in time. */
class PrefixState {
  /** Claims by key and writer. */
  readonly #claims: Map<string, Map<string, HeldClaim>>;

  constructor(now: ReadonlyMap<string, readonly HeldClaim[]>) {
    this.#claims = new Map(
      Array.from(now, ([key, claims]) => [key, new Map(claims.map((claim) => [writerText(claim), claim]))]),
    );
  }

  undo({ key, writer, before }: TimelineChange): void {
    this.#set(key, writerText(writer), before);
  }

  redo({ key, writer, after }: TimelineChange): void {
    this.#set(key, writerText(writer), after);
  }

  /** Returns the claims in the order of `explain`: the endpoint's, then the CIDR's, strongest first (I4). */
  claims(): readonly (HeldClaim & { readonly key: string; readonly effective: boolean })[] {
    return Array.from(this.#claims, ([key, claims]) =>
      [...claims.values()]
        .sort(compareWriters)
        .map((claim, index) => ({ ...claim, key, effective: index === 0 })),
    ).flat();
  }

  /** Returns the visible claim. */
  visible(): HeldClaim | undefined {
    return this.claims()[0];
  }

  #set(key: string, writer: string, claim: HeldClaim | undefined): void {
    const claims = this.#claims.get(key);
    if (claim === undefined) claims?.delete(writer);
    else claims?.set(writer, claim);
  }
}

/** The claims on a prefix at a moment. Times are milliseconds of the life. */
export interface PastPrefix {
  readonly claims: readonly PastClaim[];
  readonly decidedBy: DecidingRule | undefined;
  readonly effectiveSince: number | undefined;
  readonly effectiveUntil: number | undefined;
}

/** A change with the visible claim of the prefix before and after it. */
export interface EffectiveChange {
  readonly change: TimelineChange;
  readonly visibleBefore: HeldClaim | undefined;
  readonly visibleAfter: HeldClaim | undefined;
}

/** The held changes of one prefix in the current life, and its claims at any time between them: an undo log from now. */
export class PrefixTimeline {
  readonly #now: ReadonlyMap<string, readonly HeldClaim[]>;
  readonly #keys: readonly PrefixRegister[];
  /** Newest first. */
  readonly #segments: readonly Segment[];

  /** `claimsOf` returns the current claims on a key. `segments` are ordered, oldest first. */
  constructor(
    key: Readonly<PrefixRegister>,
    claimsOf: (key: string) => readonly HeldClaim[],
    segments: readonly Segment[],
  ) {
    this.#keys = keysOf(key);
    this.#now = new Map(this.#keys.map((one) => [formatKey(one), claimsOf(formatKey(one))]));
    this.#segments = segments.toReversed();
  }

  /** Yields the changes, newest first, each read when it is asked for. */
  *#changes(): Generator<TimelineChange, void, void> {
    for (const segment of this.#segments) {
      const [first, second] = this.#keys.map((key) => changesIn(segment, key));
      if (first !== undefined) yield* second === undefined ? first : newestOfBoth(first, second);
    }
  }

  /** Yields the changes, newest first, with the visible claim before and after each. */
  *effectiveChanges(): Generator<EffectiveChange, void, void> {
    const state = new PrefixState(this.#now);
    let visibleAfter = state.visible();
    for (const change of this.#changes()) {
      state.undo(change);
      const visibleBefore = state.visible();
      yield { change, visibleBefore, visibleAfter };
      visibleAfter = visibleBefore;
    }
  }

  /** Returns the claims before all changes for which `isLater` is true. */
  before(isLater: IsLater): PastPrefix {
    const changes = [...this.#changes()];
    const later = changes.findIndex((change) => !isLater(change));
    const count = later < 0 ? changes.length : later;
    const state = new PrefixState(this.#now);
    for (const change of changes.slice(0, count)) state.undo(change);
    const held = state.claims();
    const [ended, begun] = [changes.slice(0, count).reverse(), changes.slice(count)];
    const isOf =
      (claim: PastClaim | (typeof held)[number]) =>
      ({ key, writer }: TimelineChange): boolean =>
        key === claim.key && writerText(writer) === writerText(claim);
    const claims = held.map((claim) => ({
      ...claim,
      since: begun.find(isOf(claim))?.ms,
      until: ended.find(isOf(claim))?.ms,
    }));
    const explained = claims.map((claim) => ({ ...claim, shadowed: false }));
    return { claims, decidedBy: decidingRule(explained), ...this.#effective(state, ended, begun) };
  }

  /** Returns the times of the last change before and the first change after a state that changed its visible claim. */
  #effective(
    state: PrefixState,
    ended: readonly TimelineChange[],
    begun: readonly TimelineChange[],
  ): Pick<PastPrefix, 'effectiveSince' | 'effectiveUntil'> {
    const visible = state.visible();
    const differs = (): boolean => !sameVisible(visible, state.visible());
    const until = ended.findIndex((change) => {
      state.redo(change);
      return differs();
    });
    for (const change of ended.slice(0, until < 0 ? ended.length : until + 1).reverse()) state.undo(change);
    const since = begun.find((change) => {
      state.undo(change);
      return differs();
    });
    return { effectiveSince: since?.ms, effectiveUntil: ended[until]?.ms };
  }
}

/**
 * Returns the visible claim of a prefix before all changes for which `isLater` is true. Reads these changes only. Changes of the two keys
 * of a prefix are independent, so their order does not matter.
 */
export function visibleBefore(
  key: Readonly<PrefixRegister>,
  claimsOf: (key: string) => readonly HeldClaim[],
  segments: readonly Segment[],
  isLater: (place: Pick<TimelineChange, 'segment' | 'position' | 'ms'>) => boolean,
): HeldClaim | undefined {
  for (const one of keysOf(key)) {
    const claims = claimsBefore(one, claimsOf(formatKey(one)), segments, isLater);
    if (claims.length > 0) return claims.sort(compareWriters)[0];
  }
  return undefined;
}

function claimsBefore(
  key: PrefixRegister,
  now: readonly HeldClaim[],
  segments: readonly Segment[],
  isLater: (place: Pick<TimelineChange, 'segment' | 'position' | 'ms'>) => boolean,
): HeldClaim[] {
  let claims = [...now];
  const hash = keyHash(key);
  for (let index = segments.length - 1; index >= 0; index--) {
    const segment = segments[index] as Segment; // below the length
    let position = segment.ofPrefix(segment.newest(hash), key);
    while (position >= 0) {
      if (!isLater({ segment, position, ms: segment.msAt(position) })) return claims;
      const { writer, before } = segment.claimAt(position);
      claims = claims.filter(({ source, owner }) => source !== writer.source || owner !== writer.owner);
      if (before !== undefined) claims.push(before);
      position = segment.ofPrefix(segment.previous(position), key);
    }
  }
  return claims;
}

/** Returns true if two visible claims have the same attributes and writer. */
export function sameVisible(a: HeldClaim | undefined, b: HeldClaim | undefined): boolean {
  return sameEntry(a, b) && a?.source === b?.source && a?.owner === b?.owner;
}

/** Yields the changes of a key in a segment, newest first. */
function* changesIn(segment: Segment, key: PrefixRegister): Generator<TimelineChange, void, void> {
  const text = formatKey(key);
  let at = segment.ofPrefix(segment.newest(keyHash(key)), key);
  while (at >= 0) {
    const ms = segment.msAt(at);
    const change = segment.claimAt(at);
    yield { ...change, key: text, segment, position: at, ms };
    at = segment.ofPrefix(segment.previous(at), key);
  }
}

/** Yields the changes of two keys in the order of their positions, newest first. */
function* newestOfBoth(
  first: Iterator<TimelineChange, void, void>,
  second: Iterator<TimelineChange, void, void>,
): Generator<TimelineChange, void, void> {
  let a = first.next().value;
  let b = second.next().value;
  while (a !== undefined || b !== undefined) {
    if (a !== undefined && (b === undefined || a.position > b.position)) {
      yield a;
      a = first.next().value;
    } else if (b !== undefined) {
      yield b;
      b = second.next().value;
    }
  }
}
