import type { Command } from 'commander';
import { InputError } from '../../process/input-error.ts';
import { ArchiveError } from '../../sysdump/archive/archive.ts';
import type { SysdumpReport } from '../../sysdump/examine.ts';
import { type CommandIO, EXIT, type OutputFormat, type RunAction, writeAnswer } from '../io.ts';
import { DEFAULT_NETWORK } from '../mesh-options.ts';
import { outputOption, parsePath, quietOption } from '../option-table.ts';
import { type ApiAddress, parseServe } from '../serve-options.ts';
import { RECORDED_KUBERNETES, type RecordedOptions, serveRecorded } from './serve-recorded.ts';

interface SysdumpFlags {
  readonly serve?: ApiAddress;
  readonly output: OutputFormat;
  readonly quiet?: true;
}

/** Throws `InputError` for an archive that cannot be read, so that the command prints its message and the remedy. */
function failOnArchive(error: unknown): never {
  throw error instanceof ArchiveError ? new InputError(error.message, { cause: error }) : error;
}

/** Runs an agent whose Kubernetes objects are those of the sysdump, with its page, until the signal fires. */
async function serveState(
  file: string,
  { cluster, endpoints }: SysdumpReport,
  serve: ApiAddress,
  io: CommandIO,
): Promise<void> {
  const { sysdumpObjects } = await import('../../sysdump/examine.ts');
  const options: RecordedOptions = {
    clusterName: cluster.name,
    clusterID: cluster.id,
    maxConnectedClusters: 255,
    nodeName: 'sysdump',
    network: DEFAULT_NETWORK,
    kubernetes: {
      ...RECORDED_KUBERNETES,
      objects: () => sysdumpObjects(file),
      watch: ['services', 'endpoints', 'nodes', 'identities'],
      endpoints,
      identities: 'crd',
      headlessServices: false,
      nodeAnnotations: false,
      encryptKey: 0,
    },
  };
  await serveRecorded(options, serve, io).catch(failOnArchive);
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
    .option(
      '--serve <address>',
      'afterwards, serve the page with the state of the objects until Ctrl-C, at a port or address:port of loopback',
      parseServe,
    )
    .addOption(quietOption())
    .action((file: string, { output, quiet, serve }: SysdumpFlags) =>
      run(async () => {
        const { examineSysdump } = await import('../../sysdump/examine.ts');
        const { reportLines } = await import('../../sysdump/report-text.ts');
        const { printable } = await import('../../process/terminal.ts');
        const onProgress =
          quiet === true ? undefined : (line: string): unknown => io.stderr.write(`${printable(line)}\n`);
        const report = await examineSysdump(file, { signal: io.signal, onProgress }).catch(failOnArchive);
        const lines = output === 'json' ? [] : reportLines(report);
        writeAnswer(io.stdout, output, { json: report, lines });
        if (serve !== undefined) await serveState(file, report, serve, io);
        return report.findings.length === 0 ? EXIT.ok : EXIT.failed;
      }),
    );
}
