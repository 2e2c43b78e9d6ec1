import { backoffDelay } from '../base/backoff.ts';
import type { Clock, Random } from '../base/clock.ts';
import { sleep } from '../base/sleep.ts';
import type { KvstoreLock } from './backend.ts';
import { bytesOfText } from './bytes.ts';
import { abortedError, KvstoreError } from './errors.ts';
import { keyRange, prefixRange } from './key-range.ts';
import { LeaseKeeper } from './lease-keeper.ts';
import { untilClosed } from './shared-signal.ts';
import type { CallOptions, KeyValue, LeaseID, Transport } from './transport.ts';

/** What a {@link LockKeeper} is made of. */
export interface LockKeeperOptions {
  readonly transport: Transport;
  readonly clock: Clock;
  readonly random: Random;
}

// A lock whose holder has died is free after so long; upstream's value.
const LOCK_TTL_SECONDS = 25;
// A watch for the holder's key may end or fall silent: then the queue is looked at again.
const RECHECK_MS = 5000;
const CLEANUP = { baseMs: 200, capMs: 5000 };
const EMPTY = bytesOfText('');

interface Place {
  readonly key: string;
  readonly revision: number;
  readonly lease: LeaseID;
}

/** A place that is being given up, until it is gone or somebody in this process takes it over. */
interface Leaving {
  readonly stop: AbortController;
  readonly ended: Promise<void>;
}

const hexOf = (lease: LeaseID): string => BigInt.asUintN(64, BigInt(lease)).toString(16);

/**
 * Distributed locks in the protocol of etcd's Go client (`clientv3/concurrency.Mutex`), so that Go programs and
 * this one exclude each other: each contender puts `<path>/<lease in hex>`, and the one with the lowest create
 * revision holds the lock; the others each wait for the one before them.
 *
 * All locks of a client hang on one lease of their own, so within a process they are taken in turn first.
 */
export class LockKeeper {
  readonly #options: LockKeeperOptions;
  readonly #leases: LeaseKeeper;
  readonly #closed = new AbortController();
  /** Held locks, by path. */
  readonly #held = new Map<string, AbortController>();
  /** The last one in line in this process, by path. */
  readonly #turns = new Map<string, Promise<void>>();
  readonly #leaving = new Map<string, Leaving>();

  constructor(options: LockKeeperOptions) {
    this.#options = options;
    this.#leases = new LeaseKeeper({
      ...options,
      ttlSeconds: LOCK_TTL_SECONDS,
      onLost: (_lease, paths) => {
        for (const path of paths) this.#held.get(path)?.abort();
      },
    });
  }

  /** See `KvstoreBackend.lock`. */
  async lock(path: string, { signal: given }: CallOptions = {}): Promise<KvstoreLock> {
    const signal = untilClosed(given, this.#closed.signal);
    const done = await this.#turn(path, signal);
    try {
      return await this.#acquire(path, signal, done);
    } catch (error) {
      done();
      throw error;
    }
  }

  /** The store was restored from a backup: whether it knows of our locks nobody can tell, so they are lost. */
  loseAll(): void {
    this.#leases.loseAll();
  }

  /** Gives up every lock. */
  async close(): Promise<void> {
    this.#closed.abort();
    for (const lost of this.#held.values()) lost.abort();
    for (const { stop } of this.#leaving.values()) stop.abort();
    await this.#leases.close(true);
  }

  /** Waits until nobody in this process holds or wants the path before us; gives the function that ends our turn. */
  async #turn(path: string, signal: AbortSignal): Promise<() => void> {
    const before = this.#turns.get(path) ?? Promise.resolve();
    let done: () => void = () => {};
    const own = new Promise<void>((resolve) => {
      done = resolve;
    });
    const last = before.then(() => own);
    this.#turns.set(path, last);
    // Who gives up waiting is done before those ahead are: they still count.
    void last.then(() => {
      if (this.#turns.get(path) === last) this.#turns.delete(path);
    });
    await orAborted(before, signal);
    if (!signal.aborted) return done;
    done();
    throw abortedError();
  }

  async #acquire(path: string, signal: AbortSignal, done: () => void): Promise<KvstoreLock> {
    const place = await this.#enter(path, signal);
    try {
      await this.#awaitTurn(path, place, signal);
    } catch (error) {
      void this.#leave(path, place);
      throw error;
    }
    const lost = new AbortController();
    this.#held.set(path, lost);
    let released: Promise<void> | undefined;
    return {
      key: place.key,
      revision: place.revision,
      lost: lost.signal,
      release: () => {
        released ??= this.#leave(path, place).finally(() => {
          this.#held.delete(path);
          done();
        });
        return released;
      },
    };
  }

  /** Takes a place in the queue: a key under our lease. */
  async #enter(path: string, signal: AbortSignal): Promise<Place> {
    const { transport } = this.#options;
    const lease = await this.#leases.leaseFor(path);
    const key = `${path}/${hexOf(lease)}`;
    // What was left late would else take the key from under us, which is the same.
    const leaving = this.#leaving.get(path);
    leaving?.stop.abort();
    await orAborted(leaving?.ended ?? Promise.resolve(), signal);
    try {
      const { succeeded, header } = await transport.txn(
        {
          compare: [{ key, target: 'create-revision', equals: 0 }],
          writes: [{ op: 'put', key, value: EMPTY, lease }],
        },
        { signal },
      );
      if (succeeded) return { key, lease, revision: header.revision };
    } catch (error) {
      if (error instanceof KvstoreError && error.code === 'lease-not-found') this.#leases.markLost(lease);
      // The answer may be lost and the key there all the same.
      else void this.#leave(path, { key, lease, revision: 0 });
      throw error;
    }
    // It was there: left over from a call whose answer was lost.
    const { kvs } = await transport.range(keyRange(key), { signal });
    if (kvs[0] !== undefined) return { key, lease, revision: kvs[0].createRevision };
    throw new KvstoreError('unavailable', `the place in the queue of ${path} was lost`);
  }

  async #awaitTurn(path: string, place: Place, signal: AbortSignal): Promise<void> {
    for (;;) {
      const { header, kvs: below } = await this.#options.transport.range(prefixRange(`${path}/`), { signal });
      // Go also waits for the locks of paths below this one; both ways exclude each other.
      const kvs = below.filter(({ key }) => !key.includes('/', path.length + 1));
      if (!kvs.some(({ key, createRevision }) => key === place.key && createRevision === place.revision)) {
        throw new KvstoreError('lease-not-found', `the place in the queue of ${path} was lost`);
      }
      const ahead = lastBefore(kvs, place.revision);
      if (ahead === undefined) return;
      await this.#untilGone(ahead.key, header.revision + 1, signal);
      if (signal.aborted) throw abortedError();
    }
  }

  /** Resolves when the key was deleted, when the watch for it has ended, or after a while: look again. */
  #untilGone(key: string, startRevision: number, signal: AbortSignal): Promise<void> {
    const { transport, clock } = this.#options;
    return new Promise((resolve) => {
      const end = (): void => {
        timer.cancel();
        signal.removeEventListener('abort', end);
        stream.cancel();
        resolve();
      };
      const timer = clock.after(RECHECK_MS, end);
      const stream = transport.watch(
        { prefix: key, startRevision },
        {
          onCreated: () => {},
          onProgress: () => {},
          onEvents: (events) => {
            if (events.some((event) => event.key === key && event.value === undefined)) end();
          },
          // Not at once: a server that refuses watches must not be asked without pause.
          onEnd: () => {},
        },
      );
      signal.addEventListener('abort', end);
    });
  }

  /** Leaves the queue; if that cannot be told to the server now, in the background until it can. */
  async #leave(path: string, { key, lease }: Place): Promise<void> {
    this.#leases.unbind(path);
    const first = this.#deleted(key);
    const stop = new AbortController();
    const leaving: Leaving = { stop, ended: this.#cleanUp(first, key, lease, stop.signal) };
    this.#leaving.set(path, leaving);
    void leaving.ended.then(() => {
      if (this.#leaving.get(path) === leaving) this.#leaving.delete(path);
    });
    await first;
  }

  async #deleted(key: string): Promise<boolean> {
    try {
      await this.#options.transport.txn({ compare: [], writes: [{ op: 'delete', range: keyRange(key) }] });
      return true;
    } catch {
      return false; // tried again, and if need be it goes with its lease
    }
  }

  /** A key that is left would block everybody for as long as our lease is kept alive. */
  async #cleanUp(first: Promise<boolean>, key: string, lease: LeaseID, signal: AbortSignal): Promise<void> {
    const { clock, random } = this.#options;
    let isGone = await first;
    for (let failures = 1; !isGone && !signal.aborted && this.#leases.holds(lease); failures++) {
      await sleep(clock, backoffDelay(failures, CLEANUP, random), signal);
      if (!signal.aborted) isGone = await this.#deleted(key);
    }
  }
}

/** Who is right before `revision` in the queue; undefined: nobody. */
function lastBefore(kvs: readonly KeyValue[], revision: number): KeyValue | undefined {
  let last: KeyValue | undefined;
  for (const kv of kvs) {
    if (kv.createRevision < revision && kv.createRevision > (last?.createRevision ?? 0)) last = kv;
  }
  return last;
}

/** Resolves with the promise, which never rejects, or as soon as the signal fires. */
function orAborted(promise: Promise<void>, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const done = (): void => {
      signal.removeEventListener('abort', done);
      resolve();
    };
    signal.addEventListener('abort', done);
    void promise.then(done);
  });
}
