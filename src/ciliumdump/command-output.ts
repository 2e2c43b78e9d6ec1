/** The commands whose outputs can be read. */
export type OutputKind =
  | 'ip-list'
  | 'bpf-ipcache'
  | 'map-events'
  | 'service-list'
  | 'node-list'
  | 'identity-list'
  | 'endpoint-list'
  | 'hostname';

/** A failed command. */
export interface CommandFailure {
  readonly command: string;
  readonly error: string;
}

/** The content of a file that `cilium-bugtool` wrote for one command. */
export interface CommandOutput {
  /** The output, without a heading and the fence of a Markdown block. */
  readonly text: string;
  /** The command as it was run, and the error with which it failed; undefined if it succeeded. */
  readonly failure: CommandFailure | undefined;
}

/** Patterns of commands without the name of the program. Newer agents have a second version of some maps. */
const COMMANDS: readonly (readonly [RegExp, OutputKind])[] = [
  [/^ip-list--n--o-json$/, 'ip-list'],
  [/^bpf-ipcache-list(--o-json)?$/, 'bpf-ipcache'],
  [/^map-events-cilium_ipcache(_v\d)?(--o-json)?$/, 'map-events'],
  [/^service-list--o-json$/, 'service-list'],
  [/^node-list--o-json$/, 'node-list'],
  [/^identity-list(--o-json)?$/, 'identity-list'],
  [/^endpoint-list(--o-json)?$/, 'endpoint-list'],
];

/** Before 1.16 the program is `cilium`. With `--k8s-mode`, the name begins with the call of `kubectl exec`. */
const PROGRAM = /^(?:kubectl-exec-.*----)?cilium(?:-dbg)?-(.*)$/;

/**
 * Returns the kind of output in a file of the folder `cmd` of a bug report, or undefined if the file is not read. The
 * name is the command line with `/` and blanks replaced by `-`.
 */
export function outputKind(file: string): OutputKind | undefined {
  const commandLine = file.replace(/\.(md|json|txt)$/, '');
  if (commandLine === 'hostname') return 'hostname';
  const command = PROGRAM.exec(commandLine)?.[1];
  return command === undefined ? undefined : COMMANDS.find(([pattern]) => pattern.test(command))?.[1];
}

/** The beginning of the line with the error of a command. */
const FAILURE = '> Error while running ';
const FENCE = '```';

/** Length of the part at the end of a file that is searched for the error. */
const TAIL_CHARACTERS = 4096;

/**
 * Splits a file of a bug report into output and error. Plain output is returned unchanged. Costs one pass over the end.
 */
export function commandOutput(file: string): CommandOutput {
  const from = Math.max(0, file.length - TAIL_CHARACTERS);
  const at = file.indexOf(FAILURE, from);
  const isLine = at === 0 || file[at - 1] === '\n';
  const failure = at >= 0 && isLine ? failureOf(file.slice(at + FAILURE.length)) : undefined;
  return { text: unfenced(failure === undefined ? file : file.slice(0, at)), failure };
}

/** Returns the command and the error in the last line, without its beginning {@link FAILURE}. */
function failureOf(line: string): CommandFailure {
  const [, command = '', error = line] = /^'(.*?)':\s+(.*)$/s.exec(line.trim()) ?? [];
  return { command, error: error.trim().split('\n', 1)[0] ?? '' };
}

/** Returns the content of the Markdown block of a text with a heading; other text unchanged. */
function unfenced(text: string): string {
  if (!text.startsWith('# ')) return text;
  const open = text.indexOf(`\n${FENCE}`);
  if (open < 0) return text;
  const begin = text.indexOf('\n', open + 1) + 1;
  const end = text.lastIndexOf(`\n${FENCE}`);
  return text.slice(begin, end <= open ? undefined : end + 1);
}
