import type { FileHandle } from 'node:fs/promises';
import { type Command, Option } from 'commander';
import { WHEN_FORMS } from '../../api/when.ts';
import { messageOf } from '../../base/failure.ts';
import { counted } from '../../base/show-value.ts';
import { systemClock } from '../../base/system-clock.ts';
import type { HistoryQuery } from '../../client/history-answers.ts';
import type { ListFilters } from '../../client/list.ts';
import { SOURCES } from '../../model/source.ts';
import { InputError } from '../../process/input-error.ts';
import { type CommandIO, EXIT, type ExitStatus, type RunAction } from '../io.ts';
import { durationOption } from '../option-table.ts';
import { addTroubleshootCommand } from '../troubleshoot-command.ts';
import { addAskOptions, addRunningAgentOptions, type QuestionFlags } from './ask-options.ts';
import {
  atOption,
  isLaterMoment,
  parseHistoryKey,
  parseIdentity,
  parseIP,
  parseLimit,
  parseMoment,
  parseMomentAt,
  parseTwoNames,
} from './question-arguments.ts';
import { FORMATS_WITHOUT_NAME, type ListFlags, Questioner } from './questioner.ts';

const historyAnswers = () => import('../../client/history-answers.ts');
const prefixAnswers = () => import('../../client/prefix-answers.ts');
const serviceAnswers = () => import('../../client/service-answers.ts');
const nodeAnswers = () => import('../../client/node-answers.ts');
const searchAnswers = () => import('../../client/search-answers.ts');
const identityAnswers = () => import('../../client/identity-answers.ts');

interface HistoryFlags extends QuestionFlags {
  readonly identity?: number;
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

/** The filter of lists of several clusters. */
interface ClusterFlags extends ListFlags {
  readonly ofCluster?: string;
}

/** Returns the flags with these names, which are also the names of the filters. */
function filtersOf(flags: object, names: readonly string[]): ListFilters {
  return Object.fromEntries(Object.entries(flags).filter(([name]) => names.includes(name)));
}

/** Yields the IPs as lines, all at once, so that they are sent in one request. */
async function* asLines(ips: readonly string[]): AsyncGenerator<string> {
  yield ips.map((ip) => `${ip}\n`).join('');
}

/** Adds the commands that ask one question and end: `dpcache ipcache list` and the like. */
export function addQuestionCommands(program: Command, io: CommandIO, run: RunAction): void {
  const questioner = new Questioner(io, run);
  addIPCacheCommands(program, questioner, io, run);
  addHistoryCommand(program, questioner, io, run);
  addWhoisCommand(program, questioner);
  addServiceCommands(program, questioner);
  addNodeCommands(program, questioner);
  addIdentityCommands(program, questioner);
  addClustermeshCommands(program, questioner, io, run);
  addStatusCommand(program, questioner);
}

function addIPCacheCommands(program: Command, questioner: Questioner, io: CommandIO, run: RunAction): void {
  const ipcache = program.command('ipcache').description('print prefixes with their identity, host and pod');
  const prefixes = questioner
    .addCommand(ipcache, 'list', 'list all prefixes')
    .option('--identity <n>', 'only prefixes with this identity', parseIdentity)
    .option('--within <cidr>', 'only prefixes in this CIDR', parseIP)
    .addOption(
      new Option('--source <source>', 'only prefixes whose effective claim is from this source').choices(
        SOURCES,
      ),
    )
    .option('--of-cluster <name>', 'only prefixes whose effective claim is from this remote cluster')
    .option('--label <label>', 'only prefixes whose identity has this label, such as app=web or k8s:app=web')
    .option('--pod <namespace/name>', 'only prefixes of this pod', parseTwoNames('namespace/name'))
    .option('--node <ip>', 'only prefixes on the node with this IP', parseIP)
    .addOption(atOption().conflicts(['count', 'watch']));
  questioner.addList<ClusterFlags>(prefixes, 'ip', async ({ ofCluster: cluster, ...flags }) =>
    (await prefixAnswers()).listPrefixes({
      ...filtersOf(flags, ['identity', 'within', 'source', 'label', 'pod', 'node', 'at']),
      cluster,
    }),
  );
  questioner
    .addCommand(ipcache, 'get', 'print the entry of a CIDR, or of the longest prefix that contains an IP')
    .argument('<ip>', 'IP address or CIDR', parseIP)
    .addOption(atOption())
    .action((ip: string, flags: PastFlags) =>
      questioner.printAnswer(flags, async () => (await prefixAnswers()).getPrefix(ip, flags.at)),
    );
  questioner
    .addCommand(
      ipcache,
      'explain',
      'print all claims on an IP or CIDR, and why one of them is effective',
      FORMATS_WITHOUT_NAME,
    )
    .argument('<ip>', 'IP address or CIDR', parseIP)
    .addOption(atOption())
    .action((ip: string, { at, ...flags }: PastFlags) =>
      questioner.printAnswer(flags, async () =>
        at === undefined
          ? (await prefixAnswers()).explainPrefix(ip)
          : (await historyAnswers()).explainPast(ip, at),
      ),
    );

  const lookup = ipcache
    .command('lookup')
    .description('print the entries of many IPs, one JSON line each, in order')
    .argument('<ips...>', 'IP addresses; - reads them from standard input, one per line')
    .addOption(atOption())
    .action((ips: readonly string[], flags: PastFlags) =>
      run(async () => {
        const input = ips.length === 1 && ips[0] === '-' ? io.stdin : asLines(ips);
        const { lookupLines } = await import('../../client/lookup-lines.ts');
        const { answer: areAllFound, complete } = await questioner.ask(flags, (ask) =>
          lookupLines(ask, input, io.stdout, io.signal, flags.at),
        );
        return areAllFound && complete ? EXIT.ok : EXIT.failed;
      }),
    );
  addAskOptions(lookup, io);
}

function addHistoryCommand(program: Command, questioner: Questioner, io: CommandIO, run: RunAction): void {
  const now = systemClock.wallTime(); // the same time for both options, so that `--to -1h --from -1h` is a valid range
  const parseBoundary = (text: string): string => parseMomentAt(now, text);
  questioner
    .addCommand(
      program,
      'history',
      'print the changes of a prefix, a service or a node, or all changes, newest first',
      FORMATS_WITHOUT_NAME,
      addRunningAgentOptions,
    )
    .argument(
      '[key]',
      'IP address, CIDR, namespace/name of a service or cluster/name of a node; default: all',
      parseHistoryKey,
    )
    .option(
      '--identity <n>',
      'only changes of prefixes that had this identity before or after',
      parseIdentity,
    )
    .option('--from <time>', `only changes since this time: ${WHEN_FORMS}`, parseBoundary)
    .option('--to <time>', 'only changes until this time', parseBoundary)
    .option('--limit <n>', 'maximum number of changes', parseLimit, 50)
    .addOption(
      new Option('--around <time>', 'print the changes around this time, grouped by store and node')
        .argParser(parseMoment)
        .conflicts(['from', 'to', 'identity']),
    )
    .addOption(durationOption('--window <duration>', 'with --around: time before and after it', 5000, '5s'))
    .addOption(
      new Option(
        '--export <file>',
        'write all changes of the range to this file, as JSON lines, newest first',
      ).conflicts(['around', 'quiet', 'limit', 'output']),
    )
    .action((key: string | undefined, flags: HistoryFlags, command: Command) => {
      const { identity, from, to, limit, around, window, export: file } = flags;
      if (from !== undefined && to !== undefined && isLaterMoment(from, to))
        command.error(`dpcache: --from ${from} is after --to ${to}: exchange them`);
      if (around !== undefined && key !== undefined)
        command.error(
          `dpcache: --around prints the changes of all keys: remove ${key}, or use --from and --to`,
        );
      if (around === undefined && command.getOptionValueSource('window') !== 'default')
        command.error('dpcache: --window requires --around <time>');
      if (file !== undefined)
        return run(() => exportTo(questioner, io, file, flags, { key, identity, from, to }));
      if (around !== undefined)
        return questioner.printAnswer(flags, async () =>
          (await historyAnswers()).askAround(around, window, limit),
        );
      return questioner.printAnswer(flags, async () =>
        (await historyAnswers()).askHistory({ key, identity, from, to, limit }),
      );
    });
}

/** Writes all changes of a range to a file. */
async function exportTo(
  questioner: Questioner,
  { stderr }: CommandIO,
  file: string,
  flags: QuestionFlags,
  query: Omit<HistoryQuery, 'limit'>,
): Promise<ExitStatus> {
  const { exportHistory } = await historyAnswers();
  const { open } = await import('node:fs/promises');
  const fail = (error: unknown): never => {
    throw new InputError(`--export ${file}: ${messageOf(error)}`, { cause: error });
  };
  let handle: FileHandle | undefined;
  // Opened when the agent has answered, so that a former export outlives a failed request.
  const write = async (lines: string): Promise<void> => {
    handle ??= await open(file, 'w', 0o600);
    await handle.appendFile(lines);
  };
  try {
    const { answer: count } = await questioner.ask(flags, (ask) =>
      exportHistory(ask, query, (lines) => write(lines).catch(fail)),
    );
    stderr.write(`dpcache: ${counted(count, 'change')} written to ${file}\n`);
  } finally {
    await handle?.close();
  }
  return EXIT.ok;
}

function addWhoisCommand(program: Command, questioner: Questioner): void {
  questioner
    .addCommand(program, 'whois', 'search pods, services, nodes and identities by IP, name, label or number')
    .argument('<text>', 'IP, CIDR, number of an identity, label such as app=web, or a part of a name')
    .option('--limit <n>', 'maximum number of results of each kind, up to 50', parseLimit, 8)
    .action((text: string, flags: QuestionFlags & { readonly limit: number }) =>
      questioner.printAnswer(flags, async () => (await searchAnswers()).askSearch(text, flags.limit)),
    );
}

function addServiceCommands(program: Command, questioner: Questioner): void {
  const service = program.command('service').description('print services and their backends');
  const services = questioner
    .addCommand(service, 'list', 'list all services with their backends')
    .option('--namespace <name>', 'only services of this namespace')
    .option('--of-cluster <name>', 'only services with a backend in this remote cluster');
  questioner.addList<ClusterFlags>(services, 'service', async ({ ofCluster: cluster, ...flags }) =>
    (await serviceAnswers()).listServices({ ...filtersOf(flags, ['namespace']), cluster }),
  );
  questioner
    .addCommand(service, 'get', 'print a service and its backends')
    .argument('<service>', 'namespace/name', parseTwoNames('namespace/name'))
    .addOption(atOption())
    .action((name: string, flags: PastFlags) =>
      questioner.printAnswer(flags, async () => (await serviceAnswers()).getService(name, flags.at)),
    );
  questioner
    .addCommand(
      service,
      'explain',
      'print all backends that are offered to a service, and whether and why they are used',
      FORMATS_WITHOUT_NAME,
    )
    .argument('<service>', 'namespace/name', parseTwoNames('namespace/name'))
    .addOption(atOption())
    .action((name: string, flags: PastFlags) =>
      questioner.printAnswer(flags, async () => (await serviceAnswers()).explainService(name, flags.at)),
    );
}

function addNodeCommands(program: Command, questioner: Questioner): void {
  const node = program.command('node').description('print nodes and their addresses');
  const nodes = questioner
    .addCommand(node, 'list', 'list all nodes of the mesh')
    .option('--of-cluster <name>', 'only nodes of this cluster');
  questioner.addList<ClusterFlags>(nodes, 'node', async ({ ofCluster: cluster }) =>
    (await nodeAnswers()).listNodes({ cluster }),
  );
  questioner
    .addCommand(node, 'get', 'print a node and the claims of each source')
    .argument('<node>', 'cluster/name', parseTwoNames('cluster/name'))
    .addOption(atOption())
    .action((name: string, flags: PastFlags) =>
      questioner.printAnswer(flags, async () => (await nodeAnswers()).getNode(name, flags.at)),
    );
}

function addIdentityCommands(program: Command, questioner: Questioner): void {
  const identity = program.command('identity').description('print identities and their labels');
  const identities = questioner
    .addCommand(identity, 'list', 'list all identities with their labels')
    .option('--of-cluster <name>', 'only identities of this cluster')
    .option('--label <label>', 'only identities with this label, such as app=web or k8s:app=web');
  // The agent reports no changes of identities, so the list is printed again after each change of a prefix.
  questioner.addList<ClusterFlags>(identities, 'ip', async ({ ofCluster: cluster, ...flags }) =>
    (await identityAnswers()).listIdentities({ ...filtersOf(flags, ['label']), cluster }),
  );
  questioner
    .addCommand(identity, 'get', 'print the labels of an identity')
    .argument('<identity>', 'numeric identity', parseIdentity)
    .action((number: number, flags: QuestionFlags) =>
      questioner.printAnswer(flags, async () => (await identityAnswers()).getIdentity(number)),
    );
}

function addClustermeshCommands(
  program: Command,
  questioner: Questioner,
  io: CommandIO,
  run: RunAction,
): void {
  const clustermesh = program
    .command('clustermesh')
    .description('print the state of the clusters in the mesh');
  questioner
    .addCommand(
      clustermesh,
      'status',
      'print the connection, sync state, counts and failures of each cluster',
    )
    .action((flags: QuestionFlags) =>
      questioner.printAnswer(flags, async () => (await import('../../client/summary.ts')).askClustermesh),
    );
  questioner
    .addCommand(
      clustermesh,
      'conflicts',
      'print overlapping CIDRs of pods, prefixes of several clusters and duplicate ids; exit with status 1 if there are any',
    )
    .action((flags: QuestionFlags) =>
      questioner.printAnswer(
        flags,
        async () => (await import('../../client/conflict-answers.ts')).askConflicts,
      ),
    );
  addTroubleshootCommand(clustermesh, io, run);
}

function addStatusCommand(program: Command, questioner: Questioner): void {
  questioner
    .addCommand(
      program,
      'status',
      'print the status of the agent: problems and their remedies, clusters, counts and rejected items',
      FORMATS_WITHOUT_NAME,
    )
    .option(
      '--ready',
      'print only whether the agent is ready; if it is not, print what it waits for and exit with status 1',
    )
    .action((flags: QuestionFlags & { readonly ready?: true }) =>
      questioner.printAnswer(flags, async () => {
        const { askReady, askStatus } = await import('../../client/summary.ts');
        return flags.ready === true ? askReady : askStatus;
      }),
    );
}
