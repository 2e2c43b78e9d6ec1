import { open, rm } from 'node:fs/promises';
import { type Command, Option } from 'commander';
import { messageOf } from '../../base/failure.ts';
import { openRegularFile } from '../../base/files/regular-file.ts';
import { systemClock } from '../../base/system-clock.ts';
import { InputError, unreadable } from '../../process/input-error.ts';
import { printable } from '../../process/terminal.ts';
import { version } from '../../process/version.ts';
import { addConfiguration } from '../configuration.ts';
import { type CommandIO, EXIT, type RunAction } from '../io.ts';
import { addHelp, outputOption, parsePath } from '../option-table.ts';
import { addSocketOption, type SocketFlags, socketAdvice, socketPath } from '../serve-options.ts';

interface BundleFlags extends SocketFlags {
  readonly out: string;
  readonly output: 'text' | 'json';
  readonly logFile?: string;
  readonly config?: string;
}

/** Maximum number of bytes read from the end of a file. */
const TAIL_BYTES: number = 1 << 20;

const HELP =
  'The bundle has the status, rejected values, conflicts, digests, the settings in use, and the last 1,000 changes: ' +
  'addresses, labels and names of the whole mesh, but no tokens, passwords, keys or certificates. With --config it ' +
  'also has the text of that file. If the agent does not answer a question, the bundle has the other answers.';

/** Adds `dpcache bundle`. */
export function addBundleCommand(program: Command, io: CommandIO, run: RunAction): void {
  const command = program
    .command('bundle')
    .description(
      'write an archive for a bug report: the state of the running agent, without secrets, at most 20 MB',
    )
    .addOption(
      new Option('--out <file>', 'write to this file, which must not exist')
        .argParser(parsePath)
        .default('dpcache-bundle.tar.gz'),
    )
    .option('--log-file <file>', 'add the last 1 MiB of this log', parsePath)
    .addOption(outputOption())
    .action((flags: BundleFlags) =>
      run(async () => {
        const { askInTime } = await import('../../api/ask-in-time.ts');
        const { agentFiles, archive, isCut, textFile } = await import('../../client/bundle.ts');
        const { files, errors } = await agentFiles(askInTime(socketPath(flags, io.env), io.signal));
        io.signal.throwIfAborted();
        const now = new Date(systemClock.wallTime());
        const { config = io.env['DPCACHE_CONFIG'] || undefined, logFile } = flags;
        const added = [
          ...(config === undefined ? [] : [textFile('settings.yaml', await readTail('--config', config))]),
          ...(logFile === undefined ? [] : [textFile('log.txt', await readTail('--log-file', logFile))]),
        ];
        const content = [...files, ...added];
        const cutFiles = content.filter(isCut).map(({ name }) => name);
        const cutTexts = cutFiles.map((name) => `the end of ${name} is missing: it has more than 2 MiB`);
        const about = [`dpcache ${version()}`, now.toISOString(), ...cutTexts].join('\n');
        const packed = await archive([{ name: 'about.txt', text: `${about}\n` }, ...content], now);
        await writeNewFile(flags.out, packed);
        if (flags.output === 'json') {
          const names = ['about.txt', ...content.map(({ name }) => name)];
          const document = { path: flags.out, bytes: packed.length, files: names, cut: cutFiles, errors };
          io.stdout.write(`${JSON.stringify(document, null, 1)}\n`);
        } else {
          for (const line of cutTexts) io.stderr.write(`dpcache: ${line}\n`);
          for (const error of errors) io.stderr.write(`dpcache: not in the bundle: ${printable(error)}\n`);
          io.stderr.write(`dpcache: ${packed.length} bytes written to ${printable(flags.out)}\n`);
        }
        const isUnanswered = errors.length > 0 && files.length === 1; // only errors.txt
        if (isUnanswered) io.stderr.write(`dpcache: no agent answered: ${socketAdvice()}\n`);
        return errors.length === 0 ? EXIT.ok : EXIT.failed;
      }),
    );
  addConfiguration(addSocketOption(addHelp(command, 'after', HELP)), io);
}

/**
 * Writes a file that only its owner may read. Throws `InputError` if the file exists or cannot be written completely.
 * An incomplete file is removed.
 */
async function writeNewFile(path: string, content: Buffer): Promise<void> {
  const problem = (cause: unknown): InputError =>
    new InputError(`--out ${path}: ${messageOf(cause)}`, { cause });
  const file = await open(path, 'wx', 0o600).catch((cause: unknown) => {
    throw problem(cause);
  });
  try {
    await file.writeFile(content);
  } catch (cause) {
    await rm(path, { force: true });
    throw problem(cause);
  } finally {
    await file.close();
  }
}

/**
 * Returns the last lines of a file. A line without its beginning is omitted, because a secret in it may not be found.
 */
async function readTail(option: string, path: string): Promise<string> {
  try {
    await using file = await openRegularFile(path);
    const { size } = await file.stat();
    const position = Math.max(0, size - TAIL_BYTES);
    const { buffer, bytesRead } = await file.read({
      buffer: Buffer.alloc(Math.min(size, TAIL_BYTES)),
      position,
    });
    const text = buffer.subarray(0, bytesRead).toString('utf8');
    if (position === 0) return text;
    const lineEnd = text.indexOf('\n');
    return lineEnd < 0 ? '' : text.slice(lineEnd + 1);
  } catch (cause) {
    throw unreadable(option, path, cause);
  }
}
