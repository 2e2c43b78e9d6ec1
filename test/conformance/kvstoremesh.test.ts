import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { recordingsOf } from './support/recordings.ts';
import { replayKvstoreMesh } from './support/replay-kvstoremesh.ts';
import { ReplayTally } from './support/report.ts';
import { readTraces } from './support/traces.ts';

it('the copy of a mesh equals that of the recorded kvstoremesh, except for intended differences', async () => {
  const name = 'kvstoremesh117.jsonl.gz';
  const tally = new ReplayTally();
  const file = fileURLToPath(new URL(`traces/operator/${name}`, import.meta.url));
  for (const recording of recordingsOf(readTraces(file))) await replayKvstoreMesh(recording, tally);
  const report = tally.report(name);
  console.log(JSON.stringify(report));
  expect(report.mismatches, JSON.stringify(report.examples, null, 1)).toBe(0);
  expect(report.stepsCompared).toBe(34);
  expect(Object.keys(report.explained ?? {})).toHaveLength(6);
});
