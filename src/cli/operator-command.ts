import type { Command } from 'commander';
import type { OperatorOptions } from '../agent/operator/run-operator.ts';
import { type CommandIO, EXIT, type RunAction } from './io.ts';
import {
  addOperatorOptions,
  electionTimes,
  ipFamilies,
  missingKvstore,
  type OperatorFlags,
} from './operator-options.ts';
import { addProcessOptions, processRun, type QueriedProcess } from './process-commands.ts';

const OPERATOR: QueriedProcess = {
  name: 'operator',
  socketName: 'operator.sock',
  loadStatusQuestion: async () => (await import('../agent/process-answers.ts')).askOperator,
};

/** Adds `dpcache operator`. */
export function addOperatorCommand(program: Command, io: CommandIO, run: RunAction): void {
  const command = addOperatorOptions(
    program
      .command('operator')
      .description(
        'publish the cluster to its mesh and delete unused objects; if there are several operators, one is active',
      ),
  ).action((flags: OperatorFlags) =>
    run(async () => {
      const missing = missingKvstore(flags);
      if (missing !== undefined) return command.error(`dpcache: ${missing}`);
      const { runOperator } = await import('../agent/operator/run-operator.ts');
      await runOperator(operatorOptions(flags, io), ...(await processRun(command, flags, OPERATOR, io)));
      return EXIT.ok;
    }),
  );
  // By default, the log contains each delete.
  addProcessOptions(command, OPERATOR, io, run, 'info');
}

/** Returns the options of an operator for the flags. */
function operatorOptions(flags: OperatorFlags, { stdout }: CommandIO): OperatorOptions {
  return {
    clusterName: flags.cluster,
    clusterID: flags.clusterId,
    load: [...(flags.k8sLoad ?? []), ...(flags.manifests ?? [])],
    maxConnectedClusters: flags.maxConnectedClusters === '511' ? 511 : 255,
    kvstoreConfig: flags.kvstoreConfig,
    rateLimit: flags.kvstoreOpt,
    leaseSeconds: flags.kvstoreLeaseTtl,
    kubeconfig: flags.kubeconfig,
    context: flags.context,
    namespace: flags.k8sNamespace,
    electionTimes: electionTimes(flags),
    kvstoreDeadlineMs: flags.leaderElectionKvstoreDeadline,
    endpoints: flags.k8sEndpoints,
    identityAllocation: flags.identityAllocationMode,
    publish: {
      services: flags.serviceSync,
      nodes: flags.nodeSync,
      identities: flags.identitySync,
      ips: flags.ipSync,
      clusterConfig: flags.clusterConfig,
      heartbeat: flags.heartbeat,
    },
    serviceFormats: flags.serviceV2,
    globalByDefault: flags.clustermeshDefaultGlobalNamespace !== 'false',
    intervals: {
      endpoints: flags.endpointGcInterval,
      identities: flags.identityGcInterval,
      nodes: flags.nodesGcInterval,
      policyStatus: flags.cnpStatusGcInterval,
      unmanagedDns: flags.unmanagedKubeDnsInterval,
      locks: flags.lockGcInterval,
      kvstoreIdentities: flags.kvstoreIdentityGcInterval,
    },
    deleteAllEndpoints: flags.deleteAllEndpoints,
    slicing: flags.endpointSlices === 'off' ? undefined : flags.endpointSlices,
    clustermeshConfig: flags.clustermeshConfig,
    serviceTTLMs: flags.clustermeshCacheTtl || undefined,
    mcs: flags.mcsApi === true ? { families: ipFamilies(flags) } : undefined,
    endpointSliceSync:
      flags.endpointSliceSync === true
        ? {
            endpointsPerSlice: flags.clustermeshEndpointsPerSlice,
            batchMs: flags.clustermeshEndpointUpdatesBatchPeriod,
          }
        : undefined,
    dryRun: flags.dryRun === true ? stdout : undefined,
  };
}
