import { type RejectionLog, rejection } from '../../base/rejection.ts';
import { formatLabels, type Labels } from '../../model/labels.ts';
import type { IdentityRange, NumericIdentity } from '../../model/numeric-identity.ts';
import { textOfBytes } from '../codec/bytes.ts';
import {
  decodeIdentityNumber,
  encodeIdentity,
  encodeIdentityNumber,
  parseIdentityText,
} from '../codec/identity.ts';
import {
  IDENTITIES_PREFIX,
  IDENTITY_LOCKS_PREFIX,
  identityKey,
  identityValueKey,
  identityValuePrefix,
} from '../codec/keys.ts';
import type { KvstoreBackend, KvstoreLock } from '../session/backend.ts';
import { KvstoreError } from '../session/errors.ts';

export const MASTER_PREFIX: string = `${IDENTITIES_PREFIX}id/`;

/** Options of the keys of an `IdentityAllocator`. */
export interface IdentityKeysOptions {
  /** The kvstore of the cluster. The caller closes it. */
  readonly backend: KvstoreBackend;
  /** Last part of the slave keys of this node: its address. It contains no `/`. */
  readonly nodeSuffix: string;
  /** The numbers of this cluster: `clusterIdentityRange(clusterID, max)`. */
  readonly range: IdentityRange;
  /** Counts invalid keys and values. */
  readonly rejections: RejectionLog;
}

export interface IdentityCall {
  readonly ifLocked?: KvstoreLock;
  readonly signal?: AbortSignal | undefined;
}

/** The identity of labels in the cache of this node. Must be read while the lock of the labels is held. */
export interface CachedMaster {
  /** Undefined if the cache has no identity of the labels. */
  readonly cached: NumericIdentity | undefined;
  /** All writes before this revision are in the cache, while the lock is held. A restore of the store ends the lock. */
  readonly revision: number;
}

/**
 * The keys by which the nodes of a cluster agree on the numbers of labels (WIRE):
 *
 *     id/<number>             → labels    the master key; exists until it is collected
 *     value/<labels>/<node>   → number    one slave key per node that uses it, under the lease of the node
 *
 * Each method is one read or write; the allocator decides their order. A method rejects with the error of the backend.
 */
export class IdentityKeys {
  readonly #options: IdentityKeysOptions;

  constructor(options: IdentityKeysOptions) {
    this.#options = options;
  }

  lock(labels: Labels, signal: AbortSignal | undefined): Promise<KvstoreLock> {
    return this.#options.backend.lock(`${IDENTITY_LOCKS_PREFIX}${formatLabels(labels)}`, { signal });
  }

  /**
   * Yields the candidate identities of the labels: first from the slave keys of nodes, then from master keys that still
   * exist. A slave key may be outdated, so its number may belong to other labels. Numbers outside of the range of this
   * cluster are rejected, because they belong to other clusters.
   */
  async *find(
    labels: Labels,
    known: CachedMaster,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<NumericIdentity> {
    yield* await this.#bySlave(labels, signal);
    yield* await this.#byMaster(labels, known, signal);
  }

  /** Returns true if the cluster may use the number of a key; otherwise rejects the key. */
  #isInRange(id: NumericIdentity, key: string): boolean {
    const { range, rejections } = this.#options;
    if (id >= range.min && id <= range.max) return true;
    const problem = `must be ${range.min} to ${range.max}, the identities of this cluster`;
    rejections.add(rejection('out-of-range', 'identity', id, problem, key));
    return false;
  }

  /**
   * Writes a master key if it does not exist. Returns false if the number has a master key, for these or other labels.
   */
  createMaster(id: NumericIdentity, labels: Labels, call: IdentityCall): Promise<boolean> {
    return this.#options.backend.createOnly(identityKey(id), encodeIdentity(labels), call);
  }

  /**
   * Ensures that a master key assigns the number to these labels. If it belongs to other labels, reports this and
   * returns false.
   */
  async ensureMaster(id: NumericIdentity, labels: Labels, call: IdentityCall): Promise<boolean> {
    const { backend, rejections } = this.#options;
    if (await this.createMaster(id, labels, call)) return true;
    const master = identityKey(id);
    const found = await backend.get(master, call);
    if (found === undefined) throw new KvstoreError('unavailable', `${master} was deleted concurrently`);
    const key = formatLabels(labels);
    const text = textOfBytes(found.value) ?? '';
    if (text === key) return true;
    rejections.add(
      rejection(
        'identity-conflict',
        'value',
        text,
        `must be ${key}, for which this node uses the identity`,
        master,
      ),
    );
    return false;
  }

  /** Writes the slave key of this node, which exists while its lease is alive. */
  async putSlave(id: NumericIdentity, labels: Labels, call: IdentityCall): Promise<void> {
    await this.#options.backend.updateIfDifferent(this.#slaveKey(labels), encodeIdentityNumber(id), {
      ...call,
      leased: true,
      fenced: true,
    });
  }

  async deleteSlave(labels: Labels, call: IdentityCall): Promise<void> {
    await this.#options.backend.delete(this.#slaveKey(labels), { ...call, fenced: true });
  }

  #slaveKey(labels: Labels): string {
    return identityValueKey(formatLabels(labels), this.#options.nodeSuffix);
  }

  async #bySlave(labels: Labels, signal: AbortSignal | undefined): Promise<ReadonlySet<NumericIdentity>> {
    const { backend, rejections } = this.#options;
    const found = new Set<NumericIdentity>();
    const prefix = identityValuePrefix(formatLabels(labels));
    for (const slave of await backend.listPrefix(prefix, { signal })) {
      // Labels may contain slashes, so keys of longer labels can have the same prefix.
      if (slave.key.includes('/', prefix.length)) continue;
      const decoded = decodeIdentityNumber(slave.value, slave.key);
      if (!decoded.ok) rejections.add(decoded.rejection);
      else if (this.#isInRange(decoded.value, slave.key)) found.add(decoded.value);
    }
    return found;
  }

  /**
   * Returns the identities from master keys. Reads the writes that are not in the cache yet from the kvstore, because a
   * node with a slow watch could otherwise allocate a second number for the labels, after the users of the first number
   * have lost their leases.
   */
  async #byMaster(
    labels: Labels,
    { cached, revision }: CachedMaster,
    signal: AbortSignal | undefined,
  ): Promise<ReadonlySet<NumericIdentity>> {
    const { backend } = this.#options;
    const found = new Set<NumericIdentity>();
    const candidates = [
      ...(cached === undefined ? [] : [await backend.get(identityKey(cached), { signal })]),
      ...(await backend.listPrefix(MASTER_PREFIX, { signal, minModRevision: revision })),
    ];
    const key = formatLabels(labels);
    for (const master of candidates) {
      if (master === undefined || textOfBytes(master.value) !== key) continue;
      const id = parseIdentityText(master.key.slice(MASTER_PREFIX.length));
      if (id !== undefined && this.#isInRange(id, master.key)) found.add(id);
    }
    return found;
  }
}
