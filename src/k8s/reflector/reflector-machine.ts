import type { ResourceState } from '../resource.ts';
import type { ApiErrorCode } from '../rest/api-error.ts';

/**
 * The ways to request all objects (KUBERNETES 1):
 * - `stream`: the initial events of a watch, from the server's watch cache. It costs the server least, and requires
 *   Kubernetes 1.32; other servers are then asked for lists
 * - `cache`: a list from the server's watch cache, not older than the last known version
 * - `pages`: the latest state, in pages; after a 410, or if the server is behind
 * - `whole`: the latest state, in one response; after a 410 on a page
 */
export type ListSource = 'stream' | 'cache' | 'pages' | 'whole';

/** The next action of a reflector. Actions never overlap. */
export type ReflectorEffect =
  | { readonly do: 'list'; readonly from: ListSource }
  /** From the last known version. */
  | { readonly do: 'watch' }
  /**
   * Checks if the server has the same history: it may be another server, or restored from a backup. This requires that
   * the last event was a put. Otherwise the result is `isQuick`: true if the connection was lost only now, because a
   * restore takes longer.
   */
  | { readonly do: 'prove'; readonly isQuick?: true }
  | { readonly do: 'wait'; readonly failures: number; readonly atLeastMs: number };

/** The result of an action; `now` is monotonic. */
export type ReflectorInput = { readonly now: number } & (
  | { readonly type: 'listed' }
  /** The server has accepted the watch. */
  | { readonly type: 'opened' }
  /** The open watch has advanced the version for the first time. */
  | { readonly type: 'progressed' }
  /** The server has ended the watch regularly. `eventful` is true if the watch has advanced the version. */
  | { readonly type: 'ended'; readonly lastedMs: number; readonly eventful: boolean }
  | { readonly type: 'proven'; readonly same: boolean }
  | { readonly type: 'failed'; readonly code: ApiErrorCode; readonly retryAfterMs: number }
  | { readonly type: 'waited' }
  | { readonly type: 'stop' }
);

/** The action after a wait. */
type Next = 'list' | 'watch' | 'prove';

/** State of a reflector between two inputs. */
export interface ReflectorState {
  readonly phase: 'listing' | 'watching' | 'proving' | 'waiting' | 'stopped';
  /** The state in `status()`. Short intermediate steps are not shown. */
  readonly reportedState: ResourceState;
  /** Source of the current list; between lists, of the next one. */
  readonly from: ListSource;
  /**
   * The first source that a list tries. `cache` after a stream failed as if the server did not support streams.
   * `stream` again after a list has lost its connection, because the next server may support streams, or this server
   * was only failing.
   */
  readonly preferred: 'stream' | 'cache';
  /** The action after waiting. */
  readonly next: Next;
  /**
   * Number of consecutive failures. Reset after two minutes without a failure, and if a connection is lost after
   * progress.
   */
  readonly streak: number;
  /** Number of consecutive resets of short watches; 0 after a watch of 20 s, and after progress. */
  readonly resets: number;
  /** True if a watch has advanced the version since the last failure. */
  readonly progressed: boolean;
  /** Time of the first watch opened after the last failure. */
  readonly healthySince: number | undefined;
  /** Time of the first of several consecutive internal errors. */
  readonly internalSince: number | undefined;
  /** True if the reflector has waited since the last list. */
  readonly waited: boolean;
  /** True if the last watch that ended regularly was short. */
  readonly wasShort: boolean;
}

/** The next state and action of a reflector. */
export interface ReflectorStep {
  readonly state: ReflectorState;
  /** Undefined if the current action continues, or if the reflector has stopped. */
  readonly effect?: ReflectorEffect | undefined;
}

/** Time without a failure after which the backoff starts again at its shortest delay. */
const HEALTHY_MS = 2 * 60_000;
/** Time of consecutive internal errors after which a list replaces the watch. */
const INTERNAL_MS = 60_000;
/** A watch that ends within this time is short. Without events, it counts as failed (KUBERNETES 3). */
const SHORT_MS = 1000;
/** Resets of watches that were open for this time are rare. Proxies close idle connections after 30 to 60 s. */
const LONG_MS = 20_000;

const INITIAL: ReflectorState = {
  phase: 'listing',
  reportedState: 'listing',
  from: 'stream',
  preferred: 'stream',
  next: 'list',
  streak: 0,
  resets: 0,
  progressed: false,
  healthySince: undefined,
  internalSince: undefined,
  waited: false,
  wasShort: false,
};

/** Returns the first state and action. */
export function beginReflector(): ReflectorStep {
  return { state: INITIAL, effect: { do: 'list', from: INITIAL.from } };
}

/** Returns the step of a list. The reported state of a refused kind does not change until a list succeeds. */
function listStep(state: ReflectorState, from: ListSource): ReflectorStep {
  const { reportedState: last } = state;
  const reportedState = last === 'forbidden' || last === 'missing' ? last : 'listing';
  return { state: { ...state, phase: 'listing', reportedState, from }, effect: { do: 'list', from } };
}

function watchStep(state: ReflectorState): ReflectorStep {
  return { state: { ...state, phase: 'watching' }, effect: { do: 'watch' } };
}

/** Returns true if the last failure was long enough ago to reset the backoff. */
function isHealthy({ healthySince }: ReflectorState, now: number): boolean {
  return now - (healthySince ?? now) >= HEALTHY_MS;
}

/**
 * Returns the step of a wait before `next`. If `resetsBackoff` is true (default: if the state is healthy),
 * the delay is the shortest one.
 */
function waitStep(
  state: ReflectorState,
  { now, retryAfterMs }: { readonly now: number; readonly retryAfterMs: number },
  {
    next,
    reportedState,
    resetsBackoff = isHealthy(state, now),
  }: { readonly next: Next; readonly reportedState: ResourceState; readonly resetsBackoff?: boolean },
): ReflectorStep {
  const streak = (resetsBackoff ? 0 : state.streak) + 1;
  return {
    state: {
      ...state,
      phase: 'waiting',
      reportedState,
      next,
      streak,
      progressed: false,
      healthySince: undefined,
    },
    effect: { do: 'wait', failures: streak, atLeastMs: retryAfterMs },
  };
}

/** Errors after which the next connection may be to another server. */
const LOST_CONNECTION: ReadonlySet<ApiErrorCode> = new Set([
  'unreachable',
  'broken',
  'silent',
  'unavailable',
]);

/**
 * Returns the action after a failed watch or proof (KUBERNETES 3). After a lost connection the server may be another
 * one, so its history must be proven. After an error that is not listed here, only a list is certain to be correct.
 */
function nextAfterFailure(state: ReflectorState, code: ApiErrorCode, now: number): Next {
  if (LOST_CONNECTION.has(code)) return 'prove';
  switch (code) {
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

const REPORTED_STATES: Partial<Record<ApiErrorCode, ResourceState>> = {
  missing: 'missing',
  forbidden: 'forbidden',
};

/**
 * After these errors of a stream, a list from the cache replaces it immediately. The value is the source that later
 * lists try first. `cache` if the server does not support streams: it refuses, or never sends the end of the objects.
 * `stream` if a later stream may succeed: the right may be granted, a proxy may answer for a server that is away, and a
 * server that stops ends its streams early.
 */
const PREFERRED_AFTER: ReadonlyMap<ApiErrorCode, 'stream' | 'cache'> = new Map([
  ['invalid', 'cache'],
  ['silent', 'cache'],
  ['rejected', 'stream'],
  ['forbidden', 'stream'],
  ['garbled', 'stream'],
]);

/**
 * Returns true if a list must follow a 410 without a wait, because the reflector has recently waited, and has not
 * listed since. A restarted server usually answers 410. The wait has already distributed the lists of all reflectors
 * over time; a second wait would double the time with outdated state.
 */
function isOverdue(state: ReflectorState, code: ApiErrorCode, now: number): boolean {
  return state.phase === 'watching' && code === 'expired' && state.waited && !isHealthy(state, now);
}

/**
 * Returns true if the connection of a watch was lost after the watch had been open for some time, so that the server
 * may be healthy.
 */
function isReset({ phase, healthySince }: ReflectorState, code: ApiErrorCode, now: number): boolean {
  return phase === 'watching' && code === 'broken' && now - (healthySince ?? now) >= SHORT_MS;
}

/**
 * Returns the step after a reset. After the first reset, the server is asked immediately, because it has accepted a
 * watch since the last failure. After further resets, the backoff starts at the shortest delay.
 */
function resetStep(state: ReflectorState, now: number): ReflectorStep {
  const resetsBackoff = isHealthy(state, now) || state.progressed;
  const isLong = now - (state.healthySince ?? now) >= LONG_MS;
  const resets = (resetsBackoff || isLong ? 0 : state.resets) + 1;
  const streak = resetsBackoff ? 0 : state.streak;
  const waiting = {
    reportedState: 'waiting',
    next: 'prove',
    progressed: false,
    healthySince: undefined,
  } as const;
  const nextState = { ...state, ...waiting, resets, streak };
  if (resets === 1)
    return { state: { ...nextState, phase: 'proving' }, effect: { do: 'prove', isQuick: true } };
  return {
    state: { ...nextState, phase: 'waiting' },
    effect: { do: 'wait', failures: resets - 1, atLeastMs: 0 },
  };
}

function failureStep(
  state: ReflectorState,
  input: ReflectorInput & { readonly type: 'failed' },
): ReflectorStep {
  const { code, now } = input;
  if (isReset(state, code, now)) return resetStep(state, now);
  if (isOverdue(state, code, now)) return listStep(state, state.preferred);
  const reportedState = REPORTED_STATES[code] ?? 'waiting';
  if (state.phase !== 'listing') {
    const next = nextAfterFailure(state, code, now);
    const internalSince = code === 'internal' ? (state.internalSince ?? now) : undefined;
    const resetsBackoff = isHealthy(state, now) || (state.progressed && next === 'prove');
    return waitStep({ ...state, internalSince }, input, { next, reportedState, resetsBackoff });
  }
  const preferred = state.from === 'stream' ? PREFERRED_AFTER.get(code) : undefined;
  if (preferred !== undefined) return listStep({ ...state, preferred }, 'cache');
  if (code === 'expired' || code === 'future-version') {
    if (state.from === 'stream' || state.from === 'cache') return listStep(state, 'pages');
    if (state.from === 'pages') return listStep(state, 'whole');
  }
  const from = state.from === 'whole' ? 'pages' : state.from;
  const nextPreferred = LOST_CONNECTION.has(code) ? 'stream' : state.preferred;
  return waitStep({ ...state, from, preferred: nextPreferred }, input, { next: 'list', reportedState });
}

/**
 * Returns the step after a watch that has ended regularly. If several short watches follow each other, each is delayed,
 * because a proxy may end a watch after each event, and a server can send a bookmark at any time.
 */
function endStep(state: ReflectorState, input: ReflectorInput & { readonly type: 'ended' }): ReflectorStep {
  const wasShort = input.lastedMs < SHORT_MS;
  const next = { ...state, wasShort };
  if (!wasShort || (input.eventful && !state.wasShort)) return watchStep(next);
  if (input.eventful)
    return {
      state: { ...next, phase: 'waiting', next: 'watch' },
      effect: { do: 'wait', failures: 1, atLeastMs: 0 },
    };
  return waitStep(next, { now: input.now, retryAfterMs: 0 }, { next: 'watch', reportedState: 'waiting' });
}

/**
 * Returns the next state and action. Pure; the README of `k8s` has a drawing. Actions never overlap. Every input is the
 * result of the last action, except `stop`, and `opened` and `progressed`, which arrive during a watch.
 */
export function stepReflector(state: ReflectorState, input: ReflectorInput): ReflectorStep {
  if (state.phase === 'stopped') return { state };
  switch (input.type) {
    case 'stop':
      return { state: { ...state, phase: 'stopped', reportedState: 'stopped' } };
    case 'listed':
      return watchStep({ ...state, reportedState: 'listing', from: state.preferred, waited: false });
    case 'opened':
      return {
        state: {
          ...state,
          reportedState: 'watching',
          healthySince: state.healthySince ?? input.now,
          internalSince: undefined,
        },
      };
    case 'progressed':
      return { state: { ...state, progressed: true } };
    case 'ended':
      return endStep(state, input);
    case 'proven':
      return input.same ? watchStep(state) : listStep(state, state.preferred);
    case 'failed':
      return failureStep(state, input);
    case 'waited':
      return waitedStep({ ...state, waited: true });
  }
}

function waitedStep(state: ReflectorState): ReflectorStep {
  switch (state.next) {
    case 'list':
      return listStep(state, state.from);
    case 'watch':
      return watchStep(state);
    case 'prove':
      return { state: { ...state, phase: 'proving' }, effect: { do: 'prove' } };
  }
}
