import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { replayServiceCache } from './support/replay-servicecache.ts';
import { ReplayTally } from './support/report.ts';
import { readTraces } from './support/traces.ts';

describe('the service cache matches the recorded original until the original contradicts itself', () => {
  it.each(['servicecache.curated.jsonl.gz', 'servicecache.random.jsonl.gz'])('%s', (name) => {
    const tally = new ReplayTally();
    const file = fileURLToPath(new URL(`traces/${name}`, import.meta.url));
    for (const scenario of readTraces(file)) replayServiceCache(scenario, tally);
    const report = tally.report(name);
    console.log(JSON.stringify(report));
    expect(report.mismatches, JSON.stringify(report.examples, null, 1)).toBe(0);
    expect(report.stepsCompared).toBeGreaterThan(400);
  });
});
