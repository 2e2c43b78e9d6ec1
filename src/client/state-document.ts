import { sortedRecord } from '../api/documents.ts';
import { ascending } from '../base/sorted-map.ts';
import type { IPCacheEntry, KeyedEntry } from '../ipcache/types.ts';
import { protocolName } from '../net/port.ts';
import { prefixOfKey } from '../net/prefix.ts';
import type { Node } from '../nodemanager/node.ts';
import type { Endpoints, Ports } from '../servicecache/backend.ts';

/** An entry of the ipcache. Empty fields are omitted. */
export interface PrefixDocument {
  readonly encryptKey: number;
  readonly hostIP?: string;
  readonly identity: number;
  /** Port and IANA protocol number by name: `8080/6`. */
  readonly namedPorts?: Readonly<Record<string, string>>;
  readonly namespace?: string;
  readonly podName?: string;
  readonly serviceAccount?: string;
}

/** A node. Empty fields are omitted. */
export interface StateNodeDocument {
  /** `InternalIP=192.168.10.1`, in the order of the node's list. */
  readonly addresses: readonly string[];
  readonly cluster: string;
  readonly clusterID: number;
  readonly encryptionKey: number;
  readonly ipv4AllocCIDR?: string;
  readonly ipv6AllocCIDR?: string;
  readonly name: string;
}

/** The backends of a service: by address, then by port name. */
export type BackendsDocument = Readonly<
  Record<string, Readonly<Record<string, { readonly Port: number; readonly Protocol: string }>>>
>;

/** The state of the agent as printed by `--once -o json`: keys sorted, nodes by cluster and name. */
export interface StateDocument {
  /** Visible entries by CIDR: `10.1.2.3/32`. */
  readonly ipcache: Readonly<Record<string, PrefixDocument>>;
  readonly nodes: readonly StateNodeDocument[];
  /** Announced services by `namespace/name`, including those without backends. */
  readonly services: Readonly<Record<string, BackendsDocument>>;
}

export function prefixDocument(entry: IPCacheEntry): PrefixDocument {
  const { namedPorts, namespace, podName, serviceAccount } = entry.k8s ?? {};
  return {
    encryptKey: entry.encryptKey,
    ...(entry.hostIP === undefined ? {} : { hostIP: entry.hostIP }),
    identity: entry.identity,
    ...(namedPorts === undefined || namedPorts.size === 0
      ? {}
      : { namedPorts: sortedRecord(namedPorts, ({ port, protocol }) => `${port}/${protocol}`) }),
    ...(namespace && { namespace }),
    ...(podName && { podName }),
    ...(serviceAccount && { serviceAccount }),
  };
}

function stateNodeDocument(node: Node): StateNodeDocument {
  return {
    addresses: node.addresses.map(({ type, ip }) => `${type}=${ip}`).toArray(),
    cluster: node.cluster,
    clusterID: node.clusterID,
    encryptionKey: node.encryptionKey,
    ...(node.ipv4AllocCIDR === undefined ? {} : { ipv4AllocCIDR: node.ipv4AllocCIDR }),
    ...(node.ipv6AllocCIDR === undefined ? {} : { ipv6AllocCIDR: node.ipv6AllocCIDR }),
    name: node.name,
  };
}

function portsDocument(ports: Ports): BackendsDocument[string] {
  return sortedRecord(ports, ({ port, protocol }) => ({ Port: port, Protocol: protocolName(protocol) }));
}

/** Returns effective backends as a document. */
function backendsDocument({ backends }: Endpoints): BackendsDocument {
  return sortedRecord(backends, ({ ports }) => portsDocument(ports));
}

/** The contents of the three engines. Each is iterated once. */
export interface EngineContents {
  readonly entries: Iterable<KeyedEntry>;
  readonly nodes: Iterable<Node>;
  readonly services: Iterable<readonly [string, { readonly endpoints: Endpoints }]>;
}

/** Returns the whole state as plain data. */
export function stateDocument({ entries, nodes, services }: EngineContents): StateDocument {
  const visible = Array.from(entries, (entry) => [prefixOfKey(entry.key), entry] as const);
  return {
    ipcache: sortedRecord(visible, prefixDocument),
    nodes: [...nodes].sort((a, b) => ascending(a.fullName, b.fullName)).map(stateNodeDocument),
    services: sortedRecord(services, ({ endpoints }) => backendsDocument(endpoints)),
  };
}
