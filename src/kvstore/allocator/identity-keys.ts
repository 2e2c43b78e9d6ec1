import type { RejectionLog } from '../../base/rejection.ts';
import { rejection } from '../../base/rejection.ts';
import { formatLabels, type Labels } from '../../identity/labels.ts';
import type { NumericIdentity } from '../../identity/numeric-identity.ts';
import type { KvstoreBackend, KvstoreLock } from '../backend.ts';
import { textOfBytes } from '../bytes.ts';
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
import { KvstoreError } from '../errors.ts';

/** Master keys of a cluster's identities lie below this. */
export const MASTER_PREFIX: string = `${IDENTITIES_PREFIX}id/`;

/** Options of {@link IdentityKeys}. */
export interface IdentityKeysOptions {
  readonly backend: KvstoreBackend;
  /** Last part of this node's slave keys: its address. No `/`. */
  readonly nodeSuffix: string;
  readonly rejections: RejectionLog;
}

/** How a call is made. */
export interface IdentityCall {
  readonly ifLocked?: KvstoreLock;
  readonly signal?: AbortSignal | undefined;
}

/** What a node knows already when it looks for a master key. */
export interface KnownMasters {
  /** The identity that the labels have, as far as is known. */
  readonly cached: NumericIdentity | undefined;
  /** What was written before this revision is known. Taken under the lock: a restore since then costs the lock. */
  readonly revision: number;
}

/**
 * The keys by which the nodes of a cluster agree on the numbers of labels (WIRE):
 *
 *     id/<number>             → labels    the master key; stays until it is collected as garbage
 *     value/<labels>/<node>   → number    one slave key per node that uses it, under the node's lease
 *
 * Each method is one question or write; who asks when is the allocator's. Rejects as the backend does.
 */
export class IdentityKeys {
  readonly #options: IdentityKeysOptions;

  constructor(options: IdentityKeysOptions) {
    this.#options = options;
  }

  /** Waits for the lock under which the labels are given a number. */
  lock(labels: Labels, signal: AbortSignal | undefined): Promise<KvstoreLock> {
    return this.#options.backend.lock(`${IDENTITY_LOCKS_PREFIX}${formatLabels(labels)}`, { signal });
  }

  /**
   * The identities that the labels may have: by the slave keys of nodes, then by master keys not yet collected. A slave
   * key may be older than what its number stands for.
   */
  async *find(
    labels: Labels,
    known: KnownMasters,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<NumericIdentity> {
    yield* await this.#bySlave(labels, signal);
    yield* await this.#byMaster(labels, known, signal);
  }

  /** Writes a master key where there is none; false when the number is taken, by these labels or others. */
  createMaster(id: NumericIdentity, labels: Labels, call: IdentityCall): Promise<boolean> {
    return this.#options.backend.createOnly(identityKey(id), encodeIdentity(labels), call);
  }

  /**
   * Makes sure that there is a master key that gives the number to these labels. False, and reported, when it stands
   * for others.
   */
  async ensureMaster(id: NumericIdentity, labels: Labels, call: IdentityCall): Promise<boolean> {
    const { backend, rejections } = this.#options;
    if (await this.createMaster(id, labels, call)) return true;
    const master = identityKey(id);
    const found = await backend.get(master, call);
    if (found === undefined) throw new KvstoreError('unavailable', `${master} has just been deleted`);
    const key = formatLabels(labels);
    const text = textOfBytes(found.value) ?? '';
    if (text === key) return true;
    rejections.add(rejection('identity-conflict', 'value', text, `this node uses it for ${key}`, master));
    return false;
  }

  /** Says that this node uses the identity, for as long as its lease lives. */
  async putSlave(id: NumericIdentity, labels: Labels, call: IdentityCall): Promise<void> {
    await this.#options.backend.updateIfDifferent(this.#slave(labels), encodeIdentityNumber(id), {
      ...call,
      leased: true,
      fenced: true,
    });
  }

  /** This node does not use the labels any more. */
  async deleteSlave(labels: Labels, call: IdentityCall): Promise<void> {
    await this.#options.backend.delete(this.#slave(labels), { ...call, fenced: true });
  }

  #slave(labels: Labels): string {
    return identityValueKey(formatLabels(labels), this.#options.nodeSuffix);
  }

  async #bySlave(labels: Labels, signal: AbortSignal | undefined): Promise<ReadonlySet<NumericIdentity>> {
    const { backend, rejections } = this.#options;
    const found = new Set<NumericIdentity>();
    const prefix = identityValuePrefix(formatLabels(labels));
    for (const slave of await backend.listPrefix(prefix, { signal })) {
      // Labels may hold slashes: the key of longer ones can begin with the key of these.
      if (slave.key.includes('/', prefix.length)) continue;
      const decoded = decodeIdentityNumber(slave.value, slave.key);
      if (decoded.ok) found.add(decoded.value);
      else rejections.add(decoded.rejection);
    }
    return found;
  }

  /**
   * A cache is never quite up to date: what was written since is read beside it. Without that, a node whose
   * watch lags could give the labels a second number once the leases of the first one's users are lost.
   */
  async #byMaster(
    labels: Labels,
    { cached, revision }: KnownMasters,
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
      if (id !== undefined) found.add(id);
    }
    return found;
  }
}
