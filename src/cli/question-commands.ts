import { Command, InvalidArgumentError, Option } from 'commander';
import type { LoadedSource } from '../agent/run-agent.ts';
import type { Ask } from '../api/api-client.ts';
import type { ChangeType } from '../api/change-types.ts';
import { parseWhen, WHEN_FORMS, whenText } from '../api/when.ts';
import { messageOf } from '../base/failure.ts';
import { counted } from '../base/show-value.ts';
import { systemClock } from '../base/system-clock.ts';
import type { Answer, Question } from '../client/answer.ts';
import type { HistoryQuery } from '../client/history-answers.ts';
import type { ListFilters, ListFormat, Listing } from '../client/list.ts';
import { isNumericIdentity } from '../model/numeric-identity.ts';
import { SOURCES } from '../model/source.ts';
import { Prefix } from '../net/prefix.ts';
import { InputError } from '../process/input-error.ts';
import { writeLines } from '../process/terminal.ts';
import { addConfiguration } from './configuration.ts';
import { type CommandIO, EXIT, OUTPUT_CLOSED, type RunAction } from './io.ts';
import { addLogOptions, addMeshOptions, agentOptions, followsMesh, type MeshFlags } from './mesh-options.ts';
import { parseDuration } from './option-table.ts';
import { addSocketOption, type SocketFlags, socketPath } from './serve-options.ts';
import { addTroubleshootCommand } from './troubleshoot-command.ts';

interface QuestionFlags extends MeshFlags, SocketFlags {
  readonly output: ListFormat;
  readonly quiet?: true;
  /** True if an agent is run for the answer; false if a running agent is asked. */
  readonly readsMesh: boolean;
}

interface ListFlags extends QuestionFlags {
  readonly watch?: true;
  readonly limit?: number;
  readonly count?: true;
}

/** Loads a question or a list when it is needed. */
type Loader<Q> = () => Promise<Q>;

/** Returns a loader of one question or list of a module. */
function among<T, Q extends Question | Listing>(
  load: () => Promise<T>,
  choose: (answers: T) => Q,
): Loader<Q> {
  return async () => choose(await load());
}

const ofHistory = () => import('../client/history-answers.ts');
const ofPrefixes = () => import('../client/prefix-answers.ts');
const ofServices = () => import('../client/service-answers.ts');
const ofNodes = () => import('../client/node-answers.ts');
const ofSearch = () => import('../client/search-answers.ts');
const ofIdentities = () => import('../client/identity-answers.ts');

function parseIdentity(text: string): number {
  const identity = /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN;
  if (isNumericIdentity(identity)) return identity;
  throw new InvalidArgumentError('It must be a number from 0 to 4294967295.');
}

function parseLimit(text: string): number {
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text);
  throw new InvalidArgumentError('It must be a number from 1 to 999999999.');
}

/** Returns the text unchanged. Rejects an invalid one before a mesh is synced for the answer. */
function parseIP(text: string): string {
  if (Prefix.parseAnnotated(text) !== undefined) return text;
  throw new InvalidArgumentError('It must be an IP address or a CIDR.');
}

/** Returns a key of the history unchanged. */
function parseKey(text: string): string {
  if (Prefix.parse(text) !== undefined || /^[^/]+\/[^/]+$/.test(text)) return text;
  throw new InvalidArgumentError('It must be an IP address, a CIDR, or a name with one /.');
}

/** Returns a parser of a name with two parts. */
function parsePath(what: string): (text: string) => string {
  return (text) => {
    if (/^[^/]+\/[^/]+$/.test(text)) return text;
    throw new InvalidArgumentError(`It must be ${what}.`);
  };
}

function parseMoment(text: string): string {
  return parseMomentAt(systemClock.wallTime(), text);
}

function parseMomentAt(now: number, text: string): string {
  const when = parseWhen(text, now);
  if (when !== undefined) return whenText(when);
  throw new InvalidArgumentError(`It must be a time: ${WHEN_FORMS}.`);
}

/** Returns `--at`. */
function atOption(): Option {
  return new Option('--at <time>', `answer for this moment: ${WHEN_FORMS}`).argParser(parseMoment);
}

interface HistoryFlags extends QuestionFlags {
  readonly from?: string;
  readonly to?: string;
  readonly limit: number;
  readonly around?: string;
  readonly export?: string;
  readonly window: number;
}

interface PastFlags extends QuestionFlags {
  readonly at?: string;
}

/** Returns true if a moment is later than another one of the same form: both are times, or both are sequence numbers. */
function isLaterMoment(a: string, b: string): boolean {
  if (a.startsWith('#') !== b.startsWith('#')) return false;
  return a.startsWith('#') ? Number(a.slice(1)) > Number(b.slice(1)) : Date.parse(a) > Date.parse(b);
}

/** Moves the cursor to the top and clears the screen (ECMA-48: CUP, ED). */
const CLEAR_SCREEN = '\u001B[H\u001B[2J';

/** Maximum length of a watched list that is compared with its last output: 1 MiB. It is shown again only if it differs. */
const MAX_COMPARED: number = 1 << 20;

/** The filter of lists that contain several clusters. */
interface ClusterFlags extends ListFlags {
  readonly ofCluster?: string;
}

const NO_NAMES: readonly ListFormat[] = ['text', 'wide', 'json', 'yaml'];

/** Returns the filters among the flags of a command. */
function filtersOf(flags: object, names: readonly string[]): ListFilters {
  return Object.fromEntries(Object.entries(flags).filter(([name]) => names.includes(name)));
}

async function* lines(ips: readonly string[]): AsyncGenerator<string> {
  yield ips.join('\n');
}

/** Adds the options that select the agent: a running one, or one that is run with the given sources for the answer. */
function addAskOptions(command: Command, io: CommandIO): Command {
  const known = command.options.length;
  addMeshOptions(command);
  const log = new Set(addLogOptions(new Command()).options.map((option) => option.attributeName()));
  const ofMesh = command.options.slice(known).filter((option) => !log.has(option.attributeName()));
  addSocketOption(command).hook('preAction', () => {
    // Only flags select sources. The environment and the file of an agent do not cause a second agent to run.
    const readsMesh = followsMesh(command.opts());
    command.setOptionValue('readsMesh', readsMesh);
    const ignored = ofMesh.find((option) => command.getOptionValueSource(option.attributeName()) === 'cli');
    if (!readsMesh && ignored !== undefined) refuseMeshOption(command, ignored);
  });
  return addConfiguration(command, io);
}

/** Rejects an option that only an agent with sources uses, because the running agent would ignore it (I12). */
function refuseMeshOption(command: Command, { long }: Option): never {
  const filter = command.options.some((option) => option.long === '--of-cluster');
  const remedy = long === '--cluster' && filter ? '; --of-cluster selects one cluster' : '';
  command.error(
    `dpcache: ${long} has no effect, because a running agent is asked: remove it, or add a source such as --load${remedy}`,
  );
}

async function textOf({ json, lines, names = [] }: Answer, output: ListFormat): Promise<string> {
  if (output === 'json') return `${JSON.stringify(json, null, 1)}\n`;
  if (output === 'yaml') return (await import('yaml')).stringify(json, { aliasDuplicateObjects: false });
  const shown = output === 'name' ? names : lines;
  return shown.map((line) => `${line}\n`).join('');
}

/** Adds the commands that ask one question and end: `dpcache ipcache list` and the like. */
export function addQuestionCommands(program: Command, io: CommandIO, run: RunAction): void {
  const asked = async <T>(flags: QuestionFlags, use: (ask: Ask) => Promise<T>): Promise<LoadedSource<T>> => {
    if (flags.readsMesh) {
      const { createLog } = await import('../process/log.ts');
      const { askMesh } = await import('../agent/run-agent.ts');
      const log = createLog(flags.logLevel, flags.logFormat, io.stderr);
      return askMesh(agentOptions(flags), use, { log, signal: io.signal });
    }
    const { askAgent } = await import('../client/ask-agent.ts');
    const answer = await askAgent(socketPath(flags, io.env), ({ ask }) => use(ask), io.signal);
    return { answer, complete: true };
  };
  const answer = (flags: QuestionFlags, questioner: Loader<Question>): Promise<void> =>
    run(async () => {
      const question = await questioner();
      const { output, quiet = false } = flags;
      const view = { wide: output === 'wide', width: io.stdout.columns };
      const { answer: answered, complete } = await asked(flags, (ask) => question(ask, view));
      const { found, lines } = answered;
      const forPrograms = output === 'json' || output === 'yaml';
      if (!found && !forPrograms) io.stderr.write(lines.map((line) => `dpcache: ${line}\n`).join(''));
      else if (!quiet) writeLines(io.stdout, await textOf(answered, output));
      // An incomplete mesh still gives an answer, but the exit status must be different for scripts.
      return found && complete ? EXIT.ok : EXIT.failed;
    });
  const write = async (text: string): Promise<void> => {
    writeLines(io.stdout, text);
    await io.stdout.drained?.(io.signal);
    io.signal.throwIfAborted();
  };
  const show = (flags: ListFlags, load: Loader<Listing>): Promise<void> =>
    run(async () => {
      const listing = await load();
      const { output: format, quiet = false, count = false } = flags;
      const view = { wide: format === 'wide', width: io.stdout.columns };
      try {
        const { complete } = await asked(flags, async (ask) => {
          if (count) await write(`${await listing.count(ask)}\n`);
          else if (quiet) await listing.print(ask, { format, view, limit: 1 }, async () => {});
          else await listing.print(ask, { format, view, limit: flags.limit }, write);
        });
        return complete ? EXIT.ok : EXIT.failed;
      } catch (error) {
        // The reader has closed the pipe: `| head`.
        if (io.signal.aborted && io.signal.reason === OUTPUT_CLOSED) return EXIT.ok;
        if (io.signal.aborted) throw new InputError('interrupted: the list is incomplete', { cause: error });
        throw error;
      }
    });
  const watch = (flags: ListFlags, load: Loader<Listing>, type: ChangeType): Promise<void> =>
    run(async () => {
      const { askAgent } = await import('../client/ask-agent.ts');
      const { watchChanges } = await import('../client/watch-changes.ts');
      const listing = await load();
      const { output: format, limit } = flags;
      let previous: string | undefined;
      let isFirst = true;
      const clear = (): void => {
        if (io.stdout.isTTY === true) io.stdout.write(CLEAR_SCREEN);
        else if (!isFirst) io.stdout.write('\n');
        isFirst = false;
      };
      const { EitherSignal } = await import('../base/follow-signal.ts');
      const done = new AbortController();
      using either = new EitherSignal(io.signal, done.signal);
      const { signal } = either;
      await askAgent(
        socketPath(flags, io.env),
        async (client) => {
          for await (const _ of watchChanges(client, type, signal)) {
            const view = { wide: format === 'wide', width: io.stdout.columns };
            let text: string | undefined = '';
            await listing.print(client.ask, { format, view, limit }, async (part) => {
              if (text === undefined) return write(part);
              text += part;
              if (text.length <= MAX_COMPARED) return;
              const whole = text;
              text = undefined;
              clear();
              await write(whole);
            });
            if (text !== undefined && text !== previous) {
              clear();
              await write(text);
            }
            previous = text;
          }
        },
        signal,
      )
        .catch((error: unknown) => {
          if (!io.signal.aborted) throw error;
        })
        .finally(() => done.abort()); // otherwise the stream of changes keeps the process alive
      if (io.signal.aborted) return EXIT.ok;
      io.stderr.write('dpcache: the agent has stopped\n');
      return EXIT.failed;
    });
  const exportTo = (file: string, flags: QuestionFlags, query: Omit<HistoryQuery, 'limit'>): Promise<void> =>
    run(async () => {
      const { exportHistory } = await ofHistory();
      const { open } = await import('node:fs/promises');
      const handle = await open(file, 'w', 0o600).catch((error: unknown) => {
        throw new InputError(`--export ${file}: ${messageOf(error)}`, { cause: error });
      });
      try {
        const { answer: count } = await asked(flags, (ask) =>
          exportHistory(ask, query, (lines) => handle.write(lines)),
        );
        io.stderr.write(`dpcache: ${counted(count, 'change')} written to ${file}\n`);
      } finally {
        await handle.close();
      }
      return EXIT.ok;
    });
  const question = (
    parent: Command,
    name: string,
    description: string,
    formats: readonly ListFormat[] = ['text', 'wide', 'json', 'yaml', 'name'],
  ): Command => {
    const output = new Option('-o, --output <format>', 'output format; wide: all columns, name: keys only');
    const command = parent
      .command(name)
      .description(description)
      .addOption(output.choices(formats).default('text'))
      .option('-q, --quiet', 'print nothing; exit with status 0 if there is an answer');
    return addAskOptions(command, io);
  };
  /** Adds the options and the action of a list to a command. A watched list is shown again when an object of its type has changed. */
  const list = <F extends ListFlags>(
    command: Command,
    type: ChangeType,
    choose: (flags: F) => Loader<Listing>,
  ): void => {
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
        const load = choose(flags);
        if (flags.watch !== true) return show(flags, load);
        if (flags.readsMesh)
          command.error('dpcache: --watch requires a running agent: remove the options that name a source');
        return watch(flags, load, type);
      });
  };

  const ipcache = program.command('ipcache').description('print prefixes with their identity, host and pod');
  const prefixes = question(ipcache, 'list', 'list all prefixes')
    .option('--identity <n>', 'only prefixes with this identity', parseIdentity)
    .option('--within <cidr>', 'only prefixes in this CIDR', parseIP)
    .addOption(
      new Option('--source <source>', 'only prefixes whose effective claim is from this source').choices(
        SOURCES,
      ),
    )
    .option('--of-cluster <name>', 'only prefixes whose effective claim is from this remote cluster')
    .option('--label <label>', 'only prefixes whose identity has this label, such as app=web or k8s:app=web')
    .option('--pod <namespace/name>', 'only prefixes of this pod', parsePath('namespace/name'))
    .option('--node <ip>', 'only prefixes on the node with this IP', parseIP)
    .addOption(atOption().conflicts(['count', 'watch']));
  list<ClusterFlags>(prefixes, 'ip', ({ ofCluster: cluster, ...flags }) =>
    among(ofPrefixes, ({ listPrefixes }) =>
      listPrefixes({
        ...filtersOf(flags, ['identity', 'within', 'source', 'label', 'pod', 'node', 'at']),
        cluster,
      }),
    ),
  );
  question(ipcache, 'get', 'print the entry of the longest prefix that contains an IP, or of a CIDR')
    .argument('<ip>', 'IP address or CIDR', parseIP)
    .addOption(atOption())
    .action((ip: string, flags: PastFlags) =>
      answer(
        flags,
        among(ofPrefixes, ({ getPrefix }) => getPrefix(ip, flags.at)),
      ),
    );
  question(
    ipcache,
    'explain',
    'print all claims on an IP or CIDR, and why one of them is effective',
    NO_NAMES,
  )
    .argument('<ip>', 'IP address or CIDR', parseIP)
    .addOption(atOption())
    .action((ip: string, { at, ...flags }: PastFlags) =>
      answer(
        flags,
        at === undefined
          ? among(ofPrefixes, ({ explainPrefix }) => explainPrefix(ip))
          : among(ofHistory, ({ explainPast }) => explainPast(ip, at)),
      ),
    );

  const lookup = ipcache
    .command('lookup')
    .description('print the entries of many IPs, one JSON line each, in order')
    .argument('<ips...>', 'IP addresses; - reads them from standard input, one per line')
    .addOption(atOption())
    .action((ips: readonly string[], flags: PastFlags) =>
      run(async () => {
        const input = ips.length === 1 && ips[0] === '-' ? io.stdin : lines(ips);
        const { lookupLines } = await import('../client/lookup-lines.ts');
        const { answer: all, complete } = await asked(flags, (ask) =>
          lookupLines(ask, input, io.stdout, io.signal, flags.at),
        );
        return all && complete ? EXIT.ok : EXIT.failed;
      }),
    );
  addAskOptions(lookup, io);

  const now = systemClock.wallTime(); // one for both, so that `--to -1h --from -1h` is no inverted range
  const parseBoundary = (text: string): string => parseMomentAt(now, text);
  question(
    program,
    'history',
    'print the changes of a prefix, a service or a node, or all changes, newest first',
    NO_NAMES,
  )
    .argument(
      '[key]',
      'IP address, CIDR, namespace/name of a service or cluster/name of a node; default: all',
      parseKey,
    )
    .addOption(
      new Option('--from <time>', `only changes from then on: ${WHEN_FORMS}`).argParser(parseBoundary),
    )
    .addOption(new Option('--to <time>', 'only changes until then').argParser(parseBoundary))
    .addOption(new Option('--limit <n>', 'maximum number of changes').argParser(parseLimit).default(50))
    .addOption(
      new Option('--around <time>', 'print what changed around this moment, grouped by cause')
        .argParser(parseMoment)
        .conflicts(['from', 'to']),
    )
    .addOption(
      new Option('--window <duration>', 'with --around: time before and after it')
        .argParser(parseDuration)
        .default(5000, '5s'),
    )
    .addOption(
      new Option(
        '--export <file>',
        'write all changes of the range to this file, as JSON lines, newest first',
      ).conflicts(['around', 'quiet']),
    )
    .action((key: string | undefined, flags: HistoryFlags, command: Command) => {
      const { from, to, limit, around, window, export: file } = flags;
      if (from !== undefined && to !== undefined && isLaterMoment(from, to))
        command.error(`dpcache: --from ${from} is after --to ${to}: exchange them`);
      if (file !== undefined) return exportTo(file, flags, { key, from, to });
      if (around !== undefined)
        return answer(
          flags,
          among(ofHistory, ({ askAround }) => askAround(around, window, limit)),
        );
      return answer(
        flags,
        among(ofHistory, ({ askHistory }) => askHistory({ key, from, to, limit })),
      );
    });

  question(
    program,
    'whois',
    'print what has an IP, a name, a label or a number: pods, services, nodes, identities',
  )
    .argument('<text>', 'IP, CIDR, number of an identity, label such as app=web, or a part of a name')
    .addOption(
      new Option('--limit <n>', 'maximum number of results of each kind, up to 50')
        .argParser(parseLimit)
        .default(8),
    )
    .action((text: string, flags: QuestionFlags & { readonly limit: number }) =>
      answer(
        flags,
        among(ofSearch, ({ askSearch }) => askSearch(text, flags.limit)),
      ),
    );

  const service = program.command('service').description('print services and their backends');
  const services = question(service, 'list', 'list all services with their backends')
    .option('--namespace <name>', 'only services of this namespace')
    .option('--of-cluster <name>', 'only services with a backend in this remote cluster');
  list<ClusterFlags>(services, 'service', ({ ofCluster: cluster, ...flags }) =>
    among(ofServices, ({ listServices }) => listServices({ ...filtersOf(flags, ['namespace']), cluster })),
  );
  question(service, 'get', 'print a service and its backends')
    .argument('<service>', 'namespace/name', parsePath('namespace/name'))
    .addOption(atOption())
    .action((name: string, flags: PastFlags) =>
      answer(
        flags,
        among(ofServices, ({ getService }) => getService(name, flags.at)),
      ),
    );
  question(
    service,
    'explain',
    'print all backends that are offered to a service, and whether and why they are used',
    NO_NAMES,
  )
    .argument('<service>', 'namespace/name', parsePath('namespace/name'))
    .addOption(atOption())
    .action((name: string, flags: PastFlags) =>
      answer(
        flags,
        among(ofServices, ({ explainService }) => explainService(name, flags.at)),
      ),
    );

  const node = program.command('node').description('print nodes and their addresses');
  const nodes = question(node, 'list', 'list all nodes of the mesh').option(
    '--of-cluster <name>',
    'only nodes of this cluster',
  );
  list<ClusterFlags>(nodes, 'node', ({ ofCluster: cluster }) =>
    among(ofNodes, ({ listNodes }) => listNodes({ cluster })),
  );
  question(node, 'get', 'print a node and the claims of each source')
    .argument('<node>', 'cluster/name', parsePath('cluster/name'))
    .addOption(atOption())
    .action((name: string, flags: PastFlags) =>
      answer(
        flags,
        among(ofNodes, ({ getNode }) => getNode(name, flags.at)),
      ),
    );

  const identity = program.command('identity').description('print identities and their labels');
  const identities = question(identity, 'list', 'list all identities with their labels')
    .option('--of-cluster <name>', 'only identities of this cluster')
    .option('--label <label>', 'only identities with this label, such as app=web or k8s:app=web');
  list<ClusterFlags>(identities, 'ip', ({ ofCluster: cluster, ...flags }) =>
    among(ofIdentities, ({ listIdentities }) => listIdentities({ ...filtersOf(flags, ['label']), cluster })),
  );
  question(identity, 'get', 'print the labels of an identity')
    .argument('<identity>', 'numeric identity', parseIdentity)
    .action((number: number, flags: QuestionFlags) =>
      answer(
        flags,
        among(ofIdentities, ({ getIdentity }) => getIdentity(number)),
      ),
    );

  const clustermesh = program
    .command('clustermesh')
    .description('print the state of the clusters in the mesh');
  question(
    clustermesh,
    'status',
    'print the connection, sync state, counts and failures of each cluster',
  ).action((flags: QuestionFlags) =>
    answer(flags, async () => (await import('../client/summary.ts')).askClustermesh),
  );
  question(
    clustermesh,
    'conflicts',
    'print overlapping CIDRs of pods, prefixes of several clusters and duplicate ids; exit with status 1 if there are any',
  ).action((flags: QuestionFlags) =>
    answer(flags, async () => (await import('../client/conflict-answers.ts')).askConflicts),
  );
  addTroubleshootCommand(clustermesh, io, run);
  question(program, 'status', 'print the status of the agent: clusters, counts and rejected items', NO_NAMES)
    .option(
      '--ready',
      'print only whether the agent is ready; if it is not, print what it waits for and exit with status 1',
    )
    .action((flags: QuestionFlags & { readonly ready?: true }) =>
      answer(flags, async () => {
        const { askReady, askStatus } = await import('../client/summary.ts');
        return flags.ready === true ? askReady : askStatus;
      }),
    );
}
