import { IdentityCache } from '../../model/identity-cache.ts';
import { CILIUM_IDENTITY_FIELDS, type ParsedIdentity, readCiliumIdentity } from '../parse-cilium-identity.ts';
import type { ObjectReader } from './object-feed.ts';

/**
 * The identities of a cluster without kvstore, by number and by labels, from CiliumIdentities (KUBERNETES 44 to 47). Two numbers
 * may have the same labels, because there are no locks. A lookup returns the oldest, then the lowest number (KUBERNETES 45).
 */
export class KubernetesIdentities {
  readonly #labels = new Map<number, ParsedIdentity>();
  readonly cache: IdentityCache = new IdentityCache(
    (a, b) => this.#createdAt(a) - this.#createdAt(b) || a - b,
  );

  /** Returns true if an identity is marked for deletion. An allocator that uses it must remove the mark (KUBERNETES 46). */
  isMarked(id: number): boolean {
    return this.#labels.get(id)?.marked ?? false;
  }

  /** Returns the reader that fills the cache. */
  reader(): ObjectReader<ParsedIdentity> {
    return {
      kind: 'CiliumIdentity',
      fields: CILIUM_IDENTITY_FIELDS,
      read: readCiliumIdentity,
      change: (current, previous) => {
        // Delete first, because an identity with another age has another position among those with the same labels.
        if (previous !== undefined) this.cache.delete(previous.id);
        if (current === undefined) {
          if (previous !== undefined) this.#labels.delete(previous.id);
          return;
        }
        this.#labels.set(current.id, current);
        this.cache.upsert(current.id, current.labels);
      },
    };
  }

  #createdAt(id: number): number {
    return this.#labels.get(id)?.createdAt ?? 0;
  }
}
