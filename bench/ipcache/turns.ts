import { systemClock } from '../../src/base/system-clock.ts';
import { TurnGate } from '../../src/base/turn-gate.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import type { Claim } from '../../src/ipcache/types.ts';
import { expect } from '../expect.ts';
import { type Delayed, delayDuring } from '../loop-delay.ts';
import { collectGarbage } from '../meter.ts';
import type { Entries } from './entries.ts';

/** The writer of every second entry. */
const WRITER = { source: 'clustermesh', owner: 'baltic' } as const;

function newGate(): TurnGate {
  return new TurnGate({ clock: systemClock, nextTurn: setImmediate });
}

/** Writes all entries, in batches that pass the gate. */
async function write(cache: IPCache, chunks: ReturnType<Entries['fresh']>): Promise<void> {
  const gate = newGate();
  for (const { keys, claims } of chunks) {
    for (let from = 0; from < keys.length; from += gate.slice) {
      const batch = (): void => {
        for (let i = from; i < Math.min(keys.length, from + gate.slice); i++) {
          const claim = claims[i];
          if (claim !== undefined) cache.upsert(keys[i] ?? '', i % 2 === 0 ? ownedBy(claim) : claim);
        }
      };
      await gate.run(gate.slice, () => cache.batch(batch));
    }
  }
}

function ownedBy(claim: Claim): Claim {
  return { ...claim, ...WRITER };
}

/** Reads the first batch of a reader like a slow consumer. */
async function resync(cache: IPCache): Promise<void> {
  const gate = newGate();
  const left = new AbortController();
  for await (const batch of cache.changes({ signal: left.signal })) {
    if (batch.kind !== 'resync') continue;
    let read = 0;
    for (const _ of batch.snapshot.entries()) if (++read % gate.slice === 0) await gate.pass(gate.slice);
    expect('entries of a snapshot', read, cache.size);
    left.abort();
  }
}

/** Measures snapshots of a full cache, and the withdrawal of half of it, in the turns of an event loop. */
export async function measureTurns(entries: Entries): Promise<Record<string, Delayed>> {
  collectGarbage();
  const cache = new IPCache();
  cache.subscribe({ onChanges: () => {} });
  await write(cache, entries.fresh());
  collectGarbage();
  const firstSnapshot = await delayDuring(async () => void cache.snapshot());
  const firstResync = await delayDuring(() => resync(cache));
  const held = cache.snapshot();
  const writesAfterSnapshot = await delayDuring(() => write(cache, entries.again(1)));
  expect('entries of a snapshot that is held', held.size, cache.size);
  const withdrawn = cache.status().entriesBySource.clustermesh ?? 0;
  const withdrawal = await delayDuring(async () => {
    const gate = newGate();
    await gate.runSteps(cache.withdrawSteps(WRITER, gate.slice));
  });
  expect('entries after the withdrawal', cache.size, entries.n - withdrawn);
  return { firstSnapshot, firstResync, writesAfterSnapshot, withdrawal };
}
