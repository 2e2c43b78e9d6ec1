import { listText, showValue } from '../base/show-value.ts';
import { isClusterName } from '../model/cluster-name.ts';
import type {
  ClusterAnswer,
  ClusterEffect,
  ClusterFollow,
  ClusterInput,
  ClusterPhase,
  ClusterState,
  ClusterStep,
  ConfigReading,
  Destination,
  FailureReason,
} from './cluster-state.ts';

const CONFIGURATION_DELETED =
  'its kvstore does not contain its configuration any more; the last known state is kept, because the kvstore may be restarting';

/** Maximum number of other clusters in a message. */
const MAX_OTHERS = 8;

/** @param others undefined if they may not be read */
function foreignConfigurations(others: readonly string[] | undefined): string {
  if (others === undefined) return 'its kvstore does not contain its configuration';
  const names = others.map((name) => (isClusterName(name) ? name : showValue(name)));
  return `its kvstore does not contain its configuration, only that of ${listText(names, MAX_OTHERS)}: check the name`;
}

/** Enters a phase, which begins with one effect. Earlier effects become stale. */
function enter(
  state: ClusterState,
  phase: ClusterPhase,
  effect: ClusterEffect,
  change: Partial<ClusterState> = {},
): ClusterStep {
  return {
    state: { ...state, next: undefined, ...change, phase, attempt: state.attempt + 1 },
    effects: [effect],
  };
}

/** Returns a step without a new effect, so that the current one continues. */
function stay(state: ClusterState): ClusterStep {
  return { state, effects: [] };
}

/** Ends the current effect, then enters `next`. */
function leave(state: ClusterState, next: Destination, change: Partial<ClusterState> = {}): ClusterStep {
  const closeClient = next === 'connecting' || next === 'stopped' || next === 'removed';
  const hasClient = state.hasClient && !closeClient;
  return enter(state, 'leaving', { do: 'leave', closeClient }, { ...change, next, hasClient });
}

/** Counts a failure, ends the current effect, and retries after a backoff. */
function fail(
  state: ClusterState,
  reason: FailureReason,
  pendingWithdrawal: ClusterState['pendingWithdrawal'] = state.pendingWithdrawal,
): ClusterStep {
  return leave(state, 'failed', {
    ...failureFields(state, reason),
    streak: state.streak + 1,
    pendingWithdrawal,
  });
}

function failureFields({ failures }: ClusterState, lastFailure: FailureReason): Partial<ClusterState> {
  return { failures: failures + 1, lastFailure };
}

/** Returns true if the cluster is stopped or removed, or soon will be. A stopped cluster can still be removed. */
function isEnding({ phase, next }: ClusterState): boolean {
  return phase === 'stopped' || phase === 'removed' || next === 'stopped' || next === 'removed';
}

/** Continues with `next`, after pending withdrawals. */
function proceed(state: ClusterState, next: Destination): ClusterStep {
  if (state.pendingWithdrawal === 'nothing' || next === 'stopped') return start(state, next);
  return enter(state, 'draining', { do: 'withdraw', scope: state.pendingWithdrawal }, { next });
}

/** Enters `next`; `connecting` instead of `handshake` if there is no client. */
function start(state: ClusterState, next: Destination): ClusterStep {
  switch (next) {
    case 'connecting':
      return enter(state, 'connecting', { do: 'connect' });
    case 'handshake':
      return state.hasClient
        ? enter(state, 'handshake', { do: 'read-config' })
        : enter(state, 'connecting', { do: 'connect' });
    case 'watching':
      return enter(
        state,
        'watching',
        { do: 'follow', ...followOptions(state) },
        // The services are followed again, unless the configuration is still gone.
        { expired: state.expired && state.found === 'gone' },
      );
    case 'unconfigured':
      return enter(state, 'unconfigured', { do: 'await-config' });
    case 'failed':
      return enter(state, 'failed', { do: 'wait', streak: state.streak });
    case 'stopped':
    case 'removed':
      return { state: { ...state, phase: next, next: undefined }, effects: [] };
  }
}

/**
 * Returns how to follow a cluster. A remote cluster with canaries is complete only when they exist. The local cluster
 * needs them only while it is `unproven`.
 */
function followOptions({ config, local, found, unproven, failStatic, expired }: ClusterState): ClusterFollow {
  const follow: ClusterFollow = {
    config,
    needsCanaries: false,
    deletes: 'all',
    isRefilling: false,
    followsServices: !expired || found !== 'gone',
    endsAtOthers: found === 'none' && !local,
  };
  if (!failStatic) return follow;
  if (found === 'gone') return { ...follow, deletes: 'none' };
  const needsCanaries = config?.capabilities.syncedCanaries === true && (!local || unproven);
  if (config !== undefined) return { ...follow, needsCanaries, deletes: 'proven' };
  return { ...follow, isRefilling: local && unproven };
}

/** Decides the next step after a handshake. */
function afterHandshake(state: ClusterState, { config, replaced, others }: ConfigReading): ClusterStep {
  const unproven = state.unproven || replaced;
  if (config !== undefined)
    return enter(state, 'validating', { do: 'validate', config }, { config, found: 'read', unproven });
  // A cluster that once had a configuration is not from before 1.13. If its (empty) kvstore counted as complete, all
  // valid state would be deleted.
  const gone = state.config !== undefined && state.failStatic;
  // If the configurations of others may not be read, this Cilium is so new that each cluster writes a configuration.
  const foreign = others?.length === 0 ? 'none' : 'others';
  const found: ClusterState['found'] = gone ? 'gone' : foreign;
  const failure =
    found === 'none' || found === state.found
      ? {}
      : failureFields(state, {
          code: 'no-configuration',
          message: found === 'gone' ? CONFIGURATION_DELETED : foreignConfigurations(others),
        });
  const updated: ClusterState = { ...state, ...failure, found, unproven: unproven || gone };
  if (state.local) return start(updated, 'watching');
  // The keys that were followed without a configuration may be those of a cluster that has one now.
  if (state.found === 'none' && !state.needsConfig && !replaced && others !== undefined && found === 'others')
    return proceed({ ...updated, pendingWithdrawal: 'everything' }, 'unconfigured');
  if (gone && isVerifiable(updated, others)) return proceed(updated, 'watching');
  if (found !== 'none' || state.needsConfig) return start(updated, 'unconfigured');
  return enter(updated, 'validating', { do: 'validate', config });
}

/**
 * Returns true if additions and changes can be followed while the configuration is gone. A publisher may write its
 * configuration minutes after its other keys. Values are checked against the cluster's former id. If the kvstore has
 * configurations of other clusters and is not a cache, this check is not enough, because values with reserved
 * identities contain no id. If the user may read only the configuration of this cluster, the kvstore belongs to it.
 */
function isVerifiable(
  { config, wasComplete, needsConfig }: ClusterState,
  others: readonly string[] = [],
): boolean {
  if (config === undefined || config.id === 0 || !wasComplete || needsConfig) return false;
  return config.capabilities.cached || others.length === 0;
}

/** Accepts a cluster as part of the mesh. If its id changed, everything read under the former id is withdrawn first. */
function accept(state: ClusterState): ClusterStep {
  const id = state.local ? 0 : (state.config?.id ?? 0);
  const pendingWithdrawal =
    state.id !== 0 && id !== 0 && id !== state.id ? 'everything' : state.pendingWithdrawal;
  return proceed({ ...state, id, pendingWithdrawal }, 'watching');
}

/**
 * Continues after a withdrawal. If everything was withdrawn and the cluster is not followed next, its id becomes free.
 */
function afterWithdrawal(state: ClusterState): ClusterStep {
  const { pendingWithdrawal, next = 'handshake' } = state;
  const isEmpty = pendingWithdrawal === 'everything';
  const forget = isEmpty && next !== 'watching' ? { id: 0, config: undefined } : {};
  const wasComplete = state.wasComplete && !isEmpty;
  return start({ ...state, ...forget, wasComplete, pendingWithdrawal: 'nothing' }, next);
}

/** Processes an answer if the current phase expects it. Ignores it otherwise. */
function afterAnswer(state: ClusterState, input: ClusterAnswer): ClusterStep {
  const { phase } = state;
  const isFollowing = phase === 'watching' || phase === 'unconfigured';
  switch (input.type) {
    case 'connected':
      if (phase !== 'connecting') break;
      return start({ ...state, hasClient: true }, 'handshake');
    case 'config':
      if (phase !== 'handshake') break;
      return afterHandshake(state, input);
    case 'validated':
      if (phase !== 'validating') break;
      return input.objection === undefined
        ? accept(state)
        : fail(state, { code: 'invalid', message: input.objection }, 'everything');
    case 'drained':
      if (phase !== 'draining') break;
      return afterWithdrawal(state);
    case 'complete':
      if (phase !== 'watching') break;
      // While the kvstore is being refilled, a complete list proves nothing.
      return stay({
        ...state,
        unproven: state.unproven && followOptions(state).isRefilling,
        wasComplete: true,
        streak: 0,
      });
    case 'refilled':
      if (phase !== 'watching') break;
      return leave(state, 'handshake', { unproven: false });
    case 'outdated':
      if (!isFollowing) break;
      return leave(state, 'handshake', { unproven: state.unproven || input.diverged });
    case 'failed':
      if (phase !== 'connecting' && phase !== 'handshake' && !isFollowing) break;
      return fail(state, input.reason);
    case 'left':
      if (phase !== 'leaving') break;
      return proceed(state, state.next ?? 'stopped');
    case 'retry':
      if (phase !== 'failed') break;
      return start(state, 'handshake');
  }
  return stay(state);
}

/**
 * The phase to enter after the services were withdrawn, by interrupted phase. Other phases are not interrupted.
 */
const RESUME_AT: Readonly<Partial<Record<ClusterPhase, Destination>>> = {
  connecting: 'connecting',
  handshake: 'handshake',
  validating: 'handshake',
  watching: 'handshake',
  unconfigured: 'unconfigured',
  failed: 'failed',
};

/** Starts the withdrawal of the services. Ends all readers, so that the services are listed again afterwards. */
function expire(state: ClusterState): ClusterStep {
  if (state.expired || isEnding(state)) return stay(state);
  const change = {
    expired: true,
    pendingWithdrawal: state.pendingWithdrawal === 'everything' ? state.pendingWithdrawal : 'services',
  } as const;
  const next = RESUME_AT[state.phase];
  return next === undefined ? stay({ ...state, ...change }) : leave(state, next, change);
}

/**
 * Returns the next state and effects of a cluster. Pure. README.md in this folder has a drawing. At most one effect
 * runs at a time.
 */
export function stepCluster(state: ClusterState, input: ClusterInput): ClusterStep {
  switch (input.type) {
    case 'connect':
      return isEnding(state) ? stay(state) : leave(state, 'connecting', { streak: 0 });
    case 'stop':
      return isEnding(state) ? stay(state) : leave(state, 'stopped');
    case 'remove':
      if (state.phase === 'removed' || state.next === 'removed') return stay(state);
      return leave(state, 'removed', { pendingWithdrawal: 'everything' });
    case 'expired':
      return expire(state);
    default:
      return input.attempt === state.attempt ? afterAnswer(state, input) : stay(state);
  }
}
