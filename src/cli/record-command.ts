import { hostname } from 'node:os';
import type { Command } from 'commander';
import type { AgentOptions } from '../agent/options.ts';
import { systemClock } from '../base/system-clock.ts';
import { addConfiguration } from './configuration.ts';
import { type CommandIO, EXIT, type RunAction } from './io.ts';
import { addLogOptions, type ClusterFlags, DEFAULT_NETWORK, type LogFlags, openLog } from './mesh-options.ts';
import { clustermeshConfigOption, clusterOption, kvstoreConfigOption, parsePath } from './option-table.ts';

/** Maximum size of the tape: the default of `--tape-size`. */
const TAPE_BYTES: number = 256 << 20;

interface RecordFlags
  extends LogFlags,
    Pick<ClusterFlags, 'cluster' | 'kvstoreConfig' | 'clustermeshConfig'> {
  readonly follow?: true;
  readonly out?: string;
}

/** Runs an agent that follows only the kvstores, and writes a tape until the signal fires. */
async function followToTape(flags: RecordFlags, path: string, io: CommandIO): Promise<void> {
  const { followMesh } = await import('../agent/run-agent.ts');
  const { cluster: clusterName, kvstoreConfig, clustermeshConfig } = flags;
  const options: AgentOptions = {
    clusterName,
    kvstoreConfig,
    clustermeshConfig,
    kvstore: kvstoreConfig === undefined ? 'memory' : 'etcd',
    clusterID: undefined,
    maxConnectedClusters: 255,
    nodeName: hostname(),
    load: [],
    manifests: [],
    network: DEFAULT_NETWORK,
    tape: { path, maxBytes: TAPE_BYTES },
  };
  const log = await openLog(flags, io);
  const context = { log, output: io.stderr, env: io.env, signal: io.signal };
  await followMesh(options, { quiet: true }, context);
}

/** Adds `dpcache record`. */
export function addRecordCommand(program: Command, io: CommandIO, run: RunAction): void {
  const command = program
    .command('record')
    .description('print the keys of a mesh in the format of --load: JSON lines of {"store", "key", "value"}')
    .addOption(clusterOption())
    .addOption(kvstoreConfigOption())
    .addOption(clustermeshConfigOption())
    .option('--follow', 'write a tape of all keys and changes to the folder of --out, until Ctrl-C')
    .option('--out <folder>', 'with --follow: folder of the tape', parsePath)
    .action((flags: RecordFlags) =>
      run(async () => {
        const { cluster: clusterName, kvstoreConfig, clustermeshConfig } = flags;
        if (kvstoreConfig === undefined && clustermeshConfig === undefined)
          command.error('dpcache: no kvstore: add --kvstore-config or --clustermesh-config');
        if ((flags.follow === true) !== (flags.out !== undefined))
          command.error('dpcache: --follow requires --out <folder>, and --out requires --follow');
        if (flags.out !== undefined) {
          await followToTape(flags, flags.out, io);
          return EXIT.ok;
        }
        const { recordMesh } = await import('../recording/record-mesh.ts');
        const log = await openLog(flags, io);
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
