import type { Command } from 'commander';
import { parseWhen, TIME_FORMS } from '../../api/when.ts';
import { isoTime, systemClock } from '../../base/system-clock.ts';
import { localTimeText } from '../../process/terminal.ts';
import type { Manifest } from '../../recording/manifests.ts';
import type { TapeSummary } from '../../tape/check-tape.ts';
import type { ReplayReport } from '../../tape/replay-tape.ts';
import type { TapeSettings } from '../../tape/tape-settings.ts';
import type { TapeState } from '../../tape/tape-state.ts';
import { type CommandIO, EXIT, type OutputFormat, type RunAction, writeAnswer } from '../io.ts';
import { outputOption, parsePath, quietOption } from '../option-table.ts';
import { type ApiAddress, parseServe } from '../serve-options.ts';
import { slowProgress } from './progress.ts';
import { RECORDED_KUBERNETES, serveRecorded } from './serve-recorded.ts';

interface TapeCheckFlags {
  readonly output: OutputFormat;
  readonly quiet?: true;
}

interface ReplayFlags extends TapeCheckFlags {
  readonly at?: string;
  readonly serve?: ApiAddress;
  readonly ignoreVersion?: true;
}

/** Returns a number with its noun, with commas between thousands: `1,200 events`. */
function countText(count: number, what: string): string {
  return `${count.toLocaleString('en')} ${what}${count === 1 ? '' : 's'}`;
}

function summaryLine({ from, to, events, cuts, clusters, scrubbed }: TapeSummary): string {
  return [
    `${localTimeText(from)} to ${localTimeText(to)}`,
    countText(events, 'event'),
    countText(cuts.length, 'cut'),
    countText(clusters.length, 'cluster'),
    ...(scrubbed ? ['scrubbed'] : []),
  ].join(', ');
}

function cutLines(cuts: TapeSummary['cuts']): readonly string[] {
  return cuts.map(({ at, lost }) => `${at}: ${countText(lost, 'line')} missing before it`);
}

function summaryDocument({ from, to, ...summary }: TapeSummary): object {
  return { from: isoTime(from), to: isoTime(to), ...summary };
}

function replayDocument(report: ReplayReport): object {
  const { to, isComplete: complete, isScrubbed: scrubbed, replay: _, ...rest } = report;
  return { to: isoTime(to), ...rest, complete, scrubbed };
}

/** Returns the number of equal digests as text, or why they are not compared. */
function digestText({ digests, isScrubbed, skippedDigestVersion }: ReplayReport): string {
  if (isScrubbed) return 'scrubbed, without digests';
  const equal = `${countText(digests, 'digest')} equal`;
  if (skippedDigestVersion === undefined) return equal;
  const version = skippedDigestVersion === 0 ? 'an unknown version' : `version ${skippedDigestVersion}`;
  const other = `digests of ${version} not compared`;
  return digests === 0 ? other : `${equal}, ${other}`;
}

function replayLines(report: ReplayReport): readonly string[] {
  const { to, events, cuts, isComplete, difference } = report;
  const lines = [
    `replayed to ${localTimeText(to)}, ${countText(events, 'event')}, ${digestText(report)}`,
    ...cutLines(cuts),
  ];
  if (!isComplete)
    lines.push(
      'the state is incomplete: the tape has a cut before this time, and no complete snapshot after the cut',
    );
  if (difference !== undefined) {
    const { at, writer, recorded, replayed, keys } = difference;
    lines.push(
      `${at}: the digest of ${writer} is ${replayed ?? 'missing'}, but the agent had ${recorded ?? 'none'}`,
      `changed since the last equal digest: ${keys.length === 0 ? 'nothing' : keys.join(', ')}`,
    );
  }
  return lines;
}

/** Runs an agent with the kvstores of a tape, with its page, until the signal fires. */
async function serveState(
  state: TapeState,
  settings: TapeSettings,
  listen: ApiAddress,
  io: CommandIO,
): Promise<void> {
  const { clusterID, kubernetes, ...others } = settings;
  const objects = (): AsyncIterable<Manifest> => state.objects();
  const options = {
    ...others,
    clusterID: clusterID === 0 ? undefined : clusterID,
    keys: () => state.keys(),
    kubernetes: kubernetes && { ...RECORDED_KUBERNETES, ...kubernetes, objects },
  };
  await serveRecorded(options, listen, io);
}

function progressOf({ stderr }: CommandIO, quiet: true | undefined): ((line: string) => void) | undefined {
  return quiet === true ? undefined : slowProgress(stderr, systemClock);
}

/** Adds `dpcache tape check`, `dpcache tape scrub` and `dpcache replay`. */
export function addTapeCommands(program: Command, io: CommandIO, run: RunAction): void {
  const tape = program.command('tape').description('check or copy a tape of dpcache agent --tape');
  addCheckCommand(tape, io, run);
  addScrubCommand(tape, io, run);
  addReplayCommand(program, io, run);
}

function addCheckCommand(tape: Command, io: CommandIO, run: RunAction): void {
  tape
    .command('check')
    .description('check each line of a tape; print its times, events, cuts and clusters')
    .argument('<path>', 'folder of the tape, or one of its files', parsePath)
    .addOption(outputOption())
    .addOption(quietOption())
    .action((path: string, { output, quiet }: TapeCheckFlags) =>
      run(async () => {
        const { checkTape } = await import('../../tape/check-tape.ts');
        const summary = await checkTape(path, io.signal, progressOf(io, quiet));
        const lines = [summaryLine(summary), ...cutLines(summary.cuts)];
        writeAnswer(io.stdout, output, { json: summaryDocument(summary), lines });
        return EXIT.ok;
      }),
    );
}

function addScrubCommand(tape: Command, io: CommandIO, run: RunAction): void {
  tape
    .command('scrub')
    .description('copy a tape and replace names and addresses, so that the copy can be shared')
    .argument('<path>', 'folder of the tape, or one of its files', parsePath)
    .requiredOption('--out <folder>', 'new or empty folder of the copy', parsePath)
    .addOption(outputOption())
    .addOption(quietOption())
    .action((path: string, { out, output, quiet }: TapeCheckFlags & { readonly out: string }) =>
      run(async () => {
        const { StateFiles } = await import('../../agent/state-files.ts');
        const { scrubTape } = await import('../../tape/scrub/scrub-tape.ts');
        const copy = new StateFiles(out);
        const { files, events } = await scrubTape(path, copy, io.signal, progressOf(io, quiet));
        const written = `${countText(events, 'event')} in ${countText(files, 'file')}`;
        const lines = [`${out}: ${written}, with other names and addresses`];
        writeAnswer(io.stdout, output, { json: { path: out, files, events }, lines });
        return EXIT.ok;
      }),
    );
}

function addReplayCommand(program: Command, io: CommandIO, run: RunAction): void {
  const replay = program
    .command('replay')
    .description(
      'apply a tape to the engines and compare each digest with that of the agent; exit with status 1 if one differs',
    )
    .argument('<path>', 'folder of the tape, or one of its files', parsePath)
    .addOption(outputOption())
    .addOption(quietOption())
    .option('--at <time>', `end at this time: ${TIME_FORMS} (default: the end of the tape)`)
    .option(
      '--serve <address>',
      'afterwards, serve the page with that state until Ctrl-C, at a port or address:port of loopback',
      parseServe,
    )
    .option('--ignore-version', 'replay a tape of another version of dpcache, whose state may differ')
    .action((path: string, { at: time, serve, ignoreVersion, output, quiet }: ReplayFlags) =>
      run(async () => {
        const at = time === undefined ? undefined : parseWhen(time, systemClock.wallTime());
        if (time !== undefined && typeof at !== 'number')
          return replay.error(`dpcache: invalid --at '${time}': it must be ${TIME_FORMS}`);
        const { replayTape } = await import('../../tape/replay-tape.ts');
        const { TapeState } = await import('../../tape/tape-state.ts');
        const { version } = await import('../../process/version.ts');
        let state = new TapeState();
        const report = await replayTape(path, {
          at: typeof at === 'number' ? at : undefined,
          version: ignoreVersion === true ? undefined : version(),
          signal: io.signal,
          onProgress: progressOf(io, quiet),
          // The state before a cut is incomplete.
          onReplay: () => {
            state = new TapeState();
          },
          ...(serve && { onLine: (line) => state.apply(line) }),
        });
        writeAnswer(io.stdout, output, { json: replayDocument(report), lines: replayLines(report) });
        const { settings } = report.replay;
        await report.replay.close();
        if (serve !== undefined) await serveState(state, settings, serve, io);
        return report.difference === undefined && report.isComplete ? EXIT.ok : EXIT.failed;
      }),
    );
}
