import type { Command } from 'commander';
import type { AgentOptions } from '../../agent/options.ts';
import type { SysdumpReport } from '../../sysdump/examine.ts';
import { type CommandIO, EXIT, type RunAction } from '../io.ts';
import { outputOption, parsePath, quietOption } from '../option-table.ts';
import { type ApiAddress, parseServe, serveOptions } from '../serve-options.ts';

interface SysdumpFlags {
  readonly serve?: ApiAddress;
  readonly output: 'text' | 'json';
  readonly quiet?: true;
}

/** Runs an agent whose Kubernetes objects are those of the sysdump, with its page, until the signal fires. */
async function serveState(
  file: string,
  { cluster, endpoints }: SysdumpReport,
  listen: ApiAddress,
  io: CommandIO,
): Promise<void> {
  const { createLog } = await import('../../process/log.ts');
  const { followMesh } = await import('../../agent/run-agent.ts');
  const { sysdumpObjects } = await import('../../sysdump/examine.ts');
  const serve = await serveOptions({ socket: false, listen, ui: true }, io.env);
  const options: AgentOptions = {
    kvstore: 'memory',
    clusterName: cluster.name,
    clusterID: cluster.id,
    maxConnectedClusters: 255,
    nodeName: 'sysdump',
    network: {
      remoteNodeIdentities: true,
      encryption: false,
      nodeEncryption: false,
      hostFirewall: false,
      underlay: 'ipv4',
    },
    load: [],
    manifests: [],
    kubernetes: {
      ifInCluster: false,
      load: [],
      objects: () => sysdumpObjects(file),
      watch: ['services', 'endpoints', 'nodes', 'identities'],
      endpoints,
      identities: 'crd',
      headlessServices: false,
      hostIPs: false,
      dualStack: false,
      nodeAnnotations: false,
      encryptKey: 0,
    },
  };
  const log = createLog('warn', 'text', io.stderr);
  const context = { log, output: io.stderr, env: io.env, signal: io.signal };
  await followMesh(options, { script: undefined, all: false, quiet: false, serve }, context);
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
        const { printable, writeLines } = await import('../../process/terminal.ts');
        const onProgress =
          quiet === true ? undefined : (line: string): unknown => io.stderr.write(`${printable(line)}\n`);
        const report = await examineSysdump(file, { signal: io.signal, onProgress });
        const lines = output === 'json' ? [JSON.stringify(report, null, 1)] : reportLines(report);
        writeLines(io.stdout, `${lines.join('\n')}\n`);
        if (serve !== undefined) await serveState(file, report, serve, io);
        return report.findings.length === 0 ? EXIT.ok : EXIT.failed;
      }),
    );
}
