import { type Command, InvalidArgumentError, Option } from 'commander';
import { explainPrefix, getPrefix, listNodes, listPrefixes, listServices } from '../agent/answers.ts';
import { createLog } from '../agent/log.ts';
import { askMesh, type Question } from '../agent/run-agent.ts';
import { clustermeshAnswer, statusAnswer } from '../agent/summary.ts';
import { isNumericIdentity } from '../identity/numeric-identity.ts';
import { Prefix } from '../net/prefix.ts';
import { type CommandIO, EXIT, type RunAction } from './io.ts';
import { addMeshOptions, agentOptions, type MeshFlags } from './mesh-options.ts';

interface QuestionFlags extends MeshFlags {
  readonly output: 'text' | 'json';
  readonly identity?: number;
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

/** Commands that sync, answer one question and end: `dpcache ipcache list` and the like. */
export function addQuestionCommands(program: Command, io: CommandIO, run: RunAction): void {
  const answer = (flags: QuestionFlags, question: Question): Promise<void> =>
    run(async () => {
      const log = createLog(flags.logLevel, flags.logFormat, io.stderr);
      const context = { log, signal: io.signal };
      const { json, lines, found, complete } = await askMesh(agentOptions(flags), question, context);
      const text = flags.output === 'json' ? JSON.stringify(json, null, 1) : lines.join('\n');
      (found || flags.output === 'json' ? io.stdout : io.stderr).write(`${text}\n`);
      // An answer out of a part of the mesh is an answer, and a script must be able to tell.
      return found && complete ? EXIT.ok : EXIT.failed;
    });
  const question = (parent: Command, name: string, description: string): Command => {
    const output = new Option('-o, --output <format>', 'for people, or JSON').choices(['text', 'json']);
    const command = parent.command(name).description(description).addOption(output.default('text'));
    return addMeshOptions(command);
  };

  const ipcache = program.command('ipcache').description('which identity, host and pod stand behind an IP');
  question(ipcache, 'list', 'every visible prefix')
    .option('--identity <n>', 'only prefixes of this identity', parseIdentity)
    .action((flags: QuestionFlags) => answer(flags, (knowledge) => listPrefixes(knowledge, flags.identity)));
  question(ipcache, 'get', 'what an IP belongs to, or what stands behind a CIDR')
    .argument('<ip>', 'IP address or CIDR', parseIP)
    .action((ip: string, flags: QuestionFlags) => answer(flags, (knowledge) => getPrefix(knowledge, ip)));
  question(ipcache, 'explain', 'who claims an IP or CIDR, and why one claim is effective')
    .argument('<ip>', 'IP address or CIDR', parseIP)
    .action((ip: string, flags: QuestionFlags) => answer(flags, (knowledge) => explainPrefix(knowledge, ip)));

  const service = program.command('service').description('which backends serve a service');
  question(service, 'list', 'every service with its backends').action((flags: QuestionFlags) =>
    answer(flags, listServices),
  );
  const node = program.command('node').description('which nodes exist and how to reach them');
  question(node, 'list', 'every node of the mesh').action((flags: QuestionFlags) => answer(flags, listNodes));
  const clustermesh = program.command('clustermesh').description('how the clusters of the mesh stand');
  question(clustermesh, 'status', 'every cluster: connected, complete, counts, failures').action(
    (flags: QuestionFlags) => answer(flags, clustermeshAnswer),
  );
  question(program, 'status', 'how the agent stands: clusters, counts, what was rejected').action(
    (flags: QuestionFlags) => answer(flags, statusAnswer),
  );
}
