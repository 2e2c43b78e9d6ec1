import { EitherSignal, onAbort } from '../../base/follow-signal.ts';
import { KeyedQueue } from '../../base/keyed-queue.ts';
import { deferred } from '../../base/sleep.ts';
import { interruptible, type Supervisor } from '../../base/supervisor.ts';
import type { Runtime } from '../../base/system-clock.ts';
import { bytesOfText } from '../codec/bytes.ts';
import { keyRange, prefixRange } from '../codec/key-range.ts';
import type { KvstoreLock } from './backend.ts';
import { abortedError, KvstoreError, missingNewLease } from './errors.ts';
import { LeaseKeeper, leaseHex } from './lease-keeper.ts';
import type { CallOptions, KeyValue, LeaseID, Transport, TxnRequest, TxnResponse } from './transport.ts';
import { WriteFence } from './write-fence.ts';

export interface LockKeeperOptions extends Runtime {
  readonly transport: Transport;
  /** Runs the keepalives, and the deletes of queue entries. */
  readonly supervisor: Supervisor;
}

// Time after which the lock of a dead holder is free; the value of Cilium.
const LOCK_TTL_SECONDS = 25;
// Interval at which the key ahead is read again, because the watch of the key ahead may have ended or be stuck.
const RECHECK_MS = 5000;
const DELETE_BACKOFF = { baseMs: 200, capMs: 5000 };
/** Maximum number of contenders of a lock. More than the nodes of any cluster; limits what a server can send. */
const MAX_CONTENDERS = 65_536;
const EMPTY = bytesOfText('');

/** The key of a contender in the queue of a lock. */
interface QueueEntry {
  readonly key: string;
  readonly revision: number;
  readonly lease: LeaseID;
}

/** The running delete of a queue entry. */
interface EntryDelete {
  /** Ends the retries, because this process puts the same key again. */
  readonly stop: AbortController;
  readonly ended: Promise<void>;
}

/**
 * Distributed locks in the protocol of etcd's Go client (`clientv3/concurrency.Mutex`), so that Go programs and this
 * one exclude each other. Each contender puts the key `<path>/<lease in hex>`. The contender whose key has the lowest
 * create revision holds the lock. Every other contender waits until the key before its own is deleted.
 *
 * All locks of a client share one lease, so contenders of one process first wait for each other. A released entry never
 * reappears, because fenced puts and deletes cannot take effect late.
 */
export class LockKeeper {
  readonly #options: LockKeeperOptions;
  readonly #leases: LeaseKeeper;
  readonly #fence: WriteFence;
  readonly #closed = new AbortController();
  /** Held locks, by path. */
  readonly #held = new Map<string, AbortController>();
  /**
   * The contenders of this process by path, in order. Each is represented by the function that begins its turn. That of
   * the first contender was called; to call it again has no effect.
   */
  readonly #turns = new Map<string, KeyedQueue<() => void>>();
  /** The running deletes, by path. */
  readonly #deletes = new Map<string, EntryDelete>();

  constructor(options: LockKeeperOptions) {
    this.#options = options;
    this.#leases = new LeaseKeeper({
      ...options,
      name: 'locks',
      ttlSeconds: LOCK_TTL_SECONDS,
      exclusive: true,
      onLost: (paths) => {
        for (const path of paths) this.#held.get(path)?.abort();
      },
    });
    this.#fence = new WriteFence(this.#leases, (request) => options.transport.txn(request));
  }

  /** See `KvstoreBackend.lock`. */
  async lock(path: string, { signal: caller }: Pick<CallOptions, 'signal'> = {}): Promise<KvstoreLock> {
    using until = new EitherSignal(caller, this.#closed.signal);
    const { signal } = until;
    const endTurn = await this.#waitForTurn(path, signal);
    try {
      return await this.#acquire(path, signal, endTurn);
    } catch (error) {
      endTurn();
      throw error;
    }
  }

  /** Marks all locks as lost, because the store was restored from a backup and may not have them. */
  loseAll(): void {
    this.#leases.loseAll();
  }

  /** Releases every lock. See {@link LeaseKeeper.close}. */
  async close(deadlineMs?: number): Promise<void> {
    this.#closed.abort();
    for (const lost of this.#held.values()) lost.abort();
    await this.#leases.close(true, deadlineMs);
  }

  /** Waits for earlier contenders of this process. Returns a function to end the turn. */
  async #waitForTurn(path: string, signal: AbortSignal): Promise<() => void> {
    const turns = this.#turns.get(path) ?? new KeyedQueue();
    this.#turns.set(path, turns);
    const { promise: turn, resolve: begin } = deferred();
    turns.set(begin, undefined);
    turns.first?.();
    const end = (): void => {
      if (!turns.delete(begin)) return;
      if (turns.size === 0) this.#turns.delete(path);
      else turns.first?.();
    };
    await interruptible(() => turn, signal).catch(() => {}); // rejects only if the signal fires
    if (!signal.aborted) return end;
    end();
    throw abortedError();
  }

  async #acquire(path: string, signal: AbortSignal, endTurn: () => void): Promise<KvstoreLock> {
    const entry = await this.#waitInQueue(path, signal);
    const lost = new AbortController();
    this.#held.set(path, lost);
    if (!this.#leases.holds(entry.lease)) lost.abort(); // the lease was lost during the wait
    let released: Promise<void> | undefined;
    return {
      key: entry.key,
      revision: entry.revision,
      lost: lost.signal,
      release: () => {
        released ??= this.#deleteEntry(path, entry).finally(() => {
          this.#held.delete(path);
          endTurn();
        });
        return released;
      },
    };
  }

  /**
   * Waits in the queue until it is the turn of this contender. If its entry is lost, starts again at the end of the
   * queue.
   */
  async #waitInQueue(path: string, signal: AbortSignal): Promise<QueueEntry> {
    for (;;) {
      const entry = await this.#createEntry(path, signal);
      try {
        const isFirst = await this.#waitUntilFirst(path, entry, signal);
        if (isFirst && this.#leases.holds(entry.lease)) return entry;
      } catch (error) {
        void this.#deleteEntry(path, entry);
        throw error;
      }
      void this.#deleteEntry(path, entry);
    }
  }

  /**
   * Puts the key of a new contender under the lease.
   *
   * @param isRepeated true if the server did not have the previous lease
   */
  async #createEntry(path: string, signal: AbortSignal, isRepeated = false): Promise<QueueEntry> {
    const { id: lease } = (await this.#leases.bind(path, signal)).held;
    const key = `${path}/${leaseHex(lease)}`;
    // The previous entry of this process had the same key. Wait for its delete, which would otherwise delete the new
    // entry.
    const previous = this.#deletes.get(path);
    previous?.stop.abort();
    await interruptible(() => previous?.ended, signal).catch(() => {});
    try {
      const put = { op: 'put', key, value: EMPTY, lease } as const;
      const absent = { key, target: 'create-revision', equals: 0 } as const;
      const { succeeded, header } = await this.#txn({ compare: [absent], writes: [put] }, signal);
      if (succeeded) return { key, lease, revision: header.revision };
      // The key exists, left by a call whose answer was lost.
      const { kvs } = await this.#options.transport.range(keyRange(key), { signal });
      return { key, lease, revision: kvs[0]?.createRevision ?? 0 };
    } catch (error) {
      if (error instanceof KvstoreError && error.code === 'lease-not-found') {
        this.#leases.markLost(lease);
        if (isRepeated) throw missingNewLease(lease);
        return this.#createEntry(path, signal, true);
      }
      // The key may exist, because the answer may be lost.
      void this.#deleteEntry(path, { key, lease, revision: 0 });
      throw error;
    }
  }

  #txn(request: TxnRequest, signal?: AbortSignal): Promise<TxnResponse> {
    const { transport } = this.#options;
    return this.#fence.txn(request, (guarded) => transport.txn(guarded, { signal }), { signal });
  }

  /** Resolves to true when no entry is before `entry`, or to false if `entry` does not exist any more. */
  async #waitUntilFirst(path: string, entry: QueueEntry, signal: AbortSignal): Promise<boolean> {
    for (;;) {
      const range = { ...prefixRange(`${path}/`), limit: MAX_CONTENDERS, keysOnly: true };
      const { header, kvs: below, more } = await this.#options.transport.range(range, { signal });
      if (more) throw new KvstoreError('too-large', `${path} has more than ${MAX_CONTENDERS} keys`);
      // Ignore locks of paths below this path. The Go client waits for them, but both clients still exclude each other.
      const kvs = below.filter(({ key }) => !key.includes('/', path.length + 1));
      if (!kvs.some(({ createRevision }) => createRevision === entry.revision)) return false;
      const ahead = lastBefore(kvs, entry.revision);
      if (ahead === undefined) return true;
      await this.#untilChanged(entry, ahead, header.revision + 1, signal);
      if (signal.aborted) throw abortedError();
    }
  }

  /**
   * Resolves if the key ahead or the entry does not exist any more, or if the signal fires. Reads only these two keys:
   * if each contender read the whole queue, the reads would grow with the square of their number.
   */
  async #untilChanged(
    entry: QueueEntry,
    ahead: KeyValue,
    startRevision: number,
    signal: AbortSignal,
  ): Promise<void> {
    const expected = [{ key: entry.key, createRevision: entry.revision }, ahead];
    let start = startRevision;
    while (!(await this.#waitForDelete(ahead.key, start, signal))) {
      for (const { key, createRevision } of expected) {
        const { header, kvs } = await this.#options.transport.range(keyRange(key), { signal });
        if (kvs[0]?.createRevision !== createRevision) return;
        start = header.revision + 1;
      }
    }
  }

  /** Resolves to true when the key was deleted or the signal fires, or to false after {@link RECHECK_MS}. */
  #waitForDelete(key: string, startRevision: number, signal: AbortSignal): Promise<boolean> {
    if (signal.aborted) return Promise.resolve(true);
    const { transport, clock } = this.#options;
    return new Promise((resolve) => {
      const stop = (isOver: boolean): void => {
        timer.cancel();
        leaveSignal();
        stream.cancel();
        resolve(isOver);
      };
      const end = (): void => stop(true);
      const timer = clock.after(RECHECK_MS, () => stop(false));
      const stream = transport.watch(
        { prefix: key, startRevision },
        {
          onCreated: () => {},
          onProgress: () => {},
          onEvents: (events) => {
            if (events.some((event) => event.key === key && event.value === undefined)) end();
          },
          // Wait for the timer, because a server that refuses watches must not receive requests in a tight loop.
          onEnd: () => {},
        },
      );
      const leaveSignal = onAbort(signal, end);
    });
  }

  /**
   * Deletes the entry from the queue; resolves after the first attempt. If that fails, retries in the background,
   * because a remaining key would block all contenders while the lease is alive. Deletes of one path are sequential,
   * and a new entry waits for the last delete.
   */
  #deleteEntry(path: string, { key, lease }: QueueEntry): Promise<void> {
    const { bindings } = this.#leases;
    bindings.unbind(bindings.bindingOf(path));
    const previous = this.#deletes.get(path);
    previous?.stop.abort();
    const attempted = deferred();
    const deleteKey = async (): Promise<void> => {
      try {
        await previous?.ended;
        await this.#txn({ compare: [], writes: [{ op: 'delete', range: keyRange(key) }] });
      } catch (error) {
        if (this.#leases.holds(lease)) throw error; // otherwise the key is deleted with its lease
      } finally {
        attempted.resolve();
      }
    };
    const stop = new AbortController();
    const task = { signal: stop.signal, backoff: DELETE_BACKOFF };
    const name = `locks: delete of the key below ${path}`;
    const running = { stop, ended: this.#options.supervisor.runWithRestart(name, deleteKey, task) };
    this.#deletes.set(path, running);
    void running.ended.then(() => {
      if (this.#deletes.get(path) === running) this.#deletes.delete(path);
    });
    return attempted.promise;
  }
}

/** Returns the entry directly before `revision` in the queue; undefined if it is the first. */
function lastBefore(kvs: readonly KeyValue[], revision: number): KeyValue | undefined {
  let last: KeyValue | undefined;
  for (const kv of kvs) {
    if (kv.createRevision < revision && kv.createRevision > (last?.createRevision ?? 0)) last = kv;
  }
  return last;
}
