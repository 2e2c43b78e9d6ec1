import type { Labels } from '../../identity/labels.ts';
import type { Source } from '../../identity/source.ts';

/**
 * Where labels of prefixes go that several resources may say: they are merged, get an identity, and become a claim in the
 * IPCache. What one resource says of a prefix replaces what it said of it before.
 */
export interface PrefixMetadata {
  /** `prefix` is a CIDR in canonical form, `resource` names who says so: `cnp/shop/allow-office`. */
  upsertMetadata(prefix: string, source: Source, resource: string, labels: Labels): unknown;
  /** The resource says nothing of the prefix any more. */
  removeMetadata(prefix: string, resource: string): unknown;
}
