import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { replayServiceCache } from './replay-servicecache.ts';
import { type ReplayReport, ReplayTally } from './report.ts';

function replay(file: string): ReplayReport {
  const tally = new ReplayTally();
  const bytes = gunzipSync(readFileSync(new URL(`./traces/${file}`, import.meta.url)));
  for (const line of bytes.toString('utf8').split('\n')) {
    if (line !== '') replayServiceCache(JSON.parse(line), tally);
  }
  return tally.report(file);
}

test.each(['servicecache.curated.jsonl.gz', 'servicecache.random.jsonl.gz'])(
  'the recorded behaviour in %s is ours, but for what FORMAT.md exempts',
  (file) => {
    const report = replay(file);
    process.stdout.write(`${JSON.stringify(report)}\n`);
    expect(report.examples).toEqual([]);
    expect(report.mismatches).toBe(0);
    expect(report.stepsCompared).toBeGreaterThan(100);
  },
);
