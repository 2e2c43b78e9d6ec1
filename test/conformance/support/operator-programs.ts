import type { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import type { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import type { Duty } from '../../../src/operator/duty.ts';
import { ClusterConfigKeeper } from '../../../src/operator/publish/cluster-config.ts';
import { GlobalNamespaces } from '../../../src/operator/publish/global-namespaces.ts';
import { HeartbeatDuty } from '../../../src/operator/publish/heartbeat.ts';
import { identitySync } from '../../../src/operator/publish/identity-sync.ts';
import { ipSync } from '../../../src/operator/publish/ip-sync.ts';
import { nodeSync } from '../../../src/operator/publish/node-sync.ts';
import type { ProducerOptions } from '../../../src/operator/publish/producer.ts';
import { ServiceObjects } from '../../../src/operator/publish/service-objects.ts';
import { serviceSync } from '../../../src/operator/publish/service-sync.ts';
import type { OperatorWorld, RunningProgram, StartProgram } from './operator-world.ts';

/** The dependencies of a program's duties. */
interface ProgramParts {
  readonly world: OperatorWorld;
  readonly backend: MemoryBackend;
  readonly kubernetes: KubernetesClient;
}

function producerOptions({ world, backend, kubernetes: source }: ProgramParts): ProducerOptions {
  const { flags, clock, gate } = world;
  return {
    source,
    backend,
    clock,
    gate,
    random: () => 0.5,
    clusterName: flags.get('cluster-name') ?? 'default',
    clusterID: Number(flags.get('cluster-id') ?? 0),
    maxConnectedClusters: flags.get('max-connected-clusters') === '511' ? 511 : 255,
  };
}

/** The duties of `cilium-operator` 1.8 with a kvstore. */
function operatorDuties(parts: ProgramParts): readonly Duty[] {
  const { flags, clock } = parts.world;
  const options: ProducerOptions = { ...producerOptions(parts), version: '1.8', canaries: false };
  const proxyName = flags.get('k8s-service-proxy-name');
  return [
    ...(flags.get('synchronize-k8s-services') === 'false'
      ? []
      : [serviceSync(options, new ServiceObjects({ ...options, selection: { proxyName }, producers: 1 }))]),
    ...(flags.get('synchronize-k8s-nodes') === 'false' ? [] : [nodeSync(options)]),
    new HeartbeatDuty({ backend: parts.backend, clock }),
  ];
}

/** The duties of `clustermesh-apiserver clustermesh` 1.17; with the flag of 1.19, only global namespaces. */
function apiserverDuties(parts: ProgramParts): readonly Duty[] {
  const base = producerOptions(parts);
  const byDefault = parts.world.flags.get('clustermesh-default-global-namespace');
  const namespaces =
    byDefault === undefined
      ? undefined
      : new GlobalNamespaces({ ...base, globalByDefault: byDefault === 'true' });
  const options = { ...base, namespaces };
  const objects = new ServiceObjects({ ...options, selection: { headless: true }, producers: 1 });
  const producers = [
    serviceSync(options, objects),
    nodeSync(options),
    identitySync(options),
    ipSync(options),
  ];
  return [
    ...(namespaces === undefined ? [] : [namespaces]),
    ...producers,
    new ClusterConfigKeeper({ ...options, promised: producers }),
    new HeartbeatDuty({ backend: parts.backend, clock: parts.world.clock }),
  ];
}

function start(dutiesOf: (parts: ProgramParts) => readonly Duty[]): StartProgram {
  return (world): RunningProgram => {
    const parts: ProgramParts = { world, backend: world.backend(), kubernetes: world.kubernetes() };
    const stopped = new AbortController();
    const running = dutiesOf(parts).map((duty) => duty.run(stopped.signal));
    return {
      stop: async () => {
        stopped.abort();
        await Promise.all(running);
        await parts.kubernetes.close();
        await parts.backend.close({ keepLeases: true });
      },
    };
  };
}

/** Programs by the first words of the recorded one. Other programs are not replayed. */
const PROGRAMS: readonly (readonly [string, StartProgram])[] = [
  ['cilium-operator-generic 1.8', start(operatorDuties)],
  ['clustermesh-apiserver clustermesh', start(apiserverDuties)],
];

/** Returns the program that replays the recorded one. */
export function programOf(program: string): StartProgram | undefined {
  return PROGRAMS.find(([name]) => program.startsWith(name))?.[1];
}
