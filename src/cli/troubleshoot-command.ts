import type { Command } from 'commander';
import { systemClock } from '../base/system-clock.ts';
import { addConfiguration } from './configuration.ts';
import { type CommandIO, EXIT, type OutputFormat, type RunAction, writeAnswer } from './io.ts';
import type { ClusterFlags } from './mesh-options.ts';
import {
  clustermeshConfigOption,
  clusterOption,
  kvstoreConfigOption,
  outputOption,
  parseName,
} from './option-table.ts';

interface TroubleshootFlags extends Pick<ClusterFlags, 'cluster' | 'kvstoreConfig' | 'clustermeshConfig'> {
  readonly output: OutputFormat;
}

/** Adds `dpcache clustermesh troubleshoot`. */
export function addTroubleshootCommand(clustermesh: Command, io: CommandIO, run: RunAction): void {
  const command = clustermesh
    .command('troubleshoot')
    .description(
      'check the connection to the etcd of each cluster, and its contents, without an agent; exit with status 1 if a check fails',
    )
    .argument('[cluster]', 'check only this cluster; default: all', parseName)
    .addOption(clusterOption())
    .addOption(kvstoreConfigOption())
    .addOption(clustermeshConfigOption())
    .addOption(outputOption())
    .action((only: string | undefined, flags: TroubleshootFlags) =>
      run(async () => {
        const { cluster: clusterName, kvstoreConfig, clustermeshConfig, output } = flags;
        if (kvstoreConfig === undefined && clustermeshConfig === undefined)
          command.error('dpcache: no etcd configuration: add --clustermesh-config or --kvstore-config');
        const { checkLines, troubleshoot } = await import('../process/troubleshoot/troubleshoot.ts');
        const clusters = await troubleshoot(
          { clusterName, kvstoreConfig, clustermeshConfig, only },
          { clock: systemClock, random: Math.random, signal: io.signal },
        );
        writeAnswer(io.stdout, output, { json: { clusters }, lines: checkLines(clusters) });
        return clusters.every(({ passed }) => passed) ? EXIT.ok : EXIT.failed;
      }),
    );
  addConfiguration(command, io);
}
