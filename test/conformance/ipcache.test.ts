import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { replayIPCache } from './support/replay-ipcache.ts';
import { ReplayTally } from './support/report.ts';
import { readTraces } from './support/traces.ts';

describe('the ipcache matches the recorded original until the original contradicts itself', () => {
  it.each(['ipcache.curated.jsonl.gz', 'ipcache.random.jsonl.gz'])('%s', (name) => {
    const tally = new ReplayTally();
    const file = fileURLToPath(new URL(`traces/${name}`, import.meta.url));
    for (const scenario of readTraces(file)) replayIPCache(scenario, tally);
    const report = tally.report(name);
    console.log(JSON.stringify(report));
    expect(report.mismatches, JSON.stringify(report.examples, null, 1)).toBe(0);
    expect(report.stepsCompared).toBeGreaterThan(1000);
  });
});
