import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { recordingsOf } from './support/recordings.ts';
import { replayCollectors } from './support/replay-collectors.ts';
import { ReplayTally } from './support/report.ts';
import { readTraces } from './support/traces.ts';

it.each([
  ['operator18.curated.jsonl.gz', 303, 6],
  ['operator18.random.public.jsonl.gz', 70, 1],
] as const)(
  'collectors delete what the operator did that was recorded in %s, but for what is meant',
  async (name, compared, rules) => {
    const tally = new ReplayTally();
    const file = fileURLToPath(new URL(`traces/operator/${name}`, import.meta.url));
    for (const recording of recordingsOf(readTraces(file))) await replayCollectors(recording, tally);
    const report = tally.report(name);
    console.log(JSON.stringify(report));
    expect(report.mismatches, JSON.stringify(report.examples, null, 1)).toBe(0);
    expect(report.stepsCompared).toBe(compared);
    expect(Object.keys(report.explained ?? {})).toHaveLength(rules);
  },
);
