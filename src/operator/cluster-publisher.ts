import { checkArguments, ITERABLE, LIST, NUMBER, objectWith, SIGNAL, TEXT } from '../base/arguments.ts';
import type { Clock, Random } from '../base/clock.ts';
import { type Rejection, RejectionLog } from '../base/rejection.ts';
import { systemClock } from '../base/system-clock.ts';
import { formatLabels, type Labels } from '../identity/labels.ts';
import type { KvstoreBackend } from '../kvstore/backend.ts';
import { bytesOfText } from '../kvstore/bytes.ts';
import { encodeClusterService } from '../kvstore/codec/cluster-service.ts';
import { encodeIPIdentityPair, type IPIdentityPair } from '../kvstore/codec/ip-identity-pair.ts';
import { MESH_RESOURCES, type MeshResource, resourcePrefix, syncedKey } from '../kvstore/codec/keys.ts';
import { encodeNode } from '../kvstore/codec/node.ts';
import type { ClusterNode } from '../net/cluster-node.ts';
import type { ClusterService } from '../net/cluster-service.ts';
import { ClusterConfigKeeper } from './cluster-config.ts';
import type { DutyStatus } from './duty.ts';
import { HeartbeatDuty } from './heartbeat.ts';
import { type KeyOwner, keyRules } from './mesh-keys.ts';
import { openable } from './openable.ts';
import { PublishedPrefix, type PublishedPrefixStatus } from './published-prefix.ts';

/** Options of {@link ClusterPublisher}. */
export interface ClusterPublisherOptions extends KeyOwner {
  readonly backend: KvstoreBackend;
  /** Default: the system's. */
  readonly clock?: Clock | undefined;
  /** Default: `Math.random`. */
  readonly random?: Random | undefined;
  /** Receives values that are too large to be published, after they were counted. */
  readonly onReject?: ((rejection: Rejection) => void) | undefined;
  /** Receives what fails in the background, with the name of the task. All of it is tried again, and in `status()`. */
  readonly onFailure?: ((error: unknown, task: string) => void) | undefined;
}

/** A node of the cluster that is published; the cluster's name and id are added. */
export type PublishedNode = Omit<ClusterNode, 'cluster' | 'clusterID'>;

/** A service that the cluster shares; the cluster's name and id are added. */
export type PublishedService = Omit<ClusterService, 'cluster' | 'clusterID'>;

/** A {@link ClusterPublisher} as data. */
export interface ClusterPublisherStatus {
  /** Readers find all that was said so far: canaries and configuration are there. */
  readonly synced: boolean;
  readonly resources: Readonly<Record<MeshResource, PublishedPrefixStatus>>;
  readonly config: DutyStatus;
  readonly heartbeat: DutyStatus;
}

/**
 * Publishes a cluster in the formats of Cilium, so that any reader can follow it (OPERATOR 9 to 16, 35 to 43). The owner says
 * what is to be, in any order and at any time; the kvstore is made equal to it.
 *
 *     nodes, services, identities, IPs ─► leftovers of a former life go ─► canaries ─► configuration
 *                                                                                       heartbeat
 *
 * The configuration is written when everything has been said ({@link ClusterPublisher.markSynced}) and has landed, and goes
 * before all other keys when this process dies: so no reader loses what is still said, whenever that is, and whatever becomes
 * of leases. All that a lost lease takes away is put again, in the same order.
 *
 * Nodes stay when it ends; the rest goes with the client's leases, unless another life of the publisher comes before. Only
 * one at a time for a cluster, and no other may write its services, identities and IPs.
 */
export class ClusterPublisher {
  readonly #owner: KeyOwner;
  readonly #prefixes: Readonly<Record<MeshResource, PublishedPrefix>>;
  readonly #config: ClusterConfigKeeper;
  readonly #heartbeat: HeartbeatDuty;
  readonly #said = openable();

  constructor(options: ClusterPublisherOptions) {
    const { backend, clock = systemClock, random = Math.random, onFailure } = options;
    const surroundings = { backend, clock, random, onFailure };
    this.#owner = options;
    const prefixOf = (resource: MeshResource): PublishedPrefix =>
      new PublishedPrefix({
        ...surroundings,
        ...keyRules(resource, options),
        rejections: new RejectionLog(options.onReject),
        prefix: resourcePrefix(resource, options.clusterName),
        canary: syncedKey(options.clusterName, resource),
      });
    this.#prefixes = {
      nodes: prefixOf('nodes'),
      services: prefixOf('services'),
      identities: prefixOf('identities'),
      ip: prefixOf('ip'),
    };
    const after = Object.values(this.#prefixes).map((prefix) => ({
      synced: async (): Promise<void> => {
        await this.#said.opened;
        await prefix.markSynced();
      },
    }));
    const { clusterName, clusterID, maxConnectedClusters } = options;
    this.#config = new ClusterConfigKeeper({
      ...surroundings,
      ...{ clusterName, clusterID, maxConnectedClusters, after },
    });
    this.#heartbeat = new HeartbeatDuty(backend, clock, { random, onFailure });
  }

  upsertNode(node: PublishedNode): void {
    const { clusterName: cluster, clusterID } = this.#owner;
    const value = encodeNode({ ...node, cluster, clusterID }, { source: 'custom-resource' });
    this.#prefixes.nodes.upsert(node.name, value);
  }

  deleteNode(name: string): void {
    this.#prefixes.nodes.delete(name);
  }

  upsertService(service: PublishedService): void {
    const { clusterName: cluster, clusterID } = this.#owner;
    const { namespace, name } = service;
    this.#prefixes.services.upsert(
      `${namespace}/${name}`,
      encodeClusterService({ ...service, cluster, clusterID }),
    );
  }

  deleteService({ namespace, name }: { readonly namespace: string; readonly name: string }): void {
    this.#prefixes.services.delete(`${namespace}/${name}`);
  }

  /** @param id 256 and up, within the cluster's range: readers refuse others */
  upsertIdentity(id: number, labels: Labels): void {
    this.#prefixes.identities.upsert(String(id), bytesOfText(formatLabels(labels)));
  }

  deleteIdentity(id: number): void {
    this.#prefixes.identities.delete(String(id));
  }

  /** An endpoint's address or a CIDR. `pair.key` must be canonical. */
  upsertIP(pair: IPIdentityPair): void {
    this.#prefixes.ip.upsert(pair.key, encodeIPIdentityPair(pair));
  }

  /** @param key as in `upsertIP` */
  deleteIP(key: string): void {
    this.#prefixes.ip.delete(key);
  }

  /**
   * Everything has been said that the cluster has now: what a former life has left and this one has not said is deleted.
   * Resolves when readers find the cluster complete. Until then they keep what they knew.
   */
  markSynced(): Promise<void> {
    this.#said.open();
    return this.#config.written;
  }

  status(): ClusterPublisherStatus {
    const { nodes, services, identities, ip } = this.#prefixes;
    const resources = {
      ...{ nodes: nodes.status(), services: services.status() },
      ...{ identities: identities.status(), ip: ip.status() },
    };
    const config = this.#config.status();
    const isSynced = MESH_RESOURCES.every((resource) => resources[resource].synced);
    const synced = isSynced && config.published?.synced === true;
    return { synced, resources, config, heartbeat: this.#heartbeat.status() };
  }

  /** Publishes until the signal fires. Once at a time. Close the backend with `keepLeases` to leave the cluster to the next life. */
  async run(signal: AbortSignal): Promise<void> {
    const prefixes = Object.values(this.#prefixes);
    await Promise.all([
      ...prefixes.map((prefix) => prefix.run(signal)),
      this.#config.run(signal),
      this.#heartbeat.run(signal),
    ]);
  }
}

const NODE = objectWith({
  ...{ name: TEXT, encryptionKey: NUMBER, nodeIdentity: NUMBER, wireguardPubKey: TEXT, bootID: TEXT },
  ...{ addresses: LIST, ipv4SecondaryAllocCIDRs: LIST, ipv6SecondaryAllocCIDRs: LIST },
  ...{ labels: ITERABLE, annotations: ITERABLE },
});
const SERVICE_ID = objectWith({ namespace: TEXT, name: TEXT });
const SERVICE = objectWith({
  ...{ namespace: TEXT, name: TEXT, frontends: ITERABLE, backends: ITERABLE },
  ...{ labels: ITERABLE, selector: ITERABLE },
});

checkArguments(ClusterPublisher, {
  upsertNode: { node: NODE },
  deleteNode: { name: TEXT },
  upsertService: { service: SERVICE },
  deleteService: { service: SERVICE_ID },
  upsertIdentity: { id: NUMBER, labels: LIST },
  deleteIdentity: { id: NUMBER },
  upsertIP: { pair: objectWith({ key: TEXT, identity: NUMBER, encryptKey: NUMBER }) },
  deleteIP: { key: TEXT },
  run: { signal: SIGNAL },
});
