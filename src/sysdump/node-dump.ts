import {
  type CommandFailure,
  commandOutput,
  type OutputKind,
  outputKind,
} from '../ciliumdump/command-output.ts';

/** The outputs of one node, which are the files of one bug report. */
export class NodeDump {
  /** Path of the bug report in the archive; empty if the archive itself is a bug report. */
  readonly path: string;
  /** The text of each kind of output. Outputs of failed commands are omitted, because they may be incomplete. */
  readonly outputs: Map<OutputKind, string> = new Map();
  /** Failed commands, with their error. */
  readonly failures: CommandFailure[] = [];
  /** Number of files of kinds not read. */
  ignored = 0;
  /** Length of all files together. */
  length = 0;

  constructor(path: string) {
    this.path = path;
  }

  /** Name of the agent's pod; undefined if the path does not contain it. */
  get pod(): string | undefined {
    return REPORT.exec(this.path)?.[1];
  }

  /**
   * Adds a file. If there are several outputs of a kind, the longest one is kept, because a report also has outputs of
   * older programs and map versions.
   */
  add(file: string, content: string): void {
    this.length += content.length;
    const kind = outputKind(file);
    const { text, failure } = commandOutput(content);
    if (failure !== undefined) this.failures.push(failure);
    if (kind === undefined) this.ignored++;
    else if (failure === undefined && text.length >= (this.outputs.get(kind)?.length ?? 0))
      this.outputs.set(kind, text);
  }
}

const COMMAND_FILE = /^(?:(.*)\/)?cmd\/([^/]+)$/;

/**
 * Returns the path of the bug report and the name of a file in its folder `cmd`, or undefined if the file is another
 * one.
 */
export function commandFile(name: string): { readonly report: string; readonly file: string } | undefined {
  const [, report = '', file] = COMMAND_FILE.exec(name) ?? [];
  return file === undefined ? undefined : { report, file };
}

/** `cilium-bugtool-cilium-x7k2p-20260101-120000.tar.gz`, as a file or as a folder. */
const REPORT = /(?:^|\/)cilium-bugtool-(cilium-[a-z0-9-]+?)-\d{8}-\d{6}[^/]*/;
