import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { recordingsOf } from './support/recordings.ts';
import { replayOperator } from './support/replay-operator.ts';
import { ReplayTally } from './support/report.ts';
import { readTraces } from './support/traces.ts';

describe('the operator leaves in the kvstore what the recorded originals left, but for rules that say otherwise', () => {
  it.each([
    ['operator18.curated.jsonl.gz', 300],
    ['operator18.random.public.jsonl.gz', 70],
    ['cmapi117.curated.jsonl.gz', 75],
    ['cmapi117.random.public.jsonl.gz', 36],
  ])('%s', async (name, quietPoints) => {
    const tally = new ReplayTally();
    const file = fileURLToPath(new URL(`traces/operator/${name}`, import.meta.url));
    for (const recording of recordingsOf(readTraces(file))) await replayOperator(recording, tally);
    const report = tally.report(name);
    console.log(JSON.stringify(report));
    expect(report.mismatches, JSON.stringify(report.examples, null, 1)).toBe(0);
    expect(report.stepsCompared).toBeGreaterThanOrEqual(quietPoints);
  });
});
