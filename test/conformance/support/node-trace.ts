import type { Source } from '../../../src/model/source.ts';
import type { Node } from '../../../src/nodemanager/node.ts';
import type { NodeSpec } from '../../../src/nodemanager/node-spec.ts';
import type { IPCacheFinal, TraceEvent, TraceMetadata } from './ipcache-trace.ts';

/** The parts of a nodemanager scenario that its replay reads; see the format page of the recordings. */
export interface NodeScenario {
  readonly name: string;
  readonly config: {
    readonly remoteNodeIdentities: boolean;
    readonly nodeEncryption: boolean;
    readonly encryption: boolean;
    readonly hostFirewall: boolean;
    readonly clusterName: string;
    readonly localNodeName: string;
  };
  readonly firstBroken: number | null;
  readonly steps: readonly NodeStepTrace[];
  readonly final: {
    readonly nodes: Readonly<Record<string, TraceNode>>;
    readonly ipcache: IPCacheFinal;
  };
}

export interface TraceNode {
  readonly name: string;
  readonly cluster: string;
  readonly clusterID: number;
  readonly source: string;
  readonly ipAddresses: readonly { readonly type: string; readonly ip: string | null }[];
  readonly ipv4AllocCIDR: string | null;
  readonly ipv6AllocCIDR: string | null;
  readonly ipv4HealthIP: string | null;
  readonly ipv6HealthIP: string | null;
  readonly encryptionKey: number;
  readonly labels: Readonly<Record<string, string>>;
}

/** A call of a handler. */
export interface TraceNodeEvent {
  readonly t: 'node';
  readonly handler: string;
  readonly kind: 'add' | 'update' | 'delete';
  readonly old?: TraceNode;
  readonly node: TraceNode;
}

/**
 * A call of the original to its ipcache. Together with the writes of others, the calls determine the content
 * of that ipcache.
 */
export type TraceCall =
  | (TraceWrite & { readonly t: 'call'; readonly call: 'upsert'; readonly updated: boolean })
  | { readonly t: 'call'; readonly call: 'delete'; readonly ip: string; readonly source: string };

export interface TraceWrite {
  readonly ip: string;
  readonly hostIP: string | null;
  readonly key: number;
  readonly meta?: TraceMetadata | null;
  readonly id: number;
  readonly source: string;
}

export interface NodeStepTrace extends Partial<TraceWrite> {
  readonly op: string;
  readonly node?: TraceNode;
  readonly handler?: string;
  readonly name?: string;
  readonly cluster?: string;
  readonly baseNs?: number;
  readonly returns?: unknown;
  readonly events?: readonly (TraceNodeEvent | TraceCall | (TraceEvent & { readonly t: 'ipcache' }))[];
}

/** Returns a recorded node in the engine's form. */
export function toSpec(node: TraceNode): NodeSpec {
  return {
    name: node.name,
    cluster: node.cluster,
    clusterID: node.clusterID,
    source: node.source as Source, // the engine rejects unknown sources
    addresses: node.ipAddresses.map(({ type, ip }) => ({ type, ip: ip ?? '' })),
    ipv4AllocCIDR: node.ipv4AllocCIDR ?? undefined,
    ipv6AllocCIDR: node.ipv6AllocCIDR ?? undefined,
    ipv4HealthIP: node.ipv4HealthIP ?? undefined,
    ipv6HealthIP: node.ipv6HealthIP ?? undefined,
    encryptionKey: node.encryptionKey,
    labels: new Map(Object.entries(node.labels)),
  };
}

/** Returns a node of the engine in the form of recordings. */
export function fromNode(node: Node): TraceNode {
  return {
    name: node.name,
    cluster: node.cluster,
    clusterID: node.clusterID,
    source: node.source,
    ipAddresses: node.addresses.map(({ type, ip }) => ({ type, ip })).toArray(),
    ipv4AllocCIDR: node.ipv4AllocCIDR ?? null,
    ipv6AllocCIDR: node.ipv6AllocCIDR ?? null,
    ipv4HealthIP: node.ipv4HealthIP ?? null,
    ipv6HealthIP: node.ipv6HealthIP ?? null,
    encryptionKey: node.encryptionKey,
    labels: node.labels.toObject(),
  };
}
