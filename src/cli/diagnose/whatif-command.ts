import { Argument, type Command, InvalidArgumentError, Option } from 'commander';
import type { Rejection } from '../../base/rejection.ts';
import { counted } from '../../base/show-value.ts';
import { SOURCES } from '../../model/source.ts';
import { isObject } from '../../net/fields.ts';
import { canonicalAddress } from '../../net/prefix.ts';
import { InputError } from '../../process/input-error.ts';
import { addQueryCommand } from '../configuration.ts';
import {
  type CommandIO,
  EXIT,
  type ExitStatus,
  type OutputFormat,
  type RunAction,
  writeAnswer,
} from '../io.ts';
import { addHelp, parseEncryptKey, parseName, parsePath } from '../option-table.ts';
import { parseIdentity, parseIP, parseTwoNames } from '../questions/question-arguments.ts';
import { askProcess, type SocketFlags } from '../serve-options.ts';

interface WhatIfFlags extends SocketFlags {
  readonly output: OutputFormat;
}

interface ClaimFlags extends WhatIfFlags {
  readonly identity: number;
  readonly source: string;
  readonly owner?: string;
  readonly hostIp?: string;
  readonly encryptKey?: number;
  readonly pod?: { readonly namespace: string; readonly podName: string };
}

const HELP = 'Nothing is written: the running agent evaluates the change.';

/** Settings with the values true and false. */
const SWITCHES = ['remote-node-identities', 'encryption', 'node-encryption', 'host-firewall'];

const SETTINGS = [...SWITCHES, 'underlay'];

function parseHost(text: string): string {
  const address = canonicalAddress(text);
  if (address !== undefined) return address;
  throw new InvalidArgumentError('It must be an IP address.');
}

function parsePod(text: string): NonNullable<ClaimFlags['pod']> {
  const [namespace = '', podName = ''] = parseTwoNames('namespace/name')(text).split('/');
  return { namespace, podName };
}

function parseSetting(text: string): { readonly name: string; readonly value: string } {
  const [, name = '', value = ''] = /^([^=]+)=(.+)$/.exec(text) ?? [];
  const allowed = name === 'underlay' ? ['ipv4', 'ipv6'] : ['true', 'false'];
  if (SETTINGS.includes(name) && allowed.includes(value)) return { name, value };
  throw new InvalidArgumentError(
    `It must be SETTING=VALUE: underlay=ipv4 or ipv6; ${SWITCHES.join(', ')}: true or false.`,
  );
}

/**
 * If an error of the agent is about an object of a manifest, returns it with the position of the object. Returns other
 * errors unchanged.
 */
function withPosition(error: unknown, positions: readonly string[]): unknown {
  if (!(error instanceof InputError)) return error;
  const { cause, message } = error;
  const field = cause instanceof Error && 'problem' in cause ? fieldOf(cause.problem) : '';
  const position = positions[Number(/^edits\.0\.objects\.(\d+)/.exec(field)?.[1])];
  return position === undefined ? error : new InputError(`${position}: ${message}`, { cause });
}

function fieldOf(problem: unknown): string {
  return isObject(problem) && typeof problem['field'] === 'string' ? problem['field'] : '';
}

/** Adds `dpcache whatif`. */
export function addWhatIfCommands(program: Command, io: CommandIO, run: RunAction): void {
  const whatif = program
    .command('whatif')
    .description('print what a change would do to prefixes, nodes and services, without making it');
  addHelp(whatif, 'after', HELP);
  const command = (name: string, description: string): Command =>
    addQueryCommand(whatif, io, name, description);
  const evaluate = async (flags: WhatIfFlags, edit: object): Promise<ExitStatus> => {
    const { askWhatIf } = await import('../../client/whatif-answers.ts');
    const answer = await askProcess(flags, io, (client) => askWhatIf(client.ask, [edit]));
    writeAnswer(io.stdout, flags.output, answer);
    return answer.loses ? EXIT.loses : EXIT.ok;
  };
  const ask = (flags: WhatIfFlags, edit: object): Promise<void> => run(() => evaluate(flags, edit));
  const sourceArgument = (name: string): Argument => new Argument(name, 'source of claims').choices(SOURCES);
  const addWriter = (command: Command): Command =>
    command
      .addOption(
        new Option('--source <source>', 'source of the claim').choices(SOURCES).makeOptionMandatory(),
      )
      .option('--owner <name>', 'owner of the claim: a cluster, or a node');

  command('remove-cluster', 'a remote cluster leaves the mesh')
    .argument('<name>', 'name of the cluster', parseName)
    .action((cluster: string, flags: WhatIfFlags) => ask(flags, { edit: 'remove-cluster', cluster }));
  command('remove-node', 'a node is deleted; its pods and their backends stay')
    .argument('<node>', 'cluster/name', parseTwoNames('cluster/name'))
    .action((node: string, flags: WhatIfFlags) => ask(flags, { edit: 'remove-node', node }));
  command('drain-node', 'the pods of a node and their backends are deleted; the node stays')
    .argument('<node>', 'cluster/name', parseTwoNames('cluster/name'))
    .action((node: string, flags: WhatIfFlags) => ask(flags, { edit: 'drain-node', node }));
  command('remove-source', 'all claims of a source, or of one owner of it, are deleted')
    .addArgument(sourceArgument('<source>'))
    .argument('[owner]', 'only the claims of this owner: a cluster, or a node')
    .action((source: string, owner: string | undefined, flags: WhatIfFlags) =>
      ask(flags, { edit: 'remove-source', source, owner }),
    );
  command('rank', 'a source ranks directly above or below another')
    .addArgument(sourceArgument('<source>'))
    .addArgument(new Argument('<place>', 'above or below').choices(['above', 'below']))
    .addArgument(sourceArgument('<other>'))
    .action((source: string, place: string, other: string, flags: WhatIfFlags, command: Command) => {
      if (source === other)
        return command.error(
          `dpcache: invalid rank '${source} ${place} ${other}': name two different sources`,
        );
      return ask(flags, { edit: 'rank', source, place, other });
    });
  command('setting', 'a setting for node addresses gets another value')
    .argument('<setting>', `SETTING=VALUE; settings: ${SETTINGS.join(', ')}`, parseSetting)
    .action((setting: object, flags: WhatIfFlags) => ask(flags, { edit: 'setting', ...setting }));
  addWriter(command('upsert', 'a source claims a prefix'))
    .argument('<key>', 'IP address or CIDR', parseIP)
    .addOption(
      new Option('--identity <n>', 'identity of the claim').argParser(parseIdentity).makeOptionMandatory(),
    )
    .option('--host-ip <ip>', 'node of the claim', parseHost)
    .option('--encrypt-key <n>', 'encryption key of the claim', parseEncryptKey)
    .option('--pod <namespace/name>', 'pod of the claim', parsePod)
    .action(
      (key: string, { identity, source, owner, hostIp: hostIP, encryptKey, pod, ...flags }: ClaimFlags) =>
        ask(flags, { edit: 'upsert', key, identity, source, owner, hostIP, encryptKey, ...pod }),
    );
  addWriter(command('delete', 'the claim of a source on a prefix is deleted'))
    .argument('<key>', 'IP address or CIDR', parseIP)
    .action((key: string, { source, owner, ...flags }: ClaimFlags) =>
      ask(flags, { edit: 'delete', key, source, owner }),
    );
  command('manifest', 'Services, Endpoints and EndpointSlices of a file are created or replaced')
    .argument('<file>', 'YAML or JSON, a file or a folder', parsePath)
    .action((file: string, flags: WhatIfFlags) =>
      run(async () => {
        const { edit, positions } = await manifestEdit(file);
        return evaluate(flags, edit).catch((error: unknown) => {
          throw withPosition(error, positions);
        });
      }),
    );
}

/**
 * Returns the edit that creates the objects of a file, and the position of each object. Throws `InputError` if one of
 * them is invalid, or if there is none.
 */
async function manifestEdit(
  file: string,
): Promise<{ readonly edit: object; readonly positions: readonly string[] }> {
  const { readManifests } = await import('../../recording/manifests.ts');
  const objects: unknown[] = [];
  const positions: string[] = [];
  const rejected: string[] = [];
  const onRejected = ({ message }: Rejection): unknown => rejected.push(message);
  for await (const { object, at } of readManifests(file, onRejected, 'manifest')) {
    objects.push(object);
    positions.push(at);
  }
  const [first] = rejected;
  if (first !== undefined)
    throw new InputError(`${counted(rejected.length, 'invalid document')}, the first one: ${first}`);
  if (objects.length === 0)
    throw new InputError(`manifest ${file}: contains no objects: name a file or folder of YAML or JSON`);
  return { edit: { edit: 'manifest', objects }, positions };
}
