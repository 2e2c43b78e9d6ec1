import { parseAllDocuments } from 'yaml';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { CLUSTER_TYPES } from '../../../src/k8s/memory/resource-types.ts';
import type { ResourceKind } from '../../../src/k8s/resource.ts';
import { prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import type { OperatorDutiesOptions } from '../../../src/operator/duties.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { ApiUser } from '../../k8s/support/api-user.ts';
import { runDuties } from './run-duties.ts';

interface Manifest {
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
  readonly status?: object;
}

/** A cluster: an API server with manifests, a kvstore, and an operator that publishes the manifests in it. */
export class OperatorOfCluster {
  readonly name: string;
  readonly id: number;
  readonly clock: ManualClock;
  readonly api: MemoryApiServer;
  readonly server: MemoryServer;
  readonly rejected: string[] = [];
  readonly #transport: MemoryApiTransport;

  /** @param clock shared by the clusters of a mesh; default: a separate one */
  constructor(name: string, id: number, clock: ManualClock = new ManualClock()) {
    this.name = name;
    this.id = id;
    this.clock = clock;
    this.api = new MemoryApiServer({ clock });
    this.#transport = new MemoryApiTransport(this.api);
    this.server = new MemoryServer({ clock: this.clock, clusterID: name });
  }

  /** Creates the objects of a YAML text. Existing ones are deleted first. */
  async apply(yaml: string): Promise<void> {
    for (const { user, object } of this.#objects(yaml)) {
      const { name } = object.metadata;
      const path = user.path(name);
      const { status } = await user.ask({ method: 'POST', path: user.path(), body: object });
      if (status === 409) await user.ask({ method: 'PUT', path, body: object });
      if (object.status !== undefined)
        await user.ask({
          method: 'PATCH',
          path: `${path}/status`,
          contentType: 'application/merge-patch+json',
          body: { status: object.status },
        });
    }
  }

  async delete(yaml: string): Promise<void> {
    for (const { user, object } of this.#objects(yaml)) await user.delete(object.metadata.name);
  }

  /** Starts an operator. The returned function ends it; its leases remain. */
  operate(change: Partial<OperatorDutiesOptions> = {}): () => Promise<void> {
    return runDuties(this, {
      clusterName: this.name,
      clusterID: this.id,
      onReject: ({ reason, field, at }) => void this.rejected.push(`${at}: ${reason} ${field}`),
      ...change,
    }).stop;
  }

  /** Returns a client of the API server. */
  user(kind: ResourceKind, namespace?: string): ApiUser {
    return new ApiUser(this.#transport, kind, namespace);
  }

  /** Returns the keys below a prefix, and their values. */
  published(prefix: string): ReadonlyMap<string, Uint8Array> {
    return new Map(this.server.range(prefixRange(prefix)).kvs.map(({ key, value }) => [key, value]));
  }

  #objects(yaml: string): readonly { readonly user: ApiUser; readonly object: Manifest }[] {
    return parseAllDocuments(yaml).map((document) => {
      const object = document.toJS() as Manifest;
      const type = CLUSTER_TYPES.find(({ kind }) => kind === object.kind);
      if (type === undefined) throw new Error(object.kind);
      const namespace = type.namespaced ? object.metadata.namespace : undefined;
      return { user: new ApiUser(this.#transport, type, namespace), object };
    });
  }
}
