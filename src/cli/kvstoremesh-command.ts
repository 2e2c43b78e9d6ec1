import type { Command } from 'commander';
import { type CommandIO, EXIT, type RunAction } from './io.ts';
import type { ClusterFlags, LogFlags } from './mesh-options.ts';
import {
  cacheTTLOption,
  clusterIDOption,
  clustermeshConfigOption,
  clusterOption,
  kvstoreConfigOption,
  kvstoreOptOption,
} from './option-table.ts';
import { addProcessOptions, processRun, type QueriedProcess } from './process-commands.ts';
import type { ServeFlags } from './serve-options.ts';

interface KvstoreMeshFlags extends ClusterFlags, LogFlags, ServeFlags {
  readonly enableHeartbeat?: true;
}

const KVSTOREMESH: QueriedProcess = {
  name: 'kvstoremesh',
  socketName: 'kvstoremesh.sock',
  loadStatusQuestion: async () => (await import('../agent/process-answers.ts')).askKvstoreMesh,
};

/** Adds `dpcache kvstoremesh`. */
export function addKvstoreMeshCommand(program: Command, io: CommandIO, run: RunAction): void {
  const command = program
    .command('kvstoremesh')
    .description(
      'copy the keys of remote clusters into the local kvstore, below cilium/cache/, until interrupted',
    )
    .optionsGroup('Clusters:')
    .addOption(clusterOption())
    .addOption(clusterIDOption())
    .addOption(kvstoreConfigOption())
    .addOption(kvstoreOptOption('qps', 'maxInflight'))
    .addOption(clustermeshConfigOption())
    .addOption(cacheTTLOption('copied services and service exports'))
    .option(
      '--enable-heartbeat',
      'write a heartbeat into the local kvstore; set it if no operator or clustermesh-apiserver writes one',
    )
    .optionsGroup('Options:')
    .action((flags: KvstoreMeshFlags) =>
      run(async () => {
        const { kvstoreConfig, clustermeshConfig, cluster, clusterId, kvstoreOpt } = flags;
        if (kvstoreConfig === undefined)
          return command.error('dpcache: no local kvstore: add --kvstore-config <file>');
        if (clustermeshConfig === undefined)
          return command.error('dpcache: no remote clusters: add --clustermesh-config <folder>');
        const { runKvstoreMesh } = await import('../agent/run-kvstoremesh.ts');
        await runKvstoreMesh(
          {
            clusterName: cluster,
            clusterID: clusterId,
            rateLimit: kvstoreOpt,
            kvstoreConfig,
            clustermeshConfig,
            serviceTTLMs: flags.clustermeshCacheTtl || undefined,
            heartbeat: flags.enableHeartbeat === true,
          },
          ...(await processRun(command, flags, KVSTOREMESH, io)),
        );
        return EXIT.ok;
      }),
    );
  addProcessOptions(command, KVSTOREMESH, io, run);
}
