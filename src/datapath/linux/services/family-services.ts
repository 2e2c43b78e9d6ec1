import type { ApplyOutcome, MapUse } from '../kernel-table.ts';
import type { SyscallError } from '../syscall/syscall-error.ts';
import { MapBatch, type OnOutcome } from './map-batch.ts';
import { changedSlots, type Endpoint, parseEndpoint, without } from './service-layout.ts';
import type { ServiceMaps } from './service-maps.ts';

/**
 * Limit for the numbers of our backends. Greater ones were written by others: if ours continued from them, they would
 * exceed 32 bits, and overwrite other backends.
 */
const MAX_BACKEND_NUMBER = 0x7fff_ffff;
const NONE: readonly string[] = [];

export interface ServiceLimits {
  /** Maximum number of entries written or deleted by a call of `apply`, without frontends. */
  readonly entriesPerCall: number;
  /** Minimum length of stored lists of backends. Shorter ones are compared with the slots. */
  readonly storedList: number;
}

/** A backend in the kernel, with the number of slots and members referring to it. */
interface BackendRow {
  readonly number: number;
  readonly endpoint: Endpoint;
  uses: number;
}

export interface InstalledFrontend {
  /** Backends by slot; the first one is slot 1. Undefined if none is known. May contain more slots than `count`. */
  readonly slots: (string | undefined)[];
  /** Undefined if there are slots but no frontend. */
  count: number | undefined;
  affinitySeconds: number;
  /** The backends for clients with session affinity. */
  readonly members: Set<string>;
  /** The backends of the slots, sorted; undefined if the list is short, or if its last step was not completed. */
  backends?: readonly string[] | undefined;
}

/** The desired state of a frontend, and the outcome, which {@link FamilyServices.apply} sets. */
export interface FrontendStep {
  readonly frontend: string;
  readonly endpoint: Endpoint;
  readonly installed: InstalledFrontend;
  /** Undefined if the frontend is to be deleted. */
  readonly desired: { readonly backends: readonly string[]; readonly affinitySeconds: number } | undefined;
  /** The backends of `installed` before this step. */
  former?: readonly string[] | undefined;
  error: SyscallError | undefined;
  /** True if entries of the step remain, so that it must be applied again. */
  isUnfinished: boolean;
}

/**
 * The services of one family in the kernel, as read and written: numbers of backends and references to them. A backend
 * keeps its number over restarts, and no number is reused during the life of a process.
 */
export class FamilyServices {
  serviceMaps: ServiceMaps;
  #backends = new Map<string, BackendRow>();
  #frontends = new Map<string, InstalledFrontend>();
  #nextNumber = 1;
  /** Backends that may have lost their last reference since the last check. */
  readonly #unused = new Set<string>();
  /** Frontends with an unfinished step. Their new backends may have no references yet, and are not deleted. */
  readonly #unfinished = new Set<string>();
  readonly #limits: ServiceLimits;
  /** Number of entries left for the current call of `apply` to write or delete. */
  #entriesLeft = 0;

  constructor(serviceMaps: ServiceMaps, limits: ServiceLimits) {
    this.serviceMaps = serviceMaps;
    this.#limits = limits;
  }

  get frontends(): ReadonlyMap<string, InstalledFrontend> {
    return this.#frontends;
  }

  /** Returns the usage of the maps, except those that drop their oldest entries. */
  mapUse(): readonly MapUse[] {
    const used = { services: 0, backends: this.#backends.size, members: 0 };
    for (const { count, slots, members } of this.#frontends.values()) {
      used.services += slots.length + (count === undefined ? 0 : 1);
      used.members += members.size;
    }
    return (['services', 'backends', 'members'] as const).map((name) => ({
      name: `${name}${this.serviceMaps.family}`,
      used: used[name],
      capacity: this.serviceMaps.maps[name].shape.maxEntries,
    }));
  }

  /** Returns the backends without references by slots or members. */
  *unusedBackends(): Generator<string, void, void> {
    for (const [text, { uses }] of this.#backends) if (uses === 0) yield text;
  }

  /**
   * Reads all maps, one batch per step. The previous state is kept until everything has been read, also if reading
   * fails or is abandoned. Nothing may be written meanwhile.
   */
  *read(): Generator<undefined, void, void> {
    const backends = new Map<string, BackendRow>();
    const frontends = new Map<string, InstalledFrontend>();
    const byNumber = new Map<number, string>();
    yield* forEachEntry(this.serviceMaps.readBackends(), ([number, text]) => {
      // A second backend with the same address was written by others. It gets a name that no desired backend has, so
      // that frontends with it are rewritten.
      const name = backends.has(text) ? `${text}#${number}` : text;
      byNumber.set(number, name);
      backends.set(name, { number, endpoint: parseEndpoint(text), uses: 0 });
    });
    yield* forEachEntry(this.serviceMaps.readServices(), (entry) => {
      const installed = installedIn(frontends, entry.frontend);
      if (entry.slot > 0) fillSlot(installed, entry, byNumber, backends);
      else {
        installed.count = entry.count;
        installed.affinitySeconds = entry.affinitySeconds;
      }
    });
    yield* forEachEntry(this.serviceMaps.readMembers(), ([frontend, number]) => {
      const text = byNumber.get(number) ?? `#${number}`;
      installedIn(frontends, frontend).members.add(text);
      const row = backends.get(text);
      if (row !== undefined) row.uses++;
    });
    this.#backends = backends;
    this.#frontends = frontends;
    this.#unfinished.clear();
    for (const { number } of backends.values())
      if (number < MAX_BACKEND_NUMBER) this.#nextNumber = Math.max(this.#nextNumber, number + 1);
  }

  /** Returns the state of a frontend, empty if it does not exist yet. */
  installed(frontend: string): InstalledFrontend {
    return installedIn(this.#frontends, frontend);
  }

  /**
   * Applies steps together: adds backends, then slots, then the frontends that refer to them; deletes in reverse order.
   * If a step fails, its later writes are skipped, and the entries it still refers to are kept. If there are too
   * many entries for one call, steps are unfinished: a frontend does not count its new slots before all are written.
   */
  apply(steps: readonly FrontendStep[]): void {
    const { entriesPerCall, storedList } = this.#limits;
    this.#entriesLeft = entriesPerCall;
    for (const step of steps) {
      step.former = step.installed.backends;
      step.installed.backends = undefined; // until the step is completed
    }
    this.#addBackends(steps);
    this.#writeSlots(steps);
    this.#writeFrontends(steps);
    this.#trim(steps);
    for (const step of steps) {
      const { frontend, installed, desired = { backends: NONE } } = step;
      if (!isStopped(step) && desired.backends.length >= storedList) installed.backends = desired.backends;
      if (installed.count === undefined && installed.slots.length === 0 && installed.members.size === 0)
        this.#frontends.delete(frontend);
      if (step.isUnfinished && step.error === undefined) this.#unfinished.add(frontend);
      else this.#unfinished.delete(frontend);
    }
    if (this.#unfinished.size === 0) this.#deleteUnused(steps.find(({ error }) => error === undefined));
  }

  /**
   * Deletes a backend without references, unless a reference was added since, and retries the failed deletes of others.
   * Uses the entries left by the last {@link apply}.
   */
  release(backend: string): ApplyOutcome {
    this.#unused.add(backend);
    return this.#deleteUnused() ?? (this.#unused.has(backend) ? 'unfinished' : undefined);
  }

  #addBackends(steps: readonly FrontendStep[]): void {
    const batch = new MapBatch(this.serviceMaps.maps.backends, 'update');
    const refused = new Map<string, SyscallError>();
    for (const step of steps) {
      for (const text of addedBackends(step)) {
        if (this.#backends.has(text)) continue;
        if (!this.#takeEntry(step)) break;
        const row: BackendRow = { number: this.#nextNumber++, endpoint: parseEndpoint(text), uses: 0 };
        this.#backends.set(text, row);
        this.#unused.add(text);
        const write = (keyAt: number, valueAt: number): void => {
          this.serviceMaps.writeBackendKey(keyAt, row.number);
          this.serviceMaps.writeBackend(valueAt, row.endpoint);
        };
        batch.add(write, (error) => {
          if (error !== undefined) refused.set(text, error);
        });
      }
    }
    batch.flush();
    if (refused.size === 0) return;
    for (const text of refused.keys()) this.#backends.delete(text);
    for (const step of steps)
      step.error ??= step.desired?.backends
        .map((text) => refused.get(text))
        .find((error) => error !== undefined);
  }

  #writeSlots(steps: readonly FrontendStep[]): void {
    const slots = new MapBatch(this.serviceMaps.maps.services, 'update');
    const members = new MapBatch(this.serviceMaps.maps.members, 'update');
    for (const step of steps) {
      const { desired, installed, endpoint } = step;
      if (desired === undefined || isStopped(step)) continue;
      for (const [index, text] of changedSlots(installed.slots, desired.backends, step.former)) {
        if (!this.#takeEntry(step)) break;
        const number = this.#backends.get(text)?.number ?? 0;
        const write = (keyAt: number, valueAt: number): void => {
          this.serviceMaps.writeServiceKey(keyAt, endpoint, index + 1);
          this.serviceMaps.writeSlot(valueAt, number);
        };
        slots.add(
          write,
          outcomeOf(step, () => this.#setSlot(installed, index, text)),
        );
      }
      for (const text of desired.affinitySeconds === 0 ? NONE : addedMembers(step)) {
        const row = this.#backends.get(text);
        if (row === undefined || installed.members.has(text)) continue;
        if (!this.#takeEntry(step)) break;
        members.add(
          (keyAt, valueAt) => this.serviceMaps.writeMember(keyAt, valueAt, endpoint, row.number),
          outcomeOf(step, () => {
            installed.members.add(text);
            row.uses++;
          }),
        );
      }
    }
    slots.flush();
    members.flush();
  }

  #writeFrontends(steps: readonly FrontendStep[]): void {
    const upserts = new MapBatch(this.serviceMaps.maps.services, 'update');
    const deletes = new MapBatch(this.serviceMaps.maps.services, 'delete');
    // Two passes, because both batches share the memory of their map.
    for (const step of steps) {
      const { desired, installed, endpoint } = step;
      if (desired === undefined || isStopped(step)) continue;
      const count = desired.backends.length;
      const { affinitySeconds } = desired;
      if (installed.count === count && installed.affinitySeconds === affinitySeconds) continue;
      const write = (keyAt: number, valueAt: number): void => {
        this.serviceMaps.writeServiceKey(keyAt, endpoint, 0);
        this.serviceMaps.writeService(valueAt, count, affinitySeconds);
      };
      upserts.add(
        write,
        outcomeOf(step, () => Object.assign(installed, { count, affinitySeconds })),
      );
    }
    upserts.flush();
    for (const step of steps) {
      const { desired, installed, endpoint } = step;
      if (desired !== undefined || installed.count === undefined) continue;
      deletes.add(
        (keyAt) => this.serviceMaps.writeServiceKey(keyAt, endpoint, 0),
        outcomeOf(step, () => {
          installed.count = undefined;
        }),
      );
    }
    deletes.flush();
  }

  /** Deletes slots beyond the count, and undesired members. */
  #trim(steps: readonly FrontendStep[]): void {
    const slots = new MapBatch(this.serviceMaps.maps.services, 'delete');
    const members = new MapBatch(this.serviceMaps.maps.members, 'delete');
    for (const step of steps) {
      const { desired, installed, endpoint } = step;
      if (isStopped(step)) continue;
      // From the end, so that the next call of an unfinished step continues where this one has ended.
      for (let index = installed.slots.length - 1; index >= (desired?.backends.length ?? 0); index--) {
        if (!this.#takeEntry(step)) break;
        slots.add(
          (keyAt) => this.serviceMaps.writeServiceKey(keyAt, endpoint, index + 1),
          outcomeOf(step, () => this.#setSlot(installed, index, undefined)),
        );
      }
      for (const text of removedMembers(step)) {
        if (!this.#takeEntry(step)) break;
        // A backend missing from the map is known by its number only: `#17`.
        const number = this.#backends.get(text)?.number ?? Number(text.split('#').at(-1));
        members.add(
          (keyAt, valueAt) => this.serviceMaps.writeMember(keyAt, valueAt, endpoint, number),
          outcomeOf(step, () => {
            installed.members.delete(text);
            this.#dropUse(text);
          }),
        );
      }
    }
    slots.flush();
    members.flush();
    for (const { installed } of steps) dropEmptyEnd(installed.slots);
  }

  /**
   * Deletes the backends without references. Returns the first error. If there are too many for this
   * call, `step` is unfinished; without a step, the next call deletes the others.
   */
  #deleteUnused(step?: FrontendStep): SyscallError | undefined {
    const batch = new MapBatch(this.serviceMaps.maps.backends, 'delete');
    let failure: SyscallError | undefined;
    for (const text of this.#unused) {
      const row = this.#backends.get(text);
      if (row === undefined || row.uses > 0) {
        this.#unused.delete(text);
        continue;
      }
      if (!this.#takeEntry(step)) break;
      batch.add(
        (keyAt) => this.serviceMaps.writeBackendKey(keyAt, row.number),
        (error) => {
          failure ??= error;
          // A failed delete is retried with the next change.
          if (error !== undefined) return;
          this.#backends.delete(text);
          this.#unused.delete(text);
        },
      );
    }
    batch.flush();
    return failure;
  }

  /** Returns true if this call may write or delete one more entry. If not, the step is unfinished. */
  #takeEntry(step: FrontendStep | undefined): boolean {
    const isAllowed = this.#entriesLeft-- > 0;
    if (step !== undefined) step.isUnfinished = !isAllowed;
    return isAllowed;
  }

  /** Removes a reference of a slot or member to a backend. */
  #dropUse(text: string): void {
    const row = this.#backends.get(text);
    if (row !== undefined && --row.uses === 0) this.#unused.add(text);
  }

  #setSlot(installed: InstalledFrontend, index: number, text: string | undefined): void {
    const previous = installed.slots[index];
    if (previous !== undefined) this.#dropUse(previous);
    while (installed.slots.length < index) installed.slots.push(undefined);
    installed.slots[index] = text;
    const row = text === undefined ? undefined : this.#backends.get(text);
    if (row !== undefined) row.uses++;
  }
}

/** Returns true if the later writes of a step are skipped in this call. */
function isStopped({ error, isUnfinished }: FrontendStep): boolean {
  return error !== undefined || isUnfinished;
}

/** Returns the backends that a step adds to the former ones, or all its backends if the former ones are not known. */
function addedBackends({ desired, former = NONE }: FrontendStep): readonly string[] {
  return without(desired?.backends ?? NONE, former);
}

/** Returns the members that a step adds; if session affinity was off, all backends of the step. */
function addedMembers(step: FrontendStep): readonly string[] {
  const { desired, installed } = step;
  return installed.affinitySeconds === 0 ? (desired?.backends ?? NONE) : addedBackends(step);
}

/** Returns the members to delete in a step. */
function removedMembers({ desired, installed: { members }, former }: FrontendStep): Iterable<string> {
  if (desired === undefined || desired.affinitySeconds === 0) return members;
  if (former !== undefined) return without(former, desired.backends).filter((text) => members.has(text));
  const staying = new Set(desired.backends);
  return [...members].filter((text) => !staying.has(text));
}

/** Returns a callback that runs `onSuccess` after a successful write, or stores the error in the step of the write. */
function outcomeOf(step: FrontendStep, onSuccess: () => void): OnOutcome {
  return (error) => {
    if (error === undefined) onSuccess();
    else step.error ??= error;
  };
}

/** Passes each entry to `use`. Yields at each undefined one, which ends a batch. */
function* forEachEntry<T>(
  entries: Iterable<T | undefined>,
  use: (entry: T) => void,
): Generator<undefined, void, void> {
  for (const entry of entries)
    if (entry === undefined) yield;
    else use(entry);
}

/** Returns the state of a frontend; adds an empty one if there is none. */
function installedIn(frontends: Map<string, InstalledFrontend>, frontend: string): InstalledFrontend {
  const found = frontends.get(frontend);
  if (found !== undefined) return found;
  const empty: InstalledFrontend = { slots: [], count: undefined, affinitySeconds: 0, members: new Set() };
  frontends.set(frontend, empty);
  return empty;
}

/** Records a slot read from the kernel. */
function fillSlot(
  { slots }: InstalledFrontend,
  { slot, number }: { readonly slot: number; readonly number: number },
  byNumber: ReadonlyMap<number, string>,
  backends: ReadonlyMap<string, BackendRow>,
): void {
  const text = byNumber.get(number) ?? `#${number}`;
  while (slots.length < slot - 1) slots.push(undefined);
  slots[slot - 1] = text;
  const row = backends.get(text);
  if (row !== undefined) row.uses++;
}

function dropEmptyEnd(slots: (string | undefined)[]): void {
  while (slots.length > 0 && slots.at(-1) === undefined) slots.pop();
}
