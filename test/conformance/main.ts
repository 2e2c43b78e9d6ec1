import { basename } from 'node:path';
import { isRecording, type Recording, recordingsOf } from './support/recordings.ts';
import { replayCollectors } from './support/replay-collectors.ts';
import { replayIPCache } from './support/replay-ipcache.ts';
import { replayKvstoreMesh } from './support/replay-kvstoremesh.ts';
import { replayNodeManager } from './support/replay-nodemanager.ts';
import { replayOperator } from './support/replay-operator.ts';
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

type ReplayProgram = (recording: Recording, tally: ReplayTally) => Promise<void>;

/**
 * Replays by the beginning of the program's name. An operator has two: its published keys and its collectors.
 */
const PROGRAMS: ReadonlyMap<string, readonly ReplayProgram[]> = new Map([
  ['clustermesh-apiserver kvstoremesh', [replayKvstoreMesh]],
  ['clustermesh-apiserver clustermesh', [replayOperator]],
  ['cilium-operator-generic 1.8', [replayOperator, replayCollectors]],
]);

async function replayProgram(recording: Recording, tally: ReplayTally): Promise<void> {
  const { program } = recording.scenario;
  const [, replays] = [...PROGRAMS].find(([name]) => program.startsWith(name)) ?? [];
  if (replays === undefined) throw new Error(`no replay for the program ${program}`);
  for (const replay of replays) await replay(recording, tally);
}

async function replayFile(file: string): Promise<ReplayReport> {
  const tally = new ReplayTally();
  const traces = readTraces(file);
  if (isRecording(traces)) {
    for (const recording of recordingsOf(traces)) await replayProgram(recording, tally);
    return tally.report(basename(file));
  }
  for (const scenario of traces) {
    const kind = (scenario as { kind?: unknown } | null)?.kind;
    const replay = REPLAYS.get(kind);
    if (replay === undefined)
      throw new Error(`${file}: no replay for a scenario of kind ${JSON.stringify(kind)}`);
    replay(scenario, tally);
  }
  return tally.report(basename(file));
}

async function main(files: readonly string[]): Promise<number> {
  if (files.length === 0 || files.some((file) => file.startsWith('-'))) {
    console.error(USAGE);
    return files.includes('--help') ? 0 : 2;
  }
  let mismatches = 0;
  for (const file of files) {
    try {
      const report = await replayFile(file);
      mismatches += report.mismatches;
      console.log(JSON.stringify(report));
    } catch (error) {
      console.error(error instanceof Error ? error.message : String(error));
      return 2;
    }
  }
  return mismatches === 0 ? 0 : 1;
}

process.exitCode = await main(process.argv.slice(2));
