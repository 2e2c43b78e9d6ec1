import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { replayNodeManager } from './support/replay-nodemanager.ts';
import { ReplayTally } from './support/report.ts';
import { readTraces } from './support/traces.ts';

describe('the node manager matches the recorded original until the original contradicts itself', () => {
  it.each([
    ['nodemanager.curated.jsonl.gz', 500],
    ['nodemanager.random.jsonl.gz', 2700],
  ])('%s', (name, atLeast) => {
    const tally = new ReplayTally();
    const file = fileURLToPath(new URL(`traces/${name}`, import.meta.url));
    for (const scenario of readTraces(file)) replayNodeManager(scenario, tally);
    const report = tally.report(name);
    console.log(JSON.stringify(report));
    expect(report.mismatches, JSON.stringify(report.examples, null, 1)).toBe(0);
    expect(report.stepsCompared).toBeGreaterThan(atLeast);
  });
});
