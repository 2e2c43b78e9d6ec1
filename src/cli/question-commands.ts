import { type Command, InvalidArgumentError, Option } from 'commander';
import {
  explainPrefix,
  explainService,
  getIdentity,
  getNode,
  getPrefix,
  getService,
  type ListFilters,
  listIdentities,
  listNodes,
  listPrefixes,
  listServices,
  type Question,
} from '../agent/answers.ts';
import { createLog } from '../agent/log.ts';
import { lookupLines } from '../agent/lookup-lines.ts';
import { type Asked, askAgent, askMesh } from '../agent/run-agent.ts';
import { askClustermesh, askStatus } from '../agent/summary.ts';
import type { Ask } from '../api/api-client.ts';
import { isNumericIdentity } from '../identity/numeric-identity.ts';
import { Prefix } from '../net/prefix.ts';
import { addConfiguration } from './configuration.ts';
import { type CommandIO, EXIT, type RunAction } from './io.ts';
import { addMeshOptions, agentOptions, followsMesh, type MeshFlags } from './mesh-options.ts';
import { addSocketOption, type SocketFlags, socketPath } from './serve-options.ts';

interface QuestionFlags extends MeshFlags, SocketFlags {
  readonly output: 'text' | 'json';
  /** The mesh is read for the answer; otherwise a running agent is asked. */
  readonly readsMesh: boolean;
}

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
    // Only flags say so: what an agent is told by its environment or file is no reason to start another one.
    command.setOptionValue('readsMesh', followsMesh(command.opts()));
  });
  return addConfiguration(command, io);
}

/** Commands that ask one question and end: `dpcache ipcache list` and the like. */
export function addQuestionCommands(program: Command, io: CommandIO, run: RunAction): void {
  const asked = async <T>(flags: QuestionFlags, use: (ask: Ask) => Promise<T>): Promise<Asked<T>> => {
    const log = createLog(flags.logLevel, flags.logFormat, io.stderr);
    if (flags.readsMesh) return askMesh(agentOptions(flags), use, { log, signal: io.signal });
    const answer = await askAgent(socketPath(flags, io.env), ({ ask }) => use(ask), io.signal);
    return { answer, complete: true };
  };
  const answer = (flags: QuestionFlags, question: Question): Promise<void> =>
    run(async () => {
      const { answer: answered, complete } = await asked(flags, question);
      const { json, lines, found } = answered;
      const text = flags.output === 'json' ? JSON.stringify(json, null, 1) : lines.join('\n');
      (found || flags.output === 'json' ? io.stdout : io.stderr).write(`${text}\n`);
      // An answer out of a part of the mesh is an answer, and a script must be able to tell.
      return found && complete ? EXIT.ok : EXIT.failed;
    });
  const question = (parent: Command, name: string, description: string): Command => {
    const output = new Option('-o, --output <format>', 'for people, or JSON').choices(['text', 'json']);
    const command = parent.command(name).description(description).addOption(output.default('text'));
    return addAskOptions(command, io);
  };

  const ipcache = program.command('ipcache').description('which identity, host and pod stand behind an IP');
  question(ipcache, 'list', 'every visible prefix')
    .option('--identity <n>', 'only prefixes of this identity', parseIdentity)
    .option('--within <cidr>', 'only prefixes that lie in this CIDR', parseIP)
    .option('--source <source>', 'only prefixes whose effective claim is of this source')
    .option('--of-cluster <name>', 'only prefixes whose effective claim is of this remote cluster')
    .option('--pod <namespace/name>', 'only prefixes of this pod', parsePath('namespace/name'))
    .option('--node <ip>', 'only prefixes behind this host', parseIP)
    .action(({ ofCluster, ...flags }: QuestionFlags & { readonly ofCluster?: string }) =>
      answer(
        flags,
        listPrefixes({
          ...filtersOf(flags, ['identity', 'within', 'source', 'pod', 'node']),
          cluster: ofCluster,
        }),
      ),
    );
  question(ipcache, 'get', 'what an IP belongs to, or what stands behind a CIDR')
    .argument('<ip>', 'IP address or CIDR', parseIP)
    .action((ip: string, flags: QuestionFlags) => answer(flags, getPrefix(ip)));
  question(ipcache, 'explain', 'who claims an IP or CIDR, and why one claim is effective')
    .argument('<ip>', 'IP address or CIDR', parseIP)
    .action((ip: string, flags: QuestionFlags) => answer(flags, explainPrefix(ip)));

  const lookup = ipcache
    .command('lookup')
    .description('what many IPs belong to: a JSON line each, in order')
    .argument('<ips...>', 'IP addresses; - reads them from standard input, one a line')
    .action((ips: readonly string[], flags: QuestionFlags) =>
      run(async () => {
        const input = ips.length === 1 && ips[0] === '-' ? io.stdin : lines(ips);
        const { answer: all, complete } = await asked(flags, (ask) =>
          lookupLines(ask, input, io.stdout, io.signal),
        );
        return all && complete ? EXIT.ok : EXIT.failed;
      }),
    );
  addAskOptions(lookup, io);

  const service = program.command('service').description('which backends serve a service');
  question(service, 'list', 'every service with its backends')
    .option('--namespace <name>', 'only services of this namespace')
    .action((flags: QuestionFlags) => answer(flags, listServices(filtersOf(flags, ['namespace']))));
  question(service, 'get', 'a service with each of its backends')
    .argument('<service>', 'namespace/name', parsePath('namespace/name'))
    .action((name: string, flags: QuestionFlags) => answer(flags, getService(name)));
  question(service, 'explain', 'who offers which backend to a service, and what became of each')
    .argument('<service>', 'namespace/name', parsePath('namespace/name'))
    .action((name: string, flags: QuestionFlags) => answer(flags, explainService(name)));

  const node = program.command('node').description('which nodes exist and how to reach them');
  question(node, 'list', 'every node of the mesh')
    .option('--of-cluster <name>', 'only nodes of this cluster')
    .action(({ ofCluster, ...flags }: QuestionFlags & { readonly ofCluster?: string }) =>
      answer(flags, listNodes({ cluster: ofCluster })),
    );
  question(node, 'get', 'a node, and what each source says of it')
    .argument('<node>', 'cluster/name', parsePath('cluster/name'))
    .action((name: string, flags: QuestionFlags) => answer(flags, getNode(name)));

  const identity = program.command('identity').description('what identities stand for');
  question(identity, 'list', 'every identity with its labels')
    .option('--of-cluster <name>', 'only identities of this cluster')
    .option('--label <label>', 'only identities with this label, such as k8s:app=checkout')
    .action(({ ofCluster, ...flags }: QuestionFlags & { readonly ofCluster?: string }) =>
      answer(flags, listIdentities({ ...filtersOf(flags, ['label']), cluster: ofCluster })),
    );
  question(identity, 'get', 'the labels of an identity')
    .argument('<identity>', 'its number', parseIdentity)
    .action((number: number, flags: QuestionFlags) => answer(flags, getIdentity(number)));

  const clustermesh = program.command('clustermesh').description('how the clusters of the mesh stand');
  question(clustermesh, 'status', 'every cluster: connected, complete, counts, failures').action(
    (flags: QuestionFlags) => answer(flags, askClustermesh),
  );
  question(program, 'status', 'how the agent stands: clusters, counts, what was rejected').action(
    (flags: QuestionFlags) => answer(flags, askStatus),
  );
}
