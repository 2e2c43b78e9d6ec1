import { formatLabels, type Labels } from '../../identity/labels.ts';
import type { NumericIdentity } from '../../identity/numeric-identity.ts';
import { type CiliumIdentitySays, readCiliumIdentity } from '../parse-cilium-identity.ts';
import type { ObjectReader } from './object-feed.ts';

/**
 * The identities of a cluster without kvstore: number ↔ labels, from CiliumIdentities (K 44 to 47). There are no locks, so
 * two numbers may stand for the same labels: the oldest is given, then the lower (K 45). Each number has its labels at any
 * rate.
 */
export class KubernetesIdentities {
  readonly #byID = new Map<number, CiliumIdentitySays>();
  readonly #byLabels = new Map<string, CiliumIdentitySays[]>();
  #changes = 0;

  get size(): number {
    return this.#byID.size;
  }

  /** Goes up with every change. */
  get changes(): number {
    return this.#changes;
  }

  /** The labels behind an identity. */
  lookupByID(id: number): Labels | undefined {
    return this.#byID.get(id)?.labels;
  }

  /** The identity of exactly these labels. */
  lookupByLabels(labels: Labels): NumericIdentity | undefined {
    return this.#byLabels.get(formatLabels(labels))?.[0]?.id;
  }

  /** Whether an identity is marked for deletion: who allocates it takes the mark away (K 46). */
  isMarked(id: number): boolean {
    return this.#byID.get(id)?.marked ?? false;
  }

  /** Every identity with its labels, in no particular order. */
  *entries(): Generator<readonly [number, Labels]> {
    for (const [id, { labels }] of this.#byID) yield [id, labels];
  }

  /** What feeds it. */
  reader(): ObjectReader<CiliumIdentitySays> {
    return {
      kind: 'CiliumIdentity',
      read: readCiliumIdentity,
      change: (now, before) => {
        this.#changes++;
        if (before !== undefined) this.#remove(before);
        if (now !== undefined) this.#add(now);
      },
    };
  }

  #add(identity: CiliumIdentitySays): void {
    this.#byID.set(identity.id, identity);
    const key = formatLabels(identity.labels);
    const equal = [...(this.#byLabels.get(key) ?? []), identity];
    this.#byLabels.set(
      key,
      equal.sort((a, b) => a.createdAt - b.createdAt || a.id - b.id),
    );
  }

  #remove(identity: CiliumIdentitySays): void {
    this.#byID.delete(identity.id);
    const key = formatLabels(identity.labels);
    const rest = (this.#byLabels.get(key) ?? []).filter(({ id }) => id !== identity.id);
    if (rest.length > 0) this.#byLabels.set(key, rest);
    else this.#byLabels.delete(key);
  }
}
