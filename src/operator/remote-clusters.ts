import { type Failure, laterFailure } from '../base/failure.ts';
import { fired } from '../base/follow-signal.ts';
import { CallbackSet } from '../base/listener-set.ts';
import { type Rejection, rejection } from '../base/rejection.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { ClusterMesh } from '../clustermesh/cluster-mesh.ts';
import type { OnClusterChange, RemoteClusterStatus } from '../clustermesh/cluster-status.ts';
import { ConfigFollower, type ConfigSource } from '../clustermesh/config-follower.ts';
import type { MeshEngines } from '../clustermesh/engines.ts';
import type { Duty, DutyState, DutyStatus } from './duty.ts';
import type { DutyContext } from './duty-report.ts';
import type { KeyOwner } from './publish/mesh-keys.ts';

export interface RemoteClustersOptions extends KeyOwner, DutyContext {
  /** One configuration per cluster. */
  readonly source: ConfigSource;
  /** See `ClusterMeshOptions`. */
  readonly serviceTTLMs?: number | undefined;
  readonly onReject: (rejection: Rejection) => void;
}

/**
 * State of a remote cluster. `complete`: all of its keys have been received. `gone`: no file has its name. `expired`:
 * its services were withdrawn after the service TTL. `incomplete`: any of its keys may be missing.
 */
export type RemoteState = 'complete' | 'incomplete' | 'expired' | 'gone';

/**
 * Follows the remote clusters of the mesh, once for all duties. Connects to the clusters only while
 * `run` runs, so that only the leader is connected.
 */
export class RemoteClusters implements Duty {
  readonly name = 'remote-clusters';
  readonly #options: RemoteClustersOptions;
  readonly #listeners = new CallbackSet<string>();
  #engines: MeshEngines = { identities: false };
  #state: DutyState = 'waiting';
  #mesh: ClusterMesh | undefined;
  #configs: ConfigFollower | undefined;

  constructor(options: RemoteClustersOptions) {
    this.#options = options;
  }

  /** Adds engines as receivers of the state of all clusters. Call it before the run, and only once for each engine. */
  feed(engines: MeshEngines): void {
    this.#engines = { ...this.#engines, ...engines };
  }

  /**
   * Calls `callback` with the name of a cluster when its state may have changed, and with an empty name when the state
   * of any cluster may have changed.
   */
  onChange(callback: OnClusterChange): Unsubscribe {
    return this.#listeners.subscribe(callback);
  }

  /** Names of the clusters with a configuration, usable or not. Undefined before the configurations have been read. */
  get names(): readonly string[] | undefined {
    const mesh = this.#mesh;
    const configs = this.#configs?.status();
    if (mesh === undefined || configs?.listed !== true) return undefined;
    const unusable = Object.keys(configs.problems).filter((name) => mesh.check(name) === undefined);
    return [...new Set([...mesh.names, ...unusable])];
  }

  /**
   * Returns the state of a cluster. A cluster is not `gone` before the configurations have been read, or while a file
   * has its name. This includes files without `endpoints:`, because a configuration may be half-written.
   */
  stateOf(cluster: string): RemoteState {
    const progress = this.#mesh?.progressOf(cluster);
    if (progress?.synced === true) return 'complete';
    if (this.statusOf(cluster)?.servicesExpired === true) return 'expired';
    if (progress !== undefined) return 'incomplete';
    const mayHaveFile = cluster !== this.#options.clusterName && this.#configs?.mayContain(cluster) !== false;
    return mayHaveFile ? 'incomplete' : 'gone';
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clusterName, clusterID, maxConnectedClusters, serviceTTLMs, source } = this.#options;
    const { clock, random, gate, onReject } = this.#options;
    const mesh = new ClusterMesh({
      ...this.#engines,
      clusterName,
      clusterID,
      maxConnectedClusters,
      serviceTTLMs,
      serviceV2: 'slices',
      needsConfig: true, // an empty kvstore must not delete what an earlier operator wrote
      clock,
      random,
      gate,
      onReject,
    });
    const onProblem = (name: string, reason: string): void =>
      onReject(rejection('unusable-config', 'file', name, reason, 'the configurations of remote clusters'));
    // The mesh does not report a cluster that it did not follow, so each scan counts as a change of any cluster.
    const onScan = (): void => this.#listeners.call('');
    const configs = new ConfigFollower({ source, mesh, clock, onProblem, onScan });
    this.#mesh = mesh;
    this.#configs = configs;
    this.#state = 'running';
    const leave = mesh.onChange((name) => this.#listeners.call(name));
    // The first list may hang, for example that of a folder in a network file system.
    await Promise.race([configs.start(), fired(signal)]);
    await fired(signal);
    await configs.stop();
    await mesh.stop();
    leave();
    this.#state = 'ended';
  }

  status(): DutyStatus {
    const clusters = this.clusters();
    const isComplete = this.#configs?.status().listed === true && clusters.every(({ ready }) => ready);
    let last: Failure | undefined;
    for (const { name, lastFailure } of clusters)
      last = laterFailure(
        last,
        lastFailure && { ...lastFailure, message: `cluster ${name}: ${lastFailure.message}` },
      );
    return {
      name: this.name,
      state: this.#state === 'running' && !isComplete ? 'waiting' : this.#state,
      failures: clusters.reduce((sum, { failures }) => sum + failures, 0),
      lastFailure: last,
    };
  }

  /** Returns the status of a cluster; undefined if it is not followed. */
  statusOf(cluster: string): RemoteClusterStatus | undefined {
    return this.#mesh?.statusOf(cluster);
  }

  /** Returns the status of each cluster, by name, ascending. */
  clusters(): readonly RemoteClusterStatus[] {
    return this.#mesh?.status().clusters ?? [];
  }
}
