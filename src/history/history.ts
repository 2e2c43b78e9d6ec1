import {
  atLeast,
  type Check,
  checkArgument,
  checkArguments,
  FUNCTION,
  OBJECT,
  objectWith,
  optional,
  optionsWith,
  requireAllowed,
  requireArgument,
  TEXT,
} from '../base/arguments.ts';
import type { Clock } from '../base/clock.ts';
import { type Failure, failureOf } from '../base/failure.ts';
import type { Unsubscribe } from '../base/subscription.ts';
import { type Runtime, withRuntime } from '../base/system-clock.ts';
import { OPEN_GATE, type TurnGate } from '../base/turn-gate.ts';
import { ADDRESS_LIST, type AddressList, countAddresses, readListAddress } from '../ipcache/address-list.ts';
import { sameEntry } from '../ipcache/change.ts';
import { EFFECT } from '../ipcache/claims/claim-state.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import type { KeyedEntry } from '../ipcache/types.ts';
import { ownerCluster } from '../model/source.ts';
import type { Family } from '../net/address-words.ts';
import { formatKey, type PrefixRegister, parseKey, prefixRegister } from '../net/prefix.ts';
import { ChangeLog, type ChangeLogCounts, type UncertainSpan } from './change-log.ts';
import { type HistoryDisk, SegmentArchive } from './disk/segment-archive.ts';
import { SegmentWriter } from './disk/segment-writer.ts';
import type { DocumentChange } from './document-change.ts';
import { certaintyOf, currentLife, type Life } from './lives.ts';
import { PastLookups } from './past/past-lookups.ts';
import { PastReader } from './past/past-reader.ts';
import {
  isLaterThan,
  momentOf,
  NOT_RETAINED,
  pointOfSequence,
  pointOfWall,
  type RequestedMoment,
  unretainedMoment,
  WHEN,
} from './point-in-time.ts';
import { covering, lengthsOf } from './prefix-lengths.ts';
import { changesOfKeys, claimsByKey, keysOf, PastState, type TimelineChange } from './prefix-timeline.ts';
import type { Segment } from './segment.ts';
import type { ChangeCause, MarkKind, PrefixMoment, RetainedInterval, Uncertainty, When } from './types.ts';

/** Default of `memory`: 16 MiB. */
export const DEFAULT_MEMORY: number = 16 << 20;

/** Minimum of `memory`: 16 segments of 16 KiB. */
const MIN_MEMORY: number = 256 << 10;

/** Minimum of `disk.maxBytes`: 16 segments of 64 KiB. */
const MIN_DISK: number = 1 << 20;

/** Options of {@link History}. */
export interface HistoryOptions {
  /** The cache whose claims are recorded. */
  readonly ipcache: IPCache;
  /** Default: the system clock. */
  readonly clock?: Clock | undefined;
  /** Maximum memory of records and indexes in bytes; default 16 MiB, minimum 256 KiB. */
  readonly memory?: number | undefined;
  /** The storage of segments; default: none, so records are in memory only. */
  readonly disk?: HistoryDisk | undefined;
  /** Splits the work of {@link History.past} into short turns. */
  readonly gate?: TurnGate | undefined;
}

/** Status of the segments on disk. */
export interface HistoryDiskStatus {
  readonly bytes: number;
  readonly maxBytes: number;
  /** Segments that could not be read and were dropped. */
  readonly damaged: number;
  /** Failure of the last write, if it failed. Changes are then kept in memory only. */
  readonly failure: Failure | undefined;
}

/** Status of a {@link History}. */
export interface HistoryStatus extends ChangeLogCounts {
  /** Earliest wall time of the retained states, in milliseconds; undefined before the start. */
  readonly retainedFrom: number | undefined;
  /** Undefined without a disk. */
  readonly disk: HistoryDiskStatus | undefined;
}

/**
 * The history of the claims on prefixes, and of services and nodes. Records every change of a claim of an `IPCache`
 * from {@link History.start} on. A query for an earlier moment takes the current claims and undoes each later change,
 * newest first. The rules of SEMANTICS 2 then select the effective claim.
 *
 * A record costs 1 to 2 µs and about 34 bytes. The oldest records are dropped when the memory is full. With a disk,
 * each {@link History.flush} appends records to files. {@link History.past} also answers from the files, even from
 * those of earlier processes. `at` and the lookups answer at once, from memory only.
 */
export class History implements AsyncDisposable {
  readonly #options: HistoryOptions & Runtime;
  readonly #archive: SegmentArchive | undefined;
  #writer: SegmentWriter | undefined;
  #openFailure: Failure | undefined;
  #isOpen = false;
  #log: ChangeLog | undefined;
  #observing: Unsubscribe | undefined;
  /** Answers from memory and disk, in slices. */
  readonly past: PastReader;

  constructor(options: HistoryOptions) {
    checkArgument('new History: options', options, OPTIONS);
    const { memory = DEFAULT_MEMORY, disk, gate = OPEN_GATE } = options;
    this.#options = withRuntime({ ...options, memory });
    this.#archive = disk && new SegmentArchive(disk, gate);
    const { ipcache, clock } = this.#options;
    const archive = (): SegmentArchive | undefined => (this.#isOpen ? this.#archive : undefined);
    this.past = new PastReader({ ipcache, clock, gate, log: () => this.#log, archive });
  }

  /**
   * Reads the segments that earlier processes have stored. Must resolve before {@link History.start}; otherwise changes
   * are recorded in memory only. Never rejects: if the folder cannot be read, the status has the failure.
   */
  async open(): Promise<void> {
    requireAllowed(this.#log === undefined, 'open must be called before start');
    try {
      await this.#archive?.open();
      this.#isOpen = this.#log === undefined; // false if `start` did not wait
    } catch (error) {
      this.#openFailure = failureOf(error, this.#options.clock);
    }
  }

  /** Writes the new records to the disk. Must be called each second. Never rejects; the status has the failure. */
  async flush(): Promise<void> {
    await this.#writer?.flush();
  }

  /** Writes everything and completes the last segment. Call it after {@link History.stop}. Never rejects. */
  async close(): Promise<void> {
    await this.#writer?.stop();
    this.#writer = undefined;
  }

  /** Starts to record. Must be called when the first lists are complete, because their items are not changes. */
  start(): void {
    requireAllowed(this.#log === undefined, 'start must be called once');
    const { ipcache, clock, memory = DEFAULT_MEMORY } = this.#options;
    const archive = this.#isOpen ? this.#archive : undefined;
    const log = new ChangeLog(
      clock,
      memory,
      archive && {
        maxBytes: archive.disk.maxBytes,
        firstSequence: archive.nextSequence,
        onSealed: () => void this.flush(),
      },
    );
    this.#log = log;
    this.#writer = archive && new SegmentWriter(archive, log, clock);
    log.addMark('start', '');
    this.#observing = ipcache.observeClaims((key, writer, before, after, effect, continues) => {
      // Neither the claim that confirms a restored one nor the release of the restored one is recorded, because after a
      // restart such records would look like changes of all prefixes.
      const confirms = (effect & EFFECT.confirms) !== 0;
      const isReleased = writer.source === 'restored' && after === undefined && effect === 0;
      if (
        confirms ||
        (isReleased && ipcache.claimsOf(formatKey(key)).some((one) => sameEntry(one, before)))
      ) {
        log.skipRestored(ownerCluster(writer.owner), continues);
        return;
      }
      log.addClaim(key, { writer, before, after, effect }, continues);
    });
  }

  /** Ends the recording. Later answers are not certain, because current claims may have changed without a record. */
  stop(): void {
    this.#observing?.();
    this.#observing = undefined;
    this.#log?.end();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.stop();
    await this.close();
  }

  /** Sets the store and revision of the next changes, until the next call; undefined if they have none. */
  setCause(cause: ChangeCause | undefined): void {
    this.#log?.setCause(cause);
  }

  /** Records an event that is not the change of one entry. */
  mark(mark: MarkKind, subject: string, detail = ''): void {
    this.#log?.addMark(mark, subject, detail);
  }

  /** Records the change of a service (`namespace/name`) or a node (`cluster/name`); see {@link DocumentChange}. */
  recordDocument(
    kind: 'service' | 'node',
    key: string,
    writer: string,
    { before, after }: DocumentChange,
  ): void {
    this.#log?.addDocument(kind, key, {
      writer,
      before: before && JSON.stringify(before),
      after: after && JSON.stringify(after),
    });
  }

  /**
   * @internal
   * Returns true if the change of a document is too large to be recorded; it is then counted as lost. Avoids the JSON
   * of large changes.
   *
   * @param length a lower bound of the length of the JSON
   */
  loseIfTooLarge(key: string, length: number): boolean {
    return this.#log?.loseIfTooLarge(key, length) ?? false;
  }

  /** Begins an interval of uncertain answers; end it with {@link History.endUncertainty}. */
  beginUncertainty(reason: Uncertainty, subject: string): UncertainSpan | undefined {
    return this.#log?.beginSpan(reason, subject);
  }

  /** Ends an interval of uncertain answers. */
  endUncertainty(span: UncertainSpan): void {
    this.#log?.endSpan(span);
  }

  /** Compares the wall time with the monotonic time, and records a mark if the clock was set. Call it every second. */
  checkClock(): void {
    this.#log?.markClockSteps();
  }

  /** The interval of the retained changes in memory. */
  get retained(): RetainedInterval {
    const log = this.#log;
    const now = this.#options.clock.wallTime();
    return { from: Math.min(now, log?.clock.lowestWall(log.floorMs) ?? now), to: now };
  }

  status(): HistoryStatus {
    const counts = this.#log?.counts() ?? {
      records: { prefix: 0, service: 0, node: 0, mark: 0, batch: 0 },
      lost: { rate: 0, size: 0 },
      bytes: 0,
      recordsInMemory: 0,
    };
    const archive = this.#archive;
    const disk = archive && {
      bytes: archive.bytes + (this.#writer?.bytes ?? 0),
      maxBytes: archive.disk.maxBytes,
      damaged: archive.damaged,
      failure: this.#openFailure ?? this.#writer?.failure,
    };
    return { ...counts, retainedFrom: this.#log === undefined ? undefined : this.past.retained.from, disk };
  }

  /** Sequence number of the newest record; undefined before {@link History.start}. */
  get newestSequence(): number | undefined {
    return this.#log && this.#log.nextSequence - 1;
  }

  /**
   * Returns all claims on the prefix of `key` at a moment, like `IPCache.explain`: changes at that millisecond are
   * included. Returns undefined if `key` is invalid. If the moment is not retained, there are no claims and the reason
   * is `not-retained`. Reads each later change of the prefix in one turn, at about 1 µs; {@link History.past} answers
   * the same in slices.
   */
  at(key: string, when: When): PrefixMoment | undefined {
    const register = prefixRegister();
    return parseKey(key, register) ? this.#moment(register, this.#pointOf(when)) : undefined;
  }

  /**
   * Returns the claims on the longest prefix that contained `ip` at a moment. If no prefix contained it, there are no
   * claims, and `prefix` is that of `ip` itself. Returns undefined if `ip` is invalid.
   */
  lookup(ip: string, when: When): PrefixMoment | undefined {
    const register = prefixRegister();
    if (!parseKey(ip, register) || register.form !== 'endpoint') return undefined;
    const requested = this.#pointOf(when);
    let ofAddress: PrefixMoment | undefined;
    for (const key of covering(register, this.#lengths(register.family))) {
      const moment = this.#moment(key, requested);
      if (moment.effective !== undefined || requested.point === undefined) return moment;
      ofAddress ??= moment; // the first key is the address itself
    }
    return ofAddress;
  }

  /**
   * Looks up many addresses, each at its own wall time in milliseconds, like `IPCache.lookupMany`: the identity of each
   * is written to the same index of `identities`, 0 if it is unknown. If `certain` is passed, it gets 1 for each
   * certain answer, else 0. Returns the number of addresses that were found. An address without later changes costs
   * little more than with `IPCache.lookupMany`.
   *
   * Answers from memory only. For a time before {@link History.retained}, the identity is 0 and not certain, even if
   * the disk has it; {@link History.past} answers for such times. For a time in the future, the result is the current
   * identity, not certain.
   */
  lookupMany(
    addresses: AddressList,
    times: ArrayLike<number>,
    identities: Uint32Array,
    certain?: Uint8Array,
  ): number {
    const count = countAddresses(addresses);
    requireArgument(
      identities.length >= count,
      'lookupMany: identities must have an element for each address',
    );
    let found = 0;
    identities.fill(0, 0, count);
    this.#lookupEach('lookupMany', addresses, times, certain, (lookups, ip, address, ms, index) => {
      const identity = lookups.identityAt(ip, address, ms);
      if (identity === undefined) return;
      identities[index] = identity;
      found++;
    });
    return found;
  }

  /**
   * Like {@link History.lookupMany}, but returns the entry of each address, with its host and pod, as
   * `IPCache.lookup` returned it at that time; `undefined` if there was none, or if the time is not retained. Costs 1
   * to 2 µs an address, a tenth of {@link History.lookup}, which also returns overruled claims and times of changes.
   */
  lookupEntries(
    addresses: AddressList,
    times: ArrayLike<number>,
    certain?: Uint8Array,
  ): (KeyedEntry | undefined)[] {
    const entries = new Array<KeyedEntry | undefined>(countAddresses(addresses)).fill(undefined);
    this.#lookupEach('lookupEntries', addresses, times, certain, (lookups, ip, address, ms, index) => {
      entries[index] = lookups.entryAt(ip, address, ms);
    });
    return entries;
  }

  /** Calls `lookup` for each valid address whose time is retained, and writes to `certain`. */
  #lookupEach(
    method: string,
    addresses: AddressList,
    times: ArrayLike<number>,
    certain: Uint8Array | undefined,
    lookup: (lookups: PastLookups, ip: string, address: PrefixRegister, ms: number, index: number) => void,
  ): void {
    const count = countAddresses(addresses);
    const hasRoom = times.length >= count && (certain?.length ?? count) >= count;
    requireArgument(hasRoom, `${method}: times and certain must have an element for each address`);
    const lookups = new PastLookups(this.#options.ipcache, this.#segments(), {
      4: this.#lengths(4),
      6: this.#lengths(6),
    });
    const register = prefixRegister();
    this.#log?.noticeClockStep();
    const lives = this.#lives();
    const now = this.#options.clock.wallTime();
    for (let i = 0; i < count; i++) {
      const { point, reason } = pointOfWall(lives, times[i] ?? Number.NaN, now);
      if (certain !== undefined) certain[i] = reason === undefined ? 1 : 0;
      if (point === undefined || !readListAddress(addresses, i, register)) continue;
      const listed = 'bytes' in addresses ? undefined : addresses[i];
      lookup(lookups, typeof listed === 'string' ? listed : formatKey(register), register, point.lifeMs, i);
    }
  }

  #segments(): readonly Segment[] {
    return this.#log?.segments ?? [];
  }

  /** Returns the position of a moment in the records, and the reason if answers for it are not certain. */
  #pointOf(when: When): RequestedMoment {
    const log = this.#log;
    if (log === undefined) return NOT_RETAINED;
    log.noticeClockStep();
    return typeof when === 'number'
      ? pointOfWall(this.#lives(), when, this.#options.clock.wallTime())
      : pointOfSequence(log, when.sequence);
  }

  /** Returns the current life with the records in memory; empty before the start. */
  #lives(): readonly Life[] {
    return this.#log === undefined ? [] : [currentLife([], 0, this.#log)];
  }

  /** Yields the changes of the keys of a prefix, newest first. Each is read when it is requested. */
  *#changesOf(keys: readonly PrefixRegister[]): Generator<TimelineChange, void, void> {
    for (const segment of this.#segments().toReversed()) yield* changesOfKeys(segment, keys);
  }

  #moment(key: Readonly<PrefixRegister>, { point, reason }: RequestedMoment): PrefixMoment {
    const { retained } = this;
    const log = this.#log;
    if (point === undefined || log === undefined) return unretainedMoment(key, retained, reason);
    const keys = keysOf(key);
    const state = new PastState(claimsByKey(keys, (text) => this.#options.ipcache.claimsOf(text)));
    const isLater = isLaterThan(point);
    for (const change of this.#changesOf(keys)) {
      if (isLater(change)) state.undo(change);
      else if (state.findStarts(change)) break;
    }
    const wallOf = (ms: number): number => log.clock.wallOf(ms);
    const certainty = certaintyOf(log, point, reason);
    const past = state.result();
    return momentOf(key, { ms: point.lifeMs, past, wallOf, claimsComplete: true, certainty, retained });
  }

  #lengths(family: Family): readonly number[] {
    const isRecorded = (length: number): boolean =>
      this.#segments().some((segment) => segment.hasLength(family, length));
    return lengthsOf(this.#options.ipcache, family, isRecorded);
  }
}

const CAUSE: Check = optional(objectWith({ store: TEXT, revision: TEXT }));

const OPTIONS = optionsWith({
  ipcache: objectWith({ observeClaims: FUNCTION, lookupMany: FUNCTION }),
  memory: optional(atLeast(MIN_MEMORY)),
  disk: optional(objectWith({ maxBytes: atLeast(MIN_DISK) })),
});

checkArguments(History, {
  setCause: { cause: CAUSE },
  mark: { mark: TEXT, subject: TEXT, detail: optional(TEXT) },
  recordDocument: { kind: TEXT, key: TEXT, writer: TEXT, change: OBJECT },
  beginUncertainty: { reason: TEXT, subject: TEXT },
  endUncertainty: { span: OBJECT },
  at: { key: TEXT, when: WHEN },
  lookup: { ip: TEXT, when: WHEN },
  lookupMany: { addresses: ADDRESS_LIST, times: OBJECT, identities: OBJECT },
  lookupEntries: { addresses: ADDRESS_LIST, times: OBJECT },
});
