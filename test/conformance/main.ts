import { basename } from 'node:path';
import { replayIPCache } from './support/replay-ipcache.ts';
import { replayNodeManager } from './support/replay-nodemanager.ts';
import { replayServiceCache } from './support/replay-servicecache.ts';
import { type ReplayReport, ReplayTally } from './support/report.ts';
import { readTraces } from './support/traces.ts';

const USAGE =
  'usage: npm run -s conformance -- FILE…   (traces, .jsonl or .jsonl.gz; prints one JSON line per file)';

const REPLAYS: ReadonlyMap<unknown, (scenario: unknown, tally: ReplayTally) => void> = new Map([
  ['ipcache', replayIPCache],
  ['nodemanager', replayNodeManager],
  ['servicecache', replayServiceCache],
]);

function replayFile(file: string): ReplayReport {
  const tally = new ReplayTally();
  for (const scenario of readTraces(file)) {
    const kind = (scenario as { kind?: unknown } | null)?.kind;
    const replay = REPLAYS.get(kind);
    if (replay === undefined)
      throw new Error(`${file}: no replay for a scenario of kind ${JSON.stringify(kind)}`);
    replay(scenario, tally);
  }
  return tally.report(basename(file));
}

function main(files: readonly string[]): number {
  if (files.length === 0 || files.some((file) => file.startsWith('-'))) {
    console.error(USAGE);
    return files.includes('--help') ? 0 : 2;
  }
  let mismatches = 0;
  for (const file of files) {
    try {
      const report = replayFile(file);
      mismatches += report.mismatches;
      console.log(JSON.stringify(report));
    } catch (error) {
      console.error(error instanceof Error ? error.message : String(error));
      return 2;
    }
  }
  return mismatches === 0 ? 0 : 1;
}

process.exitCode = main(process.argv.slice(2));
