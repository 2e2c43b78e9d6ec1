import type { Labels } from '../../model/labels.ts';
import type { Source } from '../../model/source.ts';

/**
 * Receives the labels of prefixes from several resources. The labels of a prefix are merged, get an identity, and
 * become a claim in the IPCache. New labels of a resource replace its previous labels of the same prefix.
 */
export interface PrefixMetadata {
  /** Sets the labels of `prefix`, a CIDR in canonical form. `resource` assigns them: `cnp/shop/allow-office`. */
  upsertMetadata(prefix: string, source: Source, resource: string, labels: Labels): unknown;
  /** Removes the labels of a resource from a prefix. */
  removeMetadata(prefix: string, resource: string): unknown;
}
