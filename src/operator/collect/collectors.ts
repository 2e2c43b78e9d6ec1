import { assert } from '../../base/assert.ts';
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
import type { ResourceKind, ResourceSource } from '../../k8s/resource.ts';
import type { ObjectReader } from '../../k8s/rest/object-reader.ts';
import type { KvstoreBackend } from '../../kvstore/session/backend.ts';
import type { IdentityRange } from '../../model/numeric-identity.ts';
import type { Duty, DutyStatus } from '../duty.ts';
import type { DutyOptions } from '../duty-report.ts';
import { fencedWriter, type WriteContext } from '../elect/fenced-writer.ts';
import { SOLE_LEADER } from '../elect/leader-election.ts';
import { CiliumSliceDuty, type CiliumSliceDutyOptions } from '../slices/cilium-slice-duty.ts';
import type { CiliumSlicesOptions } from '../slices/cilium-slices.ts';
import { ENDPOINT_GC_INTERVAL_MS, EndpointCollector } from './endpoint-collector.ts';
import {
  IDENTITY_DELETES_PER_SECOND,
  IDENTITY_GC_INTERVAL_MS,
  IdentityCollector,
} from './identity-collector.ts';
import { kvstoreIdentityCollector, LOCK_GC_INTERVAL_MS, lockCollector } from './kvstore-collectors.ts';
import { NODE_GC_INTERVAL_MS, NODES, NodeCollector } from './node-collector.ts';
import { ObservedKind } from './observed-kind.ts';
import type { ObjectAccess } from './perform-write.ts';
import { PolicyStatusCollector } from './policy-status-collector.ts';
import { type Collector, RoundsDuty } from './rounds.ts';
import { UNMANAGED_DNS_SELECTOR, UnmanagedDnsCollector } from './unmanaged-dns-collector.ts';

/** Milliseconds between rounds, by duty; 0 switches the duty off. */
export interface CollectorIntervals {
  /** CiliumEndpoints of deleted pods. Default 5 min. */
  readonly endpoints?: number | undefined;
  /** Unused CiliumIdentities. Default 15 min. Requires the collector of endpoints. */
  readonly identities?: number | undefined;
  /** CiliumNodes without a Node. Default 5 min. */
  readonly nodes?: number | undefined;
  /** Policy status entries of deleted nodes, for agents of 1.8. Default off; Cilium 2 min. */
  readonly policyStatus?: number | undefined;
  /** DNS pods without an endpoint. Default off; Cilium 15 s. */
  readonly unmanagedDns?: number | undefined;
  /** Unreferenced identities of the kvstore. Default 15 min. */
  readonly kvstoreIdentities?: number | undefined;
  /** Unreleased locks of the kvstore. Default 25 s. */
  readonly locks?: number | undefined;
}

export interface CollectorsOptions extends DutyOptions, WriteContext {
  readonly intervals?: CollectorIntervals | undefined;
  readonly kubernetes: WriteContext['kubernetes'] & ResourceSource & { reader(): ObjectReader };
  readonly kvstore: {
    readonly backend: KvstoreBackend;
    readonly cluster: string;
    readonly identities: IdentityRange;
  };
  /** Batches CiliumEndpoints into slices. Default: off. */
  readonly slices?: Omit<CiliumSlicesOptions, 'random'> | undefined;
  /** Spreads rounds, and the start of batching, over turns of the event loop. Default: one turn. */
  readonly gate?: TurnGate | undefined;
  /** Source of slice names. Default: `Math.random`. */
  readonly random?: Random | undefined;
}

/** Limit of the writes of all collectors together; the writes of identities and slices have separate limits. */
const WRITES_PER_SECOND = 20;
/** As in Cilium for a small cluster. */
const SLICE_WRITES_PER_SECOND = 10;

const OWNER_FIELDS = ['kind', 'name', 'uid'].map((name) => `metadata.ownerReferences.${name}`);

/** The fields of each followed kind that are read. */
const FIELDS = {
  endpoints: [
    ...OWNER_FIELDS,
    'status.identity.id',
    'status.networking.addressing.ipv4',
    'status.networking.addressing.ipv6',
  ],
  slicedEndpoints: [
    ...OWNER_FIELDS,
    'status.identity.id',
    'status.networking',
    'status.encryption',
    'status.named-ports',
    'status.service-account',
  ],
  slices: ['endpoints.id'],
  identities: ['metadata.annotations'],
  ciliumNodes: ['metadata.ownerReferences.kind'],
  pods: ['status.phase', 'status.podIP', 'status.podIPs.ip'],
  dns: ['spec.hostNetwork', 'status.phase', 'status.startTime'],
  nodes: [],
};

/** Returns a duty that does nothing. The status shows it as off. */
function offDuty(name: string): Duty {
  const status: DutyStatus = { name, state: 'off', failures: 0, lastFailure: undefined };
  return { name, run: () => Promise.resolve(), status: () => status };
}

/**
 * Returns all collectors of an operator, including those that are off; none runs yet. Throws an `AssertionError` if
 * with these intervals they could delete objects in use, or would never delete unused identities.
 */
export function collectors(options: CollectorsOptions): readonly Duty[] {
  return [...kubernetesCollectors(options), ...kvstoreCollectors(options)];
}

/** Returns the duty that runs the rounds of a collector; {@link offDuty} if the interval is 0. */
function roundsDuty(
  name: string,
  intervalMs: number,
  options: CollectorsOptions,
  make: () => Collector,
): Duty {
  return intervalMs === 0 ? offDuty(name) : new RoundsDuty(make(), { ...options, intervalMs });
}

function kubernetesCollectors(options: CollectorsOptions): readonly Duty[] {
  const { kubernetes, clock, gate, slices: batching, intervals = {} } = options;
  const {
    endpoints: endpointsMs = ENDPOINT_GC_INTERVAL_MS,
    identities: identitiesMs = IDENTITY_GC_INTERVAL_MS,
    nodes: nodesMs = NODE_GC_INTERVAL_MS,
    unmanagedDns: dnsMs = 0,
  } = intervals;
  assert(
    endpointsMs > 0 || identitiesMs === 0,
    'the collector of identities requires that of endpoints, because stale CiliumEndpoints keep identities in use',
  );
  const access = {
    reader: kubernetes.reader(),
    writer: fencedWriter(options, { perSecond: WRITES_PER_SECOND }),
  };
  const follow = (kind: ResourceKind, fields?: readonly string[]): ObservedKind =>
    new ObservedKind(kubernetes, kind, (object) => object, fields); // each kind once, shared by all collectors
  const allPods = pods(undefined);
  const endpoints = follow(CILIUM_ENDPOINTS, batching ? FIELDS.slicedEndpoints : FIELDS.endpoints);
  const slices = follow(CILIUM_ENDPOINT_SLICES, batching ? undefined : FIELDS.slices);
  const ciliumNodes = follow(CILIUM_NODES, FIELDS.ciliumNodes);
  return [
    roundsDuty('endpoint-gc', endpointsMs, options, () => {
      const observed = { endpoints, pods: follow(allPods, FIELDS.pods), nodes: ciliumNodes };
      return new EndpointCollector({ ...observed, ...access, clock, gate, intervalMs: endpointsMs });
    }),
    roundsDuty('identity-gc-crd', identitiesMs, options, () => {
      const observed = { identities: follow(CILIUM_IDENTITIES, FIELDS.identities), endpoints, slices };
      const writer = fencedWriter(options, { perSecond: IDENTITY_DELETES_PER_SECOND });
      return new IdentityCollector({ ...observed, reader: access.reader, writer, clock, gate });
    }),
    roundsDuty('node-gc', nodesMs, options, () => {
      const nodes = follow(NODES, FIELDS.nodes);
      return new NodeCollector({ ciliumNodes, nodes, ...access });
    }),
    roundsDuty('unmanaged-kube-dns', dnsMs, options, () => {
      const dns = follow({ ...allPods, labelSelector: UNMANAGED_DNS_SELECTOR }, FIELDS.dns);
      return new UnmanagedDnsCollector({ pods: dns, endpoints, ...access, clock });
    }),
    ...policyCollectors(access, options),
    sliceDuty(access.reader, { endpoints, slices }, options),
  ];
}

/** Returns the duty that batches CiliumEndpoints into slices. */
function sliceDuty(
  reader: ObjectReader,
  observed: Pick<CiliumSliceDutyOptions, 'endpoints' | 'slices'>,
  options: CollectorsOptions,
): Duty {
  const { slices: batching, random = Math.random } = options;
  if (batching === undefined) return offDuty('endpoint-slices');
  const writer = fencedWriter(options, { perSecond: SLICE_WRITES_PER_SECOND });
  return new CiliumSliceDuty({ ...options, ...batching, ...observed, random, reader, writer });
}

/** Returns the collectors of policy status, which read both Kubernetes and the kvstore. */
function policyCollectors(access: ObjectAccess, options: CollectorsOptions): readonly Duty[] {
  const { kvstore, clock, intervals = {} } = options;
  return [CILIUM_POLICIES, CLUSTERWIDE_POLICIES].map((policies) =>
    roundsDuty(
      `${policies.plural}-status-gc`,
      intervals.policyStatus ?? 0,
      options,
      () => new PolicyStatusCollector({ policies, ...access, clock, ...kvstore }),
    ),
  );
}

function kvstoreCollectors(options: CollectorsOptions): readonly Duty[] {
  const { kvstore, clock, election = SOLE_LEADER, dryRun, intervals = {} } = options;
  const { kvstoreIdentities = IDENTITY_GC_INTERVAL_MS, locks = LOCK_GC_INTERVAL_MS } = intervals;
  const parts = { backend: kvstore.backend, clock, election, dryRun };
  return [
    roundsDuty('identity-gc', kvstoreIdentities, options, () =>
      kvstoreIdentityCollector(kvstore.identities, kvstoreIdentities, parts),
    ),
    roundsDuty('lock-gc', locks, options, () => lockCollector(parts)),
  ];
}
