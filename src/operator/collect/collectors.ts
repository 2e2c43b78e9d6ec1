import type { Random } from '../../base/clock.ts';
import type { TurnGate } from '../../base/turn-gate.ts';
import {
  CILIUM_ENDPOINT_SLICES,
  CILIUM_ENDPOINTS,
  CILIUM_IDENTITIES,
  CILIUM_NODES,
  CILIUM_POLICIES,
  CLUSTERWIDE_POLICIES,
  pods,
} from '../../k8s/feed/kinds.ts';
import { IDENTITY_HEARTBEAT } from '../../k8s/parse-cilium-identity.ts';
import type { ResourceKind, ResourceSource } from '../../k8s/resource.ts';
import type { ObjectReader } from '../../k8s/rest/object-reader.ts';
import { DryRunWriter, type ObjectWriter, type ObjectWriterOptions } from '../../k8s/rest/object-writer.ts';
import type { KvstoreBackend } from '../../kvstore/session/backend.ts';
import type { IdentityRange } from '../../model/numeric-identity.ts';
import type { Duty, DutyStatus } from '../duty.ts';
import type { DutyOptions } from '../duty-report.ts';
import { type Leadership, SOLE_LEADER } from '../elect/leader-election.ts';
import type { EndpointSlicesOptions } from '../slices/endpoint-slices.ts';
import { SliceDuty } from '../slices/slice-duty.ts';
import { ENDPOINT_GC_INTERVAL_MS, EndpointCollector } from './endpoint-collector.ts';
import {
  IDENTITY_DELETES_PER_SECOND,
  IDENTITY_GC_INTERVAL_MS,
  IdentityCollector,
} from './identity-collector.ts';
import {
  KVSTORE_IDENTITY_GC_INTERVAL_MS,
  kvstoreIdentityCollector,
  LOCK_GC_INTERVAL_MS,
  lockCollector,
} from './kvstore-collectors.ts';
import { NODE_GC_INTERVAL_MS, NODES, NodeCollector } from './node-collector.ts';
import { ObservedKind } from './observed-kind.ts';
import { PolicyStatusCollector } from './policy-status-collector.ts';
import { type Collector, RoundsDuty } from './rounds.ts';
import { type Shape, trimTo } from './trim.ts';
import { UNMANAGED_DNS_SELECTOR, UnmanagedDnsCollector } from './unmanaged-dns-collector.ts';

/** Milliseconds between rounds, by duty; 0 switches the duty off. */
export interface CollectorIntervals {
  /** CiliumEndpoints of deleted pods. Default 5 min. */
  readonly endpoints?: number | undefined;
  /** CiliumIdentities that no endpoint uses. Default 15 min. Requires the collector of endpoints. */
  readonly identities?: number | undefined;
  /** CiliumNodes without a Node. Default 5 min. */
  readonly nodes?: number | undefined;
  /** Policy status entries of deleted nodes, for agents of 1.8. Default off; upstream 2 min. */
  readonly policyStatus?: number | undefined;
  /** DNS pods without an endpoint. Default off; upstream 15 s. */
  readonly unmanagedDns?: number | undefined;
  /** Identities of the kvstore that no node references. Default 15 min. */
  readonly kvstoreIdentities?: number | undefined;
  /** Locks of the kvstore that are never released. Default 25 s. */
  readonly locks?: number | undefined;
}

/** The part of a `KubernetesClient` that collectors use. */
interface CollectorClient extends ResourceSource {
  reader(): ObjectReader;
  writer(options?: ObjectWriterOptions): ObjectWriter;
}

/** Options of {@link collectors}. */
export interface CollectorsOptions extends DutyOptions {
  /** Default: always the leader, because there are no other operators. */
  readonly leadership?: (Leadership & { readonly writeMs?: number }) | undefined;
  readonly intervals?: CollectorIntervals | undefined;
  /** Default: no Kubernetes, and none of its duties. */
  readonly kubernetes?: CollectorClient | undefined;
  /** Default: no kvstore, and none of its duties. */
  readonly kvstore?:
    | { readonly backend: KvstoreBackend; readonly cluster: string; readonly identities: IdentityRange }
    | undefined;
  /** Batches CiliumEndpoints into slices. Default: off. */
  readonly slices?: Omit<EndpointSlicesOptions, 'random'> | undefined;
  /** Spreads the start of batching over turns of the event loop. Default: one turn. */
  readonly gate?: TurnGate | undefined;
  /** Source of slice names. Default: `Math.random`. */
  readonly random?: Random | undefined;
  /** If set, receives each write with its reason, and nothing is written. */
  readonly dryRun?: ((line: string) => void) | undefined;
}

/** Writes of all collectors except those of identities, which have a separate limit. */
const WRITES_PER_SECOND = 20;
/** As upstream for a small cluster. */
const SLICE_WRITES_PER_SECOND = 10;

/** The fields of each followed kind that are kept in memory. */
const SHAPES = {
  endpoints: {
    metadata: { ownerReferences: { kind: true, name: true, uid: true } },
    status: { identity: { id: true }, networking: { addressing: { ipv4: true, ipv6: true } } },
  },
  slicedEndpoints: {
    status: { identity: { id: true }, networking: true, encryption: true, 'named-ports': true },
  },
  slices: { endpoints: { id: true } },
  identities: { metadata: { annotations: { [IDENTITY_HEARTBEAT]: true } } },
  ciliumNodes: { metadata: { ownerReferences: { kind: true } } },
  pods: { status: { phase: true, podIP: true, podIPs: { ip: true } } },
  dns: { spec: { hostNetwork: true }, status: { phase: true, startTime: true } },
  nodes: {},
} satisfies Readonly<Record<string, Shape>>;

/** A duty that is switched off: a row in the status only. */
class OffDuty implements Duty {
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }

  run(): Promise<void> {
    return Promise.resolve();
  }

  status(): DutyStatus {
    return { name: this.name, state: 'off', failures: 0, lastFailure: undefined };
  }
}

/**
 * Returns all collectors of an operator, including those that are off; none runs yet. Throws an `UnsafeSettingError` if
 * a setting would let them delete objects in use.
 */
export function collectors(options: CollectorsOptions): readonly Duty[] {
  return [...kubernetesCollectors(options), ...kvstoreCollectors(options)];
}

/**
 * Returns the duty that runs the rounds of a collector. If it is off, returns a duty that only has a row in the status.
 */
function roundsDuty(
  name: string,
  intervalMs: number,
  options: CollectorsOptions,
  make: () => Collector,
): Duty {
  if (intervalMs === 0) return new OffDuty(name);
  const { clock, onFailure, onAction } = options;
  return new RoundsDuty(make(), { clock, intervalMs, onFailure, onAction });
}

function kubernetesCollectors(options: CollectorsOptions): readonly Duty[] {
  const { kubernetes, clock, intervals = {} } = options;
  if (kubernetes === undefined) return [];
  const { endpoints: endpointsMs = ENDPOINT_GC_INTERVAL_MS, nodes: nodesMs = NODE_GC_INTERVAL_MS } =
    intervals;
  const { identities: identitiesMs = IDENTITY_GC_INTERVAL_MS, unmanagedDns: dnsMs = 0 } = intervals;
  const reader = kubernetes.reader();
  const writer = writerOf(kubernetes, WRITES_PER_SECOND, options);
  const follow = (kind: ResourceKind, shape: Shape): ObservedKind =>
    new ObservedKind(kubernetes, kind, trimTo(shape)); // each kind once, shared by all collectors
  const allPods = pods(undefined);
  const endpoints = follow(CILIUM_ENDPOINTS, SHAPES.endpoints);
  const ciliumNodes = follow(CILIUM_NODES, SHAPES.ciliumNodes);
  return [
    roundsDuty('endpoint-gc', endpointsMs, options, () => {
      const observed = { endpoints, pods: follow(allPods, SHAPES.pods), nodes: ciliumNodes };
      return new EndpointCollector({ ...observed, reader, writer, clock, intervalMs: endpointsMs });
    }),
    roundsDuty('identity-gc-crd', identitiesMs, options, () => {
      const identities = follow(CILIUM_IDENTITIES, SHAPES.identities);
      const slices = follow(CILIUM_ENDPOINT_SLICES, SHAPES.slices);
      return new IdentityCollector({
        identities,
        endpoints,
        slices,
        reader,
        clock,
        writer: writerOf(kubernetes, IDENTITY_DELETES_PER_SECOND, options),
        endpointsAreCollected: endpointsMs > 0,
      });
    }),
    roundsDuty('node-gc', nodesMs, options, () => {
      const nodes = follow(NODES, SHAPES.nodes);
      return new NodeCollector({ ciliumNodes, nodes, reader, writer });
    }),
    roundsDuty('unmanaged-kube-dns', dnsMs, options, () => {
      const dns = follow({ ...allPods, labelSelector: UNMANAGED_DNS_SELECTOR }, SHAPES.dns);
      return new UnmanagedDnsCollector({ pods: dns, endpoints, reader, writer, clock });
    }),
    ...policyCollectors(kubernetes, writer, options),
    sliceDuty(kubernetes, options),
  ];
}

function sliceDuty(kubernetes: CollectorClient, options: CollectorsOptions): Duty {
  const { slices, clock, random = Math.random, gate, onFailure, onAction } = options;
  if (slices === undefined) return new OffDuty('endpoint-slices');
  return new SliceDuty({
    ...slices,
    random,
    clock,
    gate,
    onFailure,
    onAction,
    reader: kubernetes.reader(),
    endpoints: new ObservedKind(kubernetes, CILIUM_ENDPOINTS, trimTo(SHAPES.slicedEndpoints)),
    slices: new ObservedKind(kubernetes, CILIUM_ENDPOINT_SLICES, (slice) => slice),
    writer: writerOf(kubernetes, SLICE_WRITES_PER_SECOND, options),
  });
}

/** Returns the collectors of policy status, which need both Kubernetes and the kvstore. */
function policyCollectors(
  kubernetes: CollectorClient,
  writer: ObjectWriter,
  options: CollectorsOptions,
): readonly Duty[] {
  const { kvstore, clock, intervals = {} } = options;
  if (kvstore === undefined) return [];
  const reader = kubernetes.reader();
  return [CILIUM_POLICIES, CLUSTERWIDE_POLICIES].map((policies) =>
    roundsDuty(`${policies.plural}-status-gc`, intervals.policyStatus ?? 0, options, () => {
      return new PolicyStatusCollector({ policies, reader, writer, clock, ...kvstore });
    }),
  );
}

function writerOf(
  kubernetes: CollectorClient,
  perSecond: number,
  { dryRun, leadership = SOLE_LEADER }: CollectorsOptions,
): ObjectWriter {
  if (dryRun !== undefined) return new DryRunWriter(dryRun);
  const mayWrite = (): boolean => leadership.mayDelete();
  return kubernetes.writer({ perSecond, timeoutMs: leadership.writeMs, mayWrite });
}

function kvstoreCollectors(options: CollectorsOptions): readonly Duty[] {
  const { kvstore, clock, leadership = SOLE_LEADER, dryRun, intervals = {} } = options;
  if (kvstore === undefined) return [];
  const { kvstoreIdentities = KVSTORE_IDENTITY_GC_INTERVAL_MS, locks = LOCK_GC_INTERVAL_MS } = intervals;
  const parts = { backend: kvstore.backend, clock, leadership, dryRun };
  return [
    roundsDuty('identity-gc', kvstoreIdentities, options, () =>
      kvstoreIdentityCollector(kvstore.identities, kvstoreIdentities, parts),
    ),
    roundsDuty('lock-gc', locks, options, () => lockCollector(parts)),
  ];
}
