import type { Failure } from '../base/failure.ts';
import type { ClusterConfig } from '../kvstore/codec/cluster-config.ts';

/** Phase of a cluster while it is followed (SEMANTICS 6); `src/clustermesh/README.md` has a drawing. */
export type ClusterPhase =
  /** Nothing has been requested yet. */
  | 'idle'
  /** The kvstore client is being created. */
  | 'connecting'
  /** The configuration is being read. */
  | 'handshake'
  /** The configuration has been read, and is checked against the mesh. */
  | 'validating'
  /** Pending withdrawals are running. */
  | 'draining'
  /** The resources are followed. */
  | 'watching'
  /**
   * The kvstore has no configuration of the cluster. Nothing is followed until it has one, because values cannot be
   * checked.
   */
  | 'unconfigured'
  /** An earlier phase failed. It is retried after a backoff. */
  | 'failed'
  /** Running tasks are being ended, so that they cannot interfere with the next phase. */
  | 'leaving'
  | 'stopped'
  | 'removed';

/** Phase after `leaving` and `draining`. */
export type Destination = Exclude<ClusterPhase, 'idle' | 'validating' | 'draining' | 'leaving'>;

/** State to withdraw before anything else starts. */
export type Withdrawal = 'nothing' | 'services' | 'everything';

/** How to follow a cluster's resources. */
export interface ClusterFollow {
  readonly config: ClusterConfig | undefined;
  /** If true, a resource is followed only when its canary exists. */
  readonly needsCanaries: boolean;
  /**
   * The applied deletes, including those of keys missing in a complete list. `proven`: only a delete at whose revision
   * the configuration was still the one of the handshake (`DeleteGuard`); `all`: every delete, because the cluster has
   * no configuration to check, or because fail static is off; `none`: no delete, because the configuration is gone.
   */
  readonly deletes: 'proven' | 'all' | 'none';
  /** If true, complete lists delete nothing, because the kvstore is being refilled. The input `refilled` ends this. */
  readonly isRefilling: boolean;
  /**
   * If false, services and service exports are not followed, because they have expired and the configuration is still
   * gone.
   */
  readonly followsServices: boolean;
  /**
   * If true, following ends when the kvstore has the configuration of another cluster. This cluster has none, so its
   * keys may be those of the other one.
   */
  readonly endsAtOthers: boolean;
}

/** State of the cluster state machine, as plain data. */
export interface ClusterState {
  readonly phase: ClusterPhase;
  /** Number of the current effect. Answers to earlier effects are ignored. */
  readonly attempt: number;
  /** Destination of `leaving` and `draining`. */
  readonly next: Destination | undefined;
  /** True for the local cluster. It is followed without its configuration, too, and claims no id. */
  readonly local: boolean;
  /** If false, all content of the local kvstore is trusted. Remote clusters always fail static. */
  readonly failStatic: boolean;
  /** If true, the cluster is not followed without a configuration, even if it never had one. */
  readonly needsConfig: boolean;
  /** True if there is a client. If not, a retry connects first. */
  readonly hasClient: boolean;
  /** Cluster id under which the current state was read; 0 if there is none. No other cluster may have this id. */
  readonly id: number;
  /**
   * The last read configuration; undefined for clusters older than 1.13. It belongs to the cluster, not to a
   * connection: if a cluster once had a configuration, it is expected to have one in any later kvstore.
   */
  readonly config: ClusterConfig | undefined;
  /**
   * The configurations found by the last handshake. `read`: that of the cluster. `gone`: none of the cluster,
   * although it once had one. `others`: none of the cluster, but of other clusters, or those may not be read. `none`:
   * none at all. Undefined before the first handshake.
   */
  readonly found: 'none' | 'read' | 'gone' | 'others' | undefined;
  /** True if the kvstore was replaced or lost the configuration, and has not been proven complete since. */
  readonly unproven: boolean;
  /** True if every resource has been complete since everything was last withdrawn. */
  readonly wasComplete: boolean;
  readonly pendingWithdrawal: Withdrawal;
  /** True if the services were withdrawn, or will be, because of the service TTL. */
  readonly expired: boolean;
  /** Number of failures since the cluster was last complete: the exponent of the backoff. */
  readonly streak: number;
  readonly failures: number;
  readonly lastFailure: FailureReason | undefined;
}

/** A failure without its time, which the state machine does not know. */
export type FailureReason = Pick<Failure, 'code' | 'message'>;

/** The answer to an effect. */
export type ClusterAnswer =
  | { readonly type: 'connected' | 'drained' | 'left' | 'retry' }
  | ({ readonly type: 'config' } & ConfigReading)
  /** `objection` is the reason why the cluster may not be part of the mesh. */
  | { readonly type: 'validated'; readonly objection: string | undefined }
  /** Every resource has been listed and the resulting deletes have been applied. */
  | { readonly type: 'complete' }
  /** The time to refill a kvstore without canaries is over. */
  | { readonly type: 'refilled' }
  /** The configuration differs from the handshake, or the kvstore was replaced (`diverged`). */
  | { readonly type: 'outdated'; readonly diverged: boolean }
  | { readonly type: 'failed'; readonly reason: FailureReason };

/** An input of the state machine. An answer has the number of the attempt whose effect it answers. */
export type ClusterInput =
  | (ClusterAnswer & { readonly attempt: number })
  /** Follow the cluster with a new client. */
  | { readonly type: 'connect' }
  /** The services were not followed for the service TTL. */
  | { readonly type: 'expired' }
  | { readonly type: 'stop' | 'remove' };

/** Result of a handshake. */
export interface ConfigReading {
  readonly config: ClusterConfig | undefined;
  /** True if the kvstore is known to be replaced or restored since the last handshake. */
  readonly replaced: boolean;
  /**
   * If there is no configuration: the clusters with a configuration in the kvstore; undefined if they may not be read.
   */
  readonly others: readonly string[] | undefined;
}

/** An effect to perform. Every effect is answered by an input of its attempt. */
export type ClusterEffect =
  /** Create a client → `connected`, `failed`. */
  | { readonly do: 'connect' }
  /** Read the configuration → `config`, `failed`. */
  | { readonly do: 'read-config' }
  /** Check immediately if the cluster may be part of the mesh → `validated`. */
  | { readonly do: 'validate'; readonly config: ClusterConfig | undefined }
  /** Withdraw state → `drained`. */
  | { readonly do: 'withdraw'; readonly scope: Exclude<Withdrawal, 'nothing'> }
  /** Follow every resource → `complete`, `refilled`, and finally `outdated` or `failed`. */
  | ({ readonly do: 'follow' } & ClusterFollow)
  /** Wait until the kvstore has a configuration → `outdated`, `failed`. */
  | { readonly do: 'await-config' }
  /** End running tasks; with `closeClient`, close the client, too → `left`. */
  | { readonly do: 'leave'; readonly closeClient: boolean }
  /** Wait → `retry`. */
  | { readonly do: 'wait'; readonly streak: number };

/** The next state and its effects. */
export interface ClusterStep {
  readonly state: ClusterState;
  readonly effects: readonly ClusterEffect[];
}

/** Initial state of a remote cluster. */
export const NEW_CLUSTER: ClusterState = {
  phase: 'idle',
  attempt: 0,
  next: undefined,
  local: false,
  failStatic: true,
  needsConfig: false,
  hasClient: false,
  id: 0,
  config: undefined,
  found: undefined,
  unproven: false,
  wasComplete: false,
  pendingWithdrawal: 'nothing',
  expired: false,
  streak: 0,
  failures: 0,
  lastFailure: undefined,
};
