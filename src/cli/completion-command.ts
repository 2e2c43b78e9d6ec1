import { Argument, type Command } from 'commander';
import { type CommandIO, EXIT, type RunAction } from './io.ts';

/** Shells whose completion can be generated. */
const SHELLS = ['bash', 'zsh', 'fish'] as const;
type Shell = (typeof SHELLS)[number];

/** What can follow on a command line. */
interface Completion {
  /** The commands so far, with spaces between: `ipcache list`. */
  readonly path: string;
  readonly commands: readonly Word[];
  readonly options: readonly Word[];
  /** Values of an option, or of the argument (`''`); those of other options are files. */
  readonly values: ReadonlyMap<string, readonly string[]>;
}

interface Word {
  readonly word: string;
  readonly description: string;
}

/** Every command of a program with what can follow it. */
function completions(command: Command, path = ''): readonly Completion[] {
  const help = command.createHelp();
  const options = help.visibleOptions(command);
  const values = new Map<string, readonly string[]>();
  for (const { short, long, required, argChoices = [] } of options)
    for (const flag of [short, long]) if (flag !== undefined && required) values.set(flag, argChoices);
  const [argument] = command.registeredArguments;
  if (argument !== undefined) values.set('', argument.argChoices ?? []);
  const children = help.visibleCommands(command).filter((child) => child.name() !== 'help');
  return [
    {
      path,
      values,
      commands: children.map((child) => ({ word: child.name(), description: child.description() })),
      options: options.flatMap(({ short, long, description }) =>
        [short, long].flatMap((word) => (word === undefined ? [] : [{ word, description }])),
      ),
    },
    ...children.flatMap((child) => completions(child, `${path} ${child.name()}`.trim())),
  ];
}

function words(list: readonly Word[]): string {
  return list.map(({ word }) => word).join(' ');
}

/** A function to which bash passes the words, or by zsh in the guise of bash. */
function bashScript(all: readonly Completion[]): string {
  const cases = all.map(({ path, commands, options, values }) => {
    const argument = values.get('');
    const rows = [...values]
      .filter(([flag]) => flag !== '')
      .map(([flag, choices]) => `      ${flag}) values='${choices.join(' ')}'; valued=1 ;;`);
    return [
      `  '${path}')`,
      `    words='${words(commands)}${argument === undefined ? '' : argument.join(' ')}'; options='${words(options)}'`,
      `    case "$before" in`,
      ...(rows.length === 0 ? ['      -) ;;'] : rows),
      '    esac ;;',
    ].join('\n');
  });
  const paths = all.map(({ path }) => `'${path}'`).filter((path) => path !== "''");
  return `# dpcache completion for bash: source <(dpcache completion bash)
_dpcache() {
  local word="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}" path='' next values='' valued='' words='' options='' at
  for ((at = 1; at < COMP_CWORD; at++)); do
    next="\${path:+$path }\${COMP_WORDS[at]}"
    case "$next" in ${paths.join('|')}) path="$next" ;; esac
  done
  case "$path" in
${cases.join('\n')}
  esac
  if [ -n "$valued" ]; then words="$values"; elif [ "\${word#-}" != "$word" ]; then words="$options"; fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _dpcache dpcache
`;
}

function quoted(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
}

function fishScript(all: readonly Completion[]): string {
  const rows = all.flatMap(({ path, commands, options, values }) => {
    const at = `complete -c dpcache -n ${quoted(`__dpcache_at ${path}`)}`;
    const argument = values.get('');
    return [
      ...commands.map(({ word, description }) => `${at} -f -a ${word} -d ${quoted(description)}`),
      ...(argument === undefined || argument.length === 0
        ? []
        : [`${at} -f -a ${quoted(argument.join(' '))}`]),
      ...options.map(({ word, description }) => {
        const flag = word.startsWith('--') ? `-l ${word.slice(2)}` : `-s ${word.slice(1)}`;
        const choices = values.get(word);
        const value =
          choices === undefined ? '' : choices.length === 0 ? ' -r' : ` -x -a ${quoted(choices.join(' '))}`;
        return `${at} ${flag}${value} -d ${quoted(description)}`;
      }),
    ];
  });
  const known = all.map(({ path }) => quoted(path)).join(' ');
  return `# dpcache completion for fish: dpcache completion fish | source
function __dpcache_at
    set -l path ''
    for word in (commandline -opc)[2..]
        set -l next (string trim -- "$path $word")
        contains -- "$next" ${known}; and set path $next
    end
    test "$path" = "$argv"
end
${rows.join('\n')}
`;
}

const SCRIPTS: Readonly<Record<Shell, (all: readonly Completion[]) => string>> = {
  bash: bashScript,
  zsh: (all) => `#compdef dpcache
autoload -Uz bashcompinit && bashcompinit
${bashScript(all)}`,
  fish: fishScript,
};

/** `dpcache completion`: what a shell needs to complete command lines, made of the commands that there are. */
export function addCompletionCommand(program: Command, io: CommandIO, run: RunAction): void {
  program
    .command('completion')
    .description('a script that completes command lines, such as: source <(dpcache completion bash)')
    .addArgument(new Argument('<shell>', 'bash, zsh or fish').choices(SHELLS))
    .action((shell: Shell) =>
      run(async () => {
        io.stdout.write(SCRIPTS[shell](completions(program)));
        return EXIT.ok;
      }),
    );
}
