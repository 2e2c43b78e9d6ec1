import type { ClusterConfig } from '../kvstore/codec/cluster-config.ts';

/** Where a remote cluster is in its life (SEMANTICS 6). */
export type ClusterPhase =
  /** Nothing has been asked for yet. */
  | 'idle'
  /** Its kvstore's client is being made. */
  | 'connecting'
  /** Its configuration is being read. */
  | 'handshake'
  /** The configuration has been read; may a cluster that says so be of this mesh? */
  | 'validating'
  /** What was read under another id is being taken back. */
  | 'draining'
  /** Its resources are followed. */
  | 'watching'
  /** Something of the above went wrong; tried again after a backoff. */
  | 'failed'
  /** What was under way is being ended, so that what follows does not meet it. */
  | 'leaving'
  | 'stopped'
  | 'removed';

/** What comes after `leaving`. */
export type AfterLeaving = 'connecting' | 'handshake' | 'expired' | 'failed' | 'stopped' | 'removed';

/** A remote cluster's state, as plain data. */
export interface ClusterState {
  readonly phase: ClusterPhase;
  /** Grows whenever something is begun or ended; what answers an earlier attempt is not heeded. */
  readonly attempt: number;
  /** While `leaving`. */
  readonly next: AfterLeaving | undefined;
  /** Whether there is a client: without one, a retry has to connect first. */
  readonly connected: boolean;
  /** The id under which what is held was read, and which no other cluster may have; 0: none. */
  readonly id: number;
  /** The configuration that holds; undefined in clusters older than 1.13. */
  readonly config: ClusterConfig | undefined;
  /** Services of a cluster that could not be reached for long have been taken back. */
  readonly expired: boolean;
  /** Failures since it was last watching: the exponent of the backoff. */
  readonly streak: number;
  readonly failures: number;
  readonly lastFailure: string | undefined;
}

/** What happens to a remote cluster. Inputs with an `attempt` answer an effect of that attempt. */
export type ClusterInput =
  /** Follow it, on a new client. */
  | { readonly type: 'connect' }
  | { readonly type: 'connected'; readonly attempt: number }
  | { readonly type: 'config'; readonly attempt: number; readonly config: ClusterConfig | undefined }
  /** `objection`: why it may not be of the mesh. */
  | { readonly type: 'validated'; readonly attempt: number; readonly objection: string | undefined }
  | { readonly type: 'drained'; readonly attempt: number }
  /** The configuration has changed, or the kvstore is another one. */
  | { readonly type: 'outdated'; readonly attempt: number }
  | { readonly type: 'failed'; readonly attempt: number; readonly message: string }
  | { readonly type: 'left'; readonly attempt: number }
  | { readonly type: 'retry'; readonly attempt: number }
  /** It has not been reached for longer than its services may live. */
  | { readonly type: 'expired' }
  | { readonly type: 'stop' }
  | { readonly type: 'remove' };

/** What is to be done. Every effect but `withdraw-services` is answered by an input of its attempt. */
export type ClusterEffect =
  /** Make a client → `connected`, `failed`. */
  | { readonly do: 'connect' }
  /** Read the configuration → `config`, `failed`. */
  | { readonly do: 'read-config' }
  /** Ask whether the cluster may be of the mesh, at once → `validated`. */
  | { readonly do: 'validate'; readonly config: ClusterConfig | undefined }
  /** Take back all that was read, at once → `drained`. */
  | { readonly do: 'withdraw' }
  /** Take back the services that were read, at once. */
  | { readonly do: 'withdraw-services' }
  /** Follow every resource → `outdated`, `failed`. */
  | { readonly do: 'follow'; readonly config: ClusterConfig | undefined }
  /** End what is under way; with `hangUp` the client too → `left`. */
  | { readonly do: 'leave'; readonly hangUp: boolean }
  /** Wait → `retry`. */
  | { readonly do: 'wait'; readonly streak: number };

/** A state, and what it asks for. */
export interface ClusterStep {
  readonly state: ClusterState;
  readonly effects: readonly ClusterEffect[];
}

/** Of a cluster that has just become known. */
export const NEW_CLUSTER: ClusterState = {
  phase: 'idle',
  attempt: 0,
  next: undefined,
  connected: false,
  id: 0,
  config: undefined,
  expired: false,
  streak: 0,
  failures: 0,
  lastFailure: undefined,
};

const GONE =
  'its configuration is gone from its kvstore, which may be starting anew; what is known of it is kept';

function enter(
  state: ClusterState,
  phase: ClusterPhase,
  effect: ClusterEffect,
  change: Partial<ClusterState> = {},
): ClusterStep {
  return {
    state: { ...state, ...change, phase, next: undefined, attempt: state.attempt + 1 },
    effects: [effect],
  };
}

function leave(state: ClusterState, next: AfterLeaving, change: Partial<ClusterState> = {}): ClusterStep {
  const hangUp = next === 'connecting' || next === 'stopped' || next === 'removed';
  const step = enter(state, 'leaving', { do: 'leave', hangUp }, change);
  const connected = hangUp ? false : step.state.connected;
  return { state: { ...step.state, next, connected }, effects: step.effects };
}

function fail(state: ClusterState, message: string): ClusterStep {
  const { streak, failures } = state;
  return leave(state, 'failed', { streak: streak + 1, failures: failures + 1, lastFailure: message });
}

/** Who is over stays over; `removed` is stronger than `stopped`. */
function isOver({ phase, next }: ClusterState): boolean {
  return phase === 'stopped' || phase === 'removed' || next === 'stopped' || next === 'removed';
}

function withdrawServices({ state, effects }: ClusterStep): ClusterStep {
  return { state: { ...state, expired: true }, effects: [{ do: 'withdraw-services' }, ...effects] };
}

function left(state: ClusterState): ClusterStep {
  switch (state.next) {
    case 'connecting':
      return enter(state, 'connecting', { do: 'connect' });
    case 'handshake':
      return enter(state, 'handshake', { do: 'read-config' });
    case 'expired':
      return withdrawServices(enter(state, 'handshake', { do: 'read-config' }));
    case 'failed':
      return enter(state, 'failed', { do: 'wait', streak: state.streak });
    case 'removed':
      return enter(state, 'removed', { do: 'withdraw' }, { id: 0, config: undefined });
    default:
      return { state: { ...state, phase: 'stopped', next: undefined }, effects: [] };
  }
}

/** A configuration has been read; what of it can be judged without asking anybody. */
function judge(state: ClusterState, config: ClusterConfig | undefined): ClusterStep {
  // A cluster that once had one is no cluster from before 1.13: to take its (empty) kvstore for complete would
  // sweep all that is valid.
  if (config === undefined && state.config !== undefined) return fail(state, GONE);
  return enter(state, 'validating', { do: 'validate', config }, { config });
}

/** It may be of the mesh: what was read under another id goes first. */
function accept(state: ClusterState): ClusterStep {
  const id = state.config?.id ?? 0;
  const drain = state.id !== 0 && id !== 0 && id !== state.id;
  if (drain) return enter(state, 'draining', { do: 'withdraw' }, { id });
  return follow({ ...state, id });
}

function follow(state: ClusterState): ClusterStep {
  return enter(state, 'watching', { do: 'follow', config: state.config }, { streak: 0, expired: false });
}

/** It may not: nothing of it is held any more, and its id is free. */
function refuse(state: ClusterState, objection: string): ClusterStep {
  const failed = fail(state, objection);
  return {
    state: { ...failed.state, id: 0 },
    effects: [{ do: 'withdraw' }, ...failed.effects],
  };
}

function ignore(state: ClusterState): ClusterStep {
  return { state, effects: [] };
}

/** What a phase expects; anything else is late or early, and not heeded. */
function answer(state: ClusterState, input: ClusterInput): ClusterStep {
  const { phase } = state;
  switch (input.type) {
    case 'connected':
      if (phase !== 'connecting') break;
      return enter(state, 'handshake', { do: 'read-config' }, { connected: true });
    case 'config':
      if (phase !== 'handshake') break;
      return judge(state, input.config);
    case 'validated':
      if (phase !== 'validating') break;
      return input.objection === undefined ? accept(state) : refuse(state, input.objection);
    case 'drained':
      if (phase !== 'draining') break;
      return follow(state);
    case 'outdated':
      if (phase !== 'watching') break;
      return leave(state, 'handshake');
    case 'failed':
      if (phase !== 'connecting' && phase !== 'handshake' && phase !== 'watching') break;
      return fail(state, input.message);
    case 'left':
      if (phase !== 'leaving') break;
      return left(state);
    case 'retry':
      if (phase !== 'failed') break;
      return state.connected
        ? enter(state, 'handshake', { do: 'read-config' })
        : enter(state, 'connecting', { do: 'connect' });
    default:
  }
  return ignore(state);
}

/** Ends what follows the services too: they have to be read anew once the cluster is reached again. */
function expire(state: ClusterState): ClusterStep {
  if (state.expired || state.phase === 'leaving' || isOver(state)) return ignore(state);
  return state.phase === 'watching' ? leave(state, 'expired') : withdrawServices(ignore(state));
}

/**
 * What a remote cluster does next. Pure; drawn in the README of this room. The state machine never has two
 * things under way: whatever reads or follows is left before anything else is begun.
 */
export function stepCluster(state: ClusterState, input: ClusterInput): ClusterStep {
  switch (input.type) {
    case 'connect':
      return isOver(state) ? ignore(state) : leave(state, 'connecting', { streak: 0, config: undefined });
    case 'stop':
      return isOver(state) ? ignore(state) : leave(state, 'stopped');
    case 'remove':
      if (state.phase === 'removed' || state.next === 'removed') return ignore(state);
      return leave(state, 'removed');
    case 'expired':
      return expire(state);
    default:
      return input.attempt === state.attempt ? answer(state, input) : ignore(state);
  }
}
