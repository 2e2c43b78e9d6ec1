import type { Writer } from '../ipcache/types.ts';
import type { IdentityLabels } from '../kvstore/codec/identity.ts';
import type { IPIdentityPair } from '../kvstore/codec/ip-identity-pair.ts';
import type { StoreObserver } from '../kvstore/stores/watch-store.ts';
import type { ClusterEndpointSlice } from '../model/cluster-endpoint-slice.ts';
import type { ClusterNode } from '../model/cluster-node.ts';
import type { ClusterService } from '../model/cluster-service.ts';
import type { IdentityCache } from '../model/identity-cache.ts';
import { type NumericIdentity, RESERVED_IDENTITIES } from '../model/numeric-identity.ts';
import type { ServiceExport } from '../model/service-export.ts';
import type { Source } from '../model/source.ts';
import { type ServiceID, serviceOfSlice } from '../servicecache/service-id.ts';
import { splitServiceName } from './decoders.ts';
import type { ExportSink, IPSink, NodeSink, ServiceSink } from './engines.ts';

/**
 * Returns an observer that writes IPs into the ipcache as claims of `writer`, one engine batch per kvstore batch. The
 * identity `host` becomes `peerHost` (Cilium pkg/ipcache/kvstore.go, `peerIdentity`).
 */
export function ipObserver(
  ipcache: IPSink,
  writer: Writer,
  peerHost: NumericIdentity,
): StoreObserver<IPIdentityPair> {
  const { source, owner } = writer;
  return {
    onUpdate: (_name, { key, identity: announced, hostIP, encryptKey, k8s }) => {
      const identity = announced === RESERVED_IDENTITIES.host ? peerHost : announced;
      ipcache.upsert(key, { source, owner, identity, hostIP, encryptKey, k8s });
    },
    onDelete: (name) => {
      ipcache.delete(name, writer);
    },
    batch: (apply) => ipcache.batch(apply),
  };
}

/** Returns an observer for the nodes of a cluster. It writes them into the node manager with this source. */
export function nodeObserver(nodes: NodeSink, cluster: string, source: Source): StoreObserver<ClusterNode> {
  return {
    onUpdate: (_name, node) => {
      nodes.nodeUpdated({ source, ...node }); // spread last, see decodeNode
    },
    onDelete: (name) => {
      nodes.nodeDeleted({ cluster, name, source });
    },
  };
}

/** Returns an observer for the services of a remote cluster. It writes them into the cache. */
export function serviceObserver(services: ServiceSink, cluster: string): StoreObserver<ClusterService> {
  return {
    onUpdate: (_name, service) => {
      services.mergeExternalServiceUpdate(service);
    },
    onDelete: (name) => {
      const parts = splitServiceName(name);
      if (parts !== undefined) services.mergeExternalServiceDelete({ cluster, ...parts });
    },
  };
}

/**
 * Returns an observer for the endpoint slices of a remote cluster. It writes them into the cache. It stores the service
 * of each slice, because a delete names only the slice, and the label of a slice may change.
 */
export function sliceObserver(services: ServiceSink, cluster: string): StoreObserver<ClusterEndpointSlice> {
  const serviceOf = new Map<string, ServiceID>();
  const withdraw = (name: string, id: ServiceID): void => {
    const slice = splitServiceName(name)?.name;
    if (slice !== undefined) services.mergeExternalSliceDelete({ cluster, id, name: slice });
  };
  return {
    onUpdate: (name, slice) => {
      const previous = serviceOf.get(name);
      const id = serviceOfSlice(slice);
      serviceOf.set(name, previous?.name === id.name ? previous : id);
      services.mergeExternalSliceUpdate(slice);
      if (previous !== undefined && previous.name !== id.name) withdraw(name, previous);
    },
    onDelete: (name) => {
      const id = serviceOf.get(name);
      serviceOf.delete(name);
      if (id !== undefined) withdraw(name, id);
    },
  };
}

/** Returns an observer for the service exports of a remote cluster. */
export function exportObserver(exports: ExportSink, cluster: string): StoreObserver<ServiceExport> {
  return {
    onUpdate: (_name, service) => {
      exports.exportUpdated(service);
    },
    onDelete: (name) => {
      const parts = splitServiceName(name);
      if (parts !== undefined) exports.exportDeleted({ cluster, ...parts });
    },
  };
}

/** Returns an observer for the identities of a cluster. It writes them into the cache. */
export function identityObserver(identities: IdentityCache): StoreObserver<IdentityLabels> {
  return {
    onUpdate: (_name, { id, labels }) => identities.upsert(id, labels),
    onDelete: (name) => {
      identities.delete(Number(name));
    },
  };
}
