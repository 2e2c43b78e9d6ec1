import { Argument, type Command } from 'commander';
import { type CommandIO, EXIT, type RunAction } from './io.ts';

const SHELLS = ['bash', 'zsh', 'fish'] as const;
type Shell = (typeof SHELLS)[number];

/** The possible words after a command. */
interface Completion {
  /** Names of the command and its parents, separated by spaces: `ipcache list`. */
  readonly path: string;
  readonly commands: readonly CommandWord[];
  readonly options: readonly CommandWord[];
  /** Values of an option, or of the argument (`''`). An option without values takes a file. */
  readonly values: ReadonlyMap<string, readonly string[]>;
  /** The command that prints the current values of an option, or of the argument (`''`), from the running agent. */
  readonly live: ReadonlyMap<string, string>;
}

/** Commands that print the current arguments of `get` and `explain`, by object. */
const LIVE_ARGUMENTS: Readonly<Record<string, string>> = {
  service: 'service list -o name --limit 1000',
  node: 'node list -o name --limit 1000',
  identity: 'identity list -o name --limit 1000',
};

/** Commands that print the current values of options. */
const LIVE_OPTIONS: Readonly<Record<string, string>> = { '--of-cluster': 'clustermesh status -o name' };

/** Returns the commands that print values of a command's options and argument. */
function liveValues(path: string, flags: Iterable<string>): ReadonlyMap<string, string> {
  const live = new Map<string, string>();
  const [parent = '', verb] = path.split(' ');
  const names = verb === 'get' || verb === 'explain' ? LIVE_ARGUMENTS[parent] : undefined;
  if (names !== undefined) live.set('', names);
  for (const flag of flags) {
    const command = LIVE_OPTIONS[flag];
    if (command !== undefined) live.set(flag, command);
  }
  return live;
}

/** A command or an option, and its description. */
interface CommandWord {
  readonly word: string;
  readonly description: string;
}

/** Returns the possible words after a command and after each of its descendants. */
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
      live: liveValues(path, values.keys()),
      commands: children.map((child) => ({ word: child.name(), description: child.description() })),
      options: options.flatMap(({ short, long, description }) =>
        [short, long].flatMap((word) => (word === undefined ? [] : [{ word, description }])),
      ),
    },
    ...children.flatMap((child) => completions(child, `${path} ${child.name()}`.trim())),
  ];
}

function words(list: readonly CommandWord[]): string {
  return list.map(({ word }) => word).join(' ');
}

/** Returns the script for bash. It is one function and also works in zsh, which emulates bash. */
function bashScript(all: readonly Completion[]): string {
  const cases = all.map(({ path, commands, options, values, live }) => {
    const argument = values.get('');
    const rows = [...values]
      .filter(([flag]) => flag !== '')
      .map(
        ([flag, choices]) =>
          `      ${flag}) values='${choices.join(' ')}'; valued=1; live='${live.get(flag) ?? ''}' ;;`,
      );
    return [
      `  '${path}')`,
      `    words='${words(commands)}${argument === undefined ? '' : argument.join(' ')}'; options='${words(options)}'; live='${live.get('') ?? ''}'`,
      `    case "$before" in`,
      ...rows,
      '    esac ;;',
    ].join('\n');
  });
  const paths = all.map(({ path }) => `'${path}'`).filter((path) => path !== "''");
  return `# dpcache completion for bash: source <(dpcache completion bash)
_dpcache() {
  local word="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}" path='' next values='' valued='' words='' options='' live='' name at socket="$DPCACHE_SOCKET"
  for ((at = 1; at < COMP_CWORD; at++)); do
    next="\${path:+$path }\${COMP_WORDS[at]}"
    case "$next" in ${paths.join('|')}) path="$next" ;; esac
    # Bash separates the parts of --socket=PATH.
    if [ "\${COMP_WORDS[at]}" = --socket ]; then
      socket="\${COMP_WORDS[at+1]}"
      [ "$socket" = = ] && socket="\${COMP_WORDS[at+2]}"
    fi
  done
  case "$path" in
${cases.join('\n')}
  esac
  if [ -n "$valued" ]; then words="$values"; elif [ "\${word#-}" != "$word" ]; then words="$options"; fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  # Names come from outside: one that the shell would expand is left out.
  if [ -n "$live" ] && [ "\${word#-}" = "$word" ]; then
    while IFS= read -r name; do
      [[ "$name" =~ ^[A-Za-z0-9._/:-]+$ && "$name" == "$word"* ]] && COMPREPLY+=("$name")
    done < <(DPCACHE_SOCKET="$socket" dpcache $live 2>/dev/null)
  fi
}
complete -o default -F _dpcache dpcache
`;
}

function quoted(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
}

/** Returns the flags of `complete` for the value of an option: none, a file, or one of some choices. */
function fishValue(choices: readonly string[] | undefined): string {
  if (choices === undefined) return '';
  return choices.length === 0 ? ' -r' : ` -x -a ${quoted(choices.join(' '))}`;
}

function fishScript(all: readonly Completion[]): string {
  const rows = all.flatMap(({ path, commands, options, values, live }) => {
    const at = `complete -c dpcache -n ${quoted(`__dpcache_at ${path}`)}`;
    const argument = values.get('');
    return [
      ...commands.map(({ word, description }) => `${at} -f -a ${word} -d ${quoted(description)}`),
      ...(argument === undefined || argument.length === 0
        ? []
        : [`${at} -f -a ${quoted(argument.join(' '))}`]),
      ...(live.has('') ? [`${at} -f -a ${quoted(`(__dpcache_ask ${live.get('')})`)}`] : []),
      ...options.map(({ word, description }) => {
        const flag = word.startsWith('--') ? `-l ${word.slice(2)}` : `-s ${word.slice(1)}`;
        const ask = live.get(word);
        const choices = ask === undefined ? values.get(word) : [`(__dpcache_ask ${ask})`];
        return `${at} ${flag}${fishValue(choices)} -d ${quoted(description)}`;
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
function __dpcache_ask
    set -l before
    set -lx DPCACHE_SOCKET $DPCACHE_SOCKET
    for word in (commandline -opc)
        test "$before" = --socket; and set DPCACHE_SOCKET $word
        string match -q -- '--socket=*' $word; and set DPCACHE_SOCKET (string sub -s 10 -- $word)
        set before $word
    end
    dpcache $argv 2>/dev/null
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

/** Adds `dpcache completion`, which prints a completion script for a shell, generated from the commands. */
export function addCompletionCommand(program: Command, io: CommandIO, run: RunAction): void {
  program
    .command('completion')
    .description('print a shell completion script; for example: source <(dpcache completion bash)')
    .addArgument(new Argument('<shell>', 'bash, zsh or fish').choices(SHELLS))
    .action((shell: Shell) =>
      run(async () => {
        io.stdout.write(SCRIPTS[shell](completions(program)));
        return EXIT.ok;
      }),
    );
}
