import { RemoteIdentityCache } from '../../identity/remote-identity-cache.ts';
import {
  CILIUM_IDENTITY_FIELDS,
  type CiliumIdentitySays,
  readCiliumIdentity,
} from '../parse-cilium-identity.ts';
import type { ObjectReader } from './object-feed.ts';

/**
 * The identities of a cluster without kvstore: number ↔ labels, from CiliumIdentities (K 44 to 47). There are no locks, so
 * two numbers may stand for the same labels: the oldest is given, then the lower (K 45).
 */
export class KubernetesIdentities {
  readonly #said = new Map<number, CiliumIdentitySays>();
  readonly cache: RemoteIdentityCache = new RemoteIdentityCache(
    (a, b) => this.#createdAt(a) - this.#createdAt(b) || a - b,
  );

  /** Whether an identity is marked for deletion: who allocates it takes the mark away (K 46). */
  isMarked(id: number): boolean {
    return this.#said.get(id)?.marked ?? false;
  }

  /** What feeds it. */
  reader(): ObjectReader<CiliumIdentitySays> {
    return {
      kind: 'CiliumIdentity',
      fields: CILIUM_IDENTITY_FIELDS,
      read: readCiliumIdentity,
      change: (now, before) => {
        // Of another age it has another place, with the same labels.
        if (before !== undefined) this.cache.delete(before.id);
        if (now === undefined) {
          if (before !== undefined) this.#said.delete(before.id);
          return;
        }
        this.#said.set(now.id, now);
        this.cache.upsert(now.id, now.labels);
      },
    };
  }

  #createdAt(id: number): number {
    return this.#said.get(id)?.createdAt ?? 0;
  }
}
