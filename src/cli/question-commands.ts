import { type Command, InvalidArgumentError, Option } from 'commander';
import type { Answer, ListFilters, Question } from '../agent/answer.ts';
import type { Asked } from '../agent/run-agent.ts';
import { writeLines } from '../agent/terminal.ts';
import type { Ask } from '../api/api-client.ts';
import type { ChangeType } from '../api/change-feed.ts';
import { isNumericIdentity } from '../identity/numeric-identity.ts';
import { Prefix } from '../net/prefix.ts';
import { addConfiguration } from './configuration.ts';
import { type CommandIO, EXIT, type RunAction } from './io.ts';
import { addMeshOptions, agentOptions, followsMesh, type MeshFlags } from './mesh-options.ts';
import { addSocketOption, type SocketFlags, socketPath } from './serve-options.ts';

/** How an answer is written; `name`: the keys of what there is, a line each. */
type OutputFormat = 'text' | 'wide' | 'json' | 'yaml' | 'name';

interface QuestionFlags extends MeshFlags, SocketFlags {
  readonly output: OutputFormat;
  readonly quiet?: true;
  readonly watch?: true;
  /** The mesh is read for the answer; otherwise a running agent is asked. */
  readonly readsMesh: boolean;
}

/** Makes a question once it is asked. */
type Questioner = () => Promise<Question>;

/** One of some questions, which are loaded when one is asked. */
function among<T>(load: () => Promise<T>, choose: (answers: T) => Question): Questioner {
  return async () => choose(await load());
}

const ofPrefixes = () => import('../agent/prefix-answers.ts');
const ofServices = () => import('../agent/service-answers.ts');
const ofNodes = () => import('../agent/node-answers.ts');
const ofIdentities = () => import('../agent/identity-answers.ts');

function parseIdentity(text: string): number {
  const identity = /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN;
  if (isNumericIdentity(identity)) return identity;
  throw new InvalidArgumentError('It must be a number from 0 to 4294967295.');
}

/** As it was given: what is wrong with it is said before a mesh is synced for nothing. */
function parseIP(text: string): string {
  if (Prefix.parse(text) !== undefined) return text;
  throw new InvalidArgumentError('It must be an IP address or a CIDR.');
}

/** A name of two parts. */
function parsePath(what: string): (text: string) => string {
  return (text) => {
    if (/^[^/]+\/[^/]+$/.test(text)) return text;
    throw new InvalidArgumentError(`It must be ${what}.`);
  };
}

/** The cursor to the top, and nothing on the screen (ECMA-48: CUP, ED). */
const CLEAR_SCREEN = '\u001B[H\u001B[2J';

/** What lists of several clusters can be narrowed down with. */
interface ClusterFlags extends QuestionFlags {
  readonly ofCluster?: string;
}

const NO_NAMES: readonly OutputFormat[] = ['text', 'wide', 'json', 'yaml'];

/** The filters among the flags of a command. */
function filtersOf(flags: object, names: readonly string[]): ListFilters {
  return Object.fromEntries(Object.entries(flags).filter(([name]) => names.includes(name)));
}

async function* lines(ips: readonly string[]): AsyncGenerator<string> {
  yield ips.join('\n');
}

/** Options that say who is asked: a running agent, or one that follows a mesh for the answer. */
function addAskOptions(command: Command, io: CommandIO): Command {
  addMeshOptions(addSocketOption(command)).hook('preAction', () => {
    // Only flags say so: the environment and the file of an agent are no reason to start another one.
    command.setOptionValue('readsMesh', followsMesh(command.opts()));
  });
  return addConfiguration(command, io);
}

async function textOf({ json, lines, names = [] }: Answer, output: OutputFormat): Promise<string> {
  if (output === 'json') return `${JSON.stringify(json, null, 1)}\n`;
  if (output === 'yaml') return (await import('yaml')).stringify(json, { aliasDuplicateObjects: false });
  const shown = output === 'name' ? names : lines;
  return shown.map((line) => `${line}\n`).join('');
}

/** Commands that ask one question and end: `dpcache ipcache list` and the like. */
export function addQuestionCommands(program: Command, io: CommandIO, run: RunAction): void {
  const asked = async <T>(flags: QuestionFlags, use: (ask: Ask) => Promise<T>): Promise<Asked<T>> => {
    if (flags.readsMesh) {
      const { createLog } = await import('../agent/log.ts');
      const { askMesh } = await import('../agent/run-agent.ts');
      const log = createLog(flags.logLevel, flags.logFormat, io.stderr);
      return askMesh(agentOptions(flags), use, { log, signal: io.signal });
    }
    const { askAgent } = await import('../agent/ask-agent.ts');
    const answer = await askAgent(socketPath(flags, io.env), ({ ask }) => use(ask), io.signal);
    return { answer, complete: true };
  };
  const answer = (flags: QuestionFlags, questioner: Questioner): Promise<void> =>
    run(async () => {
      const question = await questioner();
      const { output, quiet = false } = flags;
      const view = { wide: output === 'wide', width: io.stdout.columns };
      const { answer: answered, complete } = await asked(flags, (ask) => question(ask, view));
      const { found, lines } = answered;
      const forPrograms = output === 'json' || output === 'yaml';
      if (!found && !forPrograms) io.stderr.write(`${lines.join('\n')}\n`);
      else if (!quiet) writeLines(io.stdout, await textOf(answered, output));
      // An answer out of a part of the mesh is an answer, and a script must be able to tell.
      return found && complete ? EXIT.ok : EXIT.failed;
    });
  const watch = (flags: QuestionFlags, questioner: Questioner, type: ChangeType): Promise<void> =>
    run(async () => {
      const { askAgent } = await import('../agent/ask-agent.ts');
      const { watchChanges } = await import('../agent/watch-changes.ts');
      const question = await questioner();
      let before: string | undefined;
      const done = new AbortController();
      const signal = AbortSignal.any([io.signal, done.signal]);
      await askAgent(
        socketPath(flags, io.env),
        async (client) => {
          for await (const _ of watchChanges(client, type, signal)) {
            const { output } = flags;
            const view = { wide: output === 'wide', width: io.stdout.columns };
            const text = await textOf(await question(client.ask, view), output);
            if (text === before) continue;
            const clear = io.stdout.isTTY === true ? CLEAR_SCREEN : '\n';
            if (before !== undefined || clear !== '\n') io.stdout.write(clear);
            writeLines(io.stdout, text);
            before = text;
            await io.stdout.drained?.(io.signal);
          }
        },
        signal,
      ).finally(() => done.abort()); // what follows the changes would keep the process
      if (io.signal.aborted) return EXIT.ok;
      io.stderr.write('dpcache: the agent has ended\n');
      return EXIT.failed;
    });
  const question = (
    parent: Command,
    name: string,
    description: string,
    formats: readonly OutputFormat[] = ['text', 'wide', 'json', 'yaml', 'name'],
  ): Command => {
    const output = new Option(
      '-o, --output <format>',
      'for people (wide: every column), for programs, or keys only',
    );
    const command = parent
      .command(name)
      .description(description)
      .addOption(output.choices(formats).default('text'))
      .option('-q, --quiet', 'print no answer: the exit status says whether there is one');
    return addAskOptions(command, io);
  };
  /** A list, which can be watched: it is shown again when something of the type has changed. */
  const list = <F extends QuestionFlags>(
    command: Command,
    type: ChangeType,
    choose: (flags: F) => Questioner,
  ): void => {
    command
      .addOption(
        new Option('-w, --watch', 'show it again whenever it has changed, until it is interrupted').conflicts(
          'quiet',
        ),
      )
      .action((flags: F) => {
        const questioner = choose(flags);
        if (flags.watch !== true) return answer(flags, questioner);
        if (flags.readsMesh) command.error('error: --watch is for a running agent: leave out what to follow');
        return watch(flags, questioner, type);
      });
  };

  const ipcache = program.command('ipcache').description('which identity, host and pod stand behind an IP');
  const prefixes = question(ipcache, 'list', 'every visible prefix')
    .option('--identity <n>', 'only prefixes of this identity', parseIdentity)
    .option('--within <cidr>', 'only prefixes that lie in this CIDR', parseIP)
    .option('--source <source>', 'only prefixes whose effective claim is of this source')
    .option('--of-cluster <name>', 'only prefixes whose effective claim is of this remote cluster')
    .option('--pod <namespace/name>', 'only prefixes of this pod', parsePath('namespace/name'))
    .option('--node <ip>', 'only prefixes behind this host', parseIP);
  list<ClusterFlags>(prefixes, 'ip', ({ ofCluster: cluster, ...flags }) =>
    among(ofPrefixes, ({ listPrefixes }) =>
      listPrefixes({ ...filtersOf(flags, ['identity', 'within', 'source', 'pod', 'node']), cluster }),
    ),
  );
  question(ipcache, 'get', 'what an IP belongs to, or what stands behind a CIDR')
    .argument('<ip>', 'IP address or CIDR', parseIP)
    .action((ip: string, flags: QuestionFlags) =>
      answer(
        flags,
        among(ofPrefixes, ({ getPrefix }) => getPrefix(ip)),
      ),
    );
  question(ipcache, 'explain', 'who claims an IP or CIDR, and why one claim is effective', NO_NAMES)
    .argument('<ip>', 'IP address or CIDR', parseIP)
    .action((ip: string, flags: QuestionFlags) =>
      answer(
        flags,
        among(ofPrefixes, ({ explainPrefix }) => explainPrefix(ip)),
      ),
    );

  const lookup = ipcache
    .command('lookup')
    .description('what many IPs belong to: a JSON line each, in order')
    .argument('<ips...>', 'IP addresses; - reads them from standard input, one a line')
    .action((ips: readonly string[], flags: QuestionFlags) =>
      run(async () => {
        const input = ips.length === 1 && ips[0] === '-' ? io.stdin : lines(ips);
        const { lookupLines } = await import('../agent/lookup-lines.ts');
        const { answer: all, complete } = await asked(flags, (ask) =>
          lookupLines(ask, input, io.stdout, io.signal),
        );
        return all && complete ? EXIT.ok : EXIT.failed;
      }),
    );
  addAskOptions(lookup, io);

  const service = program.command('service').description('which backends serve a service');
  const services = question(service, 'list', 'every service with its backends').option(
    '--namespace <name>',
    'only services of this namespace',
  );
  list(services, 'service', (flags) =>
    among(ofServices, ({ listServices }) => listServices(filtersOf(flags, ['namespace']))),
  );
  question(service, 'get', 'a service with each of its backends')
    .argument('<service>', 'namespace/name', parsePath('namespace/name'))
    .action((name: string, flags: QuestionFlags) =>
      answer(
        flags,
        among(ofServices, ({ getService }) => getService(name)),
      ),
    );
  question(service, 'explain', 'who offers which backend to a service, and what became of each', NO_NAMES)
    .argument('<service>', 'namespace/name', parsePath('namespace/name'))
    .action((name: string, flags: QuestionFlags) =>
      answer(
        flags,
        among(ofServices, ({ explainService }) => explainService(name)),
      ),
    );

  const node = program.command('node').description('which nodes exist and how to reach them');
  const nodes = question(node, 'list', 'every node of the mesh').option(
    '--of-cluster <name>',
    'only nodes of this cluster',
  );
  list<ClusterFlags>(nodes, 'node', ({ ofCluster: cluster }) =>
    among(ofNodes, ({ listNodes }) => listNodes({ cluster })),
  );
  question(node, 'get', 'a node, and what each source says of it')
    .argument('<node>', 'cluster/name', parsePath('cluster/name'))
    .action((name: string, flags: QuestionFlags) =>
      answer(
        flags,
        among(ofNodes, ({ getNode }) => getNode(name)),
      ),
    );

  const identity = program.command('identity').description('what identities stand for');
  const identities = question(identity, 'list', 'every identity with its labels')
    .option('--of-cluster <name>', 'only identities of this cluster')
    .option('--label <label>', 'only identities with this label, such as k8s:app=checkout');
  list<ClusterFlags>(identities, 'ip', ({ ofCluster: cluster, ...flags }) =>
    among(ofIdentities, ({ listIdentities }) => listIdentities({ ...filtersOf(flags, ['label']), cluster })),
  );
  question(identity, 'get', 'the labels of an identity')
    .argument('<identity>', 'its number', parseIdentity)
    .action((number: number, flags: QuestionFlags) =>
      answer(
        flags,
        among(ofIdentities, ({ getIdentity }) => getIdentity(number)),
      ),
    );

  const clustermesh = program.command('clustermesh').description('how the clusters of the mesh stand');
  question(clustermesh, 'status', 'every cluster: connected, complete, counts, failures', NO_NAMES).action(
    (flags: QuestionFlags) => answer(flags, async () => (await import('../agent/summary.ts')).askClustermesh),
  );
  question(program, 'status', 'how the agent stands: clusters, counts, what was rejected', NO_NAMES).action(
    (flags: QuestionFlags) => answer(flags, async () => (await import('../agent/summary.ts')).askStatus),
  );
}
