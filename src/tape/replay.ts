import type { Rejection } from '../base/rejection.ts';
import { ClaimDigest } from '../compare/claim-digest.ts';
import { DIGEST_VERSION } from '../compare/digest-sums.ts';
import { IPCache } from '../ipcache/ipcache.ts';
import { NodeManager } from '../nodemanager/node-manager.ts';
import { ServiceCache } from '../servicecache/service-cache.ts';
import { ReplayClock } from './replay-clock.ts';
import { ReplayedCluster } from './replayed-cluster.ts';
import { ReplayedKubernetes } from './replayed-kubernetes.ts';
import type { TapeLine } from './tape-line.ts';
import type { TapeSettings } from './tape-settings.ts';

/** Maximum number of keys reported if a digest differs. */
const REPORTED_KEYS = 10;
/** Number of recent keys that are kept when older ones are dropped. */
const RECENT_KEYS = 4096;

/** A digest unlike that of the recorded agent. */
export interface DigestDifference {
  /** The writers of the compared claims: see `GroupDigest`. */
  readonly writer: string;
  readonly recorded: string | undefined;
  readonly replayed: string | undefined;
  /** The last ten keys of the cluster, or Kubernetes objects, on the tape since the last equal digest, newest first. */
  readonly keys: readonly string[];
}

/**
 * Applies the lines of a tape to new engines, with the clock of the tape. Opens no file or connection and calls no
 * handler.
 */
export class TapeReplay {
  readonly clock: ReplayClock = new ReplayClock();
  readonly ipcache: IPCache;
  readonly services: ServiceCache;
  readonly nodes: NodeManager;
  readonly clusters: Map<string, ReplayedCluster> = new Map();
  readonly settings: TapeSettings;
  /**
   * True if the state is that of the agent at the last line. Set it to false if the following lines are a snapshot and
   * the replay has no state yet. It stays false until the end of the snapshot; digests are not compared until then.
   */
  isComplete = true;
  /**
   * The version of the digests of the tape if it is not that of this program; 0 if the tape does not name it. The
   * digests are then not compared.
   */
  skippedDigestVersion: number | undefined;
  readonly #onReject: (rejection: Rejection) => void;
  #kubernetes: ReplayedKubernetes | undefined;
  readonly #digest: ClaimDigest;
  /** Keys and objects of the lines since the last equal digest, oldest first. */
  readonly #recent: { readonly store: string; readonly key: string }[] = [];

  constructor(settings: TapeSettings, onReject: (rejection: Rejection) => void = () => {}) {
    const { clusterName, nodeName, network } = settings;
    const { clock } = this;
    const random = (): number => 0.5;
    this.settings = settings;
    this.#onReject = onReject;
    this.ipcache = new IPCache({ onReject });
    this.services = new ServiceCache({ clusterName, nodeName, onReject, nodePort: { enabled: true } });
    this.nodes = new NodeManager({
      ...network,
      ipcache: this.ipcache,
      clock,
      random,
      clusterName,
      nodeName,
      localNodeIsHost: true,
      onReject,
    });
    this.#digest = new ClaimDigest({ ipcache: this.ipcache });
  }

  /**
   * Applies a line. Returns a difference if the line is a differing digest. Returns a promise if the line is applied
   * asynchronously.
   */
  apply(line: TapeLine): DigestDifference | undefined | Promise<void> {
    if (line.ms > this.clock.now()) this.clock.advanceTo(line.ms);
    switch (line.ev) {
      case 'tape':
        this.clock.wallOffset = line.wall;
        this.skippedDigestVersion = line.digests === DIGEST_VERSION ? undefined : (line.digests ?? 0);
        return undefined;
      case 'clock':
        this.clock.wallOffset = line.wall;
        return undefined;
      case 'whole': // the end of a snapshot
        this.isComplete = true;
        return undefined;
      case 'digest':
        return this.isComplete && this.skippedDigestVersion === undefined
          ? this.#compare(line.sums)
          : undefined;
      case 'complete': // the end of the agent's initial sync
        this.services.markSynced();
        return undefined;
      case 'snapshot':
      case 'note':
      case 'cut':
        return undefined;
      default:
        this.#remember(line);
        // If the state is complete, snapshots contain nothing new.
        if (this.isComplete && 'snap' in line && line.snap === 1) return undefined;
        if ('store' in line) return this.#clusterOf(line.store).apply(line);
        if (line.ev === 'kubernetes') this.#followKubernetes(line.clusterID);
        else this.#kubernetes?.apply(line);
        return undefined;
    }
  }

  /** Adds the key or the object of a line to `#recent`. */
  #remember(line: TapeLine): void {
    if (this.#recent.length > 2 * RECENT_KEYS) this.#recent.splice(0, RECENT_KEYS);
    if ('key' in line) this.#recent.push({ store: line.store, key: line.key });
    else if (line.ev === 'object' || line.ev === 'gone') {
      const { namespace, name } = line.object.metadata;
      const key = `${line.kind} ${namespace === undefined ? '' : `${namespace}/`}${name}`;
      this.#recent.push({ store: '', key });
    }
  }

  async close(): Promise<void> {
    for (const cluster of this.clusters.values()) await cluster.stop();
    await this.#kubernetes?.close();
    this.nodes.close();
    this.#digest.stop();
  }

  #followKubernetes(clusterID: number): void {
    const { settings, ipcache, services, nodes, clock } = this;
    if (settings.kubernetes === undefined) return;
    const context = { clock, onReject: this.#onReject, engines: { ipcache, services, nodes } };
    this.#kubernetes ??= new ReplayedKubernetes(settings, settings.kubernetes, clusterID, context);
  }

  #clusterOf(name: string): ReplayedCluster {
    let cluster = this.clusters.get(name);
    if (cluster === undefined) {
      const { ipcache, services, nodes } = this;
      cluster = new ReplayedCluster({
        name,
        settings: this.settings,
        engines: { ipcache, services, nodes },
        onReject: this.#onReject,
      });
      this.clusters.set(name, cluster);
    }
    return cluster;
  }

  #compare(sums: Readonly<Record<string, string>>): DigestDifference | undefined {
    for (const _ of this.#digest.read()); // runs all steps of the update
    const replayed = new Map(this.#digest.groups().map(({ writer, sum }) => [writer, sum]));
    const writers = new Set([...Object.keys(sums), ...replayed.keys()]);
    for (const writer of writers) {
      const recorded = Object.hasOwn(sums, writer) ? sums[writer] : undefined;
      if (recorded === replayed.get(writer) || !isTaped(writer)) continue;
      const recentKeys = this.#recent
        .filter(({ store }) => store === this.#storeOf(writer))
        .map(({ key }) => key);
      const keys = [...new Set(recentKeys.reverse())].slice(0, REPORTED_KEYS);
      return { writer, recorded, replayed: replayed.get(writer), keys };
    }
    this.#recent.length = 0;
    return undefined;
  }

  /** Returns the cluster whose kvstore has the claims of a group; the empty text if Kubernetes has them. */
  #storeOf(writer: string): string {
    const [source, cluster = ''] = writer.split(' ');
    if (source === 'clustermesh') return cluster;
    return source === 'kvstore' ? this.settings.clusterName : '';
  }
}

/** Returns true if the tape contains the input for all claims of a group. */
function isTaped(writer: string): boolean {
  return /^(kvstore|clustermesh|k8s|custom-resource)( |$)/.test(writer);
}
