import { expect } from '../expect.ts';
import type { FreshStrings } from '../fresh-strings.ts';
import { type Cost, collectGarbage, Meter, type PauseLog } from '../meter.ts';
import { EngineSubject } from '../peers/engine.ts';
import { NativeMapSubject } from '../peers/native-map.ts';
import type { NpmTrieSubject } from '../peers/npm-trie.ts';
import type { Subject } from '../peers/subject.ts';
import type { Entries, EntryChunk } from './entries.ts';
import type { Lookups } from './lookups.ts';

/** Costs by row name. */
export type Costs = Record<string, Cost>;

async function timeWrites(
  pauses: PauseLog,
  chunks: Iterable<EntryChunk>,
  write: (chunk: EntryChunk) => void,
): Promise<Cost> {
  const meter = new Meter(pauses);
  let count = 0;
  for (const chunk of chunks) {
    meter.time(() => write(chunk));
    count += chunk.keys.length;
  }
  return meter.cost(count);
}

async function timeKeys(
  pauses: PauseLog,
  chunks: Iterable<readonly string[]>,
  use: (keys: readonly string[]) => void,
): Promise<Cost> {
  const meter = new Meter(pauses);
  let count = 0;
  for (const keys of chunks) {
    meter.time(() => use(keys));
    count += keys.length;
  }
  return meter.cost(count);
}

/** Measures lookups and checks the number of hits. */
async function timeReads(
  pauses: PauseLog,
  chunks: Iterable<readonly string[]>,
  found: { readonly expected: number },
  read: (keys: readonly string[]) => number,
): Promise<Cost> {
  let hits = 0;
  const cost = await timeKeys(pauses, chunks, (keys) => {
    hits += read(keys);
  });
  expect('lookups that found something', hits, found.expected);
  return cost;
}

/**
 * One life of a subject: it is filled, written again unchanged, written with other identities, read, and emptied; every
 * step is one row. The result is checked by its size and, in the plain workload, by the changes of its listener.
 */
export async function timeLife(
  pauses: PauseLog,
  entries: Entries,
  subject: Subject,
  countsChanges = false,
): Promise<Costs> {
  const { n } = entries;
  collectGarbage();
  const write = ({ keys, claims }: EntryChunk): void => subject.upsertAll(keys, claims);
  const fresh = await timeWrites(pauses, entries.fresh(), write);
  expect('entries', subject.size, n);
  if (countsChanges) expect('changes', subject.changes, n);
  const unchanged = await timeWrites(pauses, entries.again(), write);
  if (countsChanges) expect('changes', subject.changes, n);
  const identityChange = await timeWrites(pauses, entries.again(1), write);
  if (countsChanges) expect('changes', subject.changes, 2 * n);
  const exact = await timeReads(pauses, entries.keys(), { expected: n }, (keys) => subject.getAll(keys));
  const lean =
    countsChanges && subject instanceof EngineSubject ? await timeLeanReads(pauses, entries, subject) : {};
  const deleted = await timeKeys(pauses, entries.keys(), (keys) => subject.deleteAll(keys));
  expect('entries', subject.size, 0);
  if (countsChanges) expect('changes', subject.changes, 3 * n);
  return { fresh, unchanged, identityChange, exact, ...lean, delete: deleted };
}

/** Identities alone. */
async function timeLeanReads(pauses: PauseLog, entries: Entries, subject: EngineSubject): Promise<Costs> {
  const { n } = entries;
  const identityOf = await timeReads(pauses, entries.keys(), { expected: n }, (keys) =>
    subject.identitiesOf(keys),
  );
  const lookupMany = await timeReads(pauses, entries.keys(), { expected: n }, (keys) =>
    subject.lookupMany(keys),
  );
  return { identityOf, lookupMany };
}

/** Measures the steps of a life that a `Map` supports, for comparison. */
export async function timeMap(pauses: PauseLog, entries: Entries): Promise<Costs> {
  collectGarbage();
  const subject = new NativeMapSubject();
  const mapSet = await timeWrites(pauses, entries.fresh(), ({ keys, claims }) =>
    subject.upsertAll(keys, claims),
  );
  const mapGet = await timeReads(pauses, entries.keys(), { expected: entries.n }, (keys) =>
    subject.getAll(keys),
  );
  return { mapSet, mapGet };
}

/** Measures writes of fresh entries in batches of 256. */
export async function timeBatches(pauses: PauseLog, entries: Entries): Promise<Costs> {
  collectGarbage();
  const subject = new EngineSubject();
  const batch256 = await timeWrites(pauses, entries.fresh(), ({ keys, claims }) =>
    subject.upsertInBatches(keys, claims),
  );
  expect('changes', subject.changes, entries.n);
  return { batch256 };
}

/** Measures the delete and the new write of a tenth of the entries. */
export async function timeChurn(pauses: PauseLog, entries: Entries): Promise<Costs> {
  collectGarbage();
  const subject = new EngineSubject();
  for (const { keys, claims } of entries.fresh()) subject.upsertAll(keys, claims);
  let churned = 0;
  const churn = await timeWrites(pauses, entries.tenth(), ({ keys, claims }) => {
    churned += keys.length;
    subject.deleteAll(keys);
    subject.upsertAll(keys, claims);
  });
  expect('changes', subject.changes, entries.n + 2 * churned);
  return { churn };
}

function* texts(strings: FreshStrings): Generator<readonly string[]> {
  for (const chunk of strings.chunks()) yield chunk.texts;
}

/** Fills a subject with the table of lookups. */
export function fill(subject: Subject, lookups: Lookups): void {
  for (const keys of texts(lookups.keys)) {
    subject.upsertAll(
      keys,
      keys.map((_, i) => ({ source: 'kvstore', identity: i % 5000, hostIP: '192.168.0.1' })),
    );
  }
  expect('entries', subject.size, lookups.keys.size);
}

/** Like {@link fill}, for the npm trie. */
export function fillTrie(trie: NpmTrieSubject, lookups: Lookups): void {
  for (const prefixes of texts(lookups.keys))
    trie.addAll(prefixes.map((prefix) => (prefix.includes('/') ? prefix : `${prefix}/32`)));
}

/** Measures longest matches in a filled table. */
export async function timeMatches(
  pauses: PauseLog,
  lookups: Lookups,
  subject: { matchAll(addresses: readonly string[]): number },
): Promise<Costs> {
  const { sorted } = lookups;
  const lean = subject instanceof EngineSubject ? await timeLeanMatches(pauses, lookups, subject) : {};
  const time = (keys: FreshStrings, expected: number): Promise<Cost> =>
    timeReads(pauses, texts(keys), { expected }, (addresses) => subject.matchAll(addresses));
  return {
    lpmHitExact: await time(lookups.exact, lookups.exact.size),
    lpmHit: await time(lookups.hits, lookups.hits.size),
    lpmMiss: await time(lookups.misses, 0),
    lpmHitExactSorted: await time(sorted.exact, sorted.exact.size),
    lpmHitSorted: await time(sorted.hits, sorted.hits.size),
    lpmMissSorted: await time(sorted.misses, 0),
    ...lean,
  };
}

/** Identities alone. */
async function timeLeanMatches(pauses: PauseLog, lookups: Lookups, subject: EngineSubject): Promise<Costs> {
  const time = (keys: FreshStrings, expected: number): Promise<Cost> =>
    timeReads(pauses, texts(keys), { expected }, (addresses) => subject.matchIdentities(addresses));
  const { exact, hits, misses, sorted } = lookups;
  return {
    lpmIdentityExact: await time(exact, exact.size),
    lpmIdentityHit: await time(hits, hits.size),
    lpmIdentityMiss: await time(misses, 0),
    lpmIdentityExactSorted: await time(sorted.exact, exact.size),
    lpmIdentityHitSorted: await time(sorted.hits, hits.size),
    lpmIdentityMissSorted: await time(sorted.misses, 0),
  };
}

/** Measures `Map.get` of as many keys of the same table, for comparison with longest matches. */
export async function timeMapMatches(
  pauses: PauseLog,
  lookups: Lookups,
  map: NativeMapSubject,
): Promise<Costs> {
  const { exact, misses, sorted } = lookups;
  const time = (keys: FreshStrings, expected: number): Promise<Cost> =>
    timeReads(pauses, texts(keys), { expected }, (addresses) => map.getAll(addresses));
  return {
    lpmMapGet: await time(exact, exact.size),
    lpmMapGetMiss: await time(misses, 0),
    lpmMapGetSorted: await time(sorted.exact, sorted.exact.size),
  };
}
