import { isDeepStrictEqual } from 'node:util';
import type {
  DatapathDocument,
  DatapathStepDocument,
  KernelEntryDocument,
} from '../api/datapath-document.ts';
import type { DatapathModel } from '../api/read-model.ts';
import type { Timer } from '../base/clock.ts';
import { messageOf } from '../base/failure.ts';
import { counted } from '../base/show-value.ts';
import type { HostDatapathContext, HostDatapathOptions } from '../datapath/linux/host-options.ts';
import { type KnownInputs, NOTHING_KNOWN } from '../datapath/linux/known-inputs.ts';
import type { LinuxDatapath } from '../datapath/linux/linux-datapath.ts';
import type { ProbeAnswer } from '../datapath/linux/probe.ts';
import type { Step } from '../process/start-step.ts';
import type { AgentParts } from './agent.ts';

export interface DatapathKeeperOptions extends Pick<AgentParts, 'clock' | 'random' | 'log'> {
  readonly options: HostDatapathOptions;
  readonly engines: HostDatapathContext['engines'];
  readonly nodeName: string;
  readonly clusterName: string;
  /** Returns one sentence for each incomplete input of the agent. */
  readonly incompleteInputs: () => readonly string[];
  /** Returns which inputs are known. */
  readonly knownInputs: () => KnownInputs;
  /** Called if a periodic repair of the kernel failed. Must not throw. */
  readonly onRepairFailed?: ((error: unknown) => void) | undefined;
}

/** Interval of checking the inputs while items of an earlier agent are kept. */
const POLL_MS = 1_000;
/**
 * Limits of the pause between two repairs. Repairs are periodic because the kernel does not notify of map entries that
 * other processes change. Reading 500,000 entries takes one second of one core, so the pause is 200 times the duration
 * of the last repair, and therefore longer on a loaded machine.
 */
const REPAIR_PAUSE_MS = { shortest: 10_000, longest: 300_000 } as const;
const PAUSE_FACTOR = 200;

/** The missing input before the end of the start, if no other one is missing. */
const STARTING: readonly string[] = ['the agent is starting'];

/**
 * Runs the datapath of an agent. Opens it as a step of the start, releases the items of an earlier agent (*found*
 * items) when the caches are complete, and repairs the kernel periodically.
 */
export class DatapathKeeper implements DatapathModel {
  readonly #options: DatapathKeeperOptions;
  #datapath: LinuxDatapath | undefined;
  #probe: ProbeAnswer | undefined;
  #failure: string | undefined;
  #isSynced = false;
  #inputs: KnownInputs = NOTHING_KNOWN;
  /** The incomplete inputs. Once there are none, found items may be deleted. */
  #waitsFor: readonly string[] = STARTING;
  #checkTimer: Timer | undefined;
  #repairTimer: Timer | undefined;

  constructor(options: DatapathKeeperOptions) {
    this.#options = options;
  }

  /**
   * Returns the step that adopts the state of an earlier agent from the kernel and follows the engines. A failure does
   * not end the start.
   */
  step(): Step {
    return {
      name: 'datapath',
      onTimeout: 'continue',
      waitsFor: () => ['reading the maps and routes of the kernel'],
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

  /** Marks the initial sync as complete, after which found items may be deleted. Idempotent. */
  initialSyncDone(): void {
    this.#isSynced = true;
    this.#check();
  }

  /** Releases the found items whose inputs are complete. Checks again later until all inputs are complete. */
  #check(): void {
    if (this.#datapath === undefined || this.#waitsFor.length === 0) return;
    this.#checkTimer?.cancel();
    this.#passKnownInputs(this.#datapath);
    const incomplete = this.#options.incompleteInputs();
    this.#waitsFor = this.#isSynced || incomplete.length > 0 ? incomplete : STARTING;
    if (this.#waitsFor.length === 0) this.#datapath.allowDeletes();
    else this.#checkTimer = this.#options.clock.after(POLL_MS, () => this.#check());
  }

  #passKnownInputs(datapath: LinuxDatapath): void {
    const inputs = this.#options.knownInputs();
    if (isDeepStrictEqual(inputs, this.#inputs)) return;
    this.#inputs = inputs;
    datapath.setInputs(inputs);
  }

  async diff(): Promise<readonly DatapathStepDocument[]> {
    return (await this.#datapath?.plan()) ?? [];
  }

  kernelEntry(prefix: string): KernelEntryDocument | undefined {
    try {
      const found = this.#datapath?.lookupPrefix(prefix);
      return found && { kernel: found.kernel, cache: found.cache };
    } catch (error) {
      return { failure: messageOf(error) };
    }
  }

  async repair(): Promise<readonly DatapathStepDocument[]> {
    const datapath = this.#datapath;
    const steps = (await datapath?.repair()) ?? [];
    await datapath?.flushed();
    return steps;
  }

  status(): DatapathDocument {
    const { pinFolder, layout, dryRun } = this.#options.options;
    const { parts = [], tables = [], failures = [] } = this.#datapath?.status() ?? {};
    return {
      kind: 'linux',
      kernel: this.#probe?.kernel ?? '',
      pinFolder,
      cgroup: this.#probe?.cgroup,
      layout,
      dryRun,
      parts,
      tables,
      waitsFor: this.#waitsFor,
      failures: this.#failure === undefined ? failures : [this.#failure, ...failures],
    };
  }

  async #open(): Promise<void> {
    const { options, engines, clock, random, nodeName, clusterName, log } = this.#options;
    const { openHostDatapath } = await import('../datapath/linux/host-datapath.ts');
    const { probe, datapath } = openHostDatapath(options, { engines, clock, random, nodeName, clusterName });
    this.#datapath = datapath;
    this.#probe = probe;
    for (const { name, state, missing } of datapath.status().parts)
      if (state === 'unavailable')
        for (const reason of missing)
          log.error({ part: name }, `--datapath linux: ${name} is unavailable: ${reason}`);
    await datapath.adopt();
    for (const reason of datapath.status().failures) log.error(`--datapath linux: ${reason}`);
    for (const { name, actual } of datapath.found)
      log.info(
        `--datapath linux: ${name}: found ${counted(actual, 'item')}, kept until the caches are complete`,
      );
    datapath.connect(engines);
    this.#check();
    this.#repairLater();
  }

  /** Schedules the next repair. `tookMs`: duration of the last repair. */
  #repairLater(tookMs = 0): void {
    const { clock, options } = this.#options;
    if (options.dryRun || this.#datapath === undefined) return;
    const pause = Math.min(
      Math.max(tookMs * PAUSE_FACTOR, REPAIR_PAUSE_MS.shortest),
      REPAIR_PAUSE_MS.longest,
    );
    this.#repairTimer = clock.after(pause, () => {
      const begun = clock.now();
      void this.#repairNow().finally(() => this.#repairLater(clock.now() - begun));
    });
  }

  /** Repairs the kernel and logs the number of repaired items. Never rejects: the next repair tries again. */
  async #repairNow(): Promise<void> {
    const { log, onRepairFailed } = this.#options;
    try {
      const steps = (await this.#datapath?.repair()) ?? [];
      const [first] = steps;
      if (first !== undefined)
        log.warn(
          `--datapath linux: repaired ${counted(steps.length, 'item')} of the kernel, first ${first.table} ${first.key}`,
        );
    } catch (error) {
      log.error({ err: error }, '--datapath linux: cannot repair the kernel; retrying');
      onRepairFailed?.(error);
    }
  }

  #close(): void {
    this.#checkTimer?.cancel();
    this.#repairTimer?.cancel();
    this.#datapath?.[Symbol.dispose]();
    this.#datapath = undefined;
  }
}
