import {
  BOOLEAN,
  checkArgument,
  checkArguments,
  FUNCTION,
  LIST,
  NUMBER,
  objectWith,
  optional,
  optionsWith,
  POSITIVE,
  SIGNAL,
  TEXT,
} from '../base/arguments.ts';
import { assert } from '../base/assert.ts';
import { messageOf } from '../base/failure.ts';
import type { StateFile, StateFolder } from '../base/files/state-folder.ts';
import { type Rejection, rejection } from '../base/rejection.ts';
import { forEachInSteps, type TurnGate } from '../base/turn-gate.ts';
import type { Claim } from '../ipcache/types.ts';
import type { ClusterNode, NodeName } from '../model/cluster-node.ts';
import type { ClusterIdentity } from '../model/identity-cache.ts';
import type { Labels } from '../model/labels.ts';
import { ownerCluster } from '../model/source.ts';
import { ByteBuffer, DamagedError } from '../net/byte-buffer.ts';
import { isObject } from '../net/fields.ts';
import { clusterOfPart } from '../servicecache/service-parts.ts';
import {
  type CheckpointEngines,
  type CheckpointHeader,
  readCheckpointHeader,
  readIdentity,
  readRecords,
} from './checkpoint.ts';
import {
  CheckpointError,
  type CheckpointFault,
  openCheckpoint,
  readSections,
  removeUnfinished,
  SECTION,
  type Section,
  setAside,
} from './checkpoint-file.ts';
import { type CheckpointEntry, type PortSets, readEntry } from './entry-codec.ts';
import { NumberedTexts } from './numbered-texts.ts';
import { ServicePartReader } from './service-codec.ts';

/** Options of {@link Restoration}. */
export interface RestorationOptions extends CheckpointEngines {
  /** The folder of the checkpoint, such as {@link StateFiles}. */
  readonly folder: StateFolder;
  /** Name of the local cluster. A checkpoint of another cluster is not restored. */
  readonly clusterName: string;
  /** Splits the reading into short turns. */
  readonly gate: TurnGate;
  /** Maximum size of a checkpoint in bytes. A larger file is not read. Default 2 GiB: about 50 million entries. */
  readonly maxBytes?: number | undefined;
  /**
   * If true, `read` changes nothing in the folder, which another process may use: it keeps unfinished checkpoints, and
   * reports an unusable one as `unreadable` without renaming it. Default false.
   */
  readonly readOnly?: boolean | undefined;
  /** Receives every invalid record. The other records are restored. */
  readonly onReject?: ((rejection: Rejection) => void) | undefined;
}

/**
 * Result of reading the checkpoint at a start. `set-aside`: the checkpoint cannot be restored and was renamed.
 * `unreadable`: the file system returned an error, or the checkpoint cannot be restored and was not renamed. After
 * both, the agent starts without a checkpoint, and `message` has the reason.
 */
export type RestoreOutcome =
  | { readonly kind: 'none' }
  | {
      readonly kind: 'restored';
      readonly entries: number;
      readonly nodes: number;
      readonly services: number;
      readonly identities: number;
      readonly writtenAt: number;
    }
  | { readonly kind: 'set-aside'; readonly fault: CheckpointFault; readonly message: string }
  | { readonly kind: 'unreadable'; readonly message: string }
  /** The signal has fired; part of the checkpoint was restored. */
  | { readonly kind: 'interrupted' };

/**
 * The state that another program, such as a Cilium agent, has left on this machine. Except for the nodes, all of it
 * belongs to the local cluster. See {@link Restoration.adopt}.
 */
export interface ImportedState {
  readonly entries: readonly (Pick<Claim, 'identity' | 'k8s'> & { readonly ip: string })[];
  readonly nodes: readonly ClusterNode[];
  readonly identities: readonly { readonly identity: number; readonly labels: Labels }[];
  /** Wall time of the state. */
  readonly knownAt: number;
}

const MAX_BYTES: number = 2 ** 31;

/** Nodes or imported entries per step; about 10 µs each. */
const ITEMS_PER_STEP = 32;

/**
 * The part of a checkpoint that no source has confirmed or replaced yet: claims of source `restored` in the IPCache
 * (owner: the remote cluster, empty for the local cluster) and in the node manager, parts of services, and labels of
 * identities.
 *
 *     read() ─► restored ─► release(cluster), once its sources are complete ─► nothing
 *
 * Restored state is stored and released by cluster (AGENT 3). The state of the local cluster is released when all
 * sources of the local cluster are complete, so that nothing is missing if one source completes before another.
 */
export class Restoration {
  readonly #options: RestorationOptions;
  readonly #reject: (rejection: Rejection) => void;
  /** Time of the restored state by cluster. */
  readonly #knownAt = new Map<string, number>();
  readonly #identities = new Map<number, ClusterIdentity>();
  /** Restored identities by cluster, so that the release of a cluster does not scan all of them. */
  readonly #identitiesOf = new Map<string, number[]>();
  /** Names of the restored nodes by cluster. */
  readonly #nodeNames = new Map<string, string[]>();
  /** The running releases, by cluster. */
  readonly #releases = new Map<string, Promise<void>>();
  #clusterID = 0;

  constructor(options: RestorationOptions) {
    checkArgument('new Restoration: options', options, OPTIONS);
    this.#options = options;
    this.#reject = options.onReject ?? (() => {});
  }

  /**
   * Restores the checkpoint of the folder into the engines, if there is a usable one. Must be called once, before any
   * source is followed. Rejects only because of a bug. Works in slices and calls `onProgress` after each. Ends early if
   * `signal` fires.
   */
  async read(signal?: AbortSignal, onProgress: () => void = () => {}): Promise<RestoreOutcome> {
    const { folder, maxBytes = MAX_BYTES, readOnly = false } = this.#options;
    try {
      if (!readOnly) await removeUnfinished(folder);
      const opened = await openCheckpoint(folder, maxBytes);
      if (opened === undefined) return { kind: 'none' };
      try {
        const header = this.#checkHeader(opened.header);
        this.#clusterID = header.clusterID ?? 0;
        return await this.#readAll(opened.file, header, { signal, onProgress });
      } finally {
        await opened.file.close();
      }
    } catch (error) {
      await Promise.all(this.clusters.map((cluster) => this.release(cluster)));
      return error instanceof CheckpointError
        ? await this.#setAside(error)
        : { kind: 'unreadable', message: messageOf(error) };
    }
  }

  /**
   * Restores the state of another program instead of a checkpoint (AGENT 11, 13, 15, 20); it is released in the same
   * way. Must be called before any source is followed. Returns the numbers of accepted entries and nodes; the engines
   * reject invalid ones. Works in slices.
   */
  async adopt({ entries, nodes, identities, knownAt }: ImportedState): Promise<{
    readonly entries: number;
    readonly nodes: number;
  }> {
    const { clusterName, ipcache, gate } = this.#options;
    // Like that of a checkpoint written at this time.
    const header = { cluster: clusterName, writtenAt: knownAt, knownAt: new Map<string, number>() };
    const accepted = { entries: 0, nodes: 0 };
    await gate.runSteps(
      forEachInSteps(identities, gate.slice, ({ identity, labels }) =>
        this.#restoreIdentity({ identity, labels, cluster: clusterName }),
      ),
    );
    if (entries.length + identities.length > 0) this.#recordTime(clusterName, header);
    const restoreEntry = ({ ip, identity, k8s }: ImportedState['entries'][number]): void => {
      const claim = { identity, k8s, source: 'restored', owner: '' } as const;
      if (ipcache.upsert(ip, claim) !== 'invalid') accepted.entries++;
    };
    await gate.runSteps(forEachInSteps(entries, ITEMS_PER_STEP, restoreEntry));
    await gate.runSteps(
      forEachInSteps(nodes, ITEMS_PER_STEP, (node) => {
        if (this.#options.nodes.nodeUpdated({ ...node, source: 'restored' }) === 'invalid') return;
        this.#recordNode(node, header);
        accepted.nodes++;
      }),
    );
    return accepted;
  }

  /** The id of the local cluster in the checkpoint; 0 if it is unknown. */
  get clusterID(): number {
    return this.#clusterID;
  }

  /** Returns the clusters with restored state. */
  get clusters(): readonly string[] {
    return [...this.#knownAt.keys()];
  }

  /** Returns the wall time of the restored state of a cluster, or undefined if it has none. */
  knownAt(cluster: string): number | undefined {
    return this.#knownAt.get(cluster);
  }

  /** Returns the wall time of the restored state of each cluster that has some. */
  get knownTimes(): ReadonlyMap<string, number> {
    return this.#knownAt;
  }

  labelsOf(identity: number): Labels | undefined {
    return this.#identities.get(identity)?.labels;
  }

  clusterOf(identity: number): string | undefined {
    return this.#identities.get(identity)?.cluster;
  }

  /** Returns the restored identities. They may be released during the iteration. */
  identities(): Iterable<ClusterIdentity> {
    return this.#identities.values();
  }

  /**
   * Withdraws the restored state of a cluster in slices. Call it when the cluster's sources are complete, because
   * unconfirmed state is then outdated. Resolves when all of it is withdrawn. Changes nothing if the cluster has no
   * restored state. A second call during the withdrawal returns the same promise.
   */
  release(cluster: string): Promise<void> {
    const running = this.#releases.get(cluster);
    if (running !== undefined) return running;
    if (!this.#knownAt.has(cluster)) return Promise.resolve();
    const release = this.#release(cluster).finally(() => {
      this.#knownAt.delete(cluster);
      this.#releases.delete(cluster);
    });
    this.#releases.set(cluster, release);
    return release;
  }

  /** Withdraws only the restored service backends of a remote cluster that has been unreachable for too long. */
  async releaseOffers(cluster: string): Promise<void> {
    const { gate, services } = this.#options;
    if (this.#knownAt.has(cluster)) await gate.runSteps(services.withdrawRestoredSteps(cluster));
  }

  async #release(cluster: string): Promise<void> {
    const { ipcache, services, nodes, gate } = this.#options;
    await gate.runSteps(services.withdrawRestoredSteps(this.#ownerOf(cluster)));
    await gate.runSteps(ipcache.withdrawSteps({ source: 'restored', owner: this.#ownerOf(cluster) }));
    const names = this.#nodeNames.get(cluster) ?? [];
    this.#nodeNames.delete(cluster);
    await gate.runSteps(
      forEachInSteps(names, ITEMS_PER_STEP, (name) =>
        nodes.nodeDeleted({ cluster, name, source: 'restored' }),
      ),
    );
    const identities = this.#identitiesOf.get(cluster) ?? [];
    this.#identitiesOf.delete(cluster);
    const forget = (identity: number): void => {
      if (this.clusterOf(identity) === cluster) this.#identities.delete(identity);
    };
    await gate.runSteps(forEachInSteps(identities, gate.slice, forget));
  }

  #checkHeader(payload: Uint8Array): CheckpointHeader {
    const header = readCheckpointHeader(payload);
    if (!header.ok) throw new CheckpointError('foreign', header.rejection.message);
    const { clusterName } = this.#options;
    const { cluster } = header.value;
    if (cluster === clusterName) return header.value;
    throw new CheckpointError('foreign', `the state belongs to cluster ${cluster}, not to ${clusterName}`);
  }

  async #readAll(
    file: StateFile,
    header: CheckpointHeader,
    { signal, onProgress }: { readonly signal: AbortSignal | undefined; readonly onProgress: () => void },
  ): Promise<RestoreOutcome> {
    const { gate } = this.#options;
    const counts = { entries: 0, nodes: 0, services: 0, identities: 0 };
    const texts = new NumberedTexts();
    const portSets: PortSets = new Map();
    const parts = new ServicePartReader(this.#reject);
    for await (const section of readSections(file)) {
      const restore = (): void => this.#restoreSection(section, { header, counts, texts, portSets, parts });
      if (!(await gate.run(gate.slice, restore, signal))) return { kind: 'interrupted' };
      onProgress();
    }
    return { kind: 'restored', ...counts, writtenAt: header.writtenAt };
  }

  #restoreSection({ kind, payload }: Section, context: SectionContext): void {
    const { header, counts, texts, portSets, parts } = context;
    const { services, clusterName } = this.#options;
    if (kind === SECTION.entries) {
      counts.entries += this.#restoreEntries(readEntries(payload, texts, portSets), header);
    } else if (kind === SECTION.nodes) {
      for (const node of readRecords(payload)) if (this.#restoreNode(node, header)) counts.nodes++;
    } else if (kind === SECTION.services) {
      for (const record of readRecords(payload)) {
        const part = parts.read(record);
        if (part === undefined || !services.restorePart(part)) continue;
        counts.services++;
        this.#recordTime(clusterOfPart(part) || clusterName, header);
      }
    } else if (kind === SECTION.identities) {
      for (const record of readRecords(payload)) {
        const identity = readIdentity(record, this.#reject);
        if (identity === undefined) continue;
        this.#restoreIdentity(identity);
        this.#recordTime(identity.cluster, header);
        counts.identities++;
      }
    }
  }

  #restoreIdentity(restored: ClusterIdentity): void {
    const { cluster, identity } = restored;
    this.#identities.set(identity, restored);
    const identities = this.#identitiesOf.get(cluster) ?? [];
    identities.push(identity);
    this.#identitiesOf.set(cluster, identities);
  }

  #restoreEntries(entries: readonly CheckpointEntry[], header: CheckpointHeader): number {
    let restored = 0;
    for (const { key, identity, source, owner, hostIP, encryptKey, k8s } of entries) {
      const cluster = this.#clusterOfEntry(source, owner);
      this.#recordTime(cluster, header);
      const claim: Claim = {
        identity,
        source: 'restored',
        owner: this.#ownerOf(cluster),
        hostIP,
        encryptKey,
        k8s,
      };
      if (this.#options.ipcache.upsert(key, claim) !== 'invalid') restored++;
    }
    return restored;
  }

  #restoreNode(node: unknown, header: CheckpointHeader): boolean {
    if (this.#options.nodes.restore({ version: 1, nodes: [node] }) === 0) return false;
    const { cluster, name }: Readonly<Record<string, unknown>> = isObject(node) ? node : {};
    assert(typeof cluster === 'string' && typeof name === 'string', 'a restored node has a name');
    this.#recordNode({ cluster, name }, header);
    return true;
  }

  #recordNode({ cluster, name }: NodeName, header: CheckpointHeader): void {
    const names = this.#nodeNames.get(cluster) ?? [];
    names.push(name);
    this.#nodeNames.set(cluster, names);
    this.#recordTime(cluster, header);
  }

  /**
   * Returns the cluster of an entry: that of its owner, or the local one if the source belongs to the local cluster.
   */
  #clusterOfEntry(source: CheckpointEntry['source'], owner: string): string {
    const isRemote = source === 'clustermesh' || source === 'restored';
    return (isRemote && ownerCluster(owner)) || this.#options.clusterName;
  }

  /** Returns the owner of the restored claims of a cluster. */
  #ownerOf(cluster: string): string {
    return cluster === this.#options.clusterName ? '' : cluster;
  }

  /** Records the time of the restored state of a cluster: of the first checkpoint with it, or of this one. */
  #recordTime(cluster: string, { knownAt, writtenAt }: CheckpointHeader): void {
    this.#knownAt.set(cluster, knownAt.get(cluster) ?? writtenAt);
  }

  async #setAside({ fault, message }: CheckpointError): Promise<RestoreOutcome> {
    const { folder, readOnly = false } = this.#options;
    try {
      const name = readOnly ? undefined : await setAside(folder, fault);
      this.#reject(rejection('unusable-checkpoint', 'checkpoint', fault, message));
      if (name === undefined) return { kind: 'unreadable', message };
      return { kind: 'set-aside', fault, message: `${message}; renamed to ${name}` };
    } catch (error) {
      return { kind: 'unreadable', message: `${message}; cannot rename it: ${messageOf(error)}` };
    }
  }
}

const OPTIONS = optionsWith({
  ipcache: objectWith({ upsert: FUNCTION }),
  services: objectWith({ restorePart: FUNCTION }),
  nodes: objectWith({ nodeUpdated: FUNCTION }),
  folder: objectWith({ open: FUNCTION }),
  clusterName: TEXT,
  gate: objectWith({ run: FUNCTION }),
  maxBytes: optional(POSITIVE),
  readOnly: optional(BOOLEAN),
});

checkArguments(Restoration, {
  read: { signal: optional(SIGNAL), onProgress: optional(FUNCTION) },
  adopt: { imported: objectWith({ entries: LIST, nodes: LIST, identities: LIST, knownAt: NUMBER }) },
  knownAt: { cluster: TEXT },
  labelsOf: { identity: NUMBER },
  clusterOf: { identity: NUMBER },
  release: { cluster: TEXT },
  releaseOffers: { cluster: TEXT },
});

/** State while a file is restored. */
interface SectionContext {
  readonly header: CheckpointHeader;
  readonly counts: { entries: number; nodes: number; services: number; identities: number };
  readonly texts: NumberedTexts;
  readonly portSets: PortSets;
  readonly parts: ServicePartReader;
}

function readEntries(
  payload: Uint8Array,
  texts: NumberedTexts,
  portSets: PortSets,
): readonly CheckpointEntry[] {
  const reader = new ByteBuffer(payload, payload.length, payload.length);
  const entries: CheckpointEntry[] = [];
  try {
    while (reader.at < reader.length) entries.push(readEntry(reader, texts, portSets));
  } catch (error) {
    if (!(error instanceof DamagedError)) throw error;
    throw new CheckpointError('torn', error.message);
  }
  return entries;
}
