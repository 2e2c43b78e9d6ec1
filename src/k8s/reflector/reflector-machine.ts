import type { ApiErrorCode } from '../client/api-error.ts';
import type { ResourceState } from '../resource.ts';

/**
 * How all objects are asked for (K 1):
 * - `stream`: as the beginning of a watch, from the server's memory, which it needs the least of that way: from Kubernetes
 *   1.32 on. A server that refuses it is asked for a list, now and from then on
 * - `cache`: from the server's memory, not older than what was seen last
 * - `pages`: the latest, in pages: after a 410, or from a server that is behind
 * - `whole`: the latest, at once: after a 410 on a page
 */
export type ListSource = 'stream' | 'cache' | 'pages' | 'whole';

/** What a reflector does next: exactly one thing at a time. */
export type ReflectorEffect =
  | { readonly do: 'list'; readonly from: ListSource }
  /** From the version that was seen last. */
  | { readonly do: 'watch' }
  /**
   * Looks whether the server has the history that was followed: after a failure it may be another one, or have been
   * restored from a backup.
   */
  | { readonly do: 'prove' }
  | { readonly do: 'wait'; readonly failures: number; readonly atLeastMs: number }
  | { readonly do: 'stop' };

/** What comes of an effect; the time is monotonic. */
export type ReflectorInput = { readonly now: number } & (
  | { readonly type: 'listed' }
  /** The server accepts the watch. */
  | { readonly type: 'opened' }
  /** The watch has come to an orderly end; `eventful`: it has gone on from the version that it began with. */
  | { readonly type: 'ended'; readonly lastedMs: number; readonly eventful: boolean }
  | { readonly type: 'proven'; readonly same: boolean }
  | { readonly type: 'failed'; readonly code: ApiErrorCode; readonly retryAfterMs: number }
  | { readonly type: 'waited' }
  | { readonly type: 'stop' }
);

type Next = 'list' | 'watch' | 'prove';

/** A reflector between two inputs. */
export interface ReflectorState {
  readonly phase: 'listing' | 'watching' | 'proving' | 'waiting' | 'stopped';
  /** What it looks like from outside: short steps in between do not show. */
  readonly shown: ResourceState;
  readonly from: ListSource;
  /** How the next list begins. */
  readonly preferred: 'stream' | 'cache';
  /** After waiting. */
  readonly next: Next;
  /** Failures in a row: without two good minutes in between. */
  readonly streak: number;
  /** When a watch was opened after the last failure. */
  readonly goodSince: number | undefined;
  /** When the first of several internal errors in a row came. */
  readonly internalSince: number | undefined;
  /** Whether it has waited since the last list. */
  readonly waited: boolean;
}

export interface ReflectorStep {
  readonly state: ReflectorState;
  readonly effect: ReflectorEffect | undefined;
}

const GOOD_MS = 2 * 60_000;
const INTERNAL_MS = 60_000;
/** A watch that ends so soon and said nothing has failed (K 3). */
const SHORT_MS = 1000;

const FIRST: ReflectorState = {
  phase: 'listing',
  shown: 'listing',
  from: 'stream',
  preferred: 'stream',
  next: 'list',
  streak: 0,
  goodSince: undefined,
  internalSince: undefined,
  waited: false,
};

/** How a reflector begins. */
export function beginReflector(): ReflectorStep {
  return { state: FIRST, effect: { do: 'list', from: FIRST.from } };
}

function list(state: ReflectorState, from: ListSource): ReflectorStep {
  return { state: { ...state, phase: 'listing', shown: 'listing', from }, effect: { do: 'list', from } };
}

function watch(state: ReflectorState): ReflectorStep {
  return { state: { ...state, phase: 'watching' }, effect: { do: 'watch' } };
}

function ignore(state: ReflectorState): ReflectorStep {
  return { state, effect: undefined };
}

/** Whether nothing has failed for long enough to forget what did. */
function isGood({ goodSince }: ReflectorState, now: number): boolean {
  return now - (goodSince ?? now) >= GOOD_MS;
}

function wait(
  state: ReflectorState,
  next: Next,
  atLeastMs: number,
  now: number,
  shown: ResourceState,
): ReflectorStep {
  const streak = (isGood(state, now) ? 0 : state.streak) + 1;
  return {
    state: { ...state, phase: 'waiting', shown, next, streak, goodSince: undefined },
    effect: { do: 'wait', failures: streak, atLeastMs },
  };
}

/**
 * What is done after a failed watch, or proof (K 3). After a lost connection the server may be another one: that has to
 * prove itself. Whatever is in doubt ends in a list, which is right in any case, but costs most.
 */
function afterFailure(state: ReflectorState, code: ApiErrorCode, now: number): Next {
  switch (code) {
    case 'unreachable':
    case 'broken':
    case 'silent':
    case 'unavailable':
      return 'prove';
    case 'throttled':
    case 'unauthorized':
    case 'credentials':
      return state.phase === 'proving' ? 'prove' : 'watch';
    case 'internal':
      if (now - (state.internalSince ?? now) >= INTERNAL_MS) return 'list';
      return state.phase === 'proving' ? 'prove' : 'watch';
    default:
      return 'list';
  }
}

const SHOWN: Partial<Record<ApiErrorCode, ResourceState>> = { missing: 'missing', forbidden: 'forbidden' };

/** It does not offer streams: it says so, or answers something else, or never comes to the end of its objects. */
const NO_STREAM: ReadonlySet<ApiErrorCode> = new Set([
  'invalid',
  'rejected',
  'forbidden',
  'missing',
  'garbled',
  'silent',
]);

/**
 * A server that comes back answers with 410 as a rule. Who has waited for it lists at once: that wait has spread the lists of
 * all reflectors, and another one would double the time in which nothing is known to be true.
 */
function isOverdue(state: ReflectorState, code: ApiErrorCode, now: number): boolean {
  return state.phase === 'watching' && code === 'expired' && state.waited && !isGood(state, now);
}

function failed(state: ReflectorState, input: ReflectorInput & { readonly type: 'failed' }): ReflectorStep {
  const { code, retryAfterMs, now } = input;
  if (isOverdue(state, code, now)) return list(state, state.preferred);
  const shown = SHOWN[code] ?? 'waiting';
  if (state.phase !== 'listing') {
    const next = afterFailure(state, code, now);
    const internalSince = code === 'internal' ? (state.internalSince ?? now) : undefined;
    return wait({ ...state, internalSince }, next, retryAfterMs, now, shown);
  }
  if (state.from === 'stream' && NO_STREAM.has(code)) return list({ ...state, preferred: 'cache' }, 'cache');
  if (code === 'expired' || code === 'future-version') {
    if (state.from === 'stream' || state.from === 'cache') return list(state, 'pages');
    if (state.from === 'pages') return list(state, 'whole');
  }
  const from = state.from === 'whole' ? 'pages' : state.from;
  return wait({ ...state, from }, 'list', retryAfterMs, now, shown);
}

function ended(state: ReflectorState, input: ReflectorInput & { readonly type: 'ended' }): ReflectorStep {
  if (input.lastedMs >= SHORT_MS || input.eventful) return watch(state);
  return wait(state, 'watch', 0, input.now, 'waiting');
}

/**
 * What a reflector does next. Pure; drawn in the README of this room. It never has two things under way, so every input
 * is the answer to the last effect, but for `opened`, which comes in the middle of a watch, and `stop`.
 */
export function stepReflector(state: ReflectorState, input: ReflectorInput): ReflectorStep {
  if (state.phase === 'stopped') return ignore(state);
  switch (input.type) {
    case 'stop':
      return { state: { ...state, phase: 'stopped', shown: 'stopped' }, effect: { do: 'stop' } };
    case 'listed':
      return watch({ ...state, from: state.preferred, waited: false });
    case 'opened':
      return ignore({
        ...state,
        shown: 'watching',
        goodSince: state.goodSince ?? input.now,
        internalSince: undefined,
      });
    case 'ended':
      return ended(state, input);
    case 'proven':
      return input.same ? watch(state) : list(state, state.preferred);
    case 'failed':
      return failed(state, input);
    case 'waited':
      return waited({ ...state, waited: true });
  }
}

function waited(state: ReflectorState): ReflectorStep {
  switch (state.next) {
    case 'list':
      return list(state, state.from);
    case 'watch':
      return watch(state);
    case 'prove':
      return { state: { ...state, phase: 'proving' }, effect: { do: 'prove' } };
  }
}
