import { type Command, Option } from 'commander';
import type { SettingsDocument } from '../api/routes/settings-routes.ts';
import { systemClock } from '../base/system-clock.ts';
import { InputError } from '../process/input-error.ts';
import type { TroubleshootOptions } from '../process/troubleshoot/troubleshoot.ts';
import { addConfiguration } from './configuration.ts';
import { type CommandIO, EXIT, type OutputFormat, type RunAction, writeAnswer } from './io.ts';
import type { ClusterFlags } from './mesh-options.ts';
import {
  clusterIDOption,
  clustermeshConfigOption,
  clusterOption,
  kvstoreConfigOption,
  outputOption,
  parseName,
} from './option-table.ts';
import { addSocketOption, type SocketFlags, socketPath } from './serve-options.ts';

interface TroubleshootFlags
  extends SocketFlags,
    Pick<ClusterFlags, 'cluster' | 'clusterId' | 'kvstoreConfig' | 'clustermeshConfig'> {
  readonly output: OutputFormat;
}

/** The configurations to check, without the choice of one cluster. */
type Configured = Omit<TroubleshootOptions, 'only'>;

/** Returns the configurations that a running agent uses. Throws `InputError` if it does not answer or uses no etcd. */
async function configuredOfAgent(flags: SocketFlags, { env, signal }: CommandIO): Promise<Configured> {
  const socket = socketPath(flags, env);
  const { askAgent } = await import('../client/ask-agent.ts');
  const advice = 'set its socket with --socket, or add --config, --clustermesh-config or --kvstore-config';
  return askAgent(
    socket,
    async (client) => {
      const { settings } = (await client.ask('/v1/settings')) as SettingsDocument;
      const textOf = (key: string): string | undefined => {
        const value = settings[key]?.value;
        return typeof value === 'string' ? value : undefined;
      };
      const kvstoreConfig = textOf('kvstore-config');
      const clustermeshConfig = textOf('clustermesh-config');
      if (kvstoreConfig === undefined && clustermeshConfig === undefined)
        throw new InputError(`the process at ${socket} uses no etcd`);
      const id = settings['cluster-id']?.value;
      const clusterID = typeof id === 'number' ? id : undefined;
      return { clusterName: textOf('cluster') ?? 'default', clusterID, kvstoreConfig, clustermeshConfig };
    },
    signal,
    advice,
  );
}

/** Adds `dpcache clustermesh troubleshoot`. */
export function addTroubleshootCommand(clustermesh: Command, io: CommandIO, run: RunAction): void {
  const command = clustermesh
    .command('troubleshoot')
    .description(
      'check the connection to the etcd of each cluster, and its contents; without options, the etcds of the running agent; exit with status 1 if a check fails',
    )
    .argument('[cluster]', 'check only this cluster; default: all', parseName)
    .addOption(clusterOption())
    .addOption(clusterIDOption())
    .addOption(
      new Option(
        '--kvstore <kind>',
        'ignored; accepted, so that the options of an agent can be reused',
      ).choices(['etcd']),
    )
    .addOption(kvstoreConfigOption())
    .addOption(clustermeshConfigOption())
    .addOption(outputOption())
    .action((only: string | undefined, flags: TroubleshootFlags) =>
      run(async () => {
        const { cluster: clusterName, clusterId: clusterID, kvstoreConfig, clustermeshConfig } = flags;
        const isConfigured = kvstoreConfig !== undefined || clustermeshConfig !== undefined;
        const configured = isConfigured
          ? { clusterName, clusterID, kvstoreConfig, clustermeshConfig }
          : await configuredOfAgent(flags, io);
        const { checkLines, troubleshoot } = await import('../process/troubleshoot/troubleshoot.ts');
        const clusters = await troubleshoot(
          { ...configured, only },
          { clock: systemClock, random: Math.random, signal: io.signal },
        );
        writeAnswer(io.stdout, flags.output, { json: { clusters }, lines: checkLines(clusters) });
        return clusters.every(({ passed }) => passed) ? EXIT.ok : EXIT.failed;
      }),
    );
  addConfiguration(addSocketOption(command), io);
}
