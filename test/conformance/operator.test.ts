import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { seededRandom } from '../kvstore/chaos/support/seeded-random.ts';
import { RandomChanges } from './support/random-changes.ts';
import { recordingsOf } from './support/recordings.ts';
import { replayOperator } from './support/replay-operator.ts';
import { ReplayTally } from './support/report.ts';
import { readTraces } from './support/traces.ts';

// More changes over other values: CONFORMANCE_SEED=8.
const SEED = Number(process.env['CONFORMANCE_SEED'] ?? 7);

describe('the operator leaves the same kvstore as the recorded originals, except for rules that differ', () => {
  // Each rule checks its circumstance, so it excuses no recording that the original did not write.
  it.each([
    ['operator18.curated.jsonl.gz', 300, 0.05],
    ['operator18.random.public.jsonl.gz', 70, 0.1],
    ['cmapi117.curated.jsonl.gz', 75, 0.2],
    ['cmapi117.random.public.jsonl.gz', 36, 0.1],
  ])('%s; and 19 of 20 changes of recorded values are detected', async (name, quietPoints, share) => {
    const tally = new ReplayTally();
    const changes = new RandomChanges(share, seededRandom(SEED));
    const file = fileURLToPath(new URL(`traces/operator/${name}`, import.meta.url));
    for (const recording of recordingsOf(readTraces(file))) await replayOperator(recording, tally, changes);
    const report = tally.report(name);
    console.log(JSON.stringify(report));
    expect(report.mismatches, JSON.stringify(report.examples, null, 1)).toBe(0);
    expect(report.stepsCompared).toBeGreaterThanOrEqual(quietPoints);
    const { judged, unnoticed, unleased } = changes;
    expect(judged).toBeGreaterThan(50);
    const excused = `seed ${SEED}: ${unnoticed.length} of ${judged}:\n${unnoticed.join('\n')}`;
    expect(unnoticed.length, excused).toBeLessThanOrEqual(judged / 20);
    expect(unleased).toEqual([]);
  });
});
