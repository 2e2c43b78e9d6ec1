import type { Random } from '../../../../src/base/clock.ts';
import { bytesOfText } from '../../../../src/kvstore/codec/bytes.ts';
import { keyRange } from '../../../../src/kvstore/codec/key-range.ts';
import type { EtcdConfig } from '../../../../src/kvstore/etcd/etcd-config.ts';
import { EtcdTransport } from '../../../../src/kvstore/etcd/etcd-transport.ts';
import { NO_LEASE, type WriteOperation } from '../../../../src/kvstore/session/transport.ts';
import type { Past } from './past.ts';
import { SteadyLoad } from './steady-load.ts';

/** A write that the server has confirmed. */
interface Acknowledged {
  readonly key: string;
  readonly value: string | undefined;
  readonly revision: number;
}

/** Number of the newest keys that are overwritten and deleted at random; older ones are not changed. */
const RECENT = 200;
/** Number of older keys that are kept; the oldest are deleted. */
const KEPT = 5000;
const TXN_KEYS = 4;
/** About 1,000 writes/s: a cycle of faults makes some thousand revisions. */
const PAUSE_MS = 2;
const DEADLINE_MS = 1000;

/**
 * Writes continuously, directly to the cluster, during any fault. Every value is written once, and most keys
 * are, because an overwrite would hide a lost write.
 */
export class WriteLoad extends SteadyLoad {
  readonly #transport: EtcdTransport;
  readonly #prefix: string;
  readonly #random: Random;
  /** All attempted writes. */
  readonly #attempted = new Set<string>();
  readonly #recent: string[] = [];
  #acknowledged: Acknowledged[] = [];
  #keys = 0;
  #retired = 0;

  constructor(config: EtcdConfig, prefix: string, random: Random) {
    super({ pauseMs: PAUSE_MS, failurePauseMs: 10 * PAUSE_MS });
    this.#transport = new EtcdTransport({ ...config, deadlineMs: DEADLINE_MS }, random);
    this.#prefix = prefix;
    this.#random = random;
  }

  /** Number of keys written so far, acknowledged or not. */
  get keys(): number {
    return this.#keys;
  }

  /** Returns true if this value was ever written under this key. */
  wrote(key: string, value: string): boolean {
    return this.#attempted.has(`${key}=${value}`);
  }

  /**
   * Returns the acknowledged writes that are missing in the history: the server has lost them. Forgets the
   * others.
   */
  missingFrom(past: Past): readonly Acknowledged[] {
    const isKept = ({ key, value, revision }: Acknowledged): boolean => {
      // A delete of an absent key leaves no trace.
      const found = past.at(key, revision);
      return found?.value === value && (value === undefined || found?.revision === revision);
    };
    const missing = this.#acknowledged.filter((write) => !isKept(write));
    this.#acknowledged = [];
    return missing;
  }

  async close(): Promise<void> {
    await this.pause();
    await this.#transport.close();
  }

  /** The result of a failed write is unknown until the history is read. */
  protected override async write(): Promise<void> {
    const entries = this.#batch();
    const { header } = await this.#transport.txn({ compare: [], writes: [...entries].map(operation) });
    for (const [key, value] of entries) this.#acknowledged.push({ key, value, revision: header.revision });
    this.confirmed(entries.size);
  }

  /** Returns one to five keys to be written together; undefined deletes. */
  #batch(): Map<string, string | undefined> {
    const entries = new Map<string, string | undefined>();
    const size = 1 + Math.floor(this.#random() * TXN_KEYS);
    while (entries.size < size) {
      const kind = this.#random();
      const old = this.#recent[Math.floor(this.#random() * this.#recent.length)];
      if (kind < 0.6 || old === undefined) this.#put(entries, this.#newKey());
      else if (kind < 0.8) this.#put(entries, old);
      else entries.set(old, undefined);
    }
    if (this.#keys - this.#retired > KEPT) entries.set(this.#key(++this.#retired), undefined);
    return entries;
  }

  #key(number: number): string {
    return `${this.#prefix}${String(number).padStart(7, '0')}`;
  }

  #newKey(): string {
    const key = this.#key(++this.#keys);
    this.#recent.push(key);
    if (this.#recent.length > RECENT) this.#recent.shift();
    return key;
  }

  #put(entries: Map<string, string | undefined>, key: string): void {
    const value = `value ${this.#attempted.size} of ${key}`;
    this.#attempted.add(`${key}=${value}`);
    entries.set(key, value);
  }
}

function operation([key, value]: readonly [string, string | undefined]): WriteOperation {
  if (value === undefined) return { op: 'delete', range: keyRange(key) };
  return { op: 'put', key, value: bytesOfText(value), lease: NO_LEASE };
}
