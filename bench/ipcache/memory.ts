import type { Claim } from '../../src/ipcache/types.ts';
import { liveBytes } from '../meter.ts';
import { EngineSubject } from '../peers/engine.ts';
import type { Subject } from '../peers/subject.ts';
import type { Entries } from './entries.ts';
import { fill } from './lives.ts';
import type { Lookups } from './lookups.ts';

/**
 * Returns the bytes that are freed when the last reference to the result of `make` is dropped. Cached memory may stay.
 */
async function bytesOf<T extends { readonly size: number }>(
  make: () => T,
): Promise<{ bytes: number; size: number }> {
  let made: T | undefined = make();
  const size = made.size;
  const before = await liveBytes();
  made = undefined;
  return { bytes: before - (await liveBytes()), size };
}

/**
 * Returns the bytes on the heap and in array buffers for one entry, without the metadata objects of the caller, which
 * stay when the subject is freed. Keys and host IPs count if the subject keeps them.
 */
export async function bytesPerEntry(entries: Entries, make: () => Subject): Promise<number> {
  const metadata: Claim['k8s'][] = [];
  const { bytes, size } = await bytesOf(() => {
    const subject = make();
    for (const { keys, claims } of entries.fresh()) {
      for (const { k8s } of claims) metadata.push(k8s);
      subject.upsertAll(keys, claims);
    }
    return subject;
  });
  if (size !== entries.n || metadata.length !== entries.n) throw new Error('entries were lost');
  return bytes / entries.n;
}

/** The same for the table of longest matches, whose entries have no metadata. */
export async function bytesPerPrefix(lookups: Lookups): Promise<number> {
  const { bytes, size } = await bytesOf(() => {
    const subject = new EngineSubject();
    fill(subject, lookups);
    return subject;
  });
  return bytes / size;
}
