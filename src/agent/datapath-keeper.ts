import type { DatapathDocument, DatapathStepDocument } from '../api/datapath-document.ts';
import type { DatapathModel } from '../api/read-model.ts';
import type { Clock, Random, Timer } from '../base/clock.ts';
import { messageOf } from '../base/failure.ts';
import type { HostDatapathContext, HostDatapathOptions } from '../datapath/linux/host-options.ts';
import type { LinuxDatapath } from '../datapath/linux/linux-datapath.ts';
import type { Logger } from './log.ts';
import type { Step } from './start-step.ts';

/** What {@link DatapathKeeper} steers, and takes from its process. */
export interface DatapathKeeperOptions {
  readonly options: HostDatapathOptions;
  readonly engines: HostDatapathContext['engines'];
  readonly clock: Clock;
  readonly random: Random;
  readonly nodeName: string;
  readonly clusterName: string;
  readonly log: Logger;
  /** What is not complete of what the agent follows, a sentence each. */
  readonly blockers: () => readonly string[];
}

/** Whether what the agent follows is complete is looked at so often while something found at the start is held. */
const LOOK_MS = 1_000;
/** What others have changed in the kernel is put right so often: reading 500,000 entries takes a second of one core. */
const REPAIR_MS = 300_000;

/** The datapath of an agent: opened as a step of the start, told when the caches are complete, repaired now and then. */
export class DatapathKeeper implements DatapathModel {
  readonly #options: DatapathKeeperOptions;
  #datapath: LinuxDatapath | undefined;
  #kernel = '';
  #cgroup: string | undefined;
  #failure: string | undefined;
  #complete = false;
  #waitsFor: readonly string[] = ['the agent is starting'];
  #timer: Timer | undefined;
  #repairs: Timer | undefined;

  constructor(options: DatapathKeeperOptions) {
    this.#options = options;
  }

  /** Takes over what an earlier agent has left in the kernel, and follows the engines. Never ends the start. */
  step(): Step {
    return {
      name: 'datapath',
      otherwise: 'go on',
      waitsFor: () => ['the maps and routes of the kernel are being read'],
      start: async ({ signal }) => {
        await this.#open().catch((error: unknown) => {
          this.#failure = messageOf(error);
          this.#options.log.error({ err: error }, `--datapath linux: ${messageOf(error)}`);
        });
        if (signal.aborted) this.#close();
      },
      stop: () => this.#close(),
    };
  }

  /** The first sync is over: from now on it is looked at whether everything is complete. Idempotent. */
  firstSyncOver(): void {
    if (this.#datapath === undefined || this.#complete) return;
    this.#timer?.cancel();
    this.#waitsFor = this.#options.blockers();
    if (this.#waitsFor.length > 0) {
      this.#timer = this.#options.clock.after(LOOK_MS, () => this.firstSyncOver());
      return;
    }
    this.#complete = true;
    this.#datapath.allowDeletes();
  }

  async diff(): Promise<readonly DatapathStepDocument[]> {
    return (await this.#datapath?.plan()) ?? [];
  }

  async repair(): Promise<readonly DatapathStepDocument[]> {
    return (await this.#datapath?.repair()) ?? [];
  }

  status(): DatapathDocument {
    const { pinFolder, layout, dryRun } = this.#options.options;
    const { parts = [], tables = [], failures = [] } = this.#datapath?.status() ?? {};
    return {
      ...{ kind: 'linux', kernel: this.#kernel, pinFolder, cgroup: this.#cgroup, layout, dryRun },
      ...{ parts, tables },
      waitsFor: this.#complete ? [] : this.#waitsFor,
      failures: this.#failure === undefined ? failures : [this.#failure, ...failures],
    };
  }

  async #open(): Promise<void> {
    const { options, engines, clock, random, nodeName, clusterName, log } = this.#options;
    const { openHostDatapath } = await import('../datapath/linux/host-datapath.ts');
    const { probe, datapath } = openHostDatapath(options, { engines, clock, random, nodeName, clusterName });
    this.#datapath = datapath;
    this.#kernel = probe.kernel;
    this.#cgroup = probe.cgroup;
    for (const { name, state, missing } of datapath.status().parts)
      if (state === 'cannot run')
        for (const why of missing) log.error({ part: name }, `--datapath linux: ${name} cannot run: ${why}`);
    await datapath.adopt();
    for (const why of datapath.status().failures) log.error(`--datapath linux: ${why}`);
    for (const { name, actual } of datapath.status().tables)
      if (actual > 0)
        log.info(
          `--datapath linux: ${name}: ${actual} items were found, and are kept until the caches are complete`,
        );
    datapath.connect(engines);
    this.#repairLater();
  }

  #repairLater(): void {
    const { clock, log, options } = this.#options;
    if (options.dryRun) return;
    this.#repairs = clock.after(REPAIR_MS, () => {
      void this.repair().then((steps) => {
        const [first] = steps;
        if (first !== undefined)
          log.warn(
            `--datapath linux: ${steps.length} items of the kernel were not as the caches say, and were put right: ${first.table} ${first.key}…`,
          );
        if (this.#datapath !== undefined) this.#repairLater();
      });
    });
  }

  #close(): void {
    this.#timer?.cancel();
    this.#repairs?.cancel();
    this.#datapath?.[Symbol.dispose]();
    this.#datapath = undefined;
  }
}
