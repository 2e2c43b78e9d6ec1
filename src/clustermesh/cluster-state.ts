import type { ClusterConfig } from '../kvstore/codec/cluster-config.ts';

/** Where a cluster is in its life (SEMANTICS 6); drawn in the README of this room. */
export type ClusterPhase =
  /** Nothing has been asked for yet. */
  | 'idle'
  /** Its kvstore's client is being made. */
  | 'connecting'
  /** Its configuration is being read. */
  | 'handshake'
  /** The configuration has been read; may a cluster with this configuration be part of this mesh? */
  | 'validating'
  /** What is owed is being withdrawn. */
  | 'draining'
  /** Its resources are followed. */
  | 'watching'
  /** Its kvstore has no configuration of it: nothing is followed and nothing withdrawn until there is one. */
  | 'unconfigured'
  /** Something of the above failed; tried again after a backoff. */
  | 'failed'
  /** What was under way is being ended, so that it cannot interfere with what follows. */
  | 'leaving'
  | 'stopped'
  | 'removed';

/** What comes after `leaving` and `draining`. */
export type Destination =
  | 'connecting'
  | 'handshake'
  | 'watching'
  | 'unconfigured'
  | 'failed'
  | 'stopped'
  | 'removed';

/** What has to be withdrawn before anything else is begun. */
export type Owed = 'nothing' | 'services' | 'everything';

/** How to follow a cluster's resources. */
export interface ClusterFollow {
  readonly config: ClusterConfig | undefined;
  /** Follow a resource only once its canary is there. */
  readonly canaries: boolean;
  /**
   * Which deletes are believed, and sweeps of what a complete list does not show. `proven`: those before the
   * configuration that the handshake read went; `all`: there is no configuration that could prove anything; `none`: the
   * configuration is gone.
   */
  readonly deletes: 'proven' | 'all' | 'none';
  /** A complete list takes nothing away: the kvstore is being filled. `refilled` is answered when it has had the time. */
  readonly refill: boolean;
}

/** A cluster's state, as plain data. */
export interface ClusterState {
  readonly phase: ClusterPhase;
  /** Grows whenever something is begun or ended; answers of an earlier attempt are stale and ignored. */
  readonly attempt: number;
  /** While `leaving` or `draining`. */
  readonly next: Destination | undefined;
  /** The own cluster is followed without its configuration, too, and has no id among its claims. */
  readonly own: boolean;
  /** Without, the own kvstore is believed whatever it shows. Remote clusters always fail static. */
  readonly failStatic: boolean;
  /** It is not followed without a configuration, not even one that never had any. */
  readonly needsConfig: boolean;
  /** Whether there is a client: without one, a retry has to connect first. */
  readonly hasClient: boolean;
  /** The id under which what is held was read, and which no other cluster may have; 0: none. */
  readonly id: number;
  /**
   * The configuration that was read last; undefined in clusters older than 1.13. It belongs to the cluster, not to a
   * connection: a cluster that once had one is known to have one, wherever it is read from next.
   */
  readonly config: ClusterConfig | undefined;
  /**
   * Of the kvstore that was read last: whether it has a configuration of the cluster (`read`), has none though the
   * cluster had one (`gone`), has only those of other clusters (`others`), or none at all (`none`).
   */
  readonly found: 'none' | 'read' | 'gone' | 'others';
  /** The kvstore was replaced or has lost the configuration, and has not proven since that it is complete. */
  readonly unproven: boolean;
  readonly owed: Owed;
  /** Services of a cluster that could not be reached for long have been withdrawn. */
  readonly expired: boolean;
  /** Failures since it was last watching: the exponent of the backoff. */
  readonly streak: number;
  readonly failures: number;
  readonly lastFailure: string | undefined;
}

/** What happens to a cluster. Inputs with an `attempt` answer an effect of that attempt. */
export type ClusterInput =
  /** Follow it, on a new client. */
  | { readonly type: 'connect' }
  | { readonly type: 'connected'; readonly attempt: number }
  | ({ readonly type: 'config'; readonly attempt: number } & ConfigReading)
  /** `objection`: why it may not be part of the mesh. */
  | { readonly type: 'validated'; readonly attempt: number; readonly objection: string | undefined }
  | { readonly type: 'drained'; readonly attempt: number }
  /** Every resource has been listed, and swept as far as it is to be. */
  | { readonly type: 'complete'; readonly attempt: number }
  /** The time within which a kvstore without canaries is filled again is over. */
  | { readonly type: 'refilled'; readonly attempt: number }
  /** The configuration is not the one that was read; or the kvstore is another one: `diverged`. */
  | { readonly type: 'outdated'; readonly attempt: number; readonly diverged: boolean }
  | { readonly type: 'failed'; readonly attempt: number; readonly message: string }
  | { readonly type: 'left'; readonly attempt: number }
  | { readonly type: 'retry'; readonly attempt: number }
  /** It has not been reached for longer than its services may live. */
  | { readonly type: 'expired' }
  | { readonly type: 'stop' }
  | { readonly type: 'remove' };

/** What a handshake has found. */
export interface ConfigReading {
  readonly config: ClusterConfig | undefined;
  /** Whether the kvstore is known to be another one than was last followed, or another past of it. */
  readonly replaced: boolean;
  /** Where there is no configuration: the clusters of which the kvstore has one. */
  readonly others: readonly string[];
}

/** What is to be done. Every effect is answered by an input of its attempt. */
export type ClusterEffect =
  /** Make a client → `connected`, `failed`. */
  | { readonly do: 'connect' }
  /** Read the configuration → `config`, `failed`. */
  | { readonly do: 'read-config' }
  /** Ask whether the cluster may be part of the mesh, at once → `validated`. */
  | { readonly do: 'validate'; readonly config: ClusterConfig | undefined }
  /** Withdraw what was read → `drained`. */
  | { readonly do: 'withdraw'; readonly what: Exclude<Owed, 'nothing'> }
  /** Follow every resource → `complete`, `refilled`, and at the end `outdated`, `failed`. */
  | ({ readonly do: 'follow' } & ClusterFollow)
  /** Wait until the kvstore has a configuration → `outdated`, `failed`. */
  | { readonly do: 'await-config' }
  /** End what is under way; with `hangUp` the client too → `left`. */
  | { readonly do: 'leave'; readonly hangUp: boolean }
  /** Wait → `retry`. */
  | { readonly do: 'wait'; readonly streak: number };

/** A state, and what it asks for. */
export interface ClusterStep {
  readonly state: ClusterState;
  readonly effects: readonly ClusterEffect[];
}

/** A remote cluster that has just become known. */
export const NEW_CLUSTER: ClusterState = {
  phase: 'idle',
  attempt: 0,
  next: undefined,
  own: false,
  failStatic: true,
  needsConfig: false,
  hasClient: false,
  id: 0,
  config: undefined,
  found: 'none',
  unproven: false,
  owed: 'nothing',
  expired: false,
  streak: 0,
  failures: 0,
  lastFailure: undefined,
};
