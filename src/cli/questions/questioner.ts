import { type Command, Option } from 'commander';
import type { MeshAnswer } from '../../agent/run-agent.ts';
import type { ApiClient, Ask } from '../../api/api-client.ts';
import type { ChangeType } from '../../api/change-types.ts';
import type { Answer, Question } from '../../client/answer.ts';
import type { ListFormat, PrintedList } from '../../client/list.ts';
import { InputError } from '../../process/input-error.ts';
import { withLocalTimes, writeLines } from '../../process/terminal.ts';
import { type CommandIO, EXIT, type ExitStatus, OUTPUT_CLOSED, type RunAction } from '../io.ts';
import { agentOptions, openLog } from '../mesh-options.ts';
import { socketAdvice, socketPath } from '../serve-options.ts';
import { addAskOptions, type QuestionFlags } from './ask-options.ts';
import { parseLimit } from './question-arguments.ts';

/** Flags of a list command. */
export interface ListFlags extends QuestionFlags {
  readonly watch?: true;
  readonly limit?: number;
  readonly count?: true;
}

/** The formats of an answer that has no names: all except `name`. */
export const FORMATS_WITHOUT_NAME: readonly ListFormat[] = ['text', 'wide', 'json', 'yaml'];

/** Moves the cursor to the top and clears the screen (ECMA-48: CUP, ED). */
const CLEAR_SCREEN = '\u001B[H\u001B[2J';

/**
 * A watched list of at most this length (1 MiB) is shown again only if it differs from its last output. A longer one is
 * always shown again.
 */
const MAX_COMPARED: number = 1 << 20;

async function textOf({ json, lines, names = [] }: Answer, format: ListFormat): Promise<string> {
  if (format === 'json') return `${JSON.stringify(json, null, 1)}\n`;
  if (format === 'yaml') return (await import('yaml')).stringify(json, { aliasDuplicateObjects: false });
  const shown = format === 'name' ? names : lines.map(withLocalTimes);
  return shown.map((line) => `${line}\n`).join('');
}

/** Declares commands that ask one question, asks it, and prints the answer. */
export class Questioner {
  readonly #io: CommandIO;
  readonly #run: RunAction;

  constructor(io: CommandIO, run: RunAction) {
    this.#io = io;
    this.#run = run;
  }

  /** Adds a command with the options of its output and of the agent. */
  addCommand(
    parent: Command,
    name: string,
    description: string,
    formats: readonly ListFormat[] = ['text', 'wide', 'json', 'yaml', 'name'],
    addAgentOptions: typeof addAskOptions = addAskOptions,
  ): Command {
    const names = formats.includes('name') ? ', name: keys only' : '';
    const output = new Option('-o, --output <format>', `output format; wide: all columns${names}`);
    const command = parent
      .command(name)
      .description(description)
      .addOption(output.choices(formats).default('text'))
      .option('-q, --quiet', 'print nothing; exit with status 0 if there is an answer');
    return addAgentOptions(command, this.#io);
  }

  /**
   * Adds the options and the action of a list to a command. A watched list is shown again when an object of its type
   * has changed.
   */
  addList<F extends ListFlags>(
    command: Command,
    type: ChangeType,
    loadList: (flags: F) => Promise<PrintedList>,
  ): void {
    command
      .option('--limit <n>', 'maximum number of items', parseLimit)
      .addOption(new Option('--count', 'print only the number of items').conflicts(['limit', 'quiet']))
      .addOption(
        new Option('-w, --watch', 'print the list again after each change, until interrupted').conflicts([
          'quiet',
          'count',
        ]),
      )
      .action((flags: F) => {
        const load = (): Promise<PrintedList> => loadList(flags);
        if (flags.watch !== true) return this.#run(() => this.#print(flags, load));
        return this.#run(() => this.#watch(flags, load, type));
      });
  }

  /** Calls `use` with requests to the running agent, or to an agent run only for the answer. */
  async ask<T>(flags: QuestionFlags, use: (ask: Ask) => Promise<T>): Promise<MeshAnswer<T>> {
    const { signal, env } = this.#io;
    if (flags.runsAgent) {
      const { askMesh } = await import('../../agent/run-agent.ts');
      const log = await openLog(flags, this.#io);
      const { withInputErrors } = await import('../../client/ask-agent.ts');
      const advice = 'to ask a running agent, remove the options that name a source';
      return withInputErrors(
        () => askMesh(agentOptions(flags), use, { log, signal }),
        () => advice,
      );
    }
    const { askAgent } = await import('../../client/ask-agent.ts');
    const advice = flags.canRunAgent === true ? undefined : socketAdvice();
    const answer = await askAgent(socketPath(flags, env), ({ ask }) => use(ask), signal, advice);
    return { answer, complete: true };
  }

  /** Asks a question and prints the answer: to stderr if the object does not exist, except as JSON or YAML. */
  printAnswer(flags: QuestionFlags, load: () => Promise<Question>): Promise<void> {
    return this.#run(async () => {
      const { stdout, stderr } = this.#io;
      const question = await load();
      const { output: format, quiet = false } = flags;
      const view = { wide: format === 'wide', width: stdout.columns };
      const { answer, complete } = await this.ask(flags, (ask) => question(ask, view));
      const { isMissing, succeeded, lines } = answer;
      const hasDocument = format === 'json' || format === 'yaml';
      if (!quiet && (isMissing !== true || hasDocument)) writeLines(stdout, await textOf(answer, format));
      else if (!quiet) stderr.write(lines.map((line) => `dpcache: ${withLocalTimes(line)}\n`).join(''));
      // The answer of an incomplete mesh is printed, but scripts must be able to detect it by the exit status.
      return succeeded && complete ? EXIT.ok : EXIT.failed;
    });
  }

  /** Writes a part of a list, and waits for a slow reader. Throws if the process is to end. */
  async #write(text: string): Promise<void> {
    const { stdout, signal } = this.#io;
    writeLines(stdout, text);
    await stdout.drained?.(signal);
    signal.throwIfAborted();
  }

  async #print(flags: ListFlags, load: () => Promise<PrintedList>): Promise<ExitStatus> {
    const { stdout, signal } = this.#io;
    const listing = await load();
    const { output: format, quiet = false, count = false, limit } = flags;
    const view = { wide: format === 'wide', width: stdout.columns };
    try {
      const { complete } = await this.ask(flags, async (ask) => {
        if (count) await this.#write(`${await listing.count(ask)}\n`);
        else if (quiet) await listing.print(ask, { format, view, limit: 1 }, async () => {});
        else await listing.print(ask, { format, view, limit }, (text) => this.#write(text));
      });
      return complete ? EXIT.ok : EXIT.failed;
    } catch (error) {
      // The reader has closed the pipe: `| head`.
      if (signal.aborted && signal.reason === OUTPUT_CLOSED) return EXIT.ok;
      if (signal.aborted) throw new InputError('interrupted: the list is incomplete', { cause: error });
      throw error;
    }
  }

  async #watch(flags: ListFlags, load: () => Promise<PrintedList>, type: ChangeType): Promise<ExitStatus> {
    const { stderr, env, signal: interrupted } = this.#io;
    const { askAgent } = await import('../../client/ask-agent.ts');
    const { watchChanges } = await import('../../client/watch-changes.ts');
    const { EitherSignal } = await import('../../base/follow-signal.ts');
    const listing = await load();
    const ended = new AbortController();
    using either = new EitherSignal(interrupted, ended.signal);
    const { signal } = either;
    const printEach = (client: ApiClient): Promise<void> =>
      this.#printEach(watchChanges(client, type, signal), listing, client.ask, flags);
    try {
      await askAgent(socketPath(flags, env), printEach, signal, socketAdvice());
    } catch (error) {
      if (!interrupted.aborted) throw error;
    } finally {
      ended.abort(); // otherwise the stream of changes keeps the process alive
    }
    if (interrupted.aborted) return EXIT.ok;
    stderr.write('dpcache: the agent has stopped\n');
    return EXIT.failed;
  }

  /** Prints a list after each change, unless it is short and equals the last one. */
  async #printEach(
    changes: AsyncIterable<void>,
    listing: PrintedList,
    ask: Ask,
    { output: format, limit }: ListFlags,
  ): Promise<void> {
    const { stdout } = this.#io;
    let previous: string | undefined;
    const writeStart = (text: string): Promise<void> => {
      if (stdout.isTTY === true) stdout.write(CLEAR_SCREEN);
      else if (previous !== undefined) stdout.write('\n');
      return this.#write(text);
    };
    for await (const _ of changes) {
      const view = { wide: format === 'wide', width: stdout.columns };
      /** The whole text of a short list; of a long list, the start that was buffered until the list was long. */
      let start = '';
      await listing.print(ask, { format, view, limit }, async (part) => {
        if (start.length > MAX_COMPARED) return this.#write(part);
        start += part;
        if (start.length > MAX_COMPARED) await writeStart(start);
      });
      if (start.length <= MAX_COMPARED && start !== previous) await writeStart(start);
      previous = start;
    }
  }
}
