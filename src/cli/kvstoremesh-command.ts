import type { Command } from 'commander';
import type { RateLimitOptions } from '../base/rate-limit.ts';
import { addOwnConfiguration, processReloads } from './configuration.ts';
import { type CommandIO, EXIT, type RunAction } from './io.ts';
import {
  addLogOptions,
  type LogFlags,
  parseClusterID,
  parseKvstoreOpt,
  parseName,
  parsePath,
} from './mesh-options.ts';
import { type AskedProcess, addProcessStatus } from './process-commands.ts';
import { addListenOptions, type ServeFlags, serveOptions } from './serve-options.ts';
import { RepeatableOption } from './settings.ts';

interface KvstoreMeshFlags extends LogFlags, ServeFlags {
  readonly cluster: string;
  readonly clusterId?: number;
  readonly kvstoreConfig?: string;
  readonly kvstoreOpt?: RateLimitOptions;
  readonly clustermeshConfig?: string;
}

const KVSTOREMESH: AskedProcess = {
  name: 'kvstoremesh',
  socket: 'kvstoremesh.sock',
  question: async () => (await import('../agent/process-answers.ts')).askKvstoreMesh,
};

/** Adds `dpcache kvstoremesh`. */
export function addKvstoreMeshCommand(program: Command, io: CommandIO, run: RunAction): void {
  const command = program
    .command('kvstoremesh')
    .description(
      'copy what remote clusters show into the own kvstore, under cilium/cache/, until it is interrupted',
    )
    .optionsGroup('What is copied:')
    .option('--cluster <name>', 'name of the own cluster', parseName, 'default')
    .option('--cluster-id <n>', 'its id (default: what its kvstore says)', parseClusterID)
    .option('--kvstore-config <file>', 'etcd configuration of the own kvstore, as of Cilium', parsePath)
    .addOption(
      new RepeatableOption(
        '--kvstore-opt <name=value>',
        'etcd.qps, etcd.maxInflight: calls to each etcd a second, and at a time (default: no limit); may be repeated',
      ).argParser(parseKvstoreOpt),
    )
    .option(
      '--clustermesh-config <folder>',
      'etcd configurations of the remote clusters, each file named as its cluster',
      parsePath,
    )
    .optionsGroup('Options:')
    .action((flags: KvstoreMeshFlags) =>
      run(async () => {
        const { kvstoreConfig, clustermeshConfig, cluster, clusterId, kvstoreOpt } = flags;
        if (kvstoreConfig === undefined)
          return command.error('error: name the own kvstore with --kvstore-config <file>');
        if (clustermeshConfig === undefined)
          return command.error('error: name the remote clusters with --clustermesh-config <folder>');
        const { createLog } = await import('../agent/log.ts');
        const { runKvstoreMesh } = await import('../agent/run-kvstoremesh.ts');
        const serve = await serveOptions(flags, io.env, KVSTOREMESH.socket);
        await runKvstoreMesh(
          {
            ...{ clusterName: cluster, clusterID: clusterId, rateLimit: kvstoreOpt },
            ...{ kvstoreConfig, clustermeshConfig },
          },
          { serve, reload: processReloads(command, io) },
          { log: createLog(flags.logLevel, flags.logFormat, io.stderr), signal: io.signal },
        );
        return EXIT.ok;
      }),
    );
  addListenOptions(command, KVSTOREMESH.socket);
  addLogOptions(command);
  addOwnConfiguration(command, io);
  addProcessStatus(command, KVSTOREMESH, io, run);
}
