import { interleave } from '../interleave.ts';
import type { PauseLog } from '../meter.ts';
import { FiveMapsSubject } from '../peers/five-maps.ts';
import { ImmutableRecordsSubject } from '../peers/immutable-records.ts';
import { NativeMapSubject } from '../peers/native-map.ts';
import { NpmTrieSubject } from '../peers/npm-trie.ts';
import type { Subject } from '../peers/subject.ts';
import { Entries } from './entries.ts';
import { fill, fillTrie, timeLife, timeMap, timeMapMatches, timeMatches } from './lives.ts';
import { Lookups } from './lookups.ts';
import { bytesPerEntry } from './memory.ts';
import type { PeerReport, Row } from './report.ts';
import { rowsOf } from './rows.ts';

/** Peers need up to two kilobytes and ten microseconds per entry, so more entries are not measured. */
const MAX_ENTRIES = 1_000_000;
/** The npm trie needs some 30 µs and kilobytes to add a prefix. */
const MAX_IN_TRIE = 100_000;

async function life(
  pauses: PauseLog,
  n: number,
  rounds: number,
  make: () => Subject,
): Promise<Record<string, Row>> {
  const entries = new Entries(n, 'ipv4');
  const parts = [() => timeLife(pauses, entries, make(), true), () => timeMap(pauses, entries)];
  return rowsOf(await interleave(rounds, parts), { writes: 'mapSet', reads: 'mapGet' });
}

async function fiveMapsMatches(pauses: PauseLog, n: number, rounds: number): Promise<Record<string, Row>> {
  const lookups = new Lookups(n, 'ipv4');
  const [peer, map] = [new FiveMapsSubject(), new NativeMapSubject()];
  fill(peer, lookups);
  fill(map, lookups);
  const parts = [() => timeMatches(pauses, lookups, peer), () => timeMapMatches(pauses, lookups, map)];
  return rowsOf(await interleave(rounds, parts), { writes: 'lpmMapGet', reads: 'lpmMapGet' });
}

async function npmTrie(pauses: PauseLog, most: number, rounds: number): Promise<PeerReport> {
  const n = Math.min(most, MAX_IN_TRIE);
  const lookups = new Lookups(n, 'ipv4');
  const [trie, map] = [new NpmTrieSubject(), new NativeMapSubject()];
  fillTrie(trie, lookups);
  fill(map, lookups);
  const parts = [() => timeMatches(pauses, lookups, trie), () => timeMapMatches(pauses, lookups, map)];
  const rows = rowsOf(await interleave(rounds, parts), { writes: 'lpmMapGet', reads: 'lpmMapGet' });
  return { n, rounds, bytesPerEntry: undefined, rows };
}

/** Measures the peers by the workloads of the engine that they support, each compared with a separate `Map`. */
export async function measurePeers(
  pauses: PauseLog,
  most: number,
  rounds: number,
): Promise<Record<string, PeerReport>> {
  const n = Math.min(most, MAX_ENTRIES);
  const peer = async (make: () => Subject, more: Record<string, Row> = {}): Promise<PeerReport> => ({
    n,
    rounds,
    bytesPerEntry: await bytesPerEntry(new Entries(n, 'ipv4'), make),
    rows: { ...(await life(pauses, n, rounds, make)), ...more },
  });
  return {
    'five maps': await peer(() => new FiveMapsSubject(), await fiveMapsMatches(pauses, n, rounds)),
    'immutable.Map': await peer(() => new ImmutableRecordsSubject()),
    'longest-prefix-match': await npmTrie(pauses, most, rounds),
  };
}
