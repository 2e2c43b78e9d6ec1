import { resolve } from 'node:path';
import type { RestoredDocument } from '../api/read-model.ts';
import type { CheckpointDocument } from '../api/status-document.ts';
import { messageOf } from '../base/failure.ts';
import { counted } from '../base/show-value.ts';
import { isoTime } from '../base/system-clock.ts';
import type { ClusterIdentity } from '../model/identity-cache.ts';
import { PROCESS_STOP_MS, READ_MS, STOP_MS, type Step } from '../process/start-step.ts';
import { type CheckpointEngines, checkpointSections } from '../restore/checkpoint.ts';
import { Checkpointer } from '../restore/checkpointer.ts';
import { Restoration, type RestoreOutcome } from '../restore/restoration.ts';
import type { AgentParts } from './agent.ts';
import { importedState, readCiliumState } from './cilium-state.ts';
import { FolderLock } from './folder-lock.ts';
import { StateFiles } from './state-files.ts';

export interface StateKeeperOptions extends Pick<AgentParts, 'clock' | 'gate' | 'log' | 'onReject'> {
  /** The folder of `--state-dir`. */
  readonly path: string;
  /** The state directory of a Cilium agent. Imported if there is no usable checkpoint. */
  readonly importFrom?: string | undefined;
  readonly clusterName: string;
  readonly nodeName: string;
  /** Returns the id of the local cluster; 0 if it is unknown. */
  readonly clusterID: () => number;
  readonly engines: CheckpointEngines;
  /** Returns all identities, restored ones included. */
  readonly identities: () => Iterable<ClusterIdentity>;
  /** Returns a text that changes with the identities. */
  readonly identityVersion: () => string;
  /** Returns the clusters that were complete but are not ready, with the wall time of their state. */
  readonly staleClusters: () => readonly (readonly [string, number])[];
}

/**
 * Maximum duration of writing the last checkpoint, which takes about 3 s for 1,000,000 entries. It ends before the
 * process, so that an abandoned write is logged.
 */
const WRITE_MS = PROCESS_STOP_MS - 3_000;

/**
 * Keeps the state of the agent across restarts (`src/restore`), in the file system. Reads the checkpoint in a step of
 * the start. Writes a new one each minute if anything has changed, and one at the stop. Reports the age of restored
 * state.
 */
export class StateKeeper {
  readonly restoration: Restoration;
  readonly #options: StateKeeperOptions;
  readonly #checkpointer: Checkpointer;
  readonly #lock: FolderLock;

  constructor(options: StateKeeperOptions) {
    const { path, clusterName, engines, clock, gate, log, onReject } = options;
    this.#options = options;
    this.#lock = new FolderLock('--state-dir', path, log);
    const folder = new StateFiles(resolve(path));
    this.restoration = new Restoration({ ...engines, folder, clusterName, gate, onReject });
    this.#checkpointer = new Checkpointer({
      folder,
      clock,
      sections: () => {
        const header = {
          cluster: clusterName,
          clusterID: options.clusterID(),
          writtenAt: clock.wallTime(),
          knownAt: new Map([...options.staleClusters(), ...this.restoration.knownTimes]),
        };
        return checkpointSections(engines, options.identities(), header);
      },
      stateVersion: () => this.#stateVersion(),
      onChange: (failure) => {
        if (failure === undefined) log.warn(`--state-dir ${path}: writing checkpoints works again`);
        else
          log.warn(
            `--state-dir ${path}: cannot write a checkpoint: ${failure.message}; the last one is kept`,
          );
      },
    });
  }

  /**
   * Returns the step which locks the folder and restores its checkpoint before any source is followed. Its stop writes
   * the last checkpoint. The start fails with `InputError` if another process uses the folder.
   */
  step(): Step {
    let isRestored = false;
    return {
      name: 'checkpoint',
      progressTimeoutMs: READ_MS,
      onTimeout: 'continue',
      // Only the write of the last checkpoint may take long. A blocked read is abandoned like any other step.
      get stopMs() {
        return isRestored ? WRITE_MS : STOP_MS;
      },
      waitsFor: () => [`reading --state-dir ${this.#options.path}`],
      start: async ({ signal, progress }) => {
        await this.#lock.acquire();
        const outcome = await this.restoration.read(signal, progress);
        this.#logOutcome(outcome);
        if (outcome.kind !== 'restored' && outcome.kind !== 'interrupted') await this.#importCiliumState();
        // After an interrupted restore, the engines contain only a part of the checkpoint, so a new one would lose the
        // rest.
        if (outcome.kind === 'interrupted') return;
        isRestored = true;
        this.#checkpointer.start();
      },
      stop: async () => {
        if (isRestored) await this.#checkpointer.stop();
        await this.#lock.release();
      },
    };
  }

  /** Withdraws the restored state of a cluster, because its sources are complete or it is no longer followed. */
  async releaseRestored(cluster: string): Promise<void> {
    if (this.restoration.knownAt(cluster) === undefined) return;
    await this.restoration.release(cluster);
    this.#options.log.info({ cluster }, `cluster ${cluster}: restore complete`);
  }

  /** Withdraws the restored services of a remote cluster after its service TTL. */
  releaseRestoredOffers(cluster: string): void {
    const { log } = this.#options;
    this.restoration.releaseOffers(cluster).catch((error: unknown) => {
      log.error({ err: error, cluster }, `cluster ${cluster}: cannot remove the restored services`);
    });
  }

  /** Returns the age of the restored state of a cluster; undefined if there is none. */
  restored(cluster: string): RestoredDocument | undefined {
    const knownAt = this.restoration.knownAt(cluster);
    if (knownAt === undefined) return undefined;
    const ageMs = Math.max(0, this.#options.clock.wallTime() - knownAt);
    return { knownAt: isoTime(knownAt), ageSeconds: Math.round(ageMs / 1000) };
  }

  status(): CheckpointDocument {
    const { written, bytes, writtenAt, failure } = this.#checkpointer.status();
    return {
      folder: this.#options.path,
      restored: this.restoration.clusters.flatMap((cluster) => {
        const age = this.restored(cluster);
        return age === undefined ? [] : [{ cluster, ...age }];
      }),
      written,
      bytes,
      writtenAt: isoTime(writtenAt),
      failure: failure?.message,
    };
  }

  /** Returns a text that changes with the state, so that an unchanged state is not written again. */
  #stateVersion(): string {
    const { engines, clusterID, identityVersion, staleClusters } = this.#options;
    const { ipcache, nodes, services } = engines;
    const clusters = [...this.restoration.clusters, ...staleClusters()].join(' ');
    const revisions = [ipcache.revision, nodes.revision, services.revision];
    return [...revisions, clusterID(), identityVersion(), clusters].join('/');
  }

  /**
   * Imports the state of a Cilium agent. A failure is logged, and the agent starts without this state (AGENT 14, 21).
   */
  async #importCiliumState(): Promise<void> {
    const { importFrom, clusterName, nodeName, log, onReject } = this.#options;
    if (importFrom === undefined) return;
    const option = `--import-cilium-state ${importFrom}`;
    try {
      const state = await readCiliumState(importFrom);
      for (const { rejection } of state.problems) onReject(rejection);
      const imported = importedState(state, { cluster: clusterName, name: nodeName });
      const { entries, nodes } = await this.restoration.adopt(imported);
      const identities = imported.identities.length;
      log.info(
        `${option}: imported ${counted(entries, 'entry', 'entries')}, ${counted(nodes, 'node')}, ${counted(identities, 'identity', 'identities')}`,
      );
    } catch (error) {
      log.warn(`${option}: ${messageOf(error)}; the agent starts without this state`);
    }
  }

  #logOutcome(outcome: RestoreOutcome): void {
    const { log, path } = this.#options;
    const where = `--state-dir ${path}`;
    if (outcome.kind === 'restored') {
      const { entries, nodes, services, identities, writtenAt } = outcome;
      const counts = `${counted(entries, 'entry', 'entries')}, ${counted(nodes, 'node')}, ${counted(services, 'service part')}, ${counted(identities, 'identity', 'identities')}`;
      log.info(`${where}: restored the state of ${isoTime(writtenAt)}: ${counts}`);
    } else if (outcome.kind === 'set-aside') {
      log.warn(
        `${where}: the checkpoint is ${outcome.fault}: ${outcome.message}; the agent starts without it`,
      );
    } else if (outcome.kind === 'unreadable') {
      log.warn(`${where}: cannot read the checkpoint: ${outcome.message}; the agent starts without it`);
    }
  }
}
