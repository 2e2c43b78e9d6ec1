import type { Command } from 'commander';
import { type CommandIO, EXIT, type RunAction } from '../io.ts';
import { outputOption, parsePath } from '../option-table.ts';

interface SysdumpFlags {
  readonly output: 'text' | 'json';
  readonly quiet?: true;
}

/** Adds `dpcache sysdump`. */
export function addSysdumpCommand(program: Command, io: CommandIO, run: RunAction): void {
  program
    .command('sysdump')
    .description(
      'compare each node in a sysdump or bug report of Cilium with the Kubernetes objects in it, worst differences first; exit with status 1 if there are any',
    )
    .argument('<file>', 'sysdump (zip), bug report (tar, tar.gz), or the folder of one', parsePath)
    .addOption(outputOption())
    .option('-q, --quiet', 'do not print the progress on stderr')
    .action((file: string, { output, quiet }: SysdumpFlags) =>
      run(async () => {
        const { examineSysdump } = await import('../../sysdump/examine.ts');
        const { reportLines } = await import('../../sysdump/report-text.ts');
        const { printable, writeLines } = await import('../../process/terminal.ts');
        const onProgress =
          quiet === true ? undefined : (line: string): unknown => io.stderr.write(`${printable(line)}\n`);
        const report = await examineSysdump(file, { signal: io.signal, onProgress });
        const lines = output === 'json' ? [JSON.stringify(report, null, 1)] : reportLines(report);
        writeLines(io.stdout, `${lines.join('\n')}\n`);
        return report.findings.length === 0 ? EXIT.ok : EXIT.failed;
      }),
    );
}
