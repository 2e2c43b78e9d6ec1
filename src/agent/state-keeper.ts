import { resolve } from 'node:path';
import type { KnownIdentity, RestoredDocument } from '../api/read-model.ts';
import type { CheckpointDocument } from '../api/status-document.ts';
import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/failure.ts';
import type { Rejection } from '../base/rejection.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import type { Labels } from '../identity/labels.ts';
import { type CheckpointEngines, checkpointSections } from '../restore/checkpoint.ts';
import { Checkpointer } from '../restore/checkpointer.ts';
import { Restoration, type RestoreOutcome } from '../restore/restoration.ts';
import { isoTime } from './agent-status.ts';
import { leftByCilium, readCiliumState } from './cilium-state.ts';
import type { Logger } from './log.ts';
import type { Step } from './start-step.ts';
import { StateFiles } from './state-files.ts';

/** What {@link StateKeeper} keeps, and takes from its process. */
export interface StateKeeperOptions {
  /** The folder of `--state-dir`. */
  readonly path: string;
  /** The state directory of a Cilium agent, taken where there is no checkpoint to start from. */
  readonly importFrom?: string | undefined;
  readonly clusterName: string;
  readonly nodeName: string;
  readonly engines: CheckpointEngines;
  readonly clock: Clock;
  readonly gate: TurnGate;
  readonly log: Logger;
  readonly onReject: (rejection: Rejection) => void;
  /** Identities that sources have said. */
  readonly identities: () => Iterable<KnownIdentity>;
  /** Grows with every change of an identity. */
  readonly identityChanges: () => number;
}

/** Of reading a checkpoint: a disk that says nothing for so long says nothing more. */
const READ_MS = 180_000;

/** A checkpoint of 10,000,000 entries takes about half of it. */
const WRITE_MS = 60_000;

/**
 * What the agent knew before it was restarted (`src/restore`), on a file system: reads the checkpoint as a step of the start,
 * writes one each minute in which something has changed and one at the end, and says how old what it has restored is.
 */
export class StateKeeper {
  readonly #options: StateKeeperOptions;
  readonly #restoration: Restoration;
  readonly #checkpointer: Checkpointer;

  constructor(options: StateKeeperOptions) {
    const { path, clusterName, engines, clock, gate, log, onReject } = options;
    this.#options = options;
    const folder = new StateFiles(resolve(path));
    this.#restoration = new Restoration({ ...engines, folder, clusterName, gate, onReject });
    this.#checkpointer = new Checkpointer({
      folder,
      clock,
      sections: () => {
        const header = {
          cluster: clusterName,
          writtenAt: clock.wallTime(),
          knownAt: this.#restoration.ages,
        };
        return checkpointSections(engines, this.#identities(), header);
      },
      state: () => this.#state(),
      onChange: (failure) => {
        if (failure === undefined) log.warn(`--state-dir ${path}: a checkpoint was written again`);
        else
          log.warn(
            `--state-dir ${path}: no checkpoint can be written, the last one stays: ${failure.message}`,
          );
      },
    });
  }

  /** Takes what a checkpoint says, before any source says something; when it is stopped, writes the last checkpoint. */
  step(): Step {
    let complete = false;
    return {
      name: 'checkpoint',
      patienceMs: READ_MS,
      otherwise: 'go on',
      stopMs: WRITE_MS,
      waitsFor: () => [`--state-dir ${this.#options.path} is being read`],
      start: async ({ signal, progress }) => {
        const outcome = await this.#restoration.read(signal, progress);
        this.#log(outcome);
        if (outcome.kind !== 'restored' && outcome.kind !== 'interrupted') await this.#import();
        // One that was cut short would replace the whole one.
        if (outcome.kind === 'interrupted') return;
        complete = true;
        this.#checkpointer.start();
      },
      stop: () => (complete ? this.#checkpointer.stop() : undefined),
    };
  }

  /** Clusters of which something is only restored. */
  get clusters(): readonly string[] {
    return this.#restoration.clusters;
  }

  /** The sources of a cluster are complete, or it is not followed any more: what is left of the checkpoint goes. Never rejects. */
  async letGo(cluster: string): Promise<void> {
    if (this.#restoration.knownAt(cluster) === undefined) return;
    await this.#restoration.letGo(cluster).then(
      () => this.#options.log.info({ cluster }, `cluster ${cluster}: nothing is only restored any more`),
      (error: unknown) =>
        this.#options.log.error({ err: error, cluster }, 'letting go of a checkpoint has failed'),
    );
  }

  /** A remote cluster has been out of reach for so long that its services are withdrawn. */
  letGoOffers(cluster: string): void {
    void this.#restoration.letGoOffers(cluster);
  }

  /** How old what is restored of a cluster is. */
  restored(cluster: string): RestoredDocument | undefined {
    const knownAt = this.#restoration.knownAt(cluster);
    if (knownAt === undefined) return undefined;
    const ageMs = Math.max(0, this.#options.clock.wallTime() - knownAt);
    return { knownAt: new Date(knownAt).toISOString(), ageSeconds: Math.round(ageMs / 1000) };
  }

  /** The labels of an identity that are only restored. */
  labelsOf(identity: number): Labels | undefined {
    return this.#restoration.labelsOf(identity);
  }

  /** Whose identity that is. */
  clusterOf(identity: number): string | undefined {
    return this.#restoration.clusterOf(identity);
  }

  /** Identities that are restored, whether a source has said them again or not. */
  identities(): Iterable<KnownIdentity> {
    return this.#restoration.identities();
  }

  status(): CheckpointDocument {
    const { written, bytes, writtenAt, failure } = this.#checkpointer.status();
    return {
      folder: this.#options.path,
      restored: this.clusters.flatMap((cluster) => {
        const mark = this.restored(cluster);
        return mark === undefined ? [] : [{ cluster, ...mark }];
      }),
      written,
      bytes,
      writtenAt: isoTime(writtenAt),
      failure: failure?.message,
    };
  }

  *#identities(): Generator<KnownIdentity, void, void> {
    const said = new Set<number>();
    for (const known of this.#options.identities()) {
      said.add(known.identity);
      yield known;
    }
    for (const known of this.#restoration.identities()) if (!said.has(known.identity)) yield known;
  }

  #state(): string {
    const { engines, identityChanges } = this.#options;
    const { ipcache, nodes, services } = engines;
    const awaited = this.clusters.join(' ');
    return [ipcache.revision, nodes.revision, services.revision, identityChanges(), awaited].join('/');
  }

  /** Takes what a Cilium agent has left. Whatever is wrong with that, the agent starts (AGENT 14, 21). */
  async #import(): Promise<void> {
    const { importFrom, clusterName, nodeName, log, onReject } = this.#options;
    if (importFrom === undefined) return;
    const option = `--import-cilium-state ${importFrom}`;
    try {
      const state = await readCiliumState(importFrom);
      for (const { rejection } of state.problems) onReject(rejection);
      const left = leftByCilium(state, { cluster: clusterName, name: nodeName });
      const { entries, nodes } = await this.#restoration.adopt(left);
      const identities = left.identities.length;
      log.info(`${option}: taken ${entries} entries, ${nodes} nodes, ${identities} identities`);
    } catch (error) {
      log.warn(`${option}: the agent starts without it: ${messageOf(error)}`);
    }
  }

  #log(outcome: RestoreOutcome): void {
    const { log, path } = this.#options;
    const where = `--state-dir ${path}`;
    if (outcome.kind === 'restored') {
      const { entries, nodes, services, identities, writtenAt } = outcome;
      const counts = `${entries} entries, ${nodes} nodes, ${services} parts of services, ${identities} identities`;
      log.info(`${where}: restored what was known at ${new Date(writtenAt).toISOString()}: ${counts}`);
    } else if (outcome.kind === 'set-aside') {
      log.warn(
        `${where}: the checkpoint is ${outcome.fault}, and the agent starts without it: ${outcome.message}`,
      );
    } else if (outcome.kind === 'unreadable') {
      log.warn(
        `${where}: the checkpoint cannot be read, and the agent starts without it: ${outcome.message}`,
      );
    }
  }
}
