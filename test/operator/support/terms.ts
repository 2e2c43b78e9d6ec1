/** A request that has arrived at the servers of one cluster: an accepted write of the Lease, or a delete. */
export type Arrival =
  | { readonly at: number; readonly by: string; readonly holder: string }
  | { readonly at: number; readonly by: string; readonly deletes: string };

/**
 * Returns one sentence for each delete by an operator outside its term. The *term* begins with the write by which the
 * operator acquires the Lease. It ends when another client acquires the Lease, when the operator releases it, or when
 * the lease of its last renewal has expired. No two terms overlap, so a delete outside of a term may conflict with the
 * next leader.
 *
 * @param history in order of arrival, of the API server and of the kvstore
 */
export function trespasses(history: readonly Arrival[], leaseMs: number): readonly string[] {
  const found: string[] = [];
  let holder = '';
  let renewedAt = 0;
  for (const arrival of history) {
    const { at, by } = arrival;
    if ('holder' in arrival) {
      if (arrival.holder !== '' && arrival.holder !== by)
        found.push(`${by} wrote that ${arrival.holder} leads`);
      [holder, renewedAt] = [arrival.holder, at];
      continue;
    }
    const what = `${at}: ${by} deleted ${arrival.deletes}`;
    if (holder !== by) found.push(`${what} while ${holder || 'no one'} held the lease`);
    else if (at - renewedAt >= leaseMs) found.push(`${what} ${at - renewedAt} ms after its last renewal`);
  }
  return found;
}
