import type { Claim, K8sMetadata } from '../../src/ipcache/types.ts';
import { liveBytes } from '../meter.ts';
import { EngineSubject } from '../peers/engine.ts';
import type { Subject } from '../peers/subject.ts';
import type { Entries } from './entries.ts';
import { fill } from './lives.ts';
import type { Lookups } from './lookups.ts';

/**
 * Bytes on the heap and in array buffers for one entry, beyond the metadata objects handed in: those are made and
 * counted before. Keys and host IPs count as far as the subject holds on to them.
 */
export async function bytesPerEntry(entries: Entries, make: () => Subject): Promise<number> {
  const metadata: (K8sMetadata | undefined)[] = [];
  for (const { claims } of entries.fresh()) metadata.push(...claims.map(({ k8s }) => k8s));
  const before = await liveBytes();
  const subject = make();
  let at = 0;
  for (const { keys, claims } of entries.fresh()) {
    const own = claims.map((claim): Claim => ({ ...claim, k8s: metadata[at++] }));
    subject.upsertAll(keys, own);
  }
  const after = await liveBytes();
  if (subject.size !== entries.n || metadata.length !== entries.n) throw new Error('entries were lost');
  return (after - before) / entries.n;
}

/** The same for the table of longest matches, whose entries have no metadata. */
export async function bytesPerPrefix(lookups: Lookups): Promise<number> {
  const before = await liveBytes();
  const subject = new EngineSubject();
  fill(subject, lookups);
  return ((await liveBytes()) - before) / subject.size;
}
