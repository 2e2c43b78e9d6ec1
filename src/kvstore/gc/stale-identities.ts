import type { IdentityRange } from '../../identity/numeric-identity.ts';
import { textOfBytes } from '../bytes.ts';
import { parseIdentityText } from '../codec/identity.ts';
import { IDENTITIES_PREFIX, parseKey } from '../codec/keys.ts';
import type { KeyValue } from '../transport.ts';

/**
 * The master keys that no node holds by a slave key, with their mod revisions. Keys that cannot be read and
 * identities outside the cluster's range are nobody's to collect. Pure.
 *
 * @param listing everything below `cilium/state/identities/v1/`, at one revision
 */
export function staleIdentities(
  listing: readonly KeyValue[],
  range: IdentityRange,
): ReadonlyMap<string, number> {
  const held = new Set<string>();
  for (const { key } of listing) {
    const parsed = parseKey(key);
    if (parsed?.kind === 'identity-value') held.add(parsed.labels);
  }
  const stale = new Map<string, number>();
  for (const { key, value, modRevision } of listing) {
    const parsed = parseKey(key);
    if (parsed?.kind !== 'identity') continue;
    const id = parseIdentityText(parsed.id);
    const labels = textOfBytes(value);
    if (id === undefined || labels === undefined || id < range.min || id > range.max) continue;
    if (!held.has(labels)) stale.set(key, modRevision);
  }
  return stale;
}

/** What the listing for {@link staleIdentities} covers. */
export const IDENTITY_LISTING_PREFIX: string = IDENTITIES_PREFIX;
