import { messageOf } from '../../base/failure.ts';
import { unsubscribeOnce } from '../../base/subscription.ts';
import { connectDatapath, type Datapath, type DatapathEngines } from '../datapath.ts';
import type { KeptItems, KeptItemsStatus, PrintedStep } from './kept-items.ts';
import { SteeredByAnotherError } from './own-locks.ts';
import { type DatapathPart, missingFor, type ProbeAnswer } from './probe.ts';

/** What the engines feed, each of which may be off, or not able to run, where the others do. */
export type LinuxPartName = 'nodes' | 'ipcache' | 'services';

/** A part of the datapath that is open: what it follows, and the tables of the kernel that it keeps equal to that. */
export interface LinuxPart extends Disposable {
  readonly datapath: Datapath;
  readonly tables: readonly KeptItems[];
  /** What of it does not work now, a sentence each: a cgroup that is gone, a device that cannot be had. */
  problems?(): readonly string[];
  /** The caches are complete and the tables have all of it: what an earlier process has left in another form can go. */
  retire?(): void;
}

/** A part that is asked for: what it needs of the host, and how it is opened. What `open` throws is why it cannot run. */
export interface WantedPart {
  readonly name: LinuxPartName;
  readonly needs: readonly DatapathPart[];
  /** Undefined: it is off. */
  readonly open: (() => LinuxPart) | undefined;
  /** Where it is off: takes away what an earlier process has left of it, once the caches are complete. */
  readonly retire?: (() => void) | undefined;
}

/** How a part stands. */
export interface LinuxPartStatus {
  readonly name: LinuxPartName;
  readonly state: 'runs' | 'off' | 'cannot run';
  readonly missing: readonly string[];
}

/** How a datapath stands. */
export interface LinuxDatapathStatus {
  readonly parts: readonly LinuxPartStatus[];
  readonly tables: readonly KeptItemsStatus[];
  /** What has failed as a whole, a sentence each. */
  readonly failures: readonly string[];
}

/** A part that runs, or why it does not. */
interface OpenedPart {
  readonly name: LinuxPartName;
  readonly part: LinuxPart | undefined;
  readonly missing: readonly string[];
  readonly retire?: (() => void) | undefined;
  /** Another process steers it: it is opened once that has ended. */
  readonly refused?: WantedPart | undefined;
}

/**
 * The datapath of the kernel that this process runs on. What can run does; what cannot is named, with what is missing. What
 * an earlier process has left is adopted: it works on meanwhile, is compared with what the engines say as they say it, and
 * is taken away only once the inputs are complete (`allowDeletes`).
 *
 *     open ─► adopt ─► connect ─────► allowDeletes
 *               │         │ nodes, prefixes at once
 *               │         └ services, too, where none were found; else with the inputs complete:
 *               │           a service whose backends are not all known yet would lose some
 *               └ dump of every table
 */
export class LinuxDatapath implements Disposable {
  readonly #probe: ProbeAnswer;
  readonly #parts: OpenedPart[];
  readonly #shared: Disposable | undefined;
  readonly #failures = new Map<string, string>();
  readonly #ends: (() => void)[] = [];
  readonly #connected = new Set<LinuxPartName>();
  /** Of which something from before is still there, because it could not be taken away or is still needed. */
  readonly #unretired = new Set<OpenedPart>();
  /** Tables in which there was something, or may have been. */
  readonly #found = new Set<KeptItems>();
  #engines: DatapathEngines | undefined;
  #isComplete = false;
  #isDisposed = false;

  /** Opens what can run here. Never throws. What the parts share is disposed of with them, as the last. */
  constructor(probe: ProbeAnswer, wanted: readonly WantedPart[], shared?: Disposable) {
    this.#probe = probe;
    this.#shared = shared;
    this.#parts = wanted.map((part) => opened(probe, part));
  }

  get #tables(): readonly KeptItems[] {
    return this.#parts.flatMap(({ part }) => part?.tables ?? []);
  }

  /** Reads what is there. A table that cannot be read is named, and not written either. */
  adopt(): Promise<void> {
    return this.#adopt(this.#tables);
  }

  async #adopt(tables: readonly KeptItems[]): Promise<void> {
    for (const table of tables) {
      await this.#tried(table, () => table.adopt());
      // One that cannot be read may have anything.
      const { state, actual } = table.status();
      if (state === 'unread' || actual > 0) this.#found.add(table);
    }
  }

  /** Follows the engines: nodes first, as entries and backends point to them. */
  connect(engines: DatapathEngines): void {
    if (this.#isDisposed) return;
    this.#engines = engines;
    for (const part of this.#parts) this.#connectEarly(part);
  }

  /** The inputs are complete: the engines have all that they will say of what was found. */
  allowDeletes(): void {
    this.#isComplete = true;
    for (const { name, part } of this.#parts) this.#connectPart(name, part);
    for (const table of this.#tables) table.allowDeletes();
    for (const part of this.#parts) void this.#retire(part);
  }

  /** Where the kernel differs from the engines, table by table, in the order in which it would be written. */
  async plan(): Promise<readonly PrintedStep[]> {
    const steps: PrintedStep[] = [];
    for (const table of this.#tables) steps.push(...((await this.#tried(table, () => table.plan())) ?? []));
    return steps;
  }

  /**
   * Puts right what others have changed; gives what has differed. What could not be read, or taken away, is tried again, and
   * so is a part that another process steers.
   */
  async repair(): Promise<readonly PrintedStep[]> {
    const steps: PrintedStep[] = [];
    await this.#takeOver();
    for (const table of this.#tables) {
      const isUnread = table.status().state === 'unread';
      if (isUnread) await this.#tried(table, () => table.adopt());
      else steps.push(...((await this.#tried(table, () => table.repair())) ?? []));
    }
    for (const part of this.#unretired) void this.#retire(part);
    return steps;
  }

  /** Resolves once nothing waits for its turn. */
  async flushed(): Promise<void> {
    for (const table of this.#tables) await table.flushed();
  }

  status(): LinuxDatapathStatus {
    return {
      parts: this.#parts.map(({ name, part, missing }) => ({
        name,
        state: part !== undefined ? 'runs' : missing.length > 0 ? 'cannot run' : 'off',
        missing: [...missing, ...(part?.problems?.() ?? [])],
      })),
      tables: this.#tables.map((table) => table.status()),
      failures: [...this.#failures.values()],
    };
  }

  /** Lets go of the kernel, which stays as it is: what is pinned works on. */
  [Symbol.dispose](): void {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    for (const end of this.#ends.splice(0).reverse()) end();
    for (const { part } of [...this.#parts].reverse()) {
      for (const table of part?.tables ?? []) table[Symbol.dispose]();
      part?.[Symbol.dispose]();
    }
    this.#shared?.[Symbol.dispose]();
  }

  /** A part whose tables cannot be read yet keeps no other waiting. */
  async #retire(opened: OpenedPart): Promise<void> {
    const { name, part, retire = part?.retire } = opened;
    if (retire === undefined) return;
    this.#unretired.delete(opened);
    for (const table of part?.tables ?? []) await table.flushed();
    if (this.#isDisposed) return;
    const failure = `${name}: what was there before`;
    try {
      for (const table of part?.tables ?? []) assertWhole(table);
      retire();
      this.#failures.delete(failure);
    } catch (error) {
      this.#unretired.add(opened);
      this.#failures.set(failure, `${failure} stays: ${messageOf(error)}`);
    }
  }

  /** Opens what another process has steered that has ended: as all others were, a step after the other. */
  async #takeOver(): Promise<void> {
    for (const [at, { refused }] of this.#parts.entries()) {
      if (refused === undefined || this.#isDisposed) continue;
      const part = opened(this.#probe, refused);
      this.#parts[at] = part;
      const { name, part: { tables } = { tables: [] } } = part;
      await this.#adopt(tables);
      if (this.#isDisposed) return;
      this.#connectEarly(part);
      if (!this.#isComplete) continue;
      this.#connectPart(name, part.part);
      for (const table of tables) table.allowDeletes();
      void this.#retire(part);
    }
  }

  /** Before the inputs are complete: but for services of which some were found. */
  #connectEarly({ name, part }: OpenedPart): void {
    const hasFound = part?.tables.some((table) => this.#found.has(table)) === true;
    if (name !== 'services' || !hasFound) this.#connectPart(name, part);
  }

  #connectPart(name: LinuxPartName, part: LinuxPart | undefined): void {
    if (part === undefined || this.#engines === undefined || this.#connected.has(name)) return;
    this.#connected.add(name);
    this.#ends.push(unsubscribeOnce(connectDatapath(part.datapath, this.#engines)));
  }

  /** Nothing is asked of a table that may have given back what it is read through. */
  async #tried<T>({ name }: KeptItems, use: () => Promise<T>): Promise<T | undefined> {
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

/** What an earlier process has left serves what is not written yet. */
function assertWhole(table: KeptItems): void {
  const { name } = table;
  const missing = table.missing();
  if (missing > 0) throw new Error(`${missing} items of ${name} are not written`);
}

function opened(probe: ProbeAnswer, wanted: WantedPart): OpenedPart {
  const { name, needs, open, retire } = wanted;
  if (open === undefined) return { name, part: undefined, missing: [], retire };
  const missing = [...new Set(needs.flatMap((need) => missingFor(probe, need)))];
  if (missing.length > 0) return { name, part: undefined, missing };
  try {
    return { name, part: open(), missing: [] };
  } catch (error) {
    const refused = error instanceof SteeredByAnotherError ? wanted : undefined;
    return { name, part: undefined, missing: [messageOf(error)], refused };
  }
}
