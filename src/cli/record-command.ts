import type { Command } from 'commander';
import { systemClock } from '../base/system-clock.ts';
import { addConfiguration } from './configuration.ts';
import { type CommandIO, EXIT, type RunAction } from './io.ts';
import { addLogOptions, type LogFlags } from './mesh-options.ts';
import { clustermeshConfigOption, clusterOption, kvstoreConfigOption } from './option-table.ts';

interface RecordFlags extends LogFlags {
  readonly cluster: string;
  readonly kvstoreConfig?: string;
  readonly clustermeshConfig?: string;
}

/** Adds `dpcache record`. */
export function addRecordCommand(program: Command, io: CommandIO, run: RunAction): void {
  const command = program
    .command('record')
    .description('print the keys of a mesh in the format of --load: JSON lines of {"store", "key", "value"}')
    .addOption(clusterOption())
    .addOption(kvstoreConfigOption())
    .addOption(clustermeshConfigOption())
    .action((flags: RecordFlags) =>
      run(async () => {
        const { cluster: clusterName, kvstoreConfig, clustermeshConfig } = flags;
        if (kvstoreConfig === undefined && clustermeshConfig === undefined)
          command.error('dpcache: no kvstore: add --kvstore-config or --clustermesh-config');
        const { createLog } = await import('../process/log.ts');
        const { recordMesh } = await import('../recording/record-mesh.ts');
        const log = createLog(flags.logLevel, flags.logFormat, io.stderr);
        const complete = await recordMesh(
          { clusterName, kvstoreConfig, clustermeshConfig },
          {
            log,
            clock: systemClock,
            random: Math.random,
            signal: io.signal,
            write: async (lines) => {
              io.stdout.write(lines);
              await io.stdout.drained?.(io.signal);
            },
          },
        );
        return complete ? EXIT.ok : EXIT.failed;
      }),
    );
  addConfiguration(addLogOptions(command), io);
}
