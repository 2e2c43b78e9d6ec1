import { messageOf } from '../../base/failure.ts';
import { counted } from '../../base/show-value.ts';
import { connectDatapath, type Datapath, type DatapathEngines } from '../datapath.ts';
import type { KeptItems, KeptItemsStatus, PrintedStep } from './kept-items.ts';
import type { KnownInputs } from './known-inputs.ts';
import { type DatapathPiece, missingFor, type ProbeAnswer } from './probe.ts';

/** The parts fed by the engines. If one is off or cannot run, the others still run. */
export type LinuxPartName = 'nodes' | 'ipcache' | 'services';

/**
 * An open part of the datapath: the engine it follows, and the kernel tables kept equal to the engine.
 */
export interface LinuxPart extends Disposable {
  /** The listeners. They receive a replay after the tables were adopted. */
  readonly datapath: Datapath;
  readonly tables: readonly KeptItems[];
  /** Returns one sentence for each current problem, such as a removed cgroup or a device that cannot be created. */
  problems?(): readonly string[];
  /** Returns the entry that the kernel finds for a prefix, and the desired one. Throws `SyscallError`. */
  lookupPrefix?(prefix: string): PrintedStep;
  /** Must be called when more inputs are known. */
  setInputs?(inputs: KnownInputs): void;
  /**
   * Must be called when the caches are complete and written to the tables. Removes the items that an earlier process
   * wrote in another form, for example as rules instead of maps.
   */
  retire?(): void;
}

/** A requested part: its requirements, and how to open it. If `open` throws, the status contains the reason. */
export interface WantedPart {
  readonly name: LinuxPartName;
  /** Pieces which must be available. */
  readonly needs: readonly DatapathPiece[];
  /** Undefined if the part is off. */
  readonly open: (() => LinuxPart) | undefined;
  /** If the part is off, removes the items of an earlier process when the caches are complete. */
  readonly retire?: (() => void) | undefined;
}

/** State of one part of a {@link LinuxDatapath}. */
export interface LinuxPartStatus {
  readonly name: LinuxPartName;
  /** `off`: not requested. `unavailable`: a requirement is missing, or the part could not be opened. */
  readonly state: 'running' | 'off' | 'unavailable';
  /** Why the part is unavailable. If it runs: its current problems. One sentence each. */
  readonly missing: readonly string[];
}

/** Status of a {@link LinuxDatapath}. */
export interface LinuxDatapathStatus {
  readonly parts: readonly LinuxPartStatus[];
  readonly tables: readonly KeptItemsStatus[];
  /** Failures of whole tables or parts, one sentence each. */
  readonly failures: readonly string[];
}

/** A part that runs, the reasons why it cannot run, or neither if it is off. */
interface OpenedPart {
  readonly name: LinuxPartName;
  readonly part: LinuxPart | undefined;
  readonly missing: readonly string[];
  readonly retire?: (() => void) | undefined;
  /** Set if `open` threw, for example because another process owns the part. Each repair tries to open it again. */
  readonly unopened?: WantedPart | undefined;
}

/**
 * The datapath of the kernel of this process. It runs each requested part if it can, and reports the
 * missing requirements of the others. Items of an earlier process are adopted: they keep working, are written when
 * their own inputs are known (`setInputs`), and are deleted only when all inputs are complete (`allowDeletes`).
 *
 *     open ─► adopt ─► connect ─► setInputs … ─► allowDeletes
 *               │         │         └ each found item is written when its own inputs are known, because
 *               │         │           before that a service would lose backends, a prefix its identity
 *               │         └ new items are written immediately
 *               └ dump of every table
 */
export class LinuxDatapath implements Disposable {
  readonly #probe: ProbeAnswer;
  readonly #parts: OpenedPart[];
  readonly #shared: Disposable | undefined;
  readonly #failures = new Map<string, string>();
  /** End the connections of parts to the engines. */
  readonly #disconnects: (() => void)[] = [];
  /** Parts with items of an earlier process which could not be removed or are still needed. */
  readonly #unretired = new Set<OpenedPart>();
  #engines: DatapathEngines | undefined;
  #inputs: KnownInputs | undefined;
  #isComplete = false;
  #isDisposed = false;

  /** Opens the parts that can run. Never throws. `shared` is disposed of last, after the parts. */
  constructor(probe: ProbeAnswer, wanted: readonly WantedPart[], shared?: Disposable) {
    this.#probe = probe;
    this.#shared = shared;
    this.#parts = wanted.map((part) => openPart(probe, part));
  }

  get #tables(): readonly KeptItems[] {
    return this.#parts.flatMap(({ part }) => part?.tables ?? []);
  }

  /** Reads the existing items. If a table cannot be read, it is reported and not written. */
  adopt(): Promise<void> {
    return this.#adopt(this.#tables);
  }

  async #adopt(tables: readonly KeptItems[]): Promise<void> {
    for (const table of tables) await this.#attempt(table, () => table.adopt());
  }

  /** Returns, if called before `connect`, the status of each table that has items of an earlier process. */
  get found(): readonly KeptItemsStatus[] {
    const tables = this.#tables.filter(({ isCreatedOnOpen }) => !isCreatedOnOpen);
    return tables.map((table) => table.status()).filter(({ actual }) => actual > 0);
  }

  /** Connects the parts to the engines. Nodes come first because entries and backends refer to them. */
  connect(engines: DatapathEngines): void {
    if (this.#isDisposed) return;
    this.#engines = engines;
    for (const opened of this.#parts) this.#connectPart(opened);
  }

  /** Must be called when more inputs are known: found items with known inputs are written. */
  setInputs(inputs: KnownInputs): void {
    this.#inputs = inputs;
    for (const { part } of this.#parts) {
      part?.setInputs?.(inputs);
      for (const table of part?.tables ?? []) table.recheck();
    }
  }

  /** Must be called when the inputs are complete: found items missing from the engines are deleted. */
  allowDeletes(): void {
    this.#isComplete = true;
    for (const table of this.#tables) table.allowDeletes();
    for (const opened of this.#parts) void this.#retire(opened);
  }

  /** Returns the differences between the kernel and the engines, table by table, in the order of their writes. */
  async plan(): Promise<readonly PrintedStep[]> {
    const steps: PrintedStep[] = [];
    for (const table of this.#tables) {
      const planned = await this.#attempt(table, () => table.plan());
      for (const step of planned ?? []) steps.push(step);
    }
    return steps;
  }

  /**
   * Returns the entry that the kernel finds for a prefix in the ipcache map, and the desired one; `undefined` if that
   * part does not run. Costs one system call. Throws `SyscallError`.
   */
  lookupPrefix(prefix: string): PrintedStep | undefined {
    if (this.#isDisposed) return undefined;
    return this.#parts.find(({ name }) => name === 'ipcache')?.part?.lookupPrefix?.(prefix);
  }

  /**
   * Restores items changed by others, and returns the differences. Retries failed reads and removals, and opens
   * parts that could not be opened. Deletes may still wait; see `flushed`.
   */
  async repair(): Promise<readonly PrintedStep[]> {
    const steps: PrintedStep[] = [];
    await this.#openAgain();
    for (const table of this.#tables) {
      if (table.status().state === 'unread') {
        await this.#attempt(table, () => table.adopt());
        continue;
      }
      const repaired = await this.#attempt(table, () => table.repair());
      for (const step of repaired ?? []) steps.push(step);
    }
    // A copy, because a part whose removal fails is added again.
    for (const opened of [...this.#unretired]) void this.#retire(opened);
    return steps;
  }

  /** Resolves when the changes pending now are applied, except those of unreadable tables. */
  async flushed(): Promise<void> {
    for (const table of this.#tables) if (table.status().state !== 'unread') await table.flushed();
  }

  status(): LinuxDatapathStatus {
    return {
      parts: this.#parts.map((opened) => ({
        name: opened.name,
        state: stateOf(opened),
        missing: [...opened.missing, ...this.#problemsOf(opened)],
      })),
      tables: this.#tables.map((table) => table.status()),
      failures: [...this.#failures.values()],
    };
  }

  /** Returns the problems of a part; none after dispose, because a part reads the kernel, whose access is released. */
  #problemsOf({ part }: OpenedPart): readonly string[] {
    return this.#isDisposed ? [] : (part?.problems?.() ?? []);
  }

  /** Releases the kernel objects and changes nothing: pinned objects keep working. */
  [Symbol.dispose](): void {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    for (const disconnect of this.#disconnects.splice(0).reverse()) disconnect();
    for (const { part } of [...this.#parts].reverse()) {
      for (const table of part?.tables ?? []) table[Symbol.dispose]();
      part?.[Symbol.dispose]();
    }
    this.#shared?.[Symbol.dispose]();
  }

  /** Removes the items that an earlier process wrote in another form, when the tables of the part are complete. */
  async #retire(opened: OpenedPart): Promise<void> {
    const { name, part, retire = part?.retire } = opened;
    if (retire === undefined) return;
    this.#unretired.delete(opened);
    const failure = `${name}: items of the previous agent`;
    try {
      for (const table of part?.tables ?? []) await table.flushed();
      if (this.#isDisposed) return;
      for (const table of part?.tables ?? []) assertComplete(table);
      retire();
      this.#failures.delete(failure);
    } catch (error) {
      this.#unretired.add(opened);
      this.#failures.set(failure, `${failure} were not removed: ${messageOf(error)}`);
    }
  }

  /** Tries again to open the parts that could not be opened, and adopts their items. */
  async #openAgain(): Promise<void> {
    for (const [at, { unopened }] of this.#parts.entries()) {
      if (unopened === undefined || this.#isDisposed) continue;
      const opened = openPart(this.#probe, unopened);
      this.#parts[at] = opened;
      const tables = opened.part?.tables ?? [];
      if (this.#inputs !== undefined) opened.part?.setInputs?.(this.#inputs);
      await this.#adopt(tables);
      if (this.#isDisposed) return;
      this.#connectPart(opened);
      if (!this.#isComplete) continue;
      for (const table of tables) table.allowDeletes();
      void this.#retire(opened);
    }
  }

  /** Connects a part to the engines. A failure is reported in the status: other parts and repairs continue. */
  #connectPart({ name, part }: OpenedPart): void {
    if (part === undefined || this.#engines === undefined) return;
    try {
      this.#disconnects.push(connectDatapath(part.datapath, this.#engines));
    } catch (error) {
      this.#failures.set(`${name}: engines`, `${name}: cannot subscribe to the engines: ${messageOf(error)}`);
    }
  }

  /** Runs a call of a table, and records its failure. Does nothing after dispose: descriptors may be closed. */
  async #attempt<T>({ name }: KeptItems, use: () => Promise<T>): Promise<T | undefined> {
    if (this.#isDisposed) return undefined;
    try {
      const result = await use();
      this.#failures.delete(name);
      return result;
    } catch (error) {
      this.#failures.set(name, `${name}: ${messageOf(error)}`);
      return undefined;
    }
  }
}

function stateOf({ part, missing }: OpenedPart): LinuxPartStatus['state'] {
  if (part !== undefined) return 'running';
  return missing.length > 0 ? 'unavailable' : 'off';
}

/** Throws if a table is incomplete, because the items of an earlier process are then still needed. */
function assertComplete(table: KeptItems): void {
  const { name } = table;
  const missing = table.missing();
  if (missing > 0) throw new Error(`${counted(missing, 'item')} of ${name} not written`);
}

function openPart(probe: ProbeAnswer, wanted: WantedPart): OpenedPart {
  const { name, needs, open, retire } = wanted;
  if (open === undefined) return { name, part: undefined, missing: [], retire };
  const missing = [...new Set(needs.flatMap((need) => missingFor(probe, need)))];
  if (missing.length > 0) return { name, part: undefined, missing };
  try {
    return { name, part: open(), missing: [] };
  } catch (error) {
    return { name, part: undefined, missing: [messageOf(error)], unopened: wanted };
  }
}
