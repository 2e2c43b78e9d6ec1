import { IdentityCache } from '../../model/identity-cache.ts';
import { CILIUM_IDENTITY_FIELDS, type ParsedIdentity, readCiliumIdentity } from '../parse-cilium-identity.ts';
import type { KindReader } from './object-feed.ts';

/**
 * The identities of CiliumIdentities, by number and by labels (KUBERNETES 44 to 47). Two numbers may have the same
 * labels, because identities are allocated without locks. A lookup by labels returns the oldest number, or the lowest
 * of equally old numbers (KUBERNETES 45).
 */
export class KubernetesIdentities {
  readonly #identities = new Map<number, ParsedIdentity>();
  readonly cache: IdentityCache = new IdentityCache(
    (a, b) => this.#createdAt(a) - this.#createdAt(b) || a - b,
  );

  /**
   * Returns true if an identity is marked for deletion. An allocator that uses it must remove the mark (KUBERNETES 46).
   */
  isMarked(id: number): boolean {
    return this.#identities.get(id)?.marked ?? false;
  }

  /** Returns the reader that fills the cache. */
  reader(): KindReader<ParsedIdentity> {
    return {
      kind: 'CiliumIdentity',
      fields: CILIUM_IDENTITY_FIELDS,
      read: readCiliumIdentity,
      change: (current, previous) => {
        // Also if only the age changes, because it determines the position among identities with the same labels.
        if (previous !== undefined && previous.createdAt !== current?.createdAt) {
          this.cache.delete(previous.id);
          this.#identities.delete(previous.id);
        }
        if (current === undefined) return;
        this.#identities.set(current.id, current);
        this.cache.upsert(current.id, current.labels);
      },
    };
  }

  #createdAt(id: number): number {
    return this.#identities.get(id)?.createdAt ?? 0;
  }
}
