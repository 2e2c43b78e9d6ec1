import type { Clock, Random } from '../base/clock.ts';
import type { Rejection } from '../base/rejection.ts';
import type { TurnGate } from '../base/turn-gate.ts';
import { clusterIdentityRange, type MaxConnectedClusters } from '../identity/numeric-identity.ts';
import { DryRunWriter } from '../k8s/client/object-writer.ts';
import type { KubernetesClient } from '../k8s/kubernetes-client.ts';
import type { KvstoreBackend } from '../kvstore/backend.ts';
import { ClusterConfigKeeper } from './cluster-config.ts';
import { type CollectorIntervals, collectors } from './collect/collectors.ts';
import type { Deed } from './collect/rounds.ts';
import type { Duty } from './duty.ts';
import { EndpointRemoval } from './endpoint-removal.ts';
import { HeartbeatDuty } from './heartbeat.ts';
import { identitySync } from './identity-sync.ts';
import { ipSync } from './ip-sync.ts';
import { ALONE, type LeaderElection } from './leader-election.ts';
import { nodeSync } from './node-sync.ts';
import type { Producer, ProducerOptions } from './producer.ts';
import { serviceSync } from './service-sync.ts';
import type { SliceMode } from './slices/endpoint-slices.ts';

/** What can be switched off; collectors have their intervals. */
export interface PublishSwitches {
  readonly services: boolean;
  readonly nodes: boolean;
  readonly identities: boolean;
  readonly ips: boolean;
  readonly clusterConfig: boolean;
  readonly heartbeat: boolean;
}

/** What an operator does for its cluster, and with what. */
export interface OperatorDutiesOptions {
  readonly clusterName: string;
  readonly clusterID: number;
  readonly maxConnectedClusters: MaxConnectedClusters;
  /**
   * Who allocates identities: `crd`: they are CiliumIdentities, and all that agents would write is published from custom
   * resources; `kvstore`: the agents write identities and IPs themselves.
   */
  readonly identityAllocation: 'crd' | 'kvstore';
  readonly endpoints: 'ciliumendpoints' | 'ciliumendpointslices';
  readonly publish: PublishSwitches;
  readonly intervals: CollectorIntervals;
  /** Deletes all CiliumEndpoints, once. Default false. */
  readonly deleteAllEndpoints?: boolean | undefined;
  /** How CiliumEndpoints are batched into slices; `undefined`: not at all. */
  readonly slicing?: SliceMode | undefined;
  readonly kubernetes: KubernetesClient;
  readonly backend: KvstoreBackend;
  /** Default: there is no other. */
  readonly election?: LeaderElection | undefined;
  /** Prints each write to Kubernetes instead of making it. */
  readonly dryRun?: ((line: string) => void) | undefined;
  readonly clock: Clock;
  readonly random: Random;
  readonly gate: TurnGate;
  readonly onReject: (rejection: Rejection) => void;
  readonly onFailure: (error: unknown, duty: string) => void;
  readonly onDeed: (deed: Deed) => void;
}

/** The duties of an operator, and which of them a mesh waits for. */
export interface OperatorDuties {
  readonly all: readonly Duty[];
  /** Ready when each of these has published everything. */
  readonly published: readonly Duty[];
}

/** Of what is deleted by an explicit word. */
const REMOVALS_PER_SECOND = 50;

/** All duties, none of which runs yet. Throws an `UnsafeSettingError` for intervals with which they would delete what is in use. */
export function operatorDuties(options: OperatorDutiesOptions): OperatorDuties {
  const { publish, kubernetes: source, clusterName, clusterID, maxConnectedClusters } = options;
  const { backend, clock, random, gate, onReject, onFailure, endpoints, identityAllocation } = options;
  const producing: ProducerOptions = {
    ...{
      source,
      backend,
      clusterName,
      clusterID,
      maxConnectedClusters,
      clock,
      random,
      gate,
      onReject,
      onFailure,
    },
  };
  const isCRD = identityAllocation === 'crd';
  const made: readonly (readonly [boolean, () => Producer])[] = [
    [isCRD && publish.identities, () => identitySync(producing)],
    [publish.nodes, () => nodeSync(producing)],
    [isCRD && publish.ips, () => ipSync({ ...producing, endpoints })],
    [publish.services, () => serviceSync(producing)],
  ];
  const producers = made.flatMap(([isOn, make]) => (isOn ? make() : []));
  const config = new ClusterConfigKeeper({
    ...{ backend, clusterName, clusterID, maxConnectedClusters, clock, random, onFailure },
    // Readers wait for the canary of each resource: they are promised only where all are written.
    after: producers.length === made.length ? producers : undefined,
  });
  // The original: no configuration of a cluster that is in no mesh (OPERATOR 16).
  const isInMesh = clusterID !== 0 && clusterName !== 'default';
  const published = [...producers, ...(publish.clusterConfig && isInMesh ? [config] : [])];
  const heartbeat = publish.heartbeat
    ? [new HeartbeatDuty(backend, clock, { random, onFailure: (error) => onFailure(error, 'heartbeat') })]
    : [];
  const all = [...published, ...heartbeat, ...collecting(options), ...removing(options)];
  return { all, published };
}

/** What is done once, where the word for it is said. */
function removing(options: OperatorDutiesOptions): readonly Duty[] {
  const { deleteAllEndpoints, kubernetes, election = ALONE, dryRun } = options;
  if (deleteAllEndpoints !== true) return [];
  const mayWrite = (): boolean => election.mayDelete();
  const fence = { perSecond: REMOVALS_PER_SECOND, timeoutMs: election.writeMs, mayWrite };
  const reader = kubernetes.reader();
  const writer = dryRun === undefined ? kubernetes.writer(fence) : new DryRunWriter(dryRun);
  return [new EndpointRemoval({ ...options, intervals: intervalsOf(options), reader, writer })];
}

/** Identities are collected where they are allocated. */
function intervalsOf({ identityAllocation, intervals }: OperatorDutiesOptions): CollectorIntervals {
  return { ...intervals, ...(identityAllocation === 'crd' ? { kvstoreIdentities: 0 } : { identities: 0 }) };
}

function collecting(options: OperatorDutiesOptions): readonly Duty[] {
  const { backend, clusterName, clusterID, maxConnectedClusters } = options;
  const { kubernetes, election = ALONE, slicing, clock, random, gate, dryRun, onFailure, onDeed } = options;
  const identities = clusterIdentityRange(clusterID, maxConnectedClusters);
  return collectors({
    ...{
      clock,
      leadership: election,
      intervals: intervalsOf(options),
      kubernetes,
      dryRun,
      onFailure,
      onDeed,
    },
    kvstore: { backend, cluster: clusterName, identities },
    ...{ random, gate, slices: slicing && { mode: slicing } },
  });
}
