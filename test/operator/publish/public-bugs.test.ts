import { describe, expect, it } from 'vitest';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import type { KubernetesObject, ResourceKind, ResourceSource } from '../../../src/k8s/resource.ts';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import type { KvstoreBackend } from '../../../src/kvstore/session/backend.ts';
import { KvstoreMesh } from '../../../src/operator/kvstoremesh/kvstore-mesh.ts';
import { ipSync } from '../../../src/operator/publish/ip-sync.ts';
import { nodeSync } from '../../../src/operator/publish/node-sync.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { ApiUser } from '../../k8s/support/api-user.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';
import { contentOf } from '../kvstoremesh/support/copied-cluster.ts';

/**
 * Numbered bugs of upstream, each as a small model of the faulty rule beside ours. Both perform the same
 * steps and are checked alike. Bugs of the collectors are with the collectors' histories.
 */

const NODES = { group: 'cilium.io', version: 'v2', plural: 'ciliumnodes' };
const ENDPOINTS = { group: 'cilium.io', version: 'v2', plural: 'ciliumendpoints' };
const NODE_KEYS = 'cilium/state/nodes/v1/';
const IP_KEYS = 'cilium/state/ip/v1/default/';
const CLUSTER = 'prod';
const random = (): number => 0.5;

/** An API server, a kvstore with an agent that writes to it, and an operator that can die. */
class World {
  readonly clock = new ManualClock();
  readonly server = new MemoryServer({ clock: this.clock });
  readonly agent = this.#client();
  readonly operator = this.#client();
  readonly #api = new MemoryApiServer({ clock: this.clock });
  readonly #transport = new MemoryApiTransport(this.#api);
  readonly source = new KubernetesClient(this.#transport, { clock: this.clock, random });
  readonly #ended = new AbortController();

  user(kind: ResourceKind, namespace?: string): ApiUser {
    return new ApiUser(this.#transport, kind, namespace);
  }

  async run(rule: Rule): Promise<void> {
    const { source, operator: backend, clock } = this;
    void rule({ source, backend, clock, signal: this.#ended.signal });
    await advance(clock, 3000);
  }

  /** Kills the operator, and expires its leases. */
  async die(): Promise<void> {
    this.#ended.abort();
    await settle();
    await this.operator.close();
  }

  keys(prefix: string): readonly string[] {
    return Object.keys(contentOf(this.server, prefix));
  }

  async end(): Promise<void> {
    await this.die();
    await Promise.all([this.source.close(), this.agent.close()]);
  }

  #client(): MemoryBackend {
    return new MemoryBackend({ server: this.server, clock: this.clock, random });
  }
}

interface Surroundings {
  readonly source: ResourceSource;
  readonly backend: KvstoreBackend;
  readonly clock: ManualClock;
  readonly signal: AbortSignal;
}
type Rule = (surroundings: Surroundings) => Promise<void>;

/** Returns the result of the same steps with each rule. */
async function outcomes(
  rules: Readonly<Record<string, Rule>>,
  steps: (world: World, rule: Rule) => Promise<unknown>,
): Promise<unknown> {
  const found: Record<string, unknown> = {};
  for (const [name, rule] of Object.entries(rules)) {
    const world = new World();
    found[name] = await steps(world, rule);
    await world.end();
  }
  return found;
}

const identity = { clusterName: CLUSTER, clusterID: 1, random };

const nodeRules: Readonly<Record<string, Rule>> = {
  ours: ({ signal, ...surroundings }) => {
    const duty = nodeSync({ ...surroundings, ...identity });
    return duty.run(signal);
  },
  /**
   * 1.8: all keys have the lease of the operator. Once listed, names of the local cluster without an object
   * are deleted.
   */
  upstream: async ({ source, backend, signal }) => {
    const named = new Set<string>();
    const apply = (events: readonly { readonly object: KubernetesObject }[]): void => {
      for (const { object } of events) {
        const name = `${CLUSTER}/${object.metadata.name}`;
        named.add(name);
        const value = JSON.stringify({ Name: object.metadata.name, Cluster: CLUSTER });
        void backend.update(`${NODE_KEYS}${name}`, bytesOfText(value), { leased: true });
      }
    };
    const sweep = async (): Promise<void> => {
      for (const { key } of await backend.listPrefix(NODE_KEYS)) {
        const name = key.slice(NODE_KEYS.length);
        if (name.startsWith(CLUSTER) && !named.has(name)) await backend.delete(key);
      }
    };
    source.follow(NODES, { apply, onListed: () => void sweep() }, { signal });
  },
};

const ipRules: Readonly<Record<string, Rule>> = {
  ours: ({ signal, ...surroundings }) => ipSync({ ...surroundings, ...identity }).run(signal),
  /** 1.17: the addresses of a deleted endpoint are deleted, whoever has them now. */
  upstream: async ({ source, backend, signal }) => {
    const addresses = ({ status }: KubernetesObject): readonly string[] => {
      const said = status as { networking?: { addressing: readonly { ipv4: string }[] } } | undefined;
      return said?.networking?.addressing.map(({ ipv4 }) => ipv4) ?? [];
    };
    const apply = async (
      events: readonly { readonly type: string; readonly object: KubernetesObject }[],
    ): Promise<void> => {
      for (const { type, object } of events)
        for (const address of addresses(object)) {
          const value = JSON.stringify({ IP: address, K8sPodName: object.metadata.name });
          if (type === 'put') await backend.update(`${IP_KEYS}${address}`, bytesOfText(value));
          else await backend.delete(`${IP_KEYS}${address}`);
        }
    };
    source.follow(ENDPOINTS, { apply: (events) => void apply(events), onListed: () => {} }, { signal });
  },
};

/** Registers like an agent: writes its node's key under its own lease. */
async function register(world: World, name: string, cluster = CLUSTER): Promise<void> {
  const value = { Name: name, Cluster: cluster, IPAddresses: null, Source: 'local' };
  await world.agent.update(`${NODE_KEYS}${cluster}/${name}`, bytesOfText(JSON.stringify(value)), {
    leased: true,
  });
}

describe('a public bug of upstream, and the behaviour here', () => {
  it('#21202: the key of a live node expires with the operator', async () => {
    const found = await outcomes(nodeRules, async (world, rule) => {
      await register(world, 'n1');
      await world.user(NODES).create('n1');
      await world.run(rule);
      await world.die();
      return world.keys(NODE_KEYS);
    });
    expect(found).toEqual({ ours: [`${NODE_KEYS}prod/n1`], upstream: [] });
  });

  it('#20968: a key without a cluster counts as a leftover of the local one; so do those of a cluster with a longer name', async () => {
    const others = [`${NODE_KEYS}prod-eu/n9`, `${NODE_KEYS}prod-n7`];
    const found = await outcomes(nodeRules, async (world, rule) => {
      await register(world, 'n9', 'prod-eu');
      await world.agent.update(`${NODE_KEYS}prod-n7`, bytesOfText('{"Name":"prod-n7"}'));
      await world.user(NODES).create('n1');
      await world.run(rule);
      return world.keys(NODE_KEYS);
    });
    expect(found).toEqual({ ours: [...others, `${NODE_KEYS}prod/n1`], upstream: [`${NODE_KEYS}prod/n1`] });
  });

  it('#21133: all nodes count as leftovers while no CiliumNode exists', async () => {
    const found = await outcomes(nodeRules, async (world, rule) => {
      await register(world, 'n1');
      await world.run(rule);
      return world.keys(NODE_KEYS);
    });
    expect(found).toEqual({ ours: [`${NODE_KEYS}prod/n1`], upstream: [] });
  });

  it('#25562, #44020: an address that a new endpoint has reused loses its key when the old endpoint is deleted', async () => {
    const found = await outcomes(ipRules, async (world, rule) => {
      const user = world.user(ENDPOINTS, 'shop');
      const networking = { addressing: [{ ipv4: '10.1.0.1' }], node: '192.0.2.1' };
      const make = async (name: string): Promise<void> => {
        await user.create(name);
        const contentType = 'application/merge-patch+json';
        const body = { status: { identity: { id: 65_800 }, networking } };
        await user.ask({ method: 'PATCH', path: `${user.path(name)}/status`, body, contentType });
        await advance(world.clock, 1000);
      };
      await world.run(rule);
      await make('old');
      await make('new');
      await user.delete('old');
      await advance(world.clock, 1000);
      return Object.values(contentOf(world.server, IP_KEYS)).map((value) => JSON.parse(value).K8sPodName);
    });
    expect(found).toEqual({ ours: ['new'], upstream: [] });
  });

  it('#33153: the copy of one cluster is deleted with another whose name is shorter', async () => {
    const keys = ['cilium/cache/nodes/v1/eu/n1', 'cilium/cache/nodes/v1/eu2/n1'];
    const removals: Readonly<Record<string, Rule>> = {
      ours: async ({ backend: local, clock }) => {
        const mesh = new KvstoreMesh({ clusterName: 'own', clusterID: 9, local, clock, random });
        void mesh.add('eu', () => new MemoryBackend({ clock, random }));
        await settle();
        const removal = mesh.remove('eu');
        await advance(clock, 4 * 60_000);
        await removal;
        await mesh.stop();
      },
      /** Before its repair: without the last slash. */
      upstream: async ({ backend }) => {
        await backend.deletePrefix('cilium/cache/nodes/v1/eu');
      },
    };
    const found = await outcomes(removals, async (world, rule) => {
      for (const key of keys) await world.agent.update(key, bytesOfText('{}'));
      await world.run(rule);
      await advance(world.clock, 4 * 60_000);
      return world.keys('cilium/cache/');
    });
    expect(found).toEqual({ ours: [keys[1]], upstream: [] });
  });
});
